from mooring.model.events import Action, ClusterEvent, Kind
from mooring.queueing.events import MOST_EVENTS, EventLog


def event(number: int) -> ClusterEvent:
    return ClusterEvent(Kind.NODE, Action.ADD, None, number)


def test_events_are_numbered_in_the_order_they_came() -> None:
    log = EventLog()
    log.extend([event(0), event(1)])
    log.extend([event(2)])
    assert ([log[number] for number in range(3)], log.end) == ([event(0), event(1), event(2)], 3)


def test_dropped_events_change_no_number() -> None:
    log = EventLog()
    log.extend([event(0), event(1), event(2)])
    log.drop_before(2)
    assert (log.start, log.end, len(log), log[2]) == (2, 3, 1, event(2))
    log.drop_before(1)
    assert log.start == 2


def test_the_oldest_events_are_dropped_when_there_are_too_many() -> None:
    log = EventLog()
    log.extend(event(number) for number in range(MOST_EVENTS + 2))
    assert (log.start, len(log), log[2]) == (2, MOST_EVENTS, event(2))
