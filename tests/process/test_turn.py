"""Only one task at a time has the turn and may use the state."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from mooring.pausing import pause_now
from mooring.process.time_slices import TimeSlices
from mooring.process.turn import Turn


async def settle() -> None:
    """Let all ready tasks run."""
    for _ in range(10):
        await asyncio.sleep(0)


class Notes:
    """Records texts in order."""

    def __init__(self) -> None:
        self.done = list[str]()

    def note(self, text: str) -> Callable[[], None]:
        return partial(self.done.append, text)

    async def in_steps(self, name: str, steps: int) -> str:
        """Record a text for each step, and let other tasks run after each."""
        for number in range(steps):
            self.done.append(f"{name}{number}")
            await asyncio.sleep(0)
        return name


async def test_tasks_get_the_turn_in_the_order_of_their_asking() -> None:
    turn, notes = Turn(), Notes()

    async def take(name: str) -> None:
        async with turn:
            await notes.in_steps(name, 2)

    await asyncio.gather(take("a"), take("b"), take("c"))
    assert notes.done == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert turn.holder is None


async def test_between_goes_on_only_while_nobody_has_the_turn() -> None:
    turn, notes = Turn(), Notes()
    task = asyncio.create_task(turn.between(notes.in_steps, "step", 3))
    await asyncio.sleep(0)
    async with turn:
        await settle()
        assert notes.done == ["step0"]
    assert await task == "step"
    assert notes.done == ["step0", "step1", "step2"]


async def test_between_may_take_a_turn_itself() -> None:
    turn, notes = Turn(), Notes()

    async def work() -> None:
        async with turn:
            await notes.in_steps("mine", 2)
        await notes.in_steps("after", 1)

    await asyncio.gather(turn.between(work), turn.between(notes.in_steps, "other", 1))
    assert notes.done[:2] == ["mine0", "mine1"]


async def test_a_task_that_is_cancelled_in_a_turn_of_another_is_told_after_it() -> None:
    turn, notes = Turn(), Notes()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            notes.done.append("ended")

    task = asyncio.create_task(turn.between(work))
    await settle()
    async with turn:
        task.cancel()
        await settle()
        task.cancel()
        await settle()
        assert notes.done == []
    await asyncio.wait([task])
    assert task.cancelled()
    assert notes.done == ["ended"]


async def test_a_task_that_is_cancelled_while_it_waits_for_the_turn_leaves_it_to_others() -> None:
    turn, ends = Turn(), asyncio.Event()

    async def asks() -> None:
        async with turn:
            raise AssertionError("it was cancelled before")

    async def holds() -> None:
        async with turn:
            await ends.wait()

    async with turn:
        asking = asyncio.create_task(turn.between(asks))
        await settle()
        holding = asyncio.create_task(holds())
        await settle()
    await settle()
    assert turn.holder is holding
    asking.cancel()
    await settle()
    waiting = asyncio.create_task(turn.run(lambda: "next"))
    await settle()
    ends.set()
    async with asyncio.timeout(10):
        assert await waiting == "next"
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert turn.holder is None


async def test_a_task_that_is_cancelled_before_it_begins_leaves_nothing() -> None:
    turn = Turn()
    task = asyncio.create_task(turn.between(Notes().in_steps, "never", 1))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_an_error_of_the_work_is_raised() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await Turn().between(fail)


async def test_a_call_is_made_at_once_while_nobody_else_has_the_turn() -> None:
    turn, notes = Turn(), Notes()
    turn.post(notes.note("free"))
    async with turn:
        turn.post(notes.note("mine"))
        assert notes.done == ["free", "mine"]


async def _in_another_task(call: Callable[[], Awaitable[None]]) -> None:
    async def task() -> None:
        await call()

    await asyncio.create_task(task())


async def test_what_comes_in_a_turn_is_done_in_its_order_before_the_next_turn() -> None:
    turn, notes, slices = Turn(), Notes(), TimeSlices()

    async def comes() -> None:
        await turn.deliver(notes.note("first"), 1, slices)
        turn.post(notes.note("second"))
        await turn.deliver(notes.note("third"), 1, slices)

    async def next_turn() -> None:
        async with turn:
            notes.done.append("next")

    async with turn:
        await _in_another_task(comes)
        waiting = asyncio.create_task(next_turn())
        await settle()
        assert notes.done == []
    await waiting
    assert notes.done == ["first", "second", "third", "next"]


async def test_whoever_had_the_turn_goes_on_when_the_inbox_is_empty() -> None:
    turn, notes = Turn(), Notes()

    def call() -> None:
        pause_now()
        notes.done.append("told")

    async def comes() -> None:
        await turn.deliver(call, 1, TimeSlices())

    async with turn:
        await _in_another_task(comes)
    notes.done.append("after")
    assert turn.is_free
    assert notes.done == ["told", "after"]


async def test_what_is_delivered_may_pause_and_others_have_no_turn_then() -> None:
    turn, notes = Turn(), Notes()

    def call() -> None:
        notes.done.append("began")
        pause_now()
        notes.done.append("ended")

    delivered = asyncio.create_task(turn.deliver(call, 1, TimeSlices()))
    other = asyncio.create_task(turn.between(notes.in_steps, "other", 1))
    await asyncio.wait([delivered, other])
    assert notes.done == ["began", "ended", "other0"]


async def test_what_comes_while_the_turn_is_handed_over_is_done_soon() -> None:
    """A task that waits in `between` takes the turn for a moment."""
    turn, notes = Turn(), Notes()

    async def deliver() -> None:
        await turn.deliver(notes.note("told"), 0, TimeSlices())

    async with turn:
        waiting = asyncio.create_task(turn.between(notes.in_steps, "step", 1))
        await settle()
    await deliver()
    await waiting
    await settle()
    assert sorted(notes.done) == ["step0", "told"]


async def test_what_comes_just_after_the_inbox_was_emptied_is_done_soon() -> None:
    turn, notes = Turn(), Notes()
    loop = asyncio.get_running_loop()
    async with turn:
        came = partial(loop.call_soon, turn.post, notes.note("later"))
        delivering = asyncio.create_task(turn.deliver(came, 1, TimeSlices()))
        await settle()
    await settle()
    assert notes.done == ["later"]
    assert turn.holder is None
    await delivering


async def test_the_turn_ends_though_what_empties_the_inbox_is_cancelled_before_it_begins() -> None:
    """At the end of the process, asyncio cancels all tasks; nothing may wait for ever then."""
    turn, notes = Turn(), Notes()

    def cancel_others(own: object) -> None:
        for task in asyncio.all_tasks():
            if task is not own:
                task.cancel()

    async with asyncio.timeout(1.0):
        async with turn:
            delivering = asyncio.create_task(turn.deliver(notes.note("came"), 1, TimeSlices()))
            await settle()
            asyncio.get_running_loop().call_soon(cancel_others, asyncio.current_task())
        await asyncio.wait({delivering})
        async with turn:
            assert notes.done == []


async def test_a_full_inbox_holds_up_whoever_delivers() -> None:
    turn, notes, slices = Turn(), Notes(), TimeSlices()

    async def comes() -> None:
        await turn.deliver(notes.note("large"), 17 * 2**20, slices)
        notes.done.append("goes on")

    async with turn:
        task = asyncio.create_task(comes())
        await settle()
        assert notes.done == []
    await task
    assert notes.done == ["large", "goes on"]


async def test_a_call_that_fails_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    turn, notes = Turn(), Notes()

    def fail() -> None:
        raise ValueError("mine")

    async def comes() -> None:
        turn.post(fail)
        turn.post(notes.note("after"))

    async with turn:
        await _in_another_task(comes)
    await turn.until_free()
    assert notes.done == ["after"]
    assert "mine" in caplog.text


async def test_a_task_is_named_after_its_work() -> None:
    coroutine = Turn().between(Notes().in_steps, "a", 1)
    assert coroutine.__qualname__ == "Notes.in_steps"  # type: ignore[attr-defined] # of coroutines
    coroutine.close()


async def test_the_rest_after_a_call_is_for_the_time_of_the_turn_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, rests = 0.0, list[float]()
    turn, rest = Turn(), TimeSlices(0.0, rest=3.0, clock=lambda: now)

    def work(seconds: float) -> None:
        nonlocal now
        now += seconds

    def decide() -> None:
        work(2.0)
        asyncio.get_running_loop().call_soon(turn.post, partial(work, 10.0))
        pause_now()

    async def note(seconds: float) -> None:
        rests.append(seconds)

    async with turn:
        task = asyncio.create_task(turn.run(decide, rest))
        await settle()
        work(100.0)
    await task
    monkeypatch.setattr(asyncio, "sleep", note)
    await rest.pause()
    assert (now, rests) == (112.0, [6.0])
