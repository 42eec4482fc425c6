"""A queued pod before its first attempt."""

from mooring.runtime.queued_pod import PodState, StateTimes, SubQueue
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


def test_the_times_in_all_states_add_up_to_the_time_since_the_pod_came() -> None:
    times = StateTimes(10.0)
    times.enter(PodState.IN_FLIGHT, 12.0)
    times.enter(PodState.BACKOFF, 12.5)
    times.enter(PodState.ACTIVE, 20.0)
    assert times.seconds(21.0) == {
        PodState.ACTIVE: 3.0,
        PodState.IN_FLIGHT: 0.5,
        PodState.BACKOFF: 7.5,
    }
    times.enter(PodState.BOUND, 21.0)
    assert sum(times.seconds(1_000.0).values()) == times.since - times.began


def test_every_queue_is_a_state_of_a_pod() -> None:
    assert {queue.value for queue in SubQueue} <= {state.value for state in PodState}
