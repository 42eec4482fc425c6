"""Lets long work pause: `pause` is a plain function that is called at the head of loops.

Work that decides knows neither the event loop nor a clock. The driver of the work decides when a
pause is due, and runs other tasks in it: `Work.advance` runs a call until its next pause. Where
nobody does so, `pause` does nothing. Only this module knows that a greenlet makes it possible.
"""

from collections.abc import Callable
from contextlib import suppress
from threading import local
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from greenlet import getcurrent, greenlet

_Result = TypeVar("_Result")


class _Thread(local):
    """What this thread does."""

    active: "Work[Any] | None" = None
    """The work that runs now, if it may pause."""

    def __init__(self) -> None:
        self.idle = list[greenlet]()
        """Greenlets without work: to make one takes as long as ten pauses."""


_thread = _Thread()


def pause() -> None:
    """Let other tasks run, if this is work that may pause and a pause is due."""
    if (work := _thread.active) is not None:
        work.pause()


def pause_now() -> None:
    """Let other tasks run, if this is work that may pause."""
    if (work := _thread.active) is not None:
        work.leave()


class Pace(Protocol):
    """Says when work pauses."""

    @property
    def is_over(self) -> bool:
        """Whether a pause is due."""

    def clock(self) -> float:
        """Return the time in seconds."""


class Work(Generic[_Result]):
    """A call that may pause. To be used in `with`, which cancels what has not ended.

    The call begins at the first `advance`. Without a `pace` it pauses wherever it may.
    """

    def __init__(self, call: Callable[[], _Result], pace: Pace | None = None) -> None:
        self._call = call
        self._pace = pace
        self._worker: greenlet | None = None
        self._driver: greenlet | None = None
        self._has_ended = self._is_cancelled = False
        self._results: list[_Result] = []
        self._error: BaseException | None = None
        self.paused = 0.0
        """Seconds of all pauses, by the clock of the pace."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def advance(self) -> bool:
        """Go on until the next pause; return whether the call has ended. Raise what it raises."""
        if not self._has_ended:
            self._go_on()
        if self._error is not None:
            raise self._error
        return self._has_ended

    def _go_on(self) -> None:
        if self._worker is None:
            self._worker = _thread.idle.pop() if _thread.idle else greenlet(_run_each)
        self._driver = getcurrent()
        self._worker.gr_context = self._driver.gr_context
        outer, _thread.active = _thread.active, self
        try:
            self._worker.switch(self)
        finally:
            _thread.active = outer

    def result(self) -> _Result:
        """Return what the call has returned, once it has ended, or raise what it has raised."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def cancel(self) -> None:
        """End the call by an exception at its pause; on its way out it does not pause any more."""
        if self._worker is not None and not self._has_ended:
            self._is_cancelled = True
            with suppress(Interrupted):
                self.advance()

    def pause(self) -> None:
        """Pause if that is due."""
        if self._pace is None or self._pace.is_over:
            self.leave()

    def leave(self) -> None:
        """Pause, unless the work was cancelled: its driver goes on until it advances this."""
        if self._is_cancelled:
            return
        began = self._pace.clock() if self._pace is not None else 0.0
        cast("greenlet", self._driver).switch()
        if self._is_cancelled:
            raise Interrupted
        self.paused += self._pace.clock() - began if self._pace is not None else 0.0

    def run(self) -> "greenlet":
        """Run the call to its end; return who waits for that."""
        try:
            self._results.append(self._call())
        except BaseException as error:  # noqa: BLE001 - `advance` raises it
            self._error = error
        self._has_ended = True
        return cast("greenlet", self._driver)


class Interrupted(BaseException):
    """Ends work in a pause. No plugin that it passes through has failed, or may catch it."""


def _run_each(work: Work[Any]) -> None:
    """Run one work after the other, each with pauses; the body of a greenlet."""
    while True:
        driver = work.run()
        del work
        _thread.idle.append(getcurrent())
        work = driver.switch()


def worked(clock: Callable[[], float]) -> float:
    """Return the time by the clock, without the seconds in which the present work has paused."""
    work = _thread.active
    return clock() - work.paused if work is not None else clock()


def timed(call: Callable[[], _Result], clock: Callable[[], float]) -> tuple[_Result, float]:
    """Return the result of a call, and its seconds by the clock without those of pauses."""
    began = worked(clock)
    result = call()
    return result, worked(clock) - began
