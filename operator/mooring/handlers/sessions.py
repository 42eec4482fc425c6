"""The HTTP sessions that kopf works with, and how they end.

kopf writes the status of profiles, so its writes are guarded by the lease like Mooring's own.

kopf starts a task for every object of a list, which costs several times what the pod itself does,
and thousands of pods may wait when a replica begins to lead. So the pods of the first list are
handed over here, and kopf gets that list empty: it watches what comes after it. A later list goes
through kopf, because events from before it may wait in kopf's tasks, and versions must not overtake
each other.

kopf cancels its requests when it stops. A cancelled request is finished here all the same, because
asyncio never closes a connection that is cancelled before its TLS handshake has begun. Connections
of open answers are aborted, because closing a TLS connection waits for the other side: those of
watches at once, the others last, because kopf logs the broken answer to a write as an error, with a
traceback.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Protocol
from weakref import WeakSet

import aiohttp
import kopf
import orjson
from yarl import URL

from mooring.kube.config import Connection
from mooring.kube.errors import LEASE_NOT_VALID
from mooring.kube.nesting import cut_nesting, parsed
from mooring.kube.resources import POD
from mooring.kube.transport import abort, transport_of

__all__ = ["KopfSessions", "OnPods", "OnWatch"]

_LAST_SECONDS: Final = 1.0
"""How long requests may take to get an answer once kopf has stopped."""


OnPods = Callable[[list[dict[str, Any]]], Awaitable[None]]
"""Takes the pods of a page of the first list after kopf's start."""


class OnWatch(Protocol):
    """Is told what kopf watches, by the path of the resource."""

    def __call__(self, path: str, *, accepted: bool) -> None:
        """A list or watch of `path` is sent, or (`accepted`) the server has accepted its watch."""


class KopfSessions:
    """Sessions with our own credentials and TLS, one per login of kopf's.

    `on_pods` gets the pods that are listed before kopf watches pods for the first time.
    `may_write` is called immediately before each write is sent. Where it returns False, the write
    is not sent, and kopf sees an `aiohttp.ClientConnectionError`, after which it tries again.
    """

    def __init__(
        self,
        connection: Connection,
        on_watch: OnWatch,
        on_pods: OnPods,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._connection = connection
        self._on_watch = on_watch
        self._on_pods = on_pods
        self._has_watched_pods = False
        self._request_class = _guarded_request(may_write)
        self._base = URL(connection.url).path.rstrip("/")
        self._sessions: list[aiohttp.ClientSession] = []
        self._requests: set[asyncio.Future[aiohttp.ClientResponse]] = set()
        self._watches: WeakSet[aiohttp.ClientResponse] = WeakSet()
        self._answers: WeakSet[aiohttp.ClientResponse] = WeakSet()
        self._is_ending = False
        self._transports: list[asyncio.Transport] = []
        """Of other answers that are open while kopf ends; a cancelled reader drops its own."""

    async def log_in(self, **_: Any) -> kopf.AiohttpSession:
        """A login handler for kopf."""
        connection = self._connection
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=connection.tls),
            headers={"User-Agent": connection.user_agent},
            middlewares=(self._send,),
            request_class=self._request_class,
            proxy=connection.proxy,
        )
        self._sessions.append(session)
        return kopf.AiohttpSession(server=connection.url, aiohttp_session=session)

    def hang_up(self) -> None:
        """Stop reading every watch, from now on; to be called before kopf's tasks are cancelled.

        Other answers can be read until `close`.
        """
        self._is_ending = True
        for watch in self._watches:
            _hang_up(watch)
        for answer in self._answers:
            self._note_transport(answer)

    async def close(self) -> None:
        """Close every connection; to be called when kopf's tasks have ended."""
        if self._requests:
            _, late = await asyncio.wait(self._requests, timeout=_LAST_SECONDS)
            for request in late:
                request.cancel()
        for transport in self._transports:
            transport.abort()
        for answer in (*self._watches, *self._answers):
            answer.close()
        while self._sessions:
            await self._sessions.pop().close()

    async def _send(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        request.headers.update(await self._connection.credentials.headers())
        path = request.url.path.removeprefix(self._base)
        if request.method == "GET":
            self._on_watch(path, accepted=False)
        answer = await self._finished(send(request))
        is_watch = "watch" in request.url.query
        (self._watches if is_watch else self._answers).add(answer)
        if self._is_ending:
            _hang_up(answer) if is_watch else self._note_transport(answer)
        # aiohttp declares a StreamReader, of which kopf and the answer itself use two methods.
        content: _Content = _CutContent(answer.content)
        if path == POD.path() and not self._has_watched_pods and answer.status == 200:
            if is_watch:
                self._has_watched_pods = True
            else:
                content = _PodList(answer.content, self._on_pods)
        answer.content = content  # type: ignore[assignment]
        if is_watch and answer.status == 200:
            self._on_watch(path, accepted=True)
        return answer

    def _note_transport(self, answer: aiohttp.ClientResponse) -> None:
        if (transport := transport_of(answer)) is not None:
            self._transports.append(transport)

    async def _finished(self, sending: Awaitable[aiohttp.ClientResponse]) -> aiohttp.ClientResponse:
        """The head of the answer, which a cancelled caller leaves to be hung up on."""
        request = asyncio.ensure_future(sending)
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        try:
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            request.add_done_callback(_drop)
            raise


def _guarded_request(may_write: Callable[[], bool]) -> type[aiohttp.ClientRequest]:
    """The class of requests that are sent only if they read, or if `may_write` returns True."""

    class GuardedRequest(aiohttp.ClientRequest):
        """Checks here, and not in a middleware, because connecting comes in between and waits."""

        async def send(self, conn: Any) -> aiohttp.ClientResponse:
            if self.method != "GET" and not may_write():
                raise aiohttp.ClientConnectionError(LEASE_NOT_VALID)
            return await super().send(conn)

    return GuardedRequest


class _Content:
    """The body of an answer; all that a subclass does not change is as the server sent it."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)


class _CutContent(_Content):
    """The body of an answer, cut where it is nested too deeply to be parsed.

    Any user may write such managed fields into a pod, and kopf would end its watch of all pods.
    """

    async def read(self, n: int = -1) -> bytes:
        """The whole body, or `n` bytes of it."""
        data = await self._content.read(n)
        return cut_nesting(data) if n < 0 else data

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        """The body, in whole lines."""
        lines: list[bytes] = []
        async for data in self._content.iter_chunked(n):
            *whole, rest = data.split(b"\n")
            for line in whole:
                yield cut_nesting(b"".join((*lines, line))) + b"\n"
                lines.clear()
            lines.append(rest)
        if last := b"".join(lines):
            yield cut_nesting(last)


class _PodList(_Content):
    """The body of a list of pods, without the pods, which `on_pods` gets."""

    def __init__(self, content: aiohttp.StreamReader, on_pods: OnPods) -> None:
        super().__init__(content)
        self._on_pods = on_pods

    async def read(self, n: int = -1) -> bytes:
        """The whole body with an empty list, or `n` bytes of it as it is."""
        data = await self._content.read(n)
        if n >= 0:
            return data
        try:
            page = parsed(data)
            pods = page["items"] or []
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return data  # kopf says what is wrong with it
        del data  # thousands of pods take megabytes
        await self._on_pods(pods)
        return orjson.dumps({**page, "items": []})


def _drop(request: asyncio.Future[aiohttp.ClientResponse]) -> None:
    if not request.cancelled() and request.exception() is None:
        _hang_up(request.result())


def _hang_up(answer: aiohttp.ClientResponse) -> None:
    abort(answer)
    answer.close()
