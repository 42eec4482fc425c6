import pytest

from mooring.model.events import Action, ClusterEvent, Kind
from mooring.queueing import in_flight as in_flight_module
from mooring.queueing.in_flight import InFlight


def event(number: int) -> ClusterEvent:
    return ClusterEvent(Kind.NODE, Action.ADD, None, number)


def test_pods_are_known_from_the_beginning_of_their_attempts_to_the_end() -> None:
    flying: InFlight[str] = InFlight()
    flying.enter("a", "first")
    flying.enter("b", "second")
    assert (flying.get("a"), list(flying), len(flying)) == ("first", ["first", "second"], 2)
    flying.leave("a")
    assert (flying.get("a"), list(flying), len(flying)) == (None, ["second"], 1)


def test_a_pod_misses_what_comes_during_its_own_attempt_and_nothing_else() -> None:
    flying: InFlight[str] = InFlight()
    flying.changed([event(1)])
    flying.enter("a", "a")
    flying.changed([event(2)])
    flying.enter("b", "b")
    flying.changed([event(3)])
    assert flying.leave("a") == [event(2), event(3)]
    flying.changed([event(4)])
    assert flying.leave("b") == [event(3), event(4)]


def test_who_leaves_in_the_reverse_order_has_missed_the_same() -> None:
    flying: InFlight[str] = InFlight()
    flying.enter("a", "a")
    flying.changed([event(1)])
    flying.enter("b", "b")
    assert flying.leave("b") == []
    assert flying.leave("a") == [event(1)]


def test_a_second_attempt_misses_nothing_of_the_first() -> None:
    flying: InFlight[str] = InFlight()
    flying.enter("other", "other")
    flying.enter("a", "a")
    flying.changed([event(1)])
    flying.leave("a")
    flying.enter("a", "a")
    assert flying.leave("a") == []


def test_who_missed_more_than_is_kept_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight_module, "MOST_CHANGES", 3)
    flying: InFlight[str] = InFlight()
    flying.enter("a", "a")
    flying.changed([event(1), event(2)])
    flying.enter("b", "b")
    flying.changed([event(3), event(4)])
    assert flying.leave("a") is None
    assert flying.leave("b") == [event(3), event(4)]
