"""A pod in the queue, before anything has happened to it."""

from mooring.framework.queued_pod import SubQueue
from mooring.testing.builders import pod
from mooring.testing.fakes import queued_pod


def test_a_pod_that_was_never_tried_has_no_history() -> None:
    queued = queued_pod(pod("web"))
    assert (queued.attempts, queued.unschedulable_count, queued.consecutive_errors_count) == (
        0,
        0,
        0,
    )
    assert (queued.queue, queued.unschedulable_plugins) == (None, frozenset())


def test_the_queues_have_the_names_of_the_metric_pending_pods() -> None:
    assert [str(queue) for queue in SubQueue] == ["active", "backoff", "unschedulable", "gated"]
