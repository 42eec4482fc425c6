from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.queue.in_flight import InFlight
from mooring.testing.builders import pod, uid_of
from mooring.testing.fakes import pipeline, queued_pod

PIPELINE = pipeline()


def queued(name: str) -> QueuedPod:
    return queued_pod(pod(name), PIPELINE)


def test_pods_are_known_from_the_beginning_of_their_attempts_to_the_end() -> None:
    in_flight, first, second = InFlight(), queued("a"), queued("b")
    in_flight.enter(first, 0)
    in_flight.enter(second, 0)
    assert in_flight.get(uid_of("a")) is first
    assert (list(in_flight), len(in_flight)) == ([first, second], 2)
    in_flight.leave(uid_of("a"))
    assert in_flight.get(uid_of("a")) is None
    assert (list(in_flight), len(in_flight)) == ([second], 1)


def test_a_pod_that_leaves_missed_the_events_since_it_entered() -> None:
    in_flight = InFlight()
    in_flight.enter(queued("a"), 3)
    in_flight.enter(queued("b"), 5)
    assert in_flight.leave(uid_of("b")) == 5
    assert in_flight.leave(uid_of("a")) == 3


def test_the_oldest_event_is_the_one_that_the_longest_attempt_missed() -> None:
    in_flight = InFlight()
    assert in_flight.oldest() is None
    in_flight.enter(queued("a"), 3)
    in_flight.enter(queued("b"), 5)
    assert in_flight.oldest() == 3
    in_flight.leave(uid_of("a"))
    assert in_flight.oldest() == 5
