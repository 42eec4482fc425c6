"""Lets long work pause: `pause` is a plain function that is called at the head of loops.

Work that decides knows neither the event loop nor a clock. Whoever runs it decides when a pause is
due, and does other things in it: `Work.advance` runs a call until its next pause. Where nobody does
so, `pause` does nothing. Only this module knows that a greenlet makes it possible.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from threading import local
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from greenlet import getcurrent, greenlet

__all__ = [
    "Interrupted",
    "Pace",
    "Work",
    "around_pauses",
    "between_pauses",
    "pause",
    "pause_now",
    "pauses",
    "timed",
    "whole",
]

_Result = TypeVar("_Result")


class _Thread(local):
    """What this thread does."""

    active: "Work[Any] | None" = None
    """The work that runs now, if it may pause."""
    pauses = 0

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


def pauses() -> int:
    """Return how many pauses there were; in each, other tasks may have changed the cluster."""
    return _thread.pauses


class Pace(Protocol):
    """Says when work pauses."""

    @property
    def is_over(self) -> bool:
        """Whether a pause is due."""

    def clock(self) -> float:
        """Return the time in seconds."""

    def resumed(self) -> None:
        """Note that a pause is over, and what was open around it is open again."""


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
        self.around: list[Callable[[], AbstractContextManager[object]]] = []
        """What is entered for each pause, the last first."""
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
        """Pause, unless the work was cancelled."""
        if self._is_cancelled:
            return
        around, self.around = self.around, []
        try:
            with ExitStack() as entered:
                for each in reversed(around):
                    entered.enter_context(each())
                self._wait()
        finally:
            self.around = around
        if self._pace is not None:
            self._pace.resumed()

    def _wait(self) -> None:
        """Have the driver go on, until it goes on with this work."""
        _thread.pauses += 1
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


@contextmanager
def around_pauses(entered: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Have this entered for each pause that is made inside."""
    work = _thread.active
    if work is None:
        yield
        return
    work.around.append(entered)
    try:
        yield
    finally:
        work.around.remove(entered)


@contextmanager
def between_pauses(opened: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Have this open inside, but for pauses: it is closed before each, and opened anew after it."""
    with ExitStack() as stack:

        @contextmanager
        def away() -> Iterator[None]:
            stack.close()
            yield
            stack.enter_context(opened())

        stack.enter_context(opened())
        with around_pauses(away):
            yield


def whole(call: Callable[[], _Result]) -> _Result:
    """Return the result of a call that must not pause."""
    outer, _thread.active = _thread.active, None
    try:
        return call()
    finally:
        _thread.active = outer


def timed(call: Callable[[], _Result], clock: Callable[[], float]) -> tuple[_Result, float]:
    """Return the result of a call, and the seconds by the clock that it took but for pauses."""
    work = _thread.active
    began = clock() - (work.paused if work is not None else 0.0)
    result = call()
    return result, clock() - (work.paused if work is not None else 0.0) - began
