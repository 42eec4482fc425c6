"""Waits for work, such as a sent request, that goes on even if the waiter is cancelled."""

import asyncio
from typing import TypeVar

_Result = TypeVar("_Result")


async def shielded(work: "asyncio.Future[_Result]") -> _Result:
    """Return the result of the work; if the caller is cancelled, the work goes on."""
    try:
        await asyncio.wait((work,))
    except asyncio.CancelledError:
        # `asyncio.shield` would log a later error of the work, with a traceback.
        work.add_done_callback(_mark_as_seen)
        raise
    return work.result()


def _mark_as_seen(work: "asyncio.Future[_Result]") -> None:
    if not work.cancelled():
        work.exception()
