import pytest

from mooring.framework.queued_pod import QueuedPod
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.queueing import in_flight as in_flight_module
from mooring.queueing.in_flight import InFlight
from mooring.testing.builders import pod
from mooring.testing.fakes import pipeline, queued_pod

PIPELINE = pipeline()


def event(number: int) -> ClusterEvent:
    return ClusterEvent(Kind.NODE, Action.ADD, None, number)


def queued(name: str) -> QueuedPod:
    return queued_pod(pod(name), PIPELINE)


def test_pods_are_known_from_the_beginning_of_their_attempts_to_the_end() -> None:
    in_flight, first, second = InFlight(), queued("a"), queued("b")
    in_flight.enter(first)
    in_flight.enter(second)
    assert in_flight.get("default/a") is first
    assert (list(in_flight), len(in_flight)) == ([first, second], 2)
    in_flight.leave("default/a")
    assert in_flight.get("default/a") is None
    assert (list(in_flight), len(in_flight)) == ([second], 1)


def test_a_pod_misses_the_events_during_its_own_attempt_and_no_others() -> None:
    in_flight = InFlight()
    in_flight.add_events([event(1)])
    in_flight.enter(queued("a"))
    in_flight.add_events([event(2)])
    in_flight.enter(queued("b"))
    in_flight.add_events([event(3)])
    assert in_flight.leave("default/a") == [event(2), event(3)]
    in_flight.add_events([event(4)])
    assert in_flight.leave("default/b") == [event(3), event(4)]


def test_pods_that_leave_in_the_reverse_order_have_missed_the_same() -> None:
    in_flight = InFlight()
    in_flight.enter(queued("a"))
    in_flight.add_events([event(1)])
    in_flight.enter(queued("b"))
    assert in_flight.leave("default/b") == []
    assert in_flight.leave("default/a") == [event(1)]


def test_a_second_attempt_misses_nothing_of_the_first() -> None:
    in_flight, again = InFlight(), queued("a")
    in_flight.enter(queued("other"))
    in_flight.enter(again)
    in_flight.add_events([event(1)])
    in_flight.leave("default/a")
    in_flight.enter(again)
    assert in_flight.leave("default/a") == []


def test_a_pod_that_missed_more_events_than_are_kept_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight_module, "MOST_EVENTS", 3)
    in_flight = InFlight()
    in_flight.enter(queued("a"))
    in_flight.add_events([event(1), event(2)])
    in_flight.enter(queued("b"))
    in_flight.add_events([event(3), event(4)])
    assert in_flight.leave("default/a") is None
    assert in_flight.leave("default/b") == [event(3), event(4)]
