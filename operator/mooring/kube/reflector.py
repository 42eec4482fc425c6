"""Lists one resource, then watches it, without ever missing a deletion.

    no version --list, or WatchList--> version known --watch--> version known
         ^                                  |                        |
         +--- 410 Gone, unreadable event ---+---- any other error: back off, watch from there

- Every list is handed to the sink object by object, as it comes. When the list is complete, the
  sink stores it in slices, and deletes all other objects. Events wait until that is done.
- WatchList (`sendInitialEvents`) streams the list as events and tells when it is complete. If a
  server refuses WatchList, the reflector lists page by page from then on.
- Bookmarks and events move the version forward. After a lost connection, the watch goes on where it
  stopped. The resource is listed again if the server no longer knows the version (410, in the
  answer's head or as an ERROR event), or if an event is unreadable, because its content is lost.
- The server ends every watch after 5 to 10 minutes. A stream that is silent for longer than the
  interval of bookmarks counts as dead.

The rules are those of client-go (tools/cache/reflector.go).
"""

import asyncio
import logging
import random as random_module
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NoReturn, Protocol

from mooring.kube.api_resources import ApiCall, Resource
from mooring.kube.backoff import Backoff
from mooring.kube.client import SMALL_PAGE_SIZE, ApiClient
from mooring.kube.errors import (
    ApiError,
    GoneError,
    InvalidError,
    UnansweredError,
    error_from_status,
    explain,
)
from mooring.kube.response_checks import event_of
from mooring.model.manifest_error import ManifestError
from mooring.process.time_slices import TimeSlices
from mooring.process.turn import Turn

logger = logging.getLogger(__name__)

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

SILENCE_SECONDS: Final = 120.0
"""The seconds without data after which a watch counts as dead; bookmarks come once a minute."""

SHORTEST_WATCH: Final = 300.0
"""The shortest duration of a watch to request, in seconds; the longest is twice as long."""

TOO_SHORT: Final = 1.0
"""A watch that ends without an event within these seconds counts as a failure."""

GOOD_SECONDS: Final = 10.0
"""The seconds after which a watch counts as working, even without an event. A load balancer may cut
a connection that is silent between two bookmarks; such a cut is not logged."""

LONGEST_RETRY_AFTER: Final = 32.0
"""The most seconds to wait before a new try, even if the server's `Retry-After` is longer.

An API server asks for no more than this (apiserver
pkg/util/flowcontrol/dropped_requests_tracker.go). A proxy in front of the server may ask for an
hour and be ready in a minute.
"""

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class Relist(Protocol):
    """Takes the objects of one list as they come, and replaces the former objects at the end.

    Its methods are called on the event loop's thread and must not block. If the list breaks off, no
    further method is called. After an exception of `add` the list goes on, and after an exception
    of `apply` the resource is listed again.
    """

    def add(self, obj: dict[str, Any]) -> None:
        """Add an object of the list, or its newer version; other tasks may run meanwhile.

        The object has no apiVersion and kind if the list came in pages.
        """

    def remove(self, obj: dict[str, Any]) -> None:
        """Remove an object that was deleted before the list was complete."""

    def apply(self) -> None:
        """Replace the former objects by the added ones; other tasks may run meanwhile."""


class Sink(Protocol):
    """Stores the objects that a reflector reads.

    Its methods are called on the event loop's thread and must not block. They should ignore
    objects that they cannot use. An exception is logged, once per resource, and the stream goes on.
    """

    def relist(self, resource: Resource) -> Relist:
        """Begin a new list of the resource; called before the list is requested."""

    def apply(self, resource: Resource, event: EventType, obj: dict[str, Any]) -> None:
        """Store one added, changed or deleted object; other tasks may run meanwhile.

        ADDED may come for an object that is known already.
        """


