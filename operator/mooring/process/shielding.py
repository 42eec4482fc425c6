"""Waits for work, such as a sent request, that goes on even if the waiter is cancelled."""

import asyncio
from typing import TypeVar

_Result = TypeVar("_Result")


async def shielded(work: "asyncio.Future[_Result]") -> _Result:
    """Return the result of the work; if the caller is cancelled, the work goes on.

    If the work fails after the caller was cancelled, its error is dropped. `asyncio.shield` would
    log the error with a traceback.
    """
    try:
        await asyncio.wait((work,))
    except asyncio.CancelledError:
        work.add_done_callback(_mark_as_seen)
        raise
    return work.result()


def _mark_as_seen(work: "asyncio.Future[_Result]") -> None:
    if not work.cancelled():
        work.exception()
