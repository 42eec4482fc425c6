"""Counts calls of functions: a measure of work, whatever else the machine does."""

import sys
from collections.abc import Callable
from types import FrameType


def calls_in(work: Callable[[], object], *, with_c: bool = True) -> int:
    """Return how many functions are called, `with_c` those that are written in C included."""
    number, counted = 0, ("call", "c_call") if with_c else ("call",)

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal number
        number += event in counted

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return number
