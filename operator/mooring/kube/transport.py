"""HTTP to one API server: credentials, limit, retries, timeouts and typed errors.

The limiter, if there is one, counts every request. After a 401 the transport renews the credentials
and tries once more. After an answer with `Retry-After` it waits and tries again, a bounded number
of times; this is safe because the server has not acted on the request.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from mooring.kube.api_resources import ApiCall
from mooring.kube.config import Connection
from mooring.kube.connecting import failure_text
from mooring.kube.errors import (
    LEASE_NOT_VALID,
    NOT_WANTED,
    ApiError,
    DisruptionBudgetError,
    NotLeadingError,
    NotWantedError,
    UnansweredError,
    UnreachableError,
    error_from_response,
)
from mooring.kube.exchange import (
    CONNECT_SECONDS,
    KEEPALIVE_SECONDS,
    Answer,
    BrokenExchangeError,
    Exchange,
    NoConnectionError,
    NotSentError,
)
from mooring.kube.limiter import TokenBucket

RETRIES: Final = 5
"""The most repetitions of a request after answers with `Retry-After`; then the request fails."""

LONGEST_RETRY_AFTER: Final = 10.0
"""The most seconds to wait before a repetition, even if the server's `Retry-After` is longer."""

JSON: Final = "application/json"

REVIEWS: Final = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")
"""Paths of reviews; creating a review asks the server about a user, and writes nothing."""

READ_BUFFER: Final = 256 * 1024
"""The most bytes that one read returns, so that a burst of events wakes the process once."""


class _Request(NamedTuple):
    method: str
    path: str
    params: Mapping[str, str] | None
    body: bytes | None
    headers: dict[str, str]
    wanted: Callable[[], bool] | None = None

    @property
    def call(self) -> ApiCall:
        """The request's verb and resource, for errors; computed when there is an error."""
        return ApiCall.parse(self.method, self.path, watch="watch" in (self.params or {}))

    @property
    def is_write(self) -> bool:
        """Whether the request may change an object in the cluster."""
        return self.method != "GET" and not self.path.startswith(REVIEWS)


_AnswerT = TypeVar("_AnswerT", Answer, aiohttp.ClientResponse)

_Sender = Callable[[_Request, "Mapping[str, str]"], Awaitable[_AnswerT]]
"""A function that sends a request once, with additional headers, and returns the answer."""


