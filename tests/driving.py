"""Runs work that pauses to its end."""

from collections.abc import Callable
from typing import TypeVar

from mooring.pausing import Work
from mooring.process.time_slices import TimeSlices

_Result = TypeVar("_Result")


def driven(
    call: Callable[[], _Result],
    in_pause: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = lambda: 0.0,
) -> tuple[_Result, int]:
    """Return the result of a call that pauses at every opportunity, and the number of pauses.

    `in_pause` is called in each pause; `clock` returns seconds.
    """
    pauses = 0
    with Work(call, TimeSlices(0.0, clock=clock)) as work:
        while not work.advance():
            pauses += 1
            in_pause()
        return work.result(), pauses
