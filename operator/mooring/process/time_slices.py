"""Divides long work on the event loop into slices, so that other tasks run in between.

Synchronous code calls `mooring.pausing.pause` at places where other tasks may run; `TimeSlices.run`
runs such code.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeVar

from mooring.pausing import Interrupted, Work

_Result = TypeVar("_Result")

REST: Final = 3.0
"""The usual `rest` of `TimeSlices` for work that users request: after a slice, the event loop is
free for three times the slice's duration."""

_SLICES_PER_COLLECTION: Final = 10
"""The number of slices between two collections of young garbage, which take 1 to 5 ms."""
_slices_ended = count(1)


@dataclass(eq=False, repr=False)
class TimeSlices:
    """Divides long work into slices: `pause` after each small step, or `run` a call that pauses.

    Args:
        seconds: The least duration of a slice. A step that has begun is finished in its slice.
        rest: After a slice the event loop is free for this many times the slice's duration; with 0,
            all other ready tasks run once.
        clock: Returns the time in seconds.
    """

    seconds: float = 0.002
    rest: float = 0.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.begin()

    @property
    def end(self) -> float:
        """The earliest time at which the present slice may end."""
        return self._began + self.seconds

    def begin(self) -> None:
        """Begin a new slice now, because the task has just waited and other tasks ran meanwhile."""
        self._began, self._stopped = self.clock(), float("inf")

    def stop(self) -> None:
        """Stop measuring the slice, so that the time from now to the next pause does not count."""
        self._stopped = self.clock()

    @property
    def is_over(self) -> bool:
        """Whether the present slice has lasted `seconds`."""
        return self.clock() - self._began >= self.seconds

    async def pause(self) -> None:
        """Let other tasks run if the present slice is over."""
        if self.is_over:
            await self._let_others_run()

    async def run(
        self, call: Callable[[], _Result], wanted: Callable[[], bool] = lambda: True
    ) -> _Result:
        """Return the result of a call; let other tasks run whenever it pauses.

        If `wanted` returns False after a pause, end the call and raise Interrupted.
        """
        with Work(call, self) as work:
            while not work.advance():
                await self._let_others_run()
                if not wanted():
                    raise Interrupted
            return work.result()

    async def _let_others_run(self) -> None:
        _collect_at_times()
        await asyncio.sleep(self.rest * (min(self.clock(), self._stopped) - self._began))
        self.begin()


def _collect_at_times() -> None:
    # Python collects only when many more objects were made than freed. Work that frees as many as
    # it makes would leave all new objects young, and a collection would take up to 0.4 s.
    if next(_slices_ended) % _SLICES_PER_COLLECTION == 0:
        gc.collect(1)
