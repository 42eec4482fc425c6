"""Work with pauses gives the same result as without, and does not count what others do in them."""

from collections.abc import Generator

import pytest

from mooring.model.pausing import ITEMS_PER_STEP, Pausing, collected, run_whole, timed


def pauses(steps: Generator[None, None, object]) -> int:
    return len([*steps])


@pytest.mark.parametrize("number", [0, 1, ITEMS_PER_STEP - 1, ITEMS_PER_STEP, 1200])
def test_all_items_are_collected_in_their_order(number: int) -> None:
    assert run_whole(collected(iter(range(number)))) == tuple(range(number))


@pytest.mark.parametrize(("number", "expected"), [(0, 0), (ITEMS_PER_STEP - 1, 0), (1200, 2)])
def test_there_is_a_pause_after_each_few_hundred_items(number: int, expected: int) -> None:
    assert pauses(collected(range(number))) == expected


def test_the_seconds_of_work_are_told_without_those_of_pauses() -> None:
    now = 0.0

    def work() -> Pausing[str]:
        nonlocal now
        now += 1.0
        yield
        now += 2.0
        return "done"

    steps = timed(work(), lambda: now)
    next(steps)
    now += 50.0
    assert run_whole(steps) == ("done", 3.0)
