from mooring.framework.registry import NoArgs
from mooring.plugins.priority_sort import PrioritySort
from mooring.runtime.queued_pod import QueuedPod
from mooring.testing.builders import cluster, node, pod, pod_group
from mooring.testing.fakes import handle, pipeline, queued_pod

PIPELINE = pipeline()
PLUGIN = PrioritySort(NoArgs(), handle(cluster()))


def queued(name: str, priority: int, since: float) -> QueuedPod:
    return queued_pod(pod(name, priority=priority), PIPELINE, timestamp=since)


def test_higher_priority_goes_first_then_who_waits_longer() -> None:
    waiting = [queued("c", 0, 1.0), queued("b", 5, 9.0), queued("d", -1, 0.0), queued("a", 5, 2.0)]
    order = [entry.pod.name for entry in sorted(waiting, key=PLUGIN.sort_key)]
    assert order == ["a", "b", "c", "d"]


def test_a_gang_that_has_lost_members_goes_before_others_of_its_priority() -> None:
    placed = [pod(f"p{i}", group="broken", node="n") for i in range(2)]
    groups = (pod_group("broken", 3), pod_group("whole", 2), pod_group("new", 3))
    whole = [pod(f"w{i}", group="whole", node="n") for i in range(2)]
    plugin = PrioritySort(NoArgs(), handle(cluster(node("n"), *groups, *placed, *whole)))
    waiting = [
        queued_pod(pod(name, group=group, priority=priority), PIPELINE, timestamp=since)
        for name, group, priority, since in (
            ("single", None, 0, 1.0),
            ("more", "whole", 0, 2.0),
            ("first", "new", 0, 3.0),
            ("replacement", "broken", 0, 9.0),
            ("higher", None, 1, 9.0),
        )
    ]
    order = [entry.pod.name for entry in sorted(waiting, key=plugin.sort_key)]
    assert order == ["higher", "replacement", "single", "more", "first"]
