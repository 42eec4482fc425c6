import io
import json

from mooring.framework.decision import Decision, NodeScore
from mooring.simulate.output import TABLE_HEAD, table_row, write_json
from mooring.simulate.simulation import Attempt


def decision(
    node: str | None = None,
    *,
    scores: dict[str, NodeScore] | None = None,
    victims: tuple[str, ...] = (),
    message: str | None = None,
) -> Decision:
    nominated = "n9" if victims else None
    return Decision("default/web", "mine", node, nominated, victims, scores, {}, message)


def test_json_is_one_document_with_a_record_per_line() -> None:
    out = io.BytesIO()
    write_json([Attempt(decision("n1")), Attempt(decision("n2"))], out)
    assert [d["node"] for d in json.loads(out.getvalue())["decisions"]] == ["n1", "n2"]
    assert len(out.getvalue().splitlines()) == 4


def test_json_without_any_attempt_is_an_empty_list() -> None:
    out = io.BytesIO()
    assert write_json([], out)
    assert json.loads(out.getvalue()) == {"decisions": []}


def test_writing_json_returns_false_if_a_pod_has_no_node() -> None:
    assert write_json([Attempt(decision("n1"))], io.BytesIO())
    assert not write_json([Attempt(decision("n1")), Attempt(decision())], io.BytesIO())


def test_a_row_shows_the_score_and_the_number_of_feasible_nodes() -> None:
    scores = {"n1": NodeScore({"A": 3}, 7), "n2": NodeScore({"A": 1}, 5)}
    row = table_row(Attempt(decision("n1", scores=scores), feasible=2))
    assert dict(zip(TABLE_HEAD, row, strict=True)) == {
        "POD": "default/web",
        "NODE": "n1",
        "SCORE": "7",
        "WHY": "best of 2 nodes that fit",
    }


def test_a_row_without_scores_says_that_only_one_node_fits() -> None:
    assert table_row(Attempt(decision("n1"), feasible=1))[1:] == (
        "n1",
        "-",
        "the only node that fits",
    )


def test_a_row_of_an_unschedulable_pod_gives_the_message_and_the_victims() -> None:
    victims = ("a/1", "a/2", "a/3", "a/4", "a/5")
    row = table_row(Attempt(decision(victims=victims, message="No room.")))
    assert row[1:] == (
        "-",
        "-",
        "No room. It can run on n9 once a/1, a/2, a/3 and 2 more are gone.",
    )
