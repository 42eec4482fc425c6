"""Runs slow requests one at a time; other requests wait, or are refused if too many wait."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from mooring.model.indexes import add_count

_MOST_WAITING: Final = 8
"""The most requests that wait or run (one runs at a time); further requests are refused."""
_SECONDS: Final = 30.0
"""The usual limit in seconds for a running request, which then fails with TooLongError."""
_TURNS_WAITED: Final = 3
"""The most time that a request waits, as a multiple of the limit for one request."""
MOST_SECONDS: Final = (_TURNS_WAITED + 1) * _SECONDS
"""The usual limit in seconds for the time of an answer, including the wait."""


class TrialsBusy(Exception):  # noqa: N818 - an answer, and no error of ours
    """Raised if too many requests wait; the text is for the user."""


class TooLongError(TrialsBusy):
    """Raised if a request takes too long; the text says how to make it quicker."""


class Turns:
    """Runs requests one at a time; each request may take a limited number of seconds.

    `most` is the number of requests that may wait or run. Only one request of a user may wait, so
    that all users get a turn.
    """

    def __init__(self, seconds: float = _SECONDS, most: int = _MOST_WAITING) -> None:
        self._seconds, self._most = seconds, most
        self._one_at_a_time = asyncio.Lock()
        self._waiting = Counter[str]()

    @asynccontextmanager
    async def turn(self, hint: str, user: str = "") -> AsyncIterator[None]:
        """Return a context in which no other request runs, for a limited time.

        `hint` tells the user how to make the request quicker.

        Raises:
            TrialsBusy: The request may not wait, or waits too long.
            TooLongError: The request runs too long.
        """
        busy = "other requests are worked on; try again in some seconds"
        if self._waiting.total() + self._one_at_a_time.locked() >= self._most:
            raise TrialsBusy(busy)
        if user and self._waiting[user]:
            raise TrialsBusy("a request of this user waits already; wait for its answer")
        self._waiting[user] += 1
        try:
            async with asyncio.timeout(_TURNS_WAITED * self._seconds):
                await self._one_at_a_time.acquire()
        except TimeoutError:
            raise TrialsBusy(busy) from None
        finally:
            add_count(self._waiting, user, -1)
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            raise TooLongError(f"this takes longer than {self._seconds:g} s; {hint}") from None
        finally:
            self._one_at_a_time.release()