@dataclass(eq=False, repr=False)
class Reflector:
    """Keeps `sink` up to date with one resource until cancelled.

    Attributes:
        selectors: The query's `fieldSelector` and `labelSelector`.
        on_trouble: Called with every error, except the refusal of WatchList, and with None once the
            watch works again.
        on_synced: Called when the sink has stored the first whole list; `synced` is then set.
        on_relist: Called when the sink has stored any later list.
    """

    client: ApiClient
    resource: Resource
    sink: Sink
    selectors: dict[str, str] | None = None
    on_trouble: Callable[[Resource, ApiError | None], None] = lambda _resource, _error: None
    on_synced: Callable[[], None] = lambda: None
    on_relist: Callable[[Resource], None] = lambda _resource: None
    silence: float = SILENCE_SECONDS
    turn: Turn | None = None
    random: random_module.Random | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self.synced = asyncio.Event()
        self._call = ApiCall.parse("GET", self.resource.path(), watch=True)
        self._selectors = self.selectors or {}
        self._random = self.random or random_module.Random()  # noqa: S311 - spreads load, hides nothing
        self._slices = TimeSlices(clock=self.clock)
        self._turn = self.turn if self.turn is not None else Turn(self.clock)
        self._backoff = Backoff(self._random)
        self._version: str | None = None
        self._initial: Relist | None = None
        self._watch_list = True
        self._is_troubled = False
        self._logged = ""
        """The last message that was logged since the watch failed."""
        self._has_lasted = False
        """Whether the last watch lasted for at least `GOOD_SECONDS`."""
        self._sink_failed = False

    async def run(self) -> NoReturn:
        """List and watch for ever; after an ApiError, call `on_trouble` and try again."""
        while True:
            try:
                if self._version is None and not self._watch_list:
                    await self._list()
                await self._watch()
            except ApiError as error:
                await self._recover_from(error)

    async def _recover_from(self, error: ApiError) -> None:
        if isinstance(error, InvalidError) and self._version is None and self._watch_list:
            logger.info("%s: the server has no WatchList, listing by page", self.resource)
            self._watch_list = False
            return
        if isinstance(error, GoneError):
            self._version = None
        self._log(error)
        self._is_troubled = True
        self.on_trouble(self.resource, error)
        wish = min(error.retry_after or 0.0, LONGEST_RETRY_AFTER)
        await self.sleep(max(self._backoff.pause(), wish))

    def _log(self, error: ApiError) -> None:
        text = explain(error)
        # The usual end of a watch is not logged.
        is_cut = isinstance(error, UnansweredError) and self._version is not None
        if not (is_cut and self._has_lasted) and text != self._logged:
            logger.warning("%s: %s", self.resource, text)
            self._logged = text

    def _works(self) -> None:
        if self._is_troubled:
            if self._logged:
                logger.info("%s: the watch works again", self.resource)
            self._is_troubled, self._logged = False, ""
            self.on_trouble(self.resource, None)

    async def _list(self) -> None:
        relist, version = await self._begin_list(), None
        pages = self.client.list_pages(
            self.resource, selectors=self._selectors, limit=SMALL_PAGE_SIZE
        )
        async with aclosing(pages):
            async for page in pages:
                for obj in page.items:
                    await self._add(relist, obj)
                    await self._slices.pause()
                version = page.version
        await self._replace(relist)
        self._version = version

    async def _watch(self) -> None:
        started, accepted = self.clock(), False
        self._initial = await self._begin_list() if self._version is None else None
        idle = True
        stream = self.client.watch_lines(
            self.resource.path(), self._watch_params(), silence=self.silence
        )
        try:
            async with aclosing(stream):
                async for lines in stream:
                    if lines:
                        idle = False
                        await self._feed(lines)
                    if self._version is not None:
                        accepted = True
                        self._works()
        finally:
            self._has_lasted = accepted and self.clock() - started >= GOOD_SECONDS
            if self._has_lasted:
                self._backoff.reset()
        if self._version is None:
            raise self._broken("the watch ended before the set was complete")
        if idle and self.clock() - started < TOO_SHORT:
            raise self._broken("the watch ended at once, without an event")

    def _watch_params(self) -> dict[str, str]:
        seconds = int(SHORTEST_WATCH * self._random.uniform(1.0, 2.0))
        params = {
            **self._selectors,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        if self._version is not None:
            return {**params, "resourceVersion": self._version}
        return {**params, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}

    async def _feed(self, lines: list[bytes]) -> None:
        self._slices.begin()
        for line in lines:
            try:
                kind, obj = event_of(line)
            except ManifestError as error:
                # What it said is lost, and with it the right to go on from here.
                self._version = None
                raise self._broken(f"unreadable event: {error}") from error
            await self._slices.pause()  # to read the JSON of a large object takes long by itself
            if kind == "ERROR":
                raise error_from_status(self._call, obj, server=self.client.url)
            version = obj["metadata"]["resourceVersion"]
            if kind == "BOOKMARK":
                await self._end_initial_if_marked(obj)
            elif self._initial is None:
                await self._turn.deliver(partial(self._apply, kind, obj), len(line), self._slices)
            elif kind == "DELETED":
                self._initial.remove(obj)
            else:
                await self._add(self._initial, obj)
            if self._initial is None:
                self._version = version
            await self._slices.pause()
        self._backoff.reset()

    async def _end_initial_if_marked(self, bookmark: dict[str, Any]) -> None:
        annotations = bookmark["metadata"].get("annotations") or {}
        if self._initial is not None and annotations.get(INITIAL_EVENTS_END) == "true":
            await self._replace(self._initial)
            self._initial = None

    async def _begin_list(self) -> Relist:
        return await self._turn.run(partial(self.sink.relist, self.resource))

    async def _replace(self, relist: Relist) -> None:
        try:
            await self._turn.run(relist.apply)
        except Exception as error:
            self._log_refusal(error)
            self._version = None
            words = (
                f"Mooring failed to take over the listed objects: {error!r}; they are listed "
                "again; report this with the traceback in the log"
            )
            raise ApiError(self._call, words, server=self.client.url) from error
        if self.synced.is_set():
            self.on_relist(self.resource)
            return
        self.synced.set()
        self.on_synced()

    async def _add(self, relist: Relist, obj: dict[str, Any]) -> None:
        try:
            async with self._turn:
                await self._slices.run(partial(relist.add, obj))
        except Exception as error:  # noqa: BLE001 - the list outlives whatever the sink does
            self._log_refusal(error)

    def _apply(self, kind: EventType, obj: dict[str, Any]) -> None:
        try:
            self.sink.apply(self.resource, kind, obj)
        except Exception as error:  # noqa: BLE001 - the stream outlives whatever the sink does
            self._log_refusal(error)

    def _log_refusal(self, error: Exception) -> None:
        if not self._sink_failed:
            text = "%s: Mooring failed to take over an object; later failures are not logged"
            logger.error(text, self.resource, exc_info=error)
            self._sink_failed = True

    def _broken(self, words: str) -> UnansweredError:
        return UnansweredError(self._call, words, server=self.client.url)
