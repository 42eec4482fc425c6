import json
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from mooring.framework.decision import Decision, NodeScore, Rejection
from mooring.observe.records import LATEST, DecisionLog, to_json

NO_CPU = Rejection("NodeResourcesFit", ("Insufficient cpu",), resolvable=True)
TAINTED = Rejection("TaintToleration", ("node(s) had untolerated taint(s)",), resolvable=False)


def decision(
    pod: str = "shop/cart-0",
    *,
    node: str | None = None,
    scores: Mapping[str, NodeScore] | None = None,
    rejections: Mapping[str, Rejection] | None = None,
    message: str | None = None,
) -> Decision:
    return Decision(
        pod=pod,
        profile="mooring",
        node=node,
        nominated_node=None,
        victims=(),
        scores=scores,
        rejections=rejections or {},
        message=message,
    )


def totals(*values: int) -> dict[str, NodeScore]:
    """Scored nodes n0, n1, ... with these totals."""
    return {f"n{i}": NodeScore({"ImageLocality": value}, value) for i, value in enumerate(values)}


def test_a_placement_has_exactly_the_documented_json() -> None:
    placed = Decision(
        pod="shop/cart-0",
        profile="default-scheduler",
        node="n1",
        nominated_node=None,
        victims=(),
        scores={"n1": NodeScore({"TaintToleration": 300, "NodeResourcesFit": 174}, 474)},
        rejections={"n2": NO_CPU},
        message=None,
    )
    assert json.loads(json.dumps(to_json(placed))) == {
        "pod": "shop/cart-0",
        "profile": "default-scheduler",
        "profileGeneration": 0,
        "node": "n1",
        "nominatedNode": None,
        "victims": [],
        "scores": {
            "n1": {"plugins": {"TaintToleration": 300, "NodeResourcesFit": 174}, "total": 474}
        },
        "rejections": {
            "n2": {
                "plugin": "NodeResourcesFit",
                "reasons": ["Insufficient cpu"],
                "resolvable": True,
            }
        },
        "message": None,
    }


def test_a_preemption_names_its_node_and_victims() -> None:
    nominated = Decision(
        pod="shop/cart-0",
        profile="mooring",
        node=None,
        nominated_node="n1",
        victims=("batch/job-1", "batch/job-2"),
        scores=None,
        rejections={"n1": NO_CPU},
        message="0/1 nodes are available: 1 Insufficient cpu.",
    )
    shown = to_json(nominated)
    assert (shown["node"], shown["nominatedNode"]) == (None, "n1")
    assert shown["victims"] == ["batch/job-1", "batch/job-2"]
    assert shown["scores"] is None


def test_a_small_decision_is_kept_whole_with_its_time() -> None:
    log = DecisionLog()
    kept = decision(node="n1", scores=totals(3, 4))
    log.add(kept, time=1_780_000_000.25)
    assert log.of("shop/cart-0") == [
        to_json(kept) | {"time": "2026-05-28T20:26:40.250+00:00"},
    ]


def test_attempts_of_a_pod_come_newest_first() -> None:
    log = DecisionLog()
    log.add(decision(message="no"), time=1)
    log.add(decision(node="n1"), time=2)
    assert [record["node"] for record in log.of("shop/cart-0")] == ["n1", None]
    assert log.of("shop/cart-1") == []


def test_the_best_scores_are_kept_and_the_full_number_is_told() -> None:
    log = DecisionLog(nodes=2)
    log.add(decision(node="n1", scores=totals(1, 9, 5)), time=0)
    (record,) = log.of("shop/cart-0")
    assert set(record["scores"]) == {"n1", "n2"}
    assert record["truncated"] == {"scores": 3}


def test_the_chosen_node_is_kept_among_equals() -> None:
    log = DecisionLog(nodes=2)
    log.add(decision(node="n3", scores=totals(7, 7, 7, 7)), time=0)
    (record,) = log.of("shop/cart-0")
    assert "n3" in record["scores"]


def test_a_rare_refusal_is_kept_beside_a_common_one() -> None:
    log = DecisionLog(nodes=2)
    found = {"n1": NO_CPU, "n2": NO_CPU, "n3": TAINTED}
    log.add(decision(rejections=found), time=0)
    (record,) = log.of("shop/cart-0")
    assert set(record["rejections"]) == {"n1", "n3"}
    assert record["truncated"] == {"rejections": 3}


def test_nodes_left_out_by_the_caller_are_told_too() -> None:
    log = DecisionLog()
    log.add(decision(node="n1", scores=totals(1, 2)), time=0, scored=5000, rejected=12)
    (record,) = log.of("shop/cart-0")
    assert record["truncated"] == {"scores": 5000, "rejections": 12}


def test_when_full_the_pod_decided_longest_ago_is_forgotten() -> None:
    log = DecisionLog(attempts=2)
    for pod in ("shop/a", "shop/b", "shop/a", "shop/c"):
        log.add(decision(pod), time=0)
    assert log.of("shop/b") == []
    assert log.of("shop/a") != []
    assert log.of("shop/c") != []


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 6), st.integers(0, 6)), max_size=40
    ),
    st.integers(1, 8),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_memory_is_bounded_in_every_direction(
    additions: list[tuple[str, int, int]], attempts: int, attempts_per_pod: int, nodes: int
) -> None:
    log = DecisionLog(attempts=attempts, attempts_per_pod=attempts_per_pod, nodes=nodes)
    for pod, scored, rejected in additions:
        found = {f"r{i}": NO_CPU if i % 2 else TAINTED for i in range(rejected)}
        log.add(decision(pod, scores=totals(*range(scored)), rejections=found), time=0)
        latest = log.of(pod)[0]
        assert len(latest["scores"]) == min(scored, nodes)
        assert len(latest["rejections"]) == min(rejected, nodes)
        kept = [len(log.of(name)) for name in "abcdef"]
        assert sum(kept) == len(log) <= attempts
        assert max(kept) <= attempts_per_pod


def test_the_latest_record_of_each_pod_is_found_by_namespace_newest_first() -> None:
    log = DecisionLog()
    for time, pod in enumerate(("a/1", "b/2", "a/1", "ab/3")):
        log.add(decision(pod), time=float(time))
    assert [record["pod"] for record in log.latest()] == ["ab/3", "a/1", "b/2"]
    (latest,) = log.latest("a")
    assert latest["time"] == "1970-01-01T00:00:02.000+00:00"
    assert log.latest("none") == []


def test_the_latest_records_are_of_at_most_a_hundred_pods() -> None:
    log = DecisionLog()
    for number in range(LATEST + 1):
        log.add(decision(f"a/{number}"), time=0.0)
    assert len(log.latest()) == LATEST
