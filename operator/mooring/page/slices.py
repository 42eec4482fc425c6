"""Work that would hold the event loop for too long is done in slices."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from mooring.time_slices import REST, TimeSlices

__all__ = ["in_slices"]

_SLICE_SECONDS: Final = 0.002


async def in_slices(steps: Iterable[object], clock: Callable[[], float] = time.monotonic) -> None:
    """Iterate to the end; let other work run after each slice of about two milliseconds."""
    await TimeSlices(_SLICE_SECONDS, rest=REST, clock=clock).run(steps)
