"""A pod in the queue, before anything has happened to it."""

from mooring.framework.queued_pod import QueuedPod, SubQueue
from mooring.model.pod import parse_pod
from mooring.testing.builders import pod


def test_a_pod_that_was_never_tried_has_no_history() -> None:
    queued = QueuedPod(parse_pod(pod("web")), first_seen=1.0, since=1.0)
    assert (queued.attempts, queued.unschedulable_count, queued.error_count) == (0, 0, 0)
    assert (queued.part, queued.unschedulable_plugins) == (None, frozenset())


def test_the_queues_have_the_names_of_the_metric_pending_pods() -> None:
    assert [str(queue) for queue in SubQueue] == ["active", "backoff", "unschedulable", "gated"]
