"""Lets long work pause so that other tasks run: its loops call the plain function `pause`.

Code that decides knows neither the event loop nor a clock. Its caller decides when to pause, and
runs other tasks in the pause: `Work.advance` runs a call until its next pause. Without such a
caller, `pause` does nothing. Only this module uses greenlets.
"""

from collections.abc import Callable
from contextlib import suppress
from threading import local
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from greenlet import getcurrent, greenlet

_Result = TypeVar("_Result")


class _Thread(local):
    active: "Work[Any] | None" = None
    """The call that runs now in this thread; None if it may not pause."""

    def __init__(self) -> None:
        self.idle = list[greenlet]()
        """Greenlets without a call to run; reused, because creating a greenlet takes long."""


_thread = _Thread()


def pause() -> None:
    """Let other tasks run, if the current work may pause and a pause is due."""
    if (work := _thread.active) is not None:
        work.pause()


def pause_now() -> None:
    """Let other tasks run, if the current work may pause."""
    if (work := _thread.active) is not None:
        work.leave()


class Pace(Protocol):
    """Tells when a pause is due."""

    @property
    def is_over(self) -> bool:
        """Whether a pause is due."""

    def clock(self) -> float:
        """Return the time, in seconds, by which pauses are measured."""


class Work(Generic[_Result]):
    """A call that may pause. Use it in `with`: the exit cancels a call that has not ended.

    The call begins at the first `advance`. Without a `pace`, it pauses at every `pause`.
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
        """The seconds of all pauses, by the clock of `pace`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def advance(self) -> bool:
        """Run the call until its next pause; return whether it has ended, or raise its error."""
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
        """Return the result of the call, which must have ended, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def cancel(self) -> None:
        """End the call: raise Interrupted at its present pause, and make no more pauses."""
        if self._worker is not None and not self._has_ended:
            self._is_cancelled = True
            with suppress(Interrupted):
                self.advance()

    def pause(self) -> None:
        """Let other tasks run, if a pause is due."""
        if self._pace is None or self._pace.is_over:
            self.leave()

    def leave(self) -> None:
        """Pause now; the work continues at the next `advance`.

        Raise Interrupted if the work is cancelled in this pause. Do nothing if the work was
        cancelled earlier.
        """
        if self._is_cancelled:
            return
        began = self._pace.clock() if self._pace is not None else 0.0
        cast("greenlet", self._driver).switch()
        if self._is_cancelled:
            raise Interrupted
        self.paused += self._pace.clock() - began if self._pace is not None else 0.0

    def run(self) -> "greenlet":
        """Run the call to its end; return the greenlet that called `advance` and now continues."""
        try:
            self._results.append(self._call())
        except BaseException as error:  # noqa: BLE001 - `advance` raises it
            self._error = error
        self._has_ended = True
        return cast("greenlet", self._driver)


class Interrupted(BaseException):
    """Raised inside work, at one of its pauses, to end it.

    It is not an error of a plugin, and no plugin may catch it.
    """


def _run_each(work: Work[Any]) -> None:
    """Run `work` in this greenlet; then run each `Work` that `_go_on` gives to the greenlet."""
    while True:
        driver = work.run()
        del work
        _thread.idle.append(getcurrent())
        work = driver.switch()


def worked(clock: Callable[[], float]) -> float:
    """Return the clock's time minus the seconds for which the current work has paused."""
    work = _thread.active
    return clock() - work.paused if work is not None else clock()


def timed(call: Callable[[], _Result], clock: Callable[[], float]) -> tuple[_Result, float]:
    """Return the result of a call, and the seconds that it took without pauses."""
    began = worked(clock)
    result = call()
    return result, worked(clock) - began
