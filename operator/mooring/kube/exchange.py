"""One request and one whole answer over HTTP/1.1 connections that are kept open.

The many small writes of a scheduler limit its throughput, and a general HTTP client takes longer
for a write than a decision takes. Here a request is one `write`, and an answer is one call of
httptools' parser (docs/adr/0011). Streams and proxies use aiohttp, in `mooring.kube.transport`.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

CONNECT_SECONDS: Final = 10.0

KEEPALIVE_SECONDS: Final = 25.0
"""The seconds after which a connection without a request is closed, before a server (90 s) or a
usual load balancer (30 s) closes it."""


class NoConnectionError(Exception):
    """Raised if there is no connection, so that nothing was sent; `__cause__` says why."""


class BrokenExchangeError(Exception):
    """Raised if a request was sent, but no whole answer came.

    The server may have carried it out.
    """


class NotSentError(Exception):
    """Raised if a request was not sent, because the caller no longer wanted it."""


class Answer(NamedTuple):
    """A whole answer; `retry_after` is the text of the header Retry-After."""

    status: int
    body: bytes
    retry_after: str | None


class _Wire(asyncio.Protocol):
    """One connection, and the answer that is being read from it."""

    def __init__(self, pool: "Exchange") -> None:
        self.idle_since = 0.0
        self.transport: asyncio.Transport | None = None
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Answer] | None = None
        self._retry_after: str | None = None
        self._framed = False
        self._body: list[bytes] = []
        self._most: int | None = None
        self._received = 0

    def ask(
        self, request: bytes, seconds: float | None, most: int | None
    ) -> asyncio.Future[Answer]:
        """Send the request and return a future of its answer; for the limits see `Exchange.ask`."""
        loop = self._pool.loop
        self._waiting = waiting = loop.create_future()
        self._retry_after, self._framed, self._body = None, False, []
        self._most, self._received = most, 0
        if seconds is not None:
            expiry = loop.call_later(seconds, self._break, f"no answer within {seconds:g} seconds")
            waiting.add_done_callback(lambda _: expiry.cancel())
        cast("asyncio.Transport", self.transport).write(request)
        return waiting

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:  # whatever it is, it belongs to no request
            self.abort()
            return
        self._received += len(data)
        if self._most is not None and self._received > self._most:
            self._break(f"the answer has more than {self._most} bytes")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("the server changed to another protocol than HTTP")
        except httptools.HttpParserError as error:
            self._break(f"the answer is not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and self._body and not self._framed and exc is None:
            self._finish(keep=False)  # an answer without a length ends with its connection
        self._break(str(exc) if exc else "the server closed the connection")
        self._pool.lost(self)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._waiting is None:
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif lower in {b"content-length", b"transfer-encoding"}:
            self._framed = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            # A refused client certificate belongs to the connection, and may have been replaced.
            self._finish(keep=self._parser.should_keep_alive() and status != 401)

    def _finish(self, *, keep: bool) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        status, body = self._parser.get_status_code(), b"".join(self._body)
        if not waiting.done():
            waiting.set_result(Answer(status, body, self._retry_after))
        if keep:
            self._pool.free(self)
        else:
            self.abort()

    def _break(self, why: str) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            if not waiting.done():
                waiting.set_exception(BrokenExchangeError(why))
            self.abort()


class Exchange:
    """Sends requests over up to `pool` connections; create it while the event loop runs.

    `headers` are sent with every request. `tls` True means Python's defaults. `server_name` is the
    expected name in the server's certificate, if not the URL's host.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        tls: ssl.SSLContext | bool = True,
        server_name: str | None = None,
        pool: int = 100,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._is_address = _is_address(self._host)
        self._port = parts.port or (443 if secure else 80)
        self._base = parts.path
        self._tls = (ssl.create_default_context() if tls is True else tls) if secure else None
        self._server_name = (server_name or self._host) if secure else None
        self._fixed = _lines({"Host": parts.netloc.rpartition("@")[2], **headers})
        self._slots = asyncio.Semaphore(pool)
        self._idle: deque[_Wire] = deque()
        self._open: set[_Wire] = set()
        self._closed = False
        self._none_open = asyncio.Event()
        self._tidying: asyncio.TimerHandle | None = None

    async def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        seconds: float | None,
        most: int | None = None,
        may_send: Callable[[], bool] | None = None,
    ) -> Answer:
        """Send one request once, and return its answer.

        `seconds` limits the time from sending to the end of the answer. `most` limits the bytes of
        the answer with its head. `may_send` is called immediately before sending.

        Raises:
            NoConnectionError: Nothing was sent.
            NotSentError: Nothing was sent, because `may_send` returned False.
            BrokenExchangeError: The request was sent, and its result is not known.
        """
        fields = f"{self._fixed}{_lines(headers)}"
        if body is not None:
            fields += f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._base}{target} HTTP/1.1\r\n{fields}\r\n"
        request = head.encode("latin-1") + (body or b"")
        if self._closed:
            raise NoConnectionError from OSError("the client is closed")
        async with self._slots:
            wire = self._kept() or await self._connected()
            if may_send is not None and not may_send():
                self.free(wire)
                raise NotSentError
            try:
                return await wire.ask(request, seconds, most)
            except asyncio.CancelledError:
                wire.abort()
                raise

    async def close(self) -> None:
        """Close every connection; later requests raise NoConnectionError."""
        self._closed = True
        if self._tidying is not None:
            self._tidying.cancel()
        while self._open:
            self._none_open.clear()
            for wire in self._open:
                wire.abort()
            await self._none_open.wait()

    def free(self, wire: _Wire) -> None:
        """Keep the connection for later; close it after KEEPALIVE_SECONDS without a request."""
        wire.idle_since = self.loop.time()
        self._idle.append(wire)
        if self._tidying is None and not self._closed:
            self._tidying = self.loop.call_later(KEEPALIVE_SECONDS, self._drop_idle)

    def lost(self, wire: _Wire) -> None:
        """Forget a connection that has ended."""
        self._open.discard(wire)
        if wire in self._idle:
            self._idle.remove(wire)
        if not self._open:
            self._none_open.set()

    def _drop_idle(self) -> None:
        self._tidying = None
        now = self.loop.time()
        while self._idle and self._idle[0].idle_since + KEEPALIVE_SECONDS <= now:
            self._idle.popleft().abort()
        if self._idle:
            due = self._idle[0].idle_since + KEEPALIVE_SECONDS
            self._tidying = self.loop.call_at(due, self._drop_idle)

    def _kept(self) -> _Wire | None:
        while self._idle:
            wire = self._idle.pop()
            if wire.idle_since >= self.loop.time() - KEEPALIVE_SECONDS:
                return wire
            wire.abort()
        return None

    async def _connected(self) -> _Wire:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                wire = await self._connected_to_one(await self._addresses())
        except (OSError, TimeoutError) as error:
            raise NoConnectionError from error
        self._open.add(wire)
        if self._closed:  # meanwhile
            wire.abort()
        return wire

    async def _addresses(self) -> list[str]:
        if self._is_address:
            return [self._host]
        found = await self.loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        return [*dict.fromkeys(str(address[0]) for *_, address in found)]

    async def _connected_to_one(self, addresses: list[str]) -> _Wire:
        until = self.loop.time() + CONNECT_SECONDS
        *others, last = addresses
        for number, address in enumerate(others):
            # An equal share of the time for each, as in Go's net.Dialer: a later address may
            # answer.
            share = (until - self.loop.time()) / (len(addresses) - number)
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(share):
                    return await self._connected_to(address)
        return await self._connected_to(last)

    async def _connected_to(self, address: str) -> _Wire:
        wire = _Wire(self)
        await self.loop.create_connection(
            lambda: wire,
            address,
            self._port,
            ssl=self._tls,
            server_hostname=self._server_name,
        )
        return wire


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _lines(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
