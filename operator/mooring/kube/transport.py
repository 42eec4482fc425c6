"""HTTP to one API server: credentials, limit, retries, timeouts, and errors in our own words.

The limiter, if there is one, counts every request. A 401 renews the credentials and is tried
once more; an answer that says `Retry-After` is waited for, a bounded number of times, because
the server has then not acted on the request. `Accept-Encoding: identity` saves the server about
a third of a list's cost.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import aiohttp
from yarl import URL

from mooring.kube.errors import UnansweredError, UnreachableError, error_from_response
from mooring.kube.lines import LineSplitter
from mooring.kube.resources import Call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping

    from mooring.kube.config import Connection
    from mooring.kube.errors import ApiError
    from mooring.kube.limiter import TokenBucket

__all__ = ["Transport"]

RETRIES: Final = 5
"""Further tries after an answer with `Retry-After`."""

LONGEST_RETRY_AFTER: Final = 10.0
"""Seconds; the server's wish is followed up to here."""

CONNECT_SECONDS: Final = 10.0

KEEPALIVE_SECONDS: Final = 25.0
"""Idle connections are dropped before a server (90 s) or a common load balancer (30 s) does."""

READ_BUFFER: Final = 256 * 1024
"""Bytes of an answer read at once: a burst of events costs one wake-up, not one each."""


class _Request(NamedTuple):
    method: str
    path: str
    params: Mapping[str, str] | None
    body: bytes | None
    headers: dict[str, str]
    timeout: aiohttp.ClientTimeout

    @property
    def call(self) -> Call:
        """The request in the words of an error; worked out only when there is one."""
        return Call.parse(self.method, self.path, watch="watch" in (self.params or {}))


class Transport:
    """A session with one API server; must be created while the event loop runs.

    `timeout` bounds each try, from waiting for a connection to the answer's last byte, in
    seconds; `pool` the open connections, of which each watch holds one.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        limiter: TokenBucket | None = None,
        timeout: float = 30.0,
        pool: int = 100,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.url = connection.url
        self._server_name = connection.server_name
        self._credentials = connection.credentials
        self._limiter = limiter
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_SECONDS)
        self._sleep = sleep
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=pool, keepalive_timeout=KEEPALIVE_SECONDS, ssl=connection.tls
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": connection.user_agent,
            },
            proxy=connection.proxy,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection, open watches included."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str | None = None,
        retries: int = RETRIES,
    ) -> bytes:
        """The body of a 2xx answer; any other outcome raises an `ApiError`."""
        headers = {"Content-Type": content_type} if body is not None else {}
        if accept is not None:
            headers["Accept"] = accept
        request = _Request(method, path, params, body, headers, self._timeout)
        tries = 0
        while True:
            response = await self._open(request)
            with self._transport_errors(request):
                answer = await response.read()
            if response.status < 300:
                return answer
            error = self._refusal(request, response, answer)
            if error.retry_after is None or tries == retries:
                raise error
            tries += 1
            await self._sleep(min(error.retry_after, LONGEST_RETRY_AFTER))

    async def watch_lines(
        self, path: str, params: Mapping[str, str], *, silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """The lines of a watch, as many at a time as have arrived; ends when the server ends it.

        The first item is empty and says that the server has accepted the watch.
        Raises UnansweredError after `silence` seconds without a byte, and when the connection
        breaks. Close the generator (`contextlib.aclosing`) to close the connection.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=silence)
        request = _Request("GET", path, {**params, "watch": "true"}, None, {}, timeout)
        async with await self._open(request) as response:
            try:
                with self._transport_errors(request):
                    if response.status >= 300:
                        raise self._refusal(request, response, await response.read())
                    yield []
                    splitter = LineSplitter()
                    while chunk := await response.content.readany():
                        if lines := splitter.feed(chunk):
                            yield lines
            finally:
                _abort(response)

    async def _open(self, request: _Request) -> aiohttp.ClientResponse:
        """The head of the answer; a 401 is tried once more with renewed credentials."""
        credentials = await self._credentials.headers()
        response = await self._send(request, credentials)
        if response.status == 401 and await self._credentials.renew(credentials):
            response.close()
            response = await self._send(request, await self._credentials.headers())
        return response

    async def _send(
        self, request: _Request, credentials: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        if self._limiter is not None:
            await self._limiter.acquire()
        with self._transport_errors(request):
            return await self._session.request(
                request.method,
                URL(self.url + request.path, encoded=True),
                params=request.params,
                data=request.body,
                headers={**request.headers, **credentials},
                timeout=request.timeout,
                server_hostname=self._server_name,
                read_bufsize=READ_BUFFER,
            )

    @contextmanager
    def _transport_errors(self, request: _Request) -> Iterator[None]:
        """Turn what aiohttp raises into UnreachableError or UnansweredError."""
        try:
            yield
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UnreachableError(request.call, _words(error), server=self.url) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnansweredError(request.call, _words(error), server=self.url) from error

    def _refusal(
        self, request: _Request, response: aiohttp.ClientResponse, answer: bytes
    ) -> ApiError:
        return error_from_response(
            request.call,
            response.status,
            answer,
            server=self.url,
            retry_after=response.headers.get("Retry-After"),
        )


def _words(error: Exception) -> str:
    """What went wrong, without the URL and the reprs that aiohttp puts around it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        return f"its certificate is not trusted: {getattr(cause, 'verify_message', cause)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error)
    return str(error) or "it took too long"


def _abort(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of an unfinished answer, for a TLS farewell waits for the other side."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
