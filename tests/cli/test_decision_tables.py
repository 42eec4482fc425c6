import io
import json

import pytest

from mooring.cli.decision_tables import Summary, print_attempts, write_json
from mooring.framework.decision import Decision, NodeScore, PodRef
from mooring.simulate.simulation import SimulatedAttempt


def attempt(
    node: str | None = None,
    *,
    pod: str = "web",
    scores: dict[str, int] | None = None,
    victims: tuple[str, ...] = (),
    nominated: str | None = None,
    message: str | None = None,
    feasible: int = 1,
    owner: str = "",
    reason: str = "",
) -> SimulatedAttempt:
    table = {name: NodeScore({"A": total}, total) for name, total in (scores or {}).items()}
    decision = Decision(
        PodRef.of_key(f"default/{pod}"),
        "mine",
        node,
        nominated or ("n9" if victims else None),
        tuple(map(PodRef.of_key, victims)),
        table or None,
        {},
        message,
    )
    return SimulatedAttempt(decision, feasible, owner, reason)


def printed(
    capsys: pytest.CaptureFixture[str], *attempts: SimulatedAttempt, output: str = "table"
) -> list[list[str]]:
    """Print the attempts; return the rows of the table without its head, split into cells."""
    print_attempts(attempts, output)
    table = capsys.readouterr().out.split("\n\n")[0]
    return [
        [cell.strip() for cell in line.split("   ") if cell.strip()]
        for line in table.splitlines()[1:]
    ]


def test_json_is_one_document_with_a_record_per_line_and_a_summary() -> None:
    out = io.BytesIO()
    summary = write_json([attempt("n1"), attempt(reason="full")], out)
    document = json.loads(out.getvalue())
    assert [d["node"] for d in document["decisions"]] == ["n1", None]
    assert document["summary"] == {
        "pods": 2,
        "placed": 1,
        "afterPreemption": 0,
        "reasons": {"full": 1},
    }
    assert len(out.getvalue().splitlines()) == 5
    assert (summary.placed, summary.pods) == (1, 2)


def test_json_cannot_control_a_terminal_and_is_read_as_it_is() -> None:
    out, text = io.BytesIO(), "schedulerName \x9b2J\u202e"
    write_json([attempt(message=text, reason=text)], out)
    written = out.getvalue().decode()
    assert all(line.isprintable() for line in written.split("\n"))
    document = json.loads(written)
    assert document["decisions"][0]["message"] == text
    assert document["summary"]["reasons"] == {text: 1}


def test_json_without_any_attempt_is_an_empty_list() -> None:
    out = io.BytesIO()
    write_json([], out)
    assert json.loads(out.getvalue())["decisions"] == []


def test_the_summary_counts_pods_by_what_became_of_them() -> None:
    summary = Summary()
    for each in (
        attempt("n1"),
        attempt("n2"),
        attempt(victims=("a/1",)),
        attempt(reason="Insufficient cpu"),
        attempt(reason="Insufficient cpu"),
    ):
        summary.count(each)
    assert str(summary) == "2 of 5 placed; 1 after preemption; 2: Insufficient cpu"


def test_the_summary_has_few_reasons() -> None:
    summary = Summary()
    for number in range(7):
        summary.count(attempt(reason=f"r{number}"))
    assert str(summary) == "0 of 7 placed; 1: r0; 1: r1; 1: r2; 1: r3; 3 for other reasons"


def test_a_row_has_the_score_and_the_number_of_feasible_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (row,) = printed(capsys, attempt("n1", scores={"n1": 7, "n2": 5}, feasible=2))
    assert row == ["default/web", "n1", "7", "best of 2 nodes that fit"]


def test_a_row_without_scores_says_that_only_one_node_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (row,) = printed(capsys, attempt("n1"))
    assert row == ["default/web", "n1", "-", "the only node that fits"]


def test_a_node_that_was_not_compared_with_others_is_not_called_the_only_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (row,) = printed(capsys, attempt("n1", reason="placed together with its pod group"))
    assert row == ["default/web", "n1", "-", "placed together with its pod group"]


def test_a_pod_that_preempts_says_whom_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    victims = ("a/1", "a/2", "a/3", "a/4", "a/5")
    (row,) = printed(capsys, attempt(victims=victims, message="No fit."))
    assert row[-1] == "Would preempt a/1, a/2, a/3 and 2 more to run on n9. Now: No fit."


def test_a_pod_that_waits_for_its_victims_says_on_which_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (row,) = printed(capsys, attempt(nominated="n9", message="No fit."))
    assert row[-1] == "Waits until pods have left n9, its nominated node. Now: No fit."


def test_pods_of_one_controller_with_one_answer_are_one_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    owner = "ReplicaSet default/web"
    rows = printed(
        capsys,
        attempt("n1", pod="web-a", owner=owner, scores={"n1": 9}, feasible=4),
        attempt(pod="web-b", owner=owner, reason="full", message="full now"),
        attempt("n1", pod="web-c", owner=owner, scores={"n1": 7}, feasible=3),
        attempt(pod="web-d", owner=owner, reason="full", message="full later"),
        attempt("n1", pod="own-1"),
        attempt("n1", pod="own-2"),
    )
    assert rows == [
        ["default/web-a (+1)", "n1", "7-9", "best of 3-4 nodes that fit"],
        ["default/web-b (+1)", "-", "-", "full now"],
        ["default/own-1", "n1", "-", "the only node that fits"],
        ["default/own-2", "n1", "-", "the only node that fits"],
    ]


def test_a_wide_table_has_a_row_per_pod_and_the_next_best_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = printed(
        capsys,
        attempt("n1", pod="a", owner="o", scores={"n2": 8, "n1": 9, "n3": 9, "n4": 1}, feasible=5),
        attempt("n1", pod="b", owner="o"),
        output="wide",
    )
    assert rows[0][:6] == ["default/a", "n1", "9", "5", "mine", "n3 9, n2 8"]
    assert len(rows) == 2
