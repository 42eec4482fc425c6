"""The HTTP sessions that kopf uses, and how they end.

kopf should write nothing. If it does, its writes are guarded by the lease like Mooring's own.

kopf starts a task for every object of a list. The task costs several times as much as Mooring's own
work for the pod, and thousands of pods may wait when a replica begins to lead. So this module
handles the pods of the first list itself, and gives kopf an empty list. A later list goes through
kopf: earlier events may still wait in kopf's tasks, and versions must not overtake each other.
`PodEventFilter` handles most events of the watch without kopf.

When kopf stops, it cancels its requests. A cancelled request goes on here until its answer begins,
because asyncio never closes a connection that is cancelled before its TLS handshake. If an answer
is still being read, its connection is aborted, because closing TLS waits for the other side. First,
the watches are aborted. Other connections are aborted only after kopf's tasks have ended, because
kopf logs a write that is cut off as an error with a traceback.

kopf never sees a 401, because it would log in again, and close the session of all its other
requests. Credentials are renewed here; if this fails, kopf tries again later, as after a server
error. A malformed list or event would end kopf with a TypeError; so kopf sees a broken answer
instead, and its next request is sent after a pause.
"""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, Protocol
from weakref import WeakSet

import aiohttp
import kopf
import orjson
from yarl import URL

from mooring.handlers.bursts import PodEventFilter
from mooring.kube.api_resources import POD, PRIORITY_CLASS, SCHEDULING_PROFILE, ApiCall, Resource
from mooring.kube.backoff import Backoff
from mooring.kube.config import Connection
from mooring.kube.errors import LEASE_NOT_VALID, UnauthorizedError, explain
from mooring.kube.nesting import cut_nesting
from mooring.kube.response_checks import WatchEvent, event_of, items_of, parsed
from mooring.kube.transport import LineSplitter, abort, refusal_by_proxy, transport_of
from mooring.model.manifest_error import ManifestError
from mooring.process.shielding import shielded
from mooring.process.time_slices import TimeSlices

logger = logging.getLogger(__name__)

MOST_GARBAGE_BYTES: Final = 2**25
"""The bytes of large JSON objects received between two collections of young garbage."""
_LARGE_BYTES: Final = 2**14
"""Objects with fewer bytes of JSON are not counted toward `MOST_GARBAGE_BYTES`."""

BOOKMARK_EVENTS: Final = 100
"""The number of events that kopf does not get before it gets a bookmark."""

_SLOW_BYTES: Final = 2**18
"""Other tasks run after a watch event with this many bytes: its parsing takes a millisecond or
more."""

_WATCHED: Final = (POD, SCHEDULING_PROFILE, PRIORITY_CLASS)
"""The resources that kopf lists and watches."""

_SESSION_CLOSED: Final = "[SSL: APPLICATION_DATA_AFTER_CLOSE_NOTIFY]"
"""An SSL error with this text is hidden from kopf, which would log in again as after a 401."""

_LAST_SECONDS: Final = 1.0
"""How many seconds running requests may still take once kopf has stopped."""


OnPods = Callable[[list[dict[str, Any]]], Awaitable[None]]
"""A function that takes the pods of one page of kopf's first list."""


class OnWatch(Protocol):
    """A function that is called for each list and watch that kopf requests."""

    def __call__(self, path: str, *, accepted: bool) -> None:
        """Report a request of kopf for `path`; `accepted` is True once its watch works."""


