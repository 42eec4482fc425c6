import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from mooring.observe.event_loop import HoldTimer, log_long_hold

SECONDS = 0.25


class Clock:
    """A clock that `work` moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float = SECONDS) -> None:
        self.now += seconds


@asynccontextmanager
async def timed(clock: Clock) -> AsyncIterator[list[tuple[float, str]]]:
    """Measure the tasks of the event loop inside the context; yield the list of reported steps."""
    told = list[tuple[float, str]]()
    loop = asyncio.get_running_loop()
    loop.set_task_factory(HoldTimer(lambda *hold: told.append(hold), clock=clock))
    try:
        yield told
    finally:
        loop.set_task_factory(None)


async def test_each_step_between_two_pauses_is_told_by_itself() -> None:
    clock = Clock()

    async def three_steps() -> str:
        clock.work(1.0)
        await asyncio.sleep(0)
        clock.work(2.0)
        await asyncio.sleep(0)
        clock.work(4.0)
        return "done"

    async with timed(clock) as told:
        assert await asyncio.create_task(three_steps()) == "done"
    assert [seconds for seconds, _ in told] == [1.0, 2.0, 4.0]
    assert {name.rsplit(".", 1)[-1] for _, name in told} == {"three_steps"}


async def test_a_step_below_a_millisecond_is_not_told() -> None:
    clock = Clock()

    async def short() -> None:
        clock.work(0.0009)

    async with timed(clock) as told:
        await asyncio.create_task(short())
    assert not told


async def test_errors_and_cancellation_pass_through_and_what_follows_them_is_told() -> None:
    clock = Clock()

    async def fails() -> None:
        clock.work()
        raise ValueError("no")

    async def cleans_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            clock.work()

    async with timed(clock) as told:
        with pytest.raises(ValueError, match="no"):
            await asyncio.create_task(fails())
        task = asyncio.create_task(cleans_up())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [seconds for seconds, _ in told] == [SECONDS, SECONDS]


async def test_a_task_that_is_cancelled_before_its_first_step_leaves_no_warning() -> None:
    async def never() -> None:
        raise AssertionError

    async with timed(Clock()):
        task = asyncio.create_task(never())
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


async def test_a_timed_task_is_shown_as_what_it_runs() -> None:
    async def shown() -> None:
        await asyncio.sleep(0)

    async with timed(Clock()):
        task = asyncio.create_task(shown(), name="its name")
        await asyncio.sleep(0)
        assert "its name" in repr(task)
        assert "shown() running at" in repr(task)
        assert [frame.f_code for frame in task.get_stack()] == [shown.__code__]
        await task


async def test_time_limits_and_groups_of_tasks_work_as_ever() -> None:
    async with timed(Clock()):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(0, "slept"))
    assert task.result() == "slept"


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING):
        yield caplog


def test_a_second_is_logged_with_the_task_and_less_is_not(
    warnings: pytest.LogCaptureFixture,
) -> None:
    log_long_hold(0.99, "Mirror.run")
    log_long_hold(2.34, "SchedulingLoop.run")
    assert warnings.messages == ["SchedulingLoop.run held the event loop for 2.3 seconds"]
