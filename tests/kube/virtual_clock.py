"""Time that passes only when the test says so, and sleeps that end by it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

WAIT_SECONDS: Final = 60.0


@dataclass(eq=False)
class Sleeper:
    """One call of `sleep`; `awake` ends it, `gone` says that it has ended."""

    since: float
    seconds: float
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class VirtualClock:
    """`clock()` is the time in seconds; `sleep` waits until `advance` has moved it far enough."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._sleepers: list[Sleeper] = []
        self._changed = asyncio.Condition()

    def __call__(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have been advanced over."""
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
        """Wait until `count` tasks are asleep; of those that began now to sleep for `seconds`."""

        def enough() -> bool:
            return count <= sum(
                seconds is None or (sleeper.since == self.time and sleeper.seconds == seconds)
                for sleeper in self._sleepers
            )

        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(enough)

    async def end_sleep(self, seconds: float) -> None:
        """Wait until a task begins to sleep for `seconds`, and let this time pass."""
        await self.sleepers(seconds=seconds)
        await self.advance(seconds)

    async def advance(self, seconds: float) -> None:
        """Move the time, wake whoever is due and wait until their sleep has ended."""
        self.time += seconds
        due = [
            sleeper for sleeper in self._sleepers if sleeper.since + sleeper.seconds <= self.time
        ]
        for sleeper in due:
            sleeper.awake.set()
        for sleeper in due:
            await sleeper.gone.wait()