@dataclass(eq=False, repr=False)
class KopfSessions:
    """Sessions with our own credentials and TLS, one for each login of kopf.

    Attributes:
        on_pods: Called with the pods of the first list. Also called with [] if a later list is
            empty, because kopf calls no handler for an empty list.
        bursts: Gets the events of the watch of pods, and leaves some of them to kopf.
        may_write: Called immediately before each write is sent. If it returns False, kopf gets an
            `aiohttp.ClientConnectionError` and tries again.
    """

    connection: Connection
    on_watch: OnWatch
    on_pods: OnPods
    bursts: PodEventFilter
    may_write: Callable[[], bool] = lambda: True
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._has_watched_pods = False
        self._reads = {resource.path(): _Read(resource) for resource in _WATCHED}
        self._garbage = _Garbage()
        self._request_class = _guarded_request(self.may_write)
        self._base = URL(self.connection.url).path.rstrip("/")
        self._sessions: list[aiohttp.ClientSession] = []
        self._requests: set[asyncio.Future[aiohttp.ClientResponse]] = set()
        self._watches: WeakSet[aiohttp.ClientResponse] = WeakSet()
        self._answers: WeakSet[aiohttp.ClientResponse] = WeakSet()
        self._is_ending = False
        self._transports: list[asyncio.Transport] = []
        """The connections of unfinished answers, except watches; `close` aborts them."""

    async def log_in(self, **_: Any) -> kopf.AiohttpSession:
        """Return a new session; kopf calls this to log in."""
        connection = self.connection
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
        """End all watches; call this before kopf's tasks are cancelled.

        Answers to other requests can be read until `close`.
        """
        self._is_ending = True
        for watch in self._watches:
            _hang_up(watch)
        for answer in self._answers:
            self._note_transport(answer)

    async def close(self) -> None:
        """Close every connection; call this when kopf's tasks have ended."""
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
        path = request.url.path.removeprefix(self._base)
        is_watch = "watch" in request.url.query
        read = None
        if request.method == "GET":
            self.on_watch(path, accepted=False)
            if (read := self._reads.get(path)) is not None and read.trouble:
                await self.sleep(read.backoff.pause())
        answer = await self._authorised(request, send, path)
        (self._watches if is_watch else self._answers).add(answer)
        if self._is_ending:
            _hang_up(answer) if is_watch else self._note_transport(answer)
        # aiohttp declares a StreamReader, of which kopf and the answer itself use two methods.
        content: Any = answer.content
        if read is not None and answer.status == 200:
            content = self._checked(content, read, request.url.query, is_watch=is_watch)
        else:
            content = _CutContent(content)
        answer.content = content
        if is_watch and answer.status == 200 and not (read is not None and read.trouble):
            self.on_watch(path, accepted=True)
        return answer

    async def _authorised(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType, path: str
    ) -> aiohttp.ClientResponse:
        credentials = self.connection.credentials
        for _ in range(2):
            headers = await credentials.headers()
            request.headers.update(headers)
            try:
                answer = await self._finished(send(request))
            except aiohttp.ClientConnectionError as error:
                if _SESSION_CLOSED in str(error):
                    raise aiohttp.ClientConnectionError("the connection was closed") from error
                raise
            except aiohttp.ClientHttpProxyError as error:  # which kopf would log with the password
                raise aiohttp.ClientConnectionError(refusal_by_proxy(error)) from None
            if answer.status != 401:
                return answer
            _hang_up(answer)
            if not await credentials.renew(headers):
                break
        call = ApiCall.parse(request.method, path, watch="watch" in request.url.query)
        refusal = UnauthorizedError(call, "Unauthorized", server=self.connection.url)
        raise aiohttp.ClientConnectionError(explain(refusal))

    def _checked(
        self, content: Any, read: "_Read", query: Mapping[str, str], *, is_watch: bool
    ) -> "_Content":
        if is_watch:
            self._has_watched_pods |= read.resource is POD
            path = read.resource.path()
            bursts = self.bursts if read.resource is POD else None
            told = partial(self.on_watch, path, accepted=True)
            return _Watch(content, read, self._garbage, told, bursts)
        hands_over = read.resource is POD and not self._has_watched_pods
        goes_on = "continue" in query
        return _List(
            content, read, self.on_pods, self.bursts, hands_over=hands_over, goes_on=goes_on
        )

    def _note_transport(self, answer: aiohttp.ClientResponse) -> None:
        if (transport := transport_of(answer)) is not None:
            self._transports.append(transport)

    async def _finished(self, sending: Awaitable[aiohttp.ClientResponse]) -> aiohttp.ClientResponse:
        """Return the head of the answer; if cancelled, the request goes on."""
        request = asyncio.ensure_future(sending)
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        try:
            return await shielded(request)
        except asyncio.CancelledError:
            request.add_done_callback(_drop)
            raise


def _guarded_request(may_write: Callable[[], bool]) -> type[aiohttp.ClientRequest]:
    class GuardedRequest(aiohttp.ClientRequest):
        """Calls `may_write` when a connection is free; a middleware would call it too early."""

        async def send(self, conn: Any) -> aiohttp.ClientResponse:
            if self.method != "GET" and not may_write():
                raise aiohttp.ClientConnectionError(LEASE_NOT_VALID)
            return await super().send(conn)

    return GuardedRequest


class _Content:
    """The body of an answer, with all attributes of `content`."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)


class _CutContent(_Content):
    """The body of an answer without values that are nested too deeply for kopf."""

    async def read(self, n: int = -1) -> bytes:
        """Return the body, with strings for values nested too deeply; raw bytes if `n` >= 0."""
        # Any user may write such values into the managed fields of a pod.
        data = await self._content.read(n)
        return cut_nesting(data) if n < 0 else data

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        """Yield the body line by line; the body is read in chunks of up to `n` bytes."""
        lines: list[bytes] = []
        async for data in self._content.iter_chunked(n):
            *whole, rest = data.split(b"\n")
            for line in whole:
                yield cut_nesting(b"".join((*lines, line))) + b"\n"
                lines.clear()
            lines.append(rest)
        if last := b"".join(lines):
            yield cut_nesting(last)


@dataclass(slots=True)
class _Read:
    """Whether kopf's lists and watches of a resource work."""

    resource: Resource
    backoff: Backoff = field(
        default_factory=lambda: Backoff(Random())  # noqa: S311 - spreads load, hides nothing
    )
    trouble: str = ""

    def broken(self, what: str, error: ManifestError) -> aiohttp.ClientPayloadError:
        """Log that the list or watch (`what`) is malformed; return the error for kopf."""
        text = f"kopf's {what} of {self.resource} is malformed: {error}"
        if text != self.trouble:
            logger.warning("%s; it is asked for again", text)
        self.trouble = text
        return aiohttp.ClientPayloadError(text)

    def works(self) -> None:
        """Reset `trouble` and `backoff` after a valid list or event; log this after trouble."""
        if self.trouble:
            logger.info("kopf can read %s again", self.resource)
        self.trouble = ""
        self.backoff.reset()


