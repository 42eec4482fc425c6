from mooring.framework.queued_pod import QueuedPod
from mooring.framework.registry import NoArgs
from mooring.plugins.priority_sort import PrioritySort
from mooring.testing.builders import cluster, pod
from mooring.testing.fakes import handle, pipeline, queued_pod

PIPELINE = pipeline()
PLUGIN = PrioritySort(NoArgs(), handle(cluster()))


def queued(name: str, priority: int, since: float) -> QueuedPod:
    return queued_pod(pod(name, priority=priority), PIPELINE, timestamp=since)


def test_higher_priority_goes_first_then_who_waits_longer() -> None:
    waiting = [queued("c", 0, 1.0), queued("b", 5, 9.0), queued("d", -1, 0.0), queued("a", 5, 2.0)]
    order = [entry.pod.name for entry in sorted(waiting, key=PLUGIN.sort_key)]
    assert order == ["a", "b", "c", "d"]
