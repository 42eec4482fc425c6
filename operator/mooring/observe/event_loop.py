"""Measures how long each step of a task holds the event loop.

Nothing else runs during a step: no watch is read, no binding is sent, and no lease is renewed.
Callbacks outside of tasks are not measured; they only pass data on.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Final

logger = logging.getLogger(__name__)

SHORTEST_SECONDS: Final = 0.001
"""The duration in seconds from which a step is reported; thousands of steps per second are
shorter."""
_LONG_SECONDS: Final = 1.0
"""The duration in seconds from which a step is logged, because users notice the delay."""


_Steps = Coroutine[Any, Any, Any] | Generator[Any, None, Any]


@dataclass(eq=False, repr=False)
class HoldTimer:
    """A task factory that reports to `held` each step of a millisecond or longer.

    `held` gets the duration in seconds and the name of the task's coroutine. `clock` is in seconds;
    it must count the time of other processes, too.
    """

    held: Callable[[float, str], object]
    clock: Callable[[], float] = time.monotonic

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: _Steps,
        **options: Any,
    ) -> "asyncio.Task[Any]":
        """Return a task for the coroutine; the task reports its long steps."""
        return asyncio.Task(_Timed(coro, self.held, self.clock), loop=loop, **options)


class _Timed(Coroutine[Any, Any, Any]):
    """A coroutine that measures its steps."""

    __slots__ = ("_clock", "_coro", "_held")

    def __init__(
        self,
        coro: _Steps,
        held: Callable[[float, str], object],
        clock: Callable[[], float],
    ) -> None:
        self._coro = coro
        self._held = held
        self._clock = clock

    def send(self, value: Any) -> Any:
        clock = self._clock
        began = clock()
        try:
            return self._coro.send(value)
        finally:
            if (seconds := clock() - began) >= SHORTEST_SECONDS:
                self._tell(seconds)

    def throw(self, *error: Any) -> Any:
        began = self._clock()
        try:
            return self._coro.throw(*error)
        finally:
            if (seconds := self._clock() - began) >= SHORTEST_SECONDS:
                self._tell(seconds)

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Any:
        return self._coro.__await__() if isinstance(self._coro, Coroutine) else self._coro

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coro, name)

    def _tell(self, seconds: float) -> None:
        self._held(seconds, getattr(self._coro, "__qualname__", type(self._coro).__name__))


def log_long_hold(seconds: float, task: str) -> None:
    """Log the task if it held the event loop for a second or longer."""
    if seconds >= _LONG_SECONDS:
        logger.warning("%s held the event loop for %.1f seconds", task, seconds)
