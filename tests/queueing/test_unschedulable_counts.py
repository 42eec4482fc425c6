from mooring.framework.queued_pod import QueuedPod
from mooring.model.pod import parse_pod
from mooring.queueing.unschedulable_counts import UnschedulableCounts
from mooring.testing.builders import pod


def rejected(name: str, *plugins: str, profile: str = "mooring") -> QueuedPod:
    return QueuedPod(
        parse_pod(pod(name)), 0.0, 0.0, unschedulable_plugins=frozenset(plugins), profile=profile
    )


def test_a_pod_rejected_by_two_plugins_counts_for_both() -> None:
    counts = UnschedulableCounts()
    counts.add(rejected("a", "NodeResourcesFit", "TaintToleration"))
    counts.add(rejected("b", "NodeResourcesFit"))
    counts.add(rejected("c", "NodeResourcesFit", profile="team"))
    assert counts.read() == {
        ("NodeResourcesFit", "mooring"): 2,
        ("NodeResourcesFit", "team"): 1,
        ("TaintToleration", "mooring"): 1,
    }


def test_what_counts_nothing_any_more_is_not_kept() -> None:
    counts = UnschedulableCounts()
    first = rejected("a", "NodeResourcesFit")
    counts.add(first)
    before = counts.read()
    counts.remove(first)
    assert counts.read() == {}
    assert before == {("NodeResourcesFit", "mooring"): 1}
