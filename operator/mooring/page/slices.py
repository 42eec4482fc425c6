"""Work that would hold the event loop for too long is done in slices."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from mooring.engine.pod_report import REST

__all__ = ["in_slices"]

_SLICE_SECONDS: Final = 0.002


async def in_slices(steps: Iterable[object], clock: Callable[[], float] = time.monotonic) -> None:
    """Iterate to the end; let other work run after each slice of about two milliseconds."""
    began = clock()
    for _ in steps:
        took = clock() - began
        if took >= _SLICE_SECONDS:
            await asyncio.sleep(REST * took)
            began = clock()
