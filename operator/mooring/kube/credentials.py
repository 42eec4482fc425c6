"""The Authorization header of a connection, kept fresh while the operator runs."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from mooring.kube.errors import ConfigError
from mooring.shielding import shielded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

__all__ = ["REREAD_SECONDS", "Credentials", "NoToken", "TokenSource"]

logger = logging.getLogger(__name__)

REREAD_SECONDS: Final = 60.0
"""How long a token is used before its source is asked again; client-go's figure for token files."""


class TokenSource(Protocol):
    """Where the header's value comes from; None means that the connection needs no header.

    Both methods raise `ConfigError` when the source cannot be used.
    """

    async def current(self) -> str | None:
        """Return the value to use now; read files again, and replace what expires soon."""

    async def replaced(self) -> str | None:
        """Return a value that is obtained anew, because the server has refused the last one."""


class NoToken:
    """The source of a connection that authenticates by client certificate or not at all."""

    async def current(self) -> None:
        """Do nothing: there is nothing to send."""

    async def replaced(self) -> None:
        """Do nothing: there is nothing to send."""


class Credentials:
    """The header last obtained from `source`.

    The source is asked again after `reread` seconds (never, if None) and after a refusal. When
    that fails the present header stays: an expired one shows as 401 soon enough. What the source
    does goes on if the request is cancelled that began it, because all others need it too, and the
    next one would begin from the start.
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
        self._renewing = asyncio.Lock()
        self._logins: set[asyncio.Task[None]] = set()

    async def headers(self) -> Mapping[str, str]:
        """Return the headers to send; the same object until they change."""
        if self._clock() >= self._due:
            # Set first: while a login plugin runs, other requests go on with the present header.
            self._set_due()
            await self._outliving(self._refresh(self._source.current))
        return self._headers

    async def renew(self, refused: Mapping[str, str]) -> bool:
        """Renew after a 401 to the headers `refused`; return whether there are others to try."""
        if self._headers is refused:
            await self._outliving(self._replace(refused))
        return self._headers is not refused

    async def _replace(self, refused: Mapping[str, str]) -> None:
        async with self._renewing:  # many requests are refused at once, one login is enough
            if self._headers is refused:
                self._set_due()
                await self._refresh(self._source.replaced)

    async def _outliving(self, login: Coroutine[None, None, None]) -> None:
        """Wait for the login, which goes on if the caller is cancelled."""
        task = asyncio.create_task(login)
        self._logins.add(task)
        task.add_done_callback(self._logins.discard)
        await shielded(task)

    def _set_due(self) -> None:
        self._due = self._clock() + self._reread

    async def _refresh(self, obtain: Callable[[], Awaitable[str | None]]) -> None:
        try:
            headers = _as_headers(await obtain())
        except ConfigError as error:
            logger.warning("credentials could not be renewed, the old ones stay: %s", error)
            return
        if headers != self._headers:
            self._headers = headers


def _as_headers(value: str | None) -> Mapping[str, str]:
    return {"Authorization": value} if value else {}
