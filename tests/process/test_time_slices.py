"""Other tasks run between the slices of long work."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import pytest

from mooring.pausing import Interrupted, pause
from mooring.process.time_slices import TimeSlices


class Work:
    """Steps of one second each on a clock of their own, and a task that records when it runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = list[int]()
        """After how many steps the other task ran."""
        self.steps = 0

    def run(self, number: int) -> str:
        """Make this number of steps, with a pause after each step."""
        for _ in self.each(number):
            pause()
        return "done"

    def each(self, number: int) -> Iterator[None]:
        """Make this number of steps; yield after each step."""
        for _ in range(number):
            self.steps += 1
            self.now += 1.0
            yield

    async def beside(self) -> None:
        """Record the number of steps each time the event loop runs this task."""
        while True:
            self.turns.append(self.steps)
            await asyncio.sleep(0)


async def turns(work: Work, number: int, seconds: float) -> list[int]:
    """Run `number` steps in slices; return the numbers of steps after which another task ran."""
    beside = asyncio.create_task(work.beside())
    await TimeSlices(seconds, clock=lambda: work.now).run(partial(work.run, number))
    beside.cancel()
    return work.turns


async def test_other_tasks_run_after_each_slice() -> None:
    assert await turns(Work(), 7, seconds=3.0) == [3, 6]


async def test_the_result_of_work_is_returned_and_other_tasks_run_after_each_slice() -> None:
    work = Work()

    beside = asyncio.create_task(work.beside())
    assert await TimeSlices(3.0, clock=lambda: work.now).run(partial(work.run, 7)) == "done"
    beside.cancel()
    assert work.turns == [3, 6]


async def test_the_error_of_work_is_raised_after_its_pauses() -> None:
    work = Work()

    def fail() -> None:
        work.run(3)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await TimeSlices(2.0, clock=lambda: work.now).run(fail)
    assert work.steps == 3


@pytest.mark.parametrize(("wanted", "expected"), [(True, 7), (False, 3)])
async def test_work_that_is_not_wanted_any_more_ends_in_its_next_pause(
    *, wanted: bool, expected: int
) -> None:
    work = Work()
    slices = TimeSlices(3.0, clock=lambda: work.now)
    with nullcontext() if wanted else pytest.raises(Interrupted):
        await slices.run(partial(work.run, 7), lambda: wanted)
    assert work.steps == expected


async def test_work_of_less_than_a_slice_is_done_without_a_pause() -> None:
    work = Work()
    assert await turns(work, 7, seconds=8.0) == []
    assert work.steps == 7


async def test_a_step_longer_than_a_slice_is_followed_by_a_pause() -> None:
    assert await turns(Work(), 3, seconds=0.5) == [1, 2, 3]


async def test_a_slice_ends_so_many_seconds_after_the_last_pause() -> None:
    work = Work()
    slices = TimeSlices(3.0, clock=lambda: work.now)
    ends = list[float]()
    for _ in work.each(4):
        await slices.pause()
        ends.append(slices.end)
    assert ends == [3.0, 3.0, 6.0, 6.0]


async def test_what_a_task_has_waited_for_does_not_end_its_slice() -> None:
    work = Work()
    slices = TimeSlices(3.0, clock=lambda: work.now)
    beside = asyncio.create_task(work.beside())
    for _ in work.each(5):
        work.now += 10.0
        slices.begin()
        await slices.pause()
    beside.cancel()
    assert work.turns == []


async def test_the_event_loop_rests_for_so_many_times_as_long_as_the_slice_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests = list[float]()

    async def note(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)
    work = Work()
    await TimeSlices(2.0, rest=3.0, clock=lambda: work.now).run(partial(work.run, 5))
    assert rests == [6.0, 6.0]


async def test_young_garbage_is_collected_between_slices() -> None:
    class Node:
        itself: "Node"

    gc.disable()
    try:
        garbage = Node()
        garbage.itself = garbage
        gone = weakref.ref(garbage)
        del garbage
        work = Work()
        await TimeSlices(1.0, clock=lambda: work.now).run(partial(work.run, 10))
        assert gone() is None
    finally:
        gc.enable()
