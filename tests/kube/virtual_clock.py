"""A clock that only the test moves, and sleeps that end by this clock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

WAIT_SECONDS: Final = 60.0


@dataclass(eq=False)
class Sleeper:
    """A call of `sleep`: setting `awake` ends the sleep, and `gone` is set after its end."""

    since: float
    seconds: float
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class VirtualClock:
    """A clock in seconds; `advance` moves it and ends the sleeps that are due."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._sleepers: list[Sleeper] = []
        self._changed = asyncio.Condition()

    def __call__(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has moved by `seconds`."""
        sleeper = Sleeper(self.time, seconds)
        self._sleepers.append(sleeper)
        async with self._changed:
            self._changed.notify_all()
        try:
            await sleeper.awake.wait()
        finally:
            self._sleepers.remove(sleeper)
            sleeper.gone.set()

    async def sleepers(self, count: int = 1, *, seconds: float | None = None) -> None:
        """Wait until `count` tasks sleep.

        If `seconds` is given, only sleeps of this length that began at the present time count.
        """

        def enough() -> bool:
            return count <= sum(
                seconds is None or (sleeper.since == self.time and sleeper.seconds == seconds)
                for sleeper in self._sleepers
            )

        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(enough)

    async def end_sleep(self, seconds: float) -> None:
        """Wait until a task begins to sleep for `seconds`; then advance the clock by this time."""
        await self.sleepers(seconds=seconds)
        await self.advance(seconds)

    async def advance(self, seconds: float) -> None:
        """Move the clock, and wait until all sleeps that are due have ended."""
        self.time += seconds
        due = [
            sleeper for sleeper in self._sleepers if sleeper.since + sleeper.seconds <= self.time
        ]
        for sleeper in due:
            sleeper.awake.set()
        for sleeper in due:
            await sleeper.gone.wait()