class _List(_Content):
    """The body of a page of a list; `goes_on` is False for the first page.

    If `hands_over` is True, `on_pods` gets the page's objects, and kopf gets an empty page.
    """

    def __init__(
        self,
        content: aiohttp.StreamReader,
        read: _Read,
        on_pods: OnPods,
        bursts: PodEventFilter,
        *,
        hands_over: bool,
        goes_on: bool,
    ) -> None:
        super().__init__(content)
        self._read = read
        self._on_pods = on_pods
        self._bursts = bursts
        self._hands_over = hands_over
        self._goes_on = goes_on

    async def read(self, n: int = -1) -> bytes:
        """Return the whole page as kopf gets it; with `n` >= 0, up to `n` bytes of the body."""
        data = await self._content.read(n)
        if n >= 0:
            return data
        try:
            page = parsed(data)
            items = items_of(page)
        except ManifestError as error:
            raise self._read.broken("list", error) from None
        self._read.works()
        is_shown = bool(items) and not self._hands_over
        if self._read.resource is POD:
            self._bursts.listed(items if is_shown else (), goes_on=self._goes_on)
        if is_shown:
            return cut_nesting(data)
        del data  # thousands of pods take megabytes
        await self._on_pods(items)
        return orjson.dumps({**page, "items": []})


class _Garbage:
    """Collects young garbage after each `MOST_GARBAGE_BYTES` of large objects.

    kopf keeps each object in a reference cycle until Python's collector runs. The collector counts
    containers instead of bytes, so with large pods it would run only after hundreds of megabytes.
    """

    def __init__(self) -> None:
        self._bytes = 0

    def received(self, size: int) -> None:
        """Count an object with this many bytes of JSON."""
        if size < _LARGE_BYTES:
            return
        self._bytes += size
        if self._bytes >= MOST_GARBAGE_BYTES:
            self._bytes = 0
            gc.collect(1)


class _Watch(_Content):
    """The body of a watch without the events that `bursts` handles itself."""

    def __init__(
        self,
        content: aiohttp.StreamReader,
        read: _Read,
        garbage: _Garbage,
        # Called with the first event after a malformed one.
        on_recovery: Callable[[], None],
        bursts: PodEventFilter | None,
    ) -> None:
        super().__init__(content)
        self._read = read
        self._garbage = garbage
        self._on_recovery = on_recovery
        self._bursts = bursts
        self._taken, self._version = 0, ""
        """The number of events that kopf did not get since its last event, and the newest
        resourceVersion of these events."""

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        """Yield the body line by line, without an unfinished last line.

        Some events are kept from kopf. A bookmark follows after each `BOOKMARK_EVENTS` such events,
        and at the end of the body.
        """
        splitter = LineSplitter()
        try:
            async for data in self._content.iter_chunked(n):
                slices = TimeSlices()
                for line in splitter.feed(data):
                    kind, raw = self._event(line)
                    if len(line) >= _SLOW_BYTES:
                        await asyncio.sleep(0)
                    if self._bursts is None or not await self._bursts.takes(kind, raw, len(line)):
                        self._taken = 0
                        yield cut_nesting(line) + b"\n"
                        continue
                    self._take(raw)
                    if self._taken >= BOOKMARK_EVENTS:
                        yield self._bookmark()
                    await slices.pause()
        except Exception:
            if self._taken:
                yield self._bookmark()
            raise
        if self._taken:
            yield self._bookmark()

    def _take(self, raw: Mapping[str, Any]) -> None:
        self._taken += 1
        self._version = raw["metadata"]["resourceVersion"]

    def _bookmark(self) -> bytes:
        self._taken = 0
        metadata = {"resourceVersion": self._version}
        return orjson.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}) + b"\n"

    def _event(self, line: bytes) -> tuple[WatchEvent, dict[str, Any]]:
        self._garbage.received(len(line))
        try:
            event = event_of(line)
        except ManifestError as error:
            raise self._read.broken("watch", error) from None
        if self._read.trouble:
            self._read.works()
            self._on_recovery()
        return event


def _drop(request: asyncio.Future[aiohttp.ClientResponse]) -> None:
    if not request.cancelled() and request.exception() is None:
        _hang_up(request.result())


def _hang_up(answer: aiohttp.ClientResponse) -> None:
    abort(answer)
    answer.close()
