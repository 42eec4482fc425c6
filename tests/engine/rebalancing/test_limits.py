"""Windows for moves, evictions within an hour, and pods that are left alone."""

from datetime import UTC, datetime

import pytest

from kube.virtual_clock import VirtualClock
from mooring.engine.rebalancing.limits import HOUR, Evictions, Rests, is_open
from mooring.policy.reading import read
from mooring.policy.rebalancing import Window

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)


def window(start: str, end: str, *days: str) -> Window:
    return read(Window, {"start": start, "end": end, "days": list(days)}, "")


def at(day: int, hour: int, minute: int = 0) -> float:
    """Return this time of a day from Monday, which is 0, in seconds since the epoch."""
    return MONDAY.replace(day=MONDAY.day + day, hour=hour, minute=minute).timestamp()


def test_without_windows_pods_may_be_moved_at_any_time() -> None:
    assert is_open((), at(0, 3))


@pytest.mark.parametrize(
    ("hour", "minute", "expected"), [(8, 59, 0), (9, 0, 1), (16, 59, 1), (17, 0, 0)]
)
def test_a_window_begins_with_its_start_and_is_over_at_its_end(
    hour: int, minute: int, *, expected: int
) -> None:
    assert is_open((window("09:00", "17:00"),), at(2, hour, minute)) == bool(expected)


def test_a_window_may_end_on_the_next_day_and_its_day_is_that_of_its_start() -> None:
    night = (window("22:00", "04:00", "Fri"),)
    assert [is_open(night, at(4, 23)), is_open(night, at(5, 3)), is_open(night, at(4, 3))] == [
        True,
        True,
        False,
    ]


def test_a_window_that_ends_when_it_begins_lasts_a_day() -> None:
    whole = (window("12:00", "12:00", "Sun"),)
    assert [is_open(whole, at(6, 11)), is_open(whole, at(6, 13))] == [False, True]
    assert is_open(whole, at(0, 11) + 7 * 24 * HOUR)


def test_one_open_window_is_enough() -> None:
    windows = (window("01:00", "02:00"), window("05:00", "06:00"))
    assert [is_open(windows, at(1, hour)) for hour in (1, 3, 5)] == [True, False, True]


def test_evictions_count_for_an_hour() -> None:
    clock = VirtualClock()
    evictions = Evictions(clock)
    evictions.note()
    clock.time += HOUR / 2
    evictions.note(2)
    assert len(evictions) == 3
    clock.time += HOUR / 2
    assert len(evictions) == 2


def test_evictions_of_a_former_leader_run_out_before_those_that_came_later() -> None:
    clock = VirtualClock()
    evictions = Evictions(clock)
    evictions.note()
    evictions.note(5, seconds_ago=HOUR - 1)
    assert len(evictions) == 6
    clock.time += 1
    assert len(evictions) == 1


def test_whoever_was_moved_rests_for_its_time() -> None:
    clock = VirtualClock()
    rests = Rests(clock)
    rests.rest("short", 10)
    rests.rest("long", 20)
    rests.rest("not at all", 0)
    assert rests.resting() == {"short", "long"}
    clock.time += 10
    assert rests.resting() == {"long"}


def test_what_is_remembered_of_rests_is_bounded() -> None:
    rests = Rests(VirtualClock())
    for number in range(50_000):
        rests.rest(f"uid-{number}", 1e9)
    assert len(rests.resting()) < 20_000
    assert "uid-49999" in rests.resting()
