"""Tests two minutes of `make soak`, and its verdict."""

from collections import Counter
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.books import Verdict
from faults.rules import Kind
from soak.churn import FIXED
from soak.figures import HEADER, Happened, Life, Minute, fault_table, growth
from soak.run import soak
from soak.schedule import Act, episodes

WIDTH = 80
MINUTES = 2
SEED = 2858
"""With this seed, five faults, among them 409 and a kill, come within 47 s of the first drain."""
PODS = 150


@pytest.mark.server
def test_churn_and_faults_leave_nothing_wrong() -> None:
    lines: list[str] = []
    result = soak(MINUTES, seed=SEED, pods=PODS, say=lines.append)
    assert result.faults == [], "\n".join([*lines, *result.table])
    assert result.bound > PODS
    assert result.episodes >= 3
    names = Counter(name.rstrip("-0123456789") for name in FIXED)
    assert [kind for kind, n in names.items() if result.kinds[kind] <= n] == [], "names return"
    assert result.kinds["strict"]  # which of their names come is drawn
    assert result.strict[HTTPStatus.CREATED]
    assert len(lines) >= MINUTES
    assert all(len(line) <= WIDTH for line in lines)


@given(st.integers(), st.floats(0, 4000))
def test_the_same_seed_is_the_same_schedule_in_order_and_in_time(seed: int, seconds: float) -> None:
    planned = list(episodes(seed, seconds))
    assert planned == list(episodes(seed, seconds))
    times = [episode.at for episode in planned]
    assert times == sorted(times)
    assert all(0 < at < seconds for at in times)


def test_the_short_run_begins_with_five_faults_of_which_the_last_kills_the_leader() -> None:
    planned = list(episodes(SEED, 60))
    assert [episode.name for episode in planned][1::3] == [Kind.CONFLICT, Act.KILL]
    assert planned[-1].at < 48


def test_half_an_hour_has_every_fault_several_times() -> None:
    names = [episode.name for episode in episodes(SEED, 1800)]
    assert min(names.count(name) for name in names) >= 3


def life(*mib: float) -> Life:
    """Return the memory of a leader with these MiB after its first seconds."""
    found = Life("r")
    found.note(40.0, 1.0, leads=True)
    for index, each in enumerate(mib):
        found.note(100.0 + 10.0 * index, each, leads=True)
    return found


def test_memory_that_goes_up_and_down_is_flat() -> None:
    assert growth([life(*[100, 130, 90, 110] * 5)], (50, 55)) == []


def test_memory_that_rises_over_a_life_has_grown() -> None:
    assert len(growth([life(*range(100, 200, 5))], (50, 50))) == 1


def test_memory_of_a_stand_by_that_has_begun_to_lead_has_not_grown() -> None:
    one = Life("r")
    for at in range(0, 1000, 10):
        one.note(at, 190.0 if at >= 500 else 140.0, leads=at >= 480)
    assert growth([one], (50, 50)) == []


def test_memory_that_is_more_each_time_a_replica_leads_has_grown() -> None:
    one = Life("r")
    for at in range(0, 1000, 10):
        leads = at % 200 >= 100
        one.note(at, 140.0 + leads * at / 10, leads=leads)
    assert len(growth([one], (50, 50))) == 1


def test_a_short_life_has_no_trend() -> None:
    assert growth([life(100, 900)], (50, 50)) == []


def test_tasks_that_are_left_over_have_grown() -> None:
    assert len(growth([], (50, 100))) == 1


def test_a_wrong_thing_is_put_down_to_the_fault_before_it() -> None:
    happened = [Happened(10.0, "drop"), Happened(20.0, "500"), Happened(30.0, "drop")]
    verdict = Verdict(
        lost=((35.0, "a"),),
        doubled=((25.0, "b"),),
        bindings=(12.0, 19.0, 31.0),
        waited=((11.0, 19.0), (30.0, 31.0)),
    )
    rows = {
        cells[0]: cells[1:]
        for line in fault_table(happened, {"drop": 7, "500": 1}, verdict, 40.0)
        if (cells := [cell.strip() for cell in line[1:-1].split("|")])
    }
    assert rows["drop"] == ["7", "1", "0", "0", "0", "0", "7.0 s"]
    assert rows["500"] == ["1", "0", "1", "0", "0", "0", "0.0 s"]
    assert rows["all"] == ["8", "1", "1", "0", "0", "0", "7.0 s"]


def test_lines_fit_a_terminal() -> None:
    minute = Minute(30, 20_000, 20_000, 99_999, 999, [1000.0, 1000.0], [1000, 1000])
    table = fault_table([Happened(0.0, "leader partitioned 25 s")], {}, Verdict(), 1.0)
    assert max(map(len, (HEADER, str(minute), *table))) <= WIDTH
