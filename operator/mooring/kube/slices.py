"""Long work in slices: other tasks, decisions and lease renewals among them, run in between."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["Slices"]

_SLICE_SECONDS: Final = 0.004


class Slices:
    """Pauses work that takes long as a whole; to be asked after each small step of it.

    `seconds` is how long a slice lasts, by the clock.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, seconds: float = _SLICE_SECONDS
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds

    async def pause(self) -> None:
        """Let other tasks run if the present slice has lasted long enough."""
        if self._clock() >= self._end:
            await asyncio.sleep(0)
            self._end = self._clock() + self._seconds

    async def run(self, steps: Iterable[object]) -> None:
        """Take all steps, and let other tasks run from time to time."""
        for _ in steps:
            await self.pause()
