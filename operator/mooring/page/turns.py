"""One request that takes long at a time: others wait, and further ones are refused."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from mooring.model.indexes import add_count

_MOST_WAITING: Final = 4
"""Requests at a time; one of them is worked on."""
_MOST_OF_A_USER: Final = 2
"""Of these, so that nobody keeps others from asking."""
_SECONDS: Final = 30.0
"""How long one request may usually take."""


class TrialsBusy(Exception):  # noqa: N818 - an answer, and no error of ours
    """Too many requests wait already; the text says so."""


class TooLongError(TrialsBusy):
    """A request takes too long; the text says what takes less time."""


class Turns:
    """The turns of the requests of one kind, each within a limit of seconds.

    `most` is the number of requests that may wait or be worked on, `most_of_a_user` of one user.
    """

    def __init__(
        self,
        seconds: float = _SECONDS,
        most: int = _MOST_WAITING,
        most_of_a_user: int = _MOST_OF_A_USER,
    ) -> None:
        self._seconds, self._most, self._most_of_a_user = seconds, most, most_of_a_user
        self._one_at_a_time = asyncio.Lock()
        self._waiting = Counter[str]()

    @asynccontextmanager
    async def turn(self, hint: str, user: str = "") -> AsyncIterator[None]:
        """Wait until no other request is in work; limit the time of this one.

        `hint` tells the user how to make it quicker. Requests without a `user` are limited together
        only. Raises TrialsBusy if others wait already, and TooLongError if it takes too long.
        """
        if self._waiting.total() >= self._most:
            raise TrialsBusy("other requests are worked on; try again in some seconds")
        if user and self._waiting[user] >= self._most_of_a_user:
            text = f"{self._most_of_a_user} requests of this user are worked on; wait for an answer"
            raise TrialsBusy(text)
        self._waiting[user] += 1
        try:
            async with asyncio.timeout(self._seconds), self._one_at_a_time:
                yield
        except TimeoutError:
            raise TooLongError(f"this takes longer than {self._seconds:g} s; {hint}") from None
        finally:
            add_count(self._waiting, user, -1)