class Transport:
    """Sends requests to one API server; create it while the event loop runs.

    `timeout` is the limit in seconds for a try, from sending to the answer's last byte. At most
    `pool` connections are used for requests, and as many for watches. `may_write` is called
    immediately before a write is sent or repeated; if it returns False, NotLeadingError is raised
    instead.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        limiter: TokenBucket | None = None,
        timeout: float = 30.0,
        pool: int = 100,
        may_write: Callable[[], bool] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.url = connection.url
        self._server_name = connection.server_name
        self._credentials = connection.credentials
        self._limiter = limiter
        self._timeout = timeout
        self._may_write = may_write
        self._sleep = sleep
        # Without compression, a list costs the server about a third less.
        headers = {"Accept-Encoding": "identity", "User-Agent": connection.user_agent}
        self._exchange = Exchange(
            connection.url,
            headers,
            tls=connection.tls,
            server_name=connection.server_name,
            pool=pool,
        )
        self._send = self._ask if connection.proxy is None else self._ask_by_proxy
        self._session = aiohttp.ClientSession(
            connector=connection.connector()
            if connection.connector is not None
            else aiohttp.TCPConnector(
                limit=pool, keepalive_timeout=KEEPALIVE_SECONDS, ssl=connection.tls
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            proxy=connection.proxy,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection, including open watches."""
        await self._exchange.close()
        await self._session.close()

    def may_write(self) -> bool:
        """Return whether a write would be sent at this moment."""
        return self._may_write is None or self._may_write()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        retries: int = RETRIES,
        wanted: Callable[[], bool] | None = None,
    ) -> bytes:
        """Return the body of a 2xx answer; raise an ApiError for any other outcome.

        After an answer with `Retry-After`, the request is repeated, at most `retries` times. Raises
        NotWantedError if `wanted` returns False immediately before a write is sent or repeated.
        """
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        request = _Request(method, path, params, body, headers, wanted)
        tries = 0
        while True:
            answer = await self._authorised(request, self._send)
            if answer.status < 300:
                return answer.body
            error = self._refusal(request, answer)
            pause = error.retry_after
            if pause is None or tries == retries or isinstance(error, DisruptionBudgetError):
                raise error
            tries += 1
            await self._sleep(min(pause, LONGEST_RETRY_AFTER))

    async def watch_lines(
        self, path: str, params: Mapping[str, str], *, silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield lists of the lines of a watch; use `contextlib.aclosing` to close the connection.

        The first list is empty: the server has accepted the watch. Raises UnansweredError if the
        connection breaks or is silent for `silence` seconds.
        """
        patience = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=silence)
        request = _Request("GET", path, {**params, "watch": "true"}, None, {"Accept": JSON})
        open_stream = partial(self._open, patience=patience)
        async with await self._authorised(request, open_stream) as response:
            try:
                with self._transport_errors(request):
                    if response.status >= 300:
                        raise self._refusal(request, await _whole(response))
                    yield []
                    splitter = LineSplitter()
                    while chunk := await response.content.readany():
                        if lines := splitter.feed(chunk):
                            yield lines
            finally:
                abort(response)

    async def _authorised(self, request: _Request, send: _Sender[_AnswerT]) -> _AnswerT:
        credentials = await self._credentials.headers()
        answer = await self._limited(request, send, credentials)
        if answer.status == 401 and await self._credentials.renew(credentials):
            return await self._limited(request, send, await self._credentials.headers())
        return answer

    async def _limited(
        self, request: _Request, send: _Sender[_AnswerT], credentials: Mapping[str, str]
    ) -> _AnswerT:
        if self._limiter is not None:
            await self._limiter.acquire()
        return await send(request, {**request.headers, **credentials})

    async def _ask(self, request: _Request, headers: Mapping[str, str]) -> Answer:
        target = request.path
        if request.params:
            target = f"{target}?{urlencode(request.params)}"
        try:
            return await self._exchange.ask(
                request.method,
                target,
                headers,
                request.body,
                seconds=self._timeout,
                may_send=partial(self._may_send, request) if request.is_write else None,
            )
        except NotSentError as error:
            raise self._not_sent(request) from error
        except NoConnectionError as error:
            why = failure_text(error.__cause__ or error)
            raise UnreachableError(request.call, why, server=self.url) from error
        except BrokenExchangeError as error:
            raise UnansweredError(request.call, str(error), server=self.url) from error

    async def _ask_by_proxy(self, request: _Request, headers: Mapping[str, str]) -> Answer:
        if request.is_write and not self._may_send(request):
            raise self._not_sent(request)
        patience = aiohttp.ClientTimeout(total=self._timeout, sock_connect=CONNECT_SECONDS)
        response = await self._open(request, headers, patience=patience)
        with self._transport_errors(request):
            return await _whole(response)

    async def _open(
        self, request: _Request, headers: Mapping[str, str], *, patience: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Return the response; its body is read only if the status is 300 or more."""
        with self._transport_errors(request):
            async with asyncio.timeout(self._timeout):
                response = await self._session.request(
                    request.method,
                    URL(self.url + request.path, encoded=True),
                    params=request.params,
                    data=request.body,
                    headers=headers,
                    timeout=patience,
                    server_hostname=self._server_name,
                    read_bufsize=READ_BUFFER,
                )
            if response.status >= 300:
                await response.read()
            return response

    @contextmanager
    def _transport_errors(self, request: _Request) -> Iterator[None]:
        try:
            yield
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            # aiohttp puts the URL around the cause.
            why = failure_text(error.__cause__ or error)
            raise UnreachableError(request.call, why, server=self.url) from error
        except aiohttp.ClientHttpProxyError as error:
            why = refusal_by_proxy(error)
            raise UnreachableError(request.call, why, server=self.url) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnansweredError(request.call, failure_text(error), server=self.url) from error

    def _may_send(self, request: _Request) -> bool:
        return self.may_write() and (request.wanted is None or request.wanted())

    def _not_sent(self, request: _Request) -> UnreachableError:
        if not self.may_write():
            return NotLeadingError(request.call, LEASE_NOT_VALID, server=self.url)
        return NotWantedError(request.call, NOT_WANTED, server=self.url)

    def _refusal(self, request: _Request, answer: Answer) -> ApiError:
        return error_from_response(
            request.call,
            answer.status,
            answer.body,
            server=self.url,
            retry_after=answer.retry_after,
        )


def refusal_by_proxy(error: aiohttp.ClientHttpProxyError) -> str:
    """Return the proxy's answer; `error` itself would show the proxy's URL and password."""
    return f"the proxy answers {error.status} {error.message}"


async def _whole(response: aiohttp.ClientResponse) -> Answer:
    body = await response.read()
    return Answer(response.status, body, response.headers.get("Retry-After"))


def abort(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of an unfinished answer; a TLS close would wait for the other side."""
    if (transport := transport_of(response)) is not None:
        transport.abort()


def transport_of(response: aiohttp.ClientResponse) -> asyncio.Transport | None:
    """Return the transport of an unfinished answer; None if the answer was read or closed."""
    return None if response.connection is None else response.connection.transport


class LineSplitter:
    """Cuts chunks of bytes into lines; keeps an unfinished last line for the next chunk.

    A long line that comes in many chunks is copied once, not once per chunk.
    """

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` finishes, without line ends; empty lines are left out."""
        head, *lines = chunk.split(b"\n")
        if not lines:
            self._unfinished.append(chunk)
            return []
        if self._unfinished:
            self._unfinished.append(head)
            head = b"".join(self._unfinished)
        tail = lines.pop()
        self._unfinished = [tail] if tail else []
        return [line for line in (head, *lines) if line]
