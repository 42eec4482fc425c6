"""Calls that pause inside plain functions."""

import asyncio
from contextvars import ContextVar
from threading import Thread

import pytest

from driving import driven
from mooring.pausing import (
    Work,
    pause,
    pause_now,
    timed,
)
from mooring.process.time_slices import TimeSlices

seen: ContextVar[str] = ContextVar("seen")


def deep(depth: int) -> int:
    """Pause at this depth of recursion, and return the depth."""
    if depth:
        return deep(depth - 1) + 1
    pause()
    return 0


def test_nothing_pauses_where_nobody_runs_it() -> None:
    pause()
    pause_now()


def test_a_call_pauses_however_deep_and_returns_its_result() -> None:
    assert driven(lambda: [deep(3), deep(40)]) == ([3, 40], 2)


def test_a_pause_that_is_not_due_is_left_out_unless_the_work_cannot_go_on() -> None:
    def call() -> None:
        pause()
        pause_now()

    with Work(call, TimeSlices(clock=lambda: 0.0)) as work:
        assert not work.advance()
        assert work.advance()


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    def call() -> None:
        pause()
        raise ValueError("no node")

    with pytest.raises(ValueError, match="no node"):
        driven(call)


def test_cancelled_work_undoes_what_is_open_and_does_not_pause_on_its_way_out() -> None:
    undone = list[str]()

    def call() -> None:
        try:
            pause()
        finally:
            pause()
            undone.append("trial")

    with Work(call) as work:
        work.advance()
    assert undone == ["trial"]


def test_work_that_never_began_is_cancelled_without_being_run() -> None:
    called = list[int]()
    with Work(lambda: called.append(1)):
        pass
    assert not called


def test_work_is_no_part_of_other_work_that_runs_in_its_pauses() -> None:
    order = list[str]()

    def call(name: str) -> None:
        for number in range(3):
            order.append(f"{name}{number}")
            pause()

    with Work(lambda: call("a")) as first, Work(lambda: call("b")) as second:
        while not (first.advance() & second.advance()):
            pause()  # outside of both
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_work_inside_other_work_pauses_to_its_own_driver() -> None:
    def outer() -> int:
        _, inner = driven(lambda: [deep(number) for number in range(2)])
        pause()
        return inner

    assert driven(outer) == (2, 1)


def test_the_seconds_of_work_are_told_without_those_of_pauses() -> None:
    now = 0.0

    def call() -> str:
        nonlocal now
        now += 1.0
        pause()
        now += 2.0
        return "done"

    with Work(lambda: timed(call, lambda: now), TimeSlices(0.0, clock=lambda: now)) as work:
        assert not work.advance()
        now += 50.0
        assert work.advance()
        assert work.result() == ("done", 3.0)


def test_work_has_the_context_of_whoever_runs_it() -> None:
    def call() -> list[str]:
        first = seen.get()
        pause()
        return [first, seen.get()]

    seen.set("a")
    with Work(call) as work:
        work.advance()
        seen.set("b")
        work.advance()
        assert work.result() == ["a", "b"]


def test_work_of_another_thread_pauses_by_itself() -> None:
    found = list[tuple[int, int]]()

    def in_pause() -> None:
        thread = Thread(target=lambda: found.append(driven(lambda: deep(1))))
        thread.start()
        thread.join()

    assert driven(lambda: deep(2), in_pause) == (2, 1)
    assert found == [(1, 1)]


async def test_a_task_that_is_cancelled_in_a_pause_ends_its_work() -> None:
    undone = asyncio.Event()

    def call() -> None:
        try:
            while True:
                pause()
        finally:
            undone.set()

    task = asyncio.create_task(TimeSlices(0.0).run(call))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone.is_set()


async def test_the_current_task_is_the_one_that_runs_the_work() -> None:
    def call() -> list[asyncio.Task[object] | None]:
        first = asyncio.current_task()
        pause()
        return [first, asyncio.current_task()]

    task = asyncio.create_task(TimeSlices(0.0).run(call))
    assert await task == [task, task]
