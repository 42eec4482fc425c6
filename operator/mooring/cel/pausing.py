"""Evaluations that take long, a few milliseconds at a time."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mooring.cel.values import work
from mooring.pausing import Work, pause_now

__all__ = ["PausingCall"]

_Result = TypeVar("_Result")


class PausingCall(Generic[_Result]):
    """A call that evaluates an expression, and pauses every few milliseconds.

    The pauses are at the same places on every machine. What the evaluation may still do is its own:
    other evaluations may run in its pauses.
    """

    def __init__(self, call: Callable[[], _Result]) -> None:
        self._call = Work(call)
        self._left: dict[str, Any] = {"pause": pause_now}

    def advance(self) -> bool:
        """Go on for a few milliseconds; return whether the call has ended. Raise what it raises."""
        outer = work.exchange(self._left)
        try:
            return self._call.advance()
        finally:
            self._left = work.exchange(outer)

    def result(self) -> _Result:
        """Return what the call has returned, once it has ended."""
        return self._call.result()
