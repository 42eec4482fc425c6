"""An event loop that runs callbacks only when its owner says so."""

import asyncio
import heapq
from typing import Any

from simulation.virtual_loop import NumberedTask, VirtualLoop


class SteppedLoop(VirtualLoop):
    """`settle` runs all ready callbacks in order; `advance` lets time pass."""

    def __init__(self, now: float) -> None:
        super().__init__(lambda: self.now, _connect)
        self.now = now
        self._begun: list[asyncio.Task[Any]] = []
        self._number = 0
        self.set_task_factory(self._begin)

    def _begin(self, _: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> "asyncio.Task[Any]":
        NumberedTask.start_counting(self._number)  # other worlds begin tasks meanwhile
        self._number += 1
        self._begun.append(NumberedTask(coro, loop=self, **more))
        return self._begun[-1]

    @property
    def failures(self) -> list[str]:
        """The errors that no code has caught."""
        return [f"{each.get('message')}: {each.get('exception')!r}" for each in self.errors]

    @property
    def tasks(self) -> "list[asyncio.Task[Any]]":
        """The tasks that have not ended, in the order in which they began."""
        self._begun = [task for task in self._begun if not task.done()]
        return self._begun

    def settle(self) -> None:
        """Run callbacks until none is left."""
        while self.turn():
            pass

    def due(self) -> list[float]:
        """Return the seconds until each timer ends, the next first."""
        self._scheduled = [timer for timer in self._scheduled if not timer.cancelled()]
        self._timer_cancelled_count = 0
        heapq.heapify(self._scheduled)
        return sorted(timer.when() - self.now for timer in self._scheduled)

    def advance(self, seconds: float) -> None:
        """Advance the time by `seconds`, and run the callbacks of timers that end."""
        until = self.now + seconds
        while (due := self.due()) and self.now + due[0] <= until:
            self.now = max(self.now, self._scheduled[0].when())
            self.settle()
        self.now = until

    def end(self) -> None:
        """Cancel all tasks and let them end, whatever they wait for."""
        for _ in range(3):
            for task in self.tasks:
                task.cancel()
            self.settle()
            if self._scheduled:
                self.advance(max(self.due(), default=0.0))
        self.close()


async def _connect(_protocol: asyncio.BaseProtocol, host: str) -> asyncio.Transport:
    raise ConnectionRefusedError(host)
