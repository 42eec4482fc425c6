"""An event loop with the world's time: it never sleeps, opens no socket and starts no thread.

Each process of the simulated world has one. `turn` runs all ready callbacks, like one turn of
asyncio's own loop; between two turns the world may stop or end the process, or let time pass. The
argument `connect` makes connections.
"""

import asyncio
import heapq
import socket
import threading
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator


_T = TypeVar("_T")

Connect = Callable[[asyncio.BaseProtocol, str], Coroutine[Any, Any, asyncio.Transport]]
"""Connects the protocol to a host, or to the path of a socket; may raise OSError."""

_MANY_CANCELLED: Final = 100
"""So many timers that were cancelled are removed at once, if they are half of all."""


class NumberedTask(asyncio.Task[_T]):
    """A task whose hash is its number, so that a set of tasks has the same order in each run."""

    _count = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        NumberedTask._count += 1
        self._number = NumberedTask._count
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number

    @classmethod
    def start_counting(cls, at: int = 0) -> None:
        """Restart the numbers at `at`; call this before each run."""
        cls._count = at


class _Call(asyncio.Handle):
    """A planned call."""

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._context = context if context is not None else copy_context()
        self._cancelled = False
        self._repr = self._source_traceback = None


class _TimedCall(asyncio.TimerHandle):
    """A planned call with a time."""

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._context = context if context is not None else copy_context()
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._when, self._scheduled = when, True


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of one process; `now` returns the time of its clock.

    Attributes:
        errors: The contexts passed to `call_exception_handler`.
        signals: The callback of each signal.
        halted: Set this to end the present turn at once.
        is_turning: Whether a turn is running.
        ends_turn: Is called after each step; True ends the turn. None: is not called.
    """

    _ready: deque[Any]
    _scheduled: list[Any]
    _timer_cancelled_count: int

    def __init__(self, now: Callable[[], float], connect: Connect) -> None:
        super().__init__()
        self.errors: list[dict[str, Any]] = []
        self.signals: dict[int, Callable[[], object]] = {}
        self.halted = False
        self.is_turning = False
        self.ends_turn: Callable[[], bool] | None = None
        self._now = now
        self._connect = connect
        self._steps = 0
        self._at_step: Callable[[], object] | None = None
        self.set_task_factory(_numbered)
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        """Return the time on the process's clock."""
        return self._now()

    def next_due(self) -> float | None:
        """Return 0 if a callback is ready, else the time of the first timer, or None."""
        if self._ready:
            return 0.0
        timers = self._scheduled
        if timers and timers[0]._cancelled:
            self._drop_cancelled()
            timers = self._scheduled
        return timers[0]._when if timers else None

    def turn(self) -> bool:
        """Run all callbacks that are ready; return whether there were any."""
        self._ready_timers()
        ready = self._ready
        if not ready:
            return False
        self.is_turning = True
        before = self._enter()
        try:
            for _ in range(len(ready)):
                if self.halted:
                    break
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                    if self._at_step is not None and self._has_stopped():
                        break
                    if self.ends_turn is not None and self.ends_turn():
                        break
        finally:
            self._leave(before)
            self.is_turning = False
        return True

    def _ready_timers(self) -> None:
        """Move the callbacks of timers that are due to the ready callbacks."""
        if self._timer_cancelled_count > _MANY_CANCELLED:
            self._drop_cancelled()
        timers, now = self._scheduled, self._now()
        while timers and timers[0]._when <= now:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            else:
                self._ready.append(timer)

    def after_steps(self, count: int, call: Callable[[], object]) -> None:
        """Make the call after `count` steps of tasks and callbacks, and end the turn there.

        A task's step lasts from one waiting await to the next, so the call may come at any await.
        """
        self._steps, self._at_step = count, call

    def _has_stopped(self) -> bool:
        """Count a step; return whether the turn ends after this step."""
        self._steps -= 1
        if self._steps > 0 or self._at_step is None:
            return False
        call, self._at_step = self._at_step, None
        call()
        return True

    @contextmanager
    def entered(self) -> "Iterator[None]":
        """Make this the running loop inside the context."""
        before = self._enter()
        try:
            yield
        finally:
            self._leave(before)

    def _enter(self) -> asyncio.AbstractEventLoop | None:
        """Make this the running loop; return the former one."""
        before = events._get_running_loop()
        self._thread_id = threading.get_ident()
        events._set_running_loop(self)
        return before

    def _leave(self, before: asyncio.AbstractEventLoop | None) -> None:
        events._set_running_loop(before)
        self._thread_id = None  # type: ignore[assignment]  # typeshed leaves None out

    # What BaseEventLoop does too, without its questions whether it is being debugged.

    def call_soon(  # type: ignore[override]  # without type variables of its own
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Plan a call in the next turn."""
        self._check_closed()  # type: ignore[attr-defined]  # typeshed leaves it out
        handle = _Call(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # without type variables of its own
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]  # typeshed leaves it out
        timer = _TimedCall(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        return timer

    def _drop_cancelled(self) -> None:
        timers = self._scheduled
        if self._timer_cancelled_count > max(_MANY_CANCELLED, len(timers) // 2):
            kept = [timer for timer in timers if not timer._cancelled]
            heapq.heapify(kept)
            self._scheduled = kept
            self._timer_cancelled_count = 0
            return
        while timers and timers[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)

    async def getaddrinfo(  # type: ignore[override]  # only what Exchange asks for
        self, host: str, port: int, **_: Any
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        """Return one address, which is the host's name."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def create_connection(  # type: ignore[override]  # only what Exchange asks for
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        protocol = protocol_factory()
        return await self._connect(protocol, f"{host}:{port}"), protocol

    async def create_unix_connection(  # type: ignore[override]  # only what aiohttp asks for
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], path: str, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the server at the path."""
        protocol = protocol_factory()
        return await self._connect(protocol, path), protocol

    def run_in_executor(  # type: ignore[override]  # without type variables of its own
        self,
        executor: object,  # noqa: ARG002 - asyncio's signature
        func: Callable[..., Any],
        *args: Any,
    ) -> asyncio.Future[Any]:
        """Call the function at once, because no thread is started."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever awaits it gets it
            done.set_exception(error)
        return done

    def add_signal_handler(  # type: ignore[override]  # without type variables of its own
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """Store the callback of the signal."""
        self.signals[sig] = lambda: callback(*args)

    def _write_to_self(self) -> None:
        """Do nothing, because the loop never waits."""

    def _process_events(self, event_list: object) -> None:
        """Do nothing, because there are no sockets."""


def _numbered(loop: asyncio.AbstractEventLoop, coro: Any, /, **options: Any) -> asyncio.Task[Any]:
    return NumberedTask(coro, loop=loop, **options)
