"""An event loop that does nothing by itself: whoever has it says when its callbacks run."""

import asyncio
import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["SteppedLoop"]


class SteppedLoop(asyncio.BaseEventLoop):
    """Callbacks run in `settle`, in order and as many as there are; time passes in `advance`.

    It has no sockets, threads or processes. Of asyncio's own loop it is what keeps callbacks and
    timers (`_ready` and `_scheduled`), with another clock and without the waiting.
    """

    _ready: Any
    _scheduled: Any

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now
        self.failures: list[str] = []
        """What nobody has caught."""
        self._begun: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._begin)
        self.set_exception_handler(self._note)

    def time(self) -> float:
        """Return the time, in seconds."""
        return self.now

    def _begin(self, _: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> "asyncio.Task[Any]":
        self._begun.append(asyncio.Task(coro, loop=self, **more))
        return self._begun[-1]

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    @property
    def tasks(self) -> "list[asyncio.Task[Any]]":
        """The tasks that have not ended, in the order in which they began."""
        self._begun = [task for task in self._begun if not task.done()]
        return self._begun

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be the running loop inside the block."""
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    def settle(self) -> None:
        """Run callbacks until none is left."""
        with self.running():
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()

    def due(self) -> list[float]:
        """Return the seconds until each timer ends, the next first."""
        self._scheduled = [timer for timer in self._scheduled if not timer.cancelled()]
        heapq.heapify(self._scheduled)
        return sorted(timer.when() - self.now for timer in self._scheduled)

    def advance(self, seconds: float) -> None:
        """Have time pass, and the callbacks of timers run that end meanwhile."""
        until = self.now + seconds
        while (due := self.due()) and self.now + due[0] <= until:
            timer = heapq.heappop(self._scheduled)
            self.now = max(self.now, timer.when())
            self._ready.append(timer)
            self.settle()
        self.now = until

    def end(self) -> None:
        """Cancel all tasks and let them end; what they still wait for does not count."""
        for _ in range(3):
            for task in self.tasks:
                task.cancel()
            self.settle()
            if self._scheduled:
                self.advance(max(self.due(), default=0.0))
        self.close()
