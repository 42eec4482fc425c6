"""Evaluations that take long, a few milliseconds at a time."""

from collections.abc import Callable
from threading import Lock, Thread
from typing import Generic, TypeVar

from mooring.cel.values import work

__all__ = ["PausingCall"]

_Result = TypeVar("_Result")


class PausingCall(Generic[_Result]):
    """A call that evaluates an expression, and pauses every few milliseconds.

    It has a thread of its own, because an evaluation cannot leave its functions in the middle and
    come back. That thread works only while `advance` waits for it: nothing runs side by side, and
    the pauses are at the same places on every machine.
    """

    def __init__(self, call: Callable[[], _Result]) -> None:
        self._call = call
        self._may_go_on, self._has_paused = Lock(), Lock()
        self._may_go_on.acquire()
        self._has_paused.acquire()
        self._has_ended = False
        self._results: list[_Result] = []
        self._error: BaseException | None = None
        Thread(target=self._run, name="evaluation", daemon=True).start()

    def advance(self) -> bool:
        """Go on for a few milliseconds; return whether the call has ended."""
        if not self._has_ended:
            self._may_go_on.release()
            self._has_paused.acquire()
        return self._has_ended

    def result(self) -> _Result:
        """Return what the call has returned, once it has ended, or raise what it has raised."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        self._may_go_on.acquire()
        work.pause = self._pause
        try:
            self._results.append(self._call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._error = error
        self._has_ended = True
        self._has_paused.release()

    def _pause(self) -> None:
        self._has_paused.release()
        self._may_go_on.acquire()
