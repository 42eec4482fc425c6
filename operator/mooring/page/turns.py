"""One request that takes long at a time: others wait, and further ones are refused."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from mooring.model.indexes import add_count

_MOST_WAITING: Final = 8
"""Requests at a time; one of them is worked on."""
_SECONDS: Final = 30.0
"""How long one request may usually take."""
_TURNS_WAITED: Final = 3
"""A request waits for as long as so many others may take."""
MOST_SECONDS: Final = (_TURNS_WAITED + 1) * _SECONDS
"""How long the answer to a request may usually take, with the wait."""


class TrialsBusy(Exception):  # noqa: N818 - an answer, and no error of ours
    """Too many requests wait already; the text says so."""


class TooLongError(TrialsBusy):
    """A request takes too long; the text says what takes less time."""


class Turns:
    """The turns of the requests of one kind, each within a limit of seconds.

    `most` is the number of requests that may wait or be worked on. One request of a user may wait,
    so that users take turns.
    """

    def __init__(self, seconds: float = _SECONDS, most: int = _MOST_WAITING) -> None:
        self._seconds, self._most = seconds, most
        self._one_at_a_time = asyncio.Lock()
        self._waiting = Counter[str]()

    @asynccontextmanager
    async def turn(self, hint: str, user: str = "") -> AsyncIterator[None]:
        """Wait until no other request is in work; limit the time of this one.

        `hint` tells the user how to make it quicker. Requests without a `user` are limited together
        only. Raises TrialsBusy if others wait already or are worked on for too long, and
        TooLongError if this one takes too long.
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
