"""The Authorization header of a connection, kept fresh while the operator runs."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from mooring.kube.errors import ConfigError
from mooring.process.shielding import shielded

logger = logging.getLogger(__name__)

REREAD_SECONDS: Final = 60.0
"""The seconds after which a token's source is read again, as in client-go for token files."""
LOGIN_SECONDS: Final = 60.0
"""The seconds after which a login is given up, because its plugin may be waiting for input."""


class TokenSource(Protocol):
    """The source of the Authorization header's value; None means that no header is needed.

    Both methods raise `ConfigError` if the source cannot be used.
    """

    async def current(self) -> str | None:
        """Return the current value; read files again, and replace a value that expires soon."""

    async def replaced(self) -> str | None:
        """Obtain a new value and return it, because the server has refused the last value."""


class NoToken:
    """A TokenSource for connections without a token: with a client certificate, or anonymous."""

    async def current(self) -> None:
        """Return None, because no header is needed."""

    async def replaced(self) -> None:
        """Return None, because no header is needed."""


class Credentials:
    """The Authorization header that `source` gave last.

    The source is read again after a 401, and after `reread` seconds if set. If reading fails, the
    present header stays in use. Reading goes on if the request that caused it is cancelled, because
    other requests need the result.
    """

    def __init__(
        self,
        source: TokenSource,
        value: str | None,
        *,
        reread: float | None = REREAD_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._headers = _as_headers(value)
        self._reread = float("inf") if reread is None else reread
        self._clock = clock
        self._due = clock() + self._reread
        self._logins: dict[Callable[[], Awaitable[str | None]], asyncio.Task[None]] = {}
        """The running call of each method of the source, by the method."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers to send; the same object is returned until they change."""
        if self._clock() >= self._due:
            # Set first: while a login plugin runs, other requests go on with the present header.
            self._set_due()
            await self._login(self._source.current)
        return self._headers

    async def renew(self, refused: Mapping[str, str]) -> bool:
        """Renew the header after a 401; return whether it differs from the `refused` headers."""
        if self._headers is refused and self._source.current in self._logins:
            await self._login(self._source.current)
        if self._headers is refused:
            self._set_due()
            await self._login(self._source.replaced)
        return self._headers is not refused

    async def _login(self, obtain: Callable[[], Awaitable[str | None]]) -> None:
        # Concurrent callers share one call.
        task = self._logins.get(obtain)
        if task is None:
            task = self._logins[obtain] = asyncio.create_task(self._refresh(obtain))
            task.add_done_callback(lambda _: self._logins.pop(obtain, None))
        await shielded(task)

    def _set_due(self) -> None:
        self._due = self._clock() + self._reread

    async def _refresh(self, obtain: Callable[[], Awaitable[str | None]]) -> None:
        try:
            async with asyncio.timeout(LOGIN_SECONDS):
                headers = _as_headers(await obtain())
        except (ConfigError, TimeoutError) as error:
            why = str(error) or f"no answer within {LOGIN_SECONDS:g} seconds"
            logger.warning("credentials could not be renewed, the old ones stay: %s", why)
            return
        if headers != self._headers:
            self._headers = headers


def _as_headers(value: str | None) -> Mapping[str, str]:
    return {"Authorization": value} if value else {}
