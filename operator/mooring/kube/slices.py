"""Does long work in slices, between which decisions, lease renewals and other tasks run."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["Slices"]

_SLICE_SECONDS: Final = 0.004


class Slices:
    """Divides long work into slices; call `pause` after each small step.

    A slice lasts `seconds` by the clock, and until the end of its last step.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, seconds: float = _SLICE_SECONDS
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds

    async def pause(self) -> None:
        """Let other tasks run if the present slice is over."""
        if self._clock() >= self._end:
            await asyncio.sleep(0)
            self._end = self._clock() + self._seconds

    async def run(self, steps: Iterable[object]) -> None:
        """Take all steps, and let other tasks run from time to time."""
        for _ in steps:
            await self.pause()
