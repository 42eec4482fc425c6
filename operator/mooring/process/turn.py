"""A lock that keeps the cluster's state unchanged during a decision.

A decision, a plan or the answer to a user may pause, and other tasks run in the pause. While a task
has the turn, no other task reads or changes the state, because a trial may be open. Objects from
watches wait in the inbox until the turn ends.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import CoroutineType, coroutine
from typing import Any, Final, ParamSpec, TypeVar, cast

from mooring.process.time_slices import TimeSlices

logger = logging.getLogger(__name__)

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_MOST_BYTES: Final = 16 * 2**20
"""The most bytes of the objects in the inbox; while it has more, watches wait and read no
objects."""


class Turn:
    """A lock for `async with`; tasks get it in the order of their requests.

    A coroutine that uses the state only between two awaits runs with `between` instead. A task that
    has the turn must not ask for it again.

    Attributes:
        holder: The task that has the turn; None if no task has it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.holder: asyncio.Task[Any] | None = None
        self._clock = clock
        self._is_taken = False
        self._waiting = deque[asyncio.Future[None]]()
        """One future for each task that waits for the turn.

        An `asyncio.Lock` does not work here: it may wake a cancelled task that `between` still
        holds back, and then no task has the turn.
        """
        self._inbox = deque[tuple[Callable[[], object], int]]()
        self._bytes = 0
        self._is_emptied = asyncio.Event()

    async def __aenter__(self) -> None:
        await self._take()
        self.holder = asyncio.current_task()

    async def __aexit__(self, *_: object) -> None:
        self._leave()
        await self.until_free()  # what follows may use the state

    async def _take(self) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        given = asyncio.get_running_loop().create_future()
        self._waiting.append(given)
        try:
            await given
        except BaseException:
            if given.done() and not given.cancelled():
                self._end()
            raise

    def _end(self) -> None:
        self.holder = None
        while self._waiting:
            given = self._waiting.popleft()
            if not given.done():
                given.set_result(None)
                return
        self._is_taken = False

    async def _empty_inbox(self) -> None:
        slices = TimeSlices(clock=self._clock)
        while self._inbox:
            call, size = self._inbox.popleft()
            self._bytes -= size
            try:
                await slices.run(call)
            except Exception:
                logger.exception("what was to be done between two attempts failed")
            await slices.pause()

    def _leave(self, emptied: "asyncio.Task[None] | None" = None) -> None:
        if self._inbox and not (emptied is not None and emptied.cancelled()):
            # The calls in the inbox are made before the turn ends.
            self.holder = task = asyncio.create_task(self._empty_inbox())
            task.add_done_callback(self._leave)  # without the calls if asyncio cancels the task
            return
        self._is_emptied.set()
        self._end()

    @property
    def is_free(self) -> bool:
        """Whether the present task may use the state, because no other task has the turn."""
        return self.holder is None or self.holder is asyncio.current_task()

    def post(self, call: Callable[[], object]) -> None:
        """Make the call now; if another task has the turn, make it when that turn ends."""
        if self.is_free:
            call()
        else:
            self._inbox.append((call, 0))

    async def deliver(self, call: Callable[[], object], size: int, slices: TimeSlices) -> None:
        """Make `call`, which handles an object of `size` bytes, now or when the present turn ends.

        `call` may pause, and must not raise. `slices` limits how long it runs without a pause.
        """
        if self.holder is None:
            async with self:
                await slices.run(call)
            return
        self._inbox.append((call, size))
        self._bytes += size
        while self._bytes > _MOST_BYTES:
            self._is_emptied.clear()
            await self._is_emptied.wait()

    async def run(self, call: Callable[[], _Result], rest: TimeSlices | None = None) -> _Result:
        """Take the turn, make a call that may pause, and return its result.

        The turn counts as one slice of `rest`. After the turn, call `rest.pause` to give time to
        other tasks.
        """
        rest = rest or TimeSlices(clock=self._clock)
        async with self:
            rest.begin()
            try:
                return await TimeSlices(clock=self._clock).run(call)
            finally:
                rest.stop()

    def between(
        self,
        work: Callable[_Arguments, Coroutine[Any, Any, _Result]],
        *args: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> Coroutine[Any, Any, _Result]:
        """Return a coroutine that runs `work` and waits before each step until the turn is free."""
        steps = self._between(partial(work, *args, **named))
        if (name := getattr(work, "__qualname__", None)) is not None:
            cast("CoroutineType[Any, Any, _Result]", steps).__qualname__ = name  # for HoldTimer
        return steps

    async def _between(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        return await _steps(work(), self)

    async def until_free(self) -> None:
        """Wait until no other task has the turn."""
        while not self.is_free:
            await self._take()
            self._end()


@coroutine
def _steps(work: Coroutine[Any, Any, _Result], turn: Turn) -> Generator[Any, Any, _Result]:
    step: Callable[[Any], Any] = work.send
    argument: Any = None
    while True:
        try:
            if not turn.is_free:
                yield from turn.until_free().__await__()
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001 - the work is told when it goes on
            step, argument = work.throw, error
            continue
        try:
            awaited = step(argument)
        except StopIteration as end:
            result: _Result = end.value
            return result
        try:
            step, argument = work.send, (yield awaited)
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001 - the same
            step, argument = work.throw, error
