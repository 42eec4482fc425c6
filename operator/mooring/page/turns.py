"""One request that takes long at a time: others wait, and further ones are refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_MOST_WAITING: Final = 4
"""Requests at a time; one of them is worked on."""
_SECONDS: Final = 30.0
"""How long one request may usually take."""


class TrialsBusy(Exception):  # noqa: N818 - an answer, and no error of ours
    """Too many requests wait already, or this one takes too long; the text says which."""


class Turns:
    """The turns of the requests of one kind, each within a limit of seconds.

    `most` is the number of requests that may wait or be worked on.
    """

    def __init__(self, seconds: float = _SECONDS, most: int = _MOST_WAITING) -> None:
        self._seconds, self._most = seconds, most
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def turn(self, hint: str) -> AsyncIterator[None]:
        """Wait until no other request is in work; limit the time of this one.

        `hint` tells the user how to make it quicker. Raises TrialsBusy if others wait already, or
        if it takes too long.
        """
        if self._waiting >= self._most:
            raise TrialsBusy("other requests are worked on; try again in some seconds")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._seconds), self._one_at_a_time:
                yield
        except TimeoutError:
            raise TrialsBusy(f"this takes longer than {self._seconds:g} s; {hint}") from None
        finally:
            self._waiting -= 1
