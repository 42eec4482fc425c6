"""Counts calls of functions: a measure of work that other load on the machine does not change."""

import gc
import sys
from collections.abc import Callable
from types import FrameType


def calls_in(work: Callable[[], object], *, with_c: bool = True) -> int:
    """Return how many functions `work` calls; `with_c`: functions written in C count, too."""
    number, counted = 0, ("call", "c_call") if with_c else ("call",)

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal number
        number += event in counted

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # Hypothesis has functions called at each collection, which would count
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return number
