from typing import Any

import pytest

from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.objects import parse_object
from mooring.scheduling.queue.kept_events import MOST_EVENTS, EventLog
from mooring.testing.builders import pod, service


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


LARGE = {f"key-{number}": f"{number:01000}" for number in range(100)}


def of_object(raw: dict[str, Any]) -> ClusterEvent:
    kind = Kind(raw["kind"])
    return ClusterEvent(kind, Action.DELETE, parse_object(kind, raw), None)


@pytest.mark.parametrize(
    "raw",
    [pod(annotations=LARGE), pod(spec={"nodeSelector": LARGE}), service("s", LARGE)],
    ids=("annotations", "spec", "Service"),
)
def test_the_oldest_events_are_dropped_when_their_objects_take_too_much(
    raw: dict[str, Any],
) -> None:
    log = EventLog(most_bytes=1_000_000)
    for number in range(50):
        raw["metadata"]["namespace"] = f"team-{number}"  # pods of two namespaces share no spec
        log.extend([of_object(raw)])
        assert log.bytes <= 1_000_000
    assert 2 <= len(log) <= 10
    assert log.end == 50
    log.drop_before(log.end)
    assert log.bytes == 0


def test_events_of_pods_that_share_a_spec_count_it_once() -> None:
    log = EventLog(most_bytes=1_000_000)
    log.extend(of_object(pod(f"p{n}", spec={"nodeSelector": LARGE})) for n in range(100))
    assert len(log) == 100
    log.drop_before(100)
    assert log.bytes == 0


def test_what_is_new_in_one_event_and_old_in_the_next_is_counted_once() -> None:
    versions = [parse_object(Kind.SERVICE, service("s", LARGE)) for _ in range(3)]
    log, added = EventLog(most_bytes=1_000_000), EventLog(most_bytes=1_000_000)
    added.extend([ClusterEvent(Kind.SERVICE, Action.ADD, None, each) for each in versions])
    pairs = zip([None, *versions], [*versions, None], strict=True)
    log.extend(ClusterEvent(Kind.SERVICE, Action.UPDATE, *pair) for pair in pairs)
    one = EventLog()
    one.extend([event(0)])
    assert log.bytes - added.bytes == one.bytes
    log.drop_before(3)
    added.drop_before(2)
    assert log.bytes == added.bytes
