"""Writes Events of events.k8s.io/v1 in the background, apart from bindings and statuses.

Recording never waits and never fails. Events are lost, but counted and logged, if the bounded queue
is full or the server refuses them. Equal events about one object become one Event with a series, as
in client-go (tools/events/event_broadcaster.go). Unlike in client-go, a new note begins a new
Event, so that a user sees what changed.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, NoReturn

import orjson

from mooring.kube.api_resources import EVENT
from mooring.kube.client import ApiClient
from mooring.kube.errors import ApiError, NotFoundError, explain
from mooring.kube.timestamps import micro_time
from mooring.model.bounded_cache import BoundedCache

logger = logging.getLogger(__name__)

NOTE_LIMIT: Final = 1024
"""The most bytes of an Event's note in the API (pkg/apis/core/validation/events.go); the end of a
longer note is cut off."""

NAME_LIMIT: Final = 253 - len(".") - 16
"""The most characters of an object's name at the beginning of an Event's name. A dot and 16 digits
follow."""

LOSSES_PER_LOG_LINE: Final = 1000

PATIENCE_SECONDS: Final = 10.0
"""The most seconds that an event waits while `gives_way` returns True."""

PAUSE_SECONDS: Final = 0.05
"""The seconds between two calls of `gives_way` while events wait."""


class ObjectRef(NamedTuple):
    """A reference to the object that an Event names in `regarding` or `related`."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"

    def as_json(self) -> dict[str, str]:
        """Return a core/v1 ObjectReference without its empty fields."""
        fields = {"apiVersion": self.api_version, "kind": self.kind}
        if self.namespace:
            fields["namespace"] = self.namespace
        fields["name"] = self.name
        if self.uid:
            fields["uid"] = self.uid
        return fields


_Key = tuple[ObjectRef, str, str, str, str, ObjectRef | None]


class _Series:
    """An Event and the number of its occurrences."""

    __slots__ = ("body", "count", "key", "last", "pending", "since", "written")

    def __init__(self, key: _Key, body: dict[str, Any], at: datetime) -> None:
        self.key = key
        self.body = body
        # `written` is the number of occurrences that the server knows.
        self.count = 1
        self.last = at
        self.written = 0
        self.since = 0.0  # when it was queued, by the monotonic clock
        self.pending = False  # in the queue or in a worker's hands: nowhere twice


@dataclass(eq=False, repr=False)
class EventRecorder:
    """Writes events while `run` runs; `record` may be called at any time.

    Attributes:
        capacity: The most events in the queue; the oldest event is dropped first.
        remembered: The most bytes of past events, which can become a series.
        lanes: The most requests at the same time.
        gives_way: While this returns True, events wait, ten seconds at most. So the bindings of
            many pods are written before their events.
        dropped: The number of events for which the queue had no room.
        refused: The number of events that the server refused.
    """

    client: ApiClient
    controller: str
    instance: str
    capacity: int = 16_384
    remembered: int = 16 * 2**20
    lanes: int = 2
    gives_way: Callable[[], bool] = lambda: False
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self.dropped = 0
        self.refused = 0
        self._reporter = {
            "reportingController": self.controller,
            "reportingInstance": self.instance,
        }
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(self.capacity)
        self._series: BoundedCache[_Key, _Series] = BoundedCache(self.remembered, _memory)
        self._draining = False
        self._last_stamp = 0
        self._last_refusal = ""

    def record(
        self,
        regarding: ObjectRef,
        type: Literal["Normal", "Warning"],  # noqa: A002 - the API's word
        reason: str,
        action: str,
        note: str,
        *,
        related: ObjectRef | None = None,
    ) -> None:
        """Queue the event for writing, or count it in the series of an equal event.

        A full queue drops its oldest event.
        """
        key = (regarding, type, reason, action, _cut(note), related)
        at = self.now()
        series = self._series.get(key)
        if series is None:
            series = _Series(key, self._event(key, at), at)
            self._series.put(key, series)
        else:
            series.count += 1
            series.last = at
        if not series.pending:
            self._enqueue(series)

    async def run(self) -> NoReturn:
        """Write events until cancelled."""
        async with asyncio.TaskGroup() as lanes:
            for _ in range(self.lanes):
                lanes.create_task(self._write_events())
        raise AssertionError("the lanes end only by cancellation")

    async def drain(self, timeout: float) -> bool:  # noqa: ASYNC109 - a shutdown step's budget
        """Wait up to `timeout` seconds until all events are written; return whether they are.

        From now on, events are written even if `gives_way` returns True.
        """
        self._draining = True
        try:
            async with asyncio.timeout(timeout):
                await self._queue.join()
        except TimeoutError:
            logger.warning("%d events were not written before the end", self.unwritten)
            return False
        return True

    @property
    def unwritten(self) -> int:
        """The number of queued events; events that are being written do not count."""
        return self._queue.qsize()

    def _event(self, key: _Key, at: datetime) -> dict[str, Any]:
        regarding, kind, reason, action, note, related = key
        # The name ends in the nanoseconds of its time, as client-go's; never the same one twice.
        self._last_stamp = max(int(at.timestamp() * 1e6) * 1000, self._last_stamp + 1)
        stem = regarding.name[:NAME_LIMIT].rstrip(".-")
        event = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {
                "name": f"{stem}.{self._last_stamp:x}",
                "namespace": regarding.namespace or "default",
            },
            "eventTime": micro_time(at),
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note,
            "regarding": regarding.as_json(),
            **self._reporter,
        }
        if related is not None:
            event["related"] = related.as_json()
        return event

    def _enqueue(self, series: _Series) -> None:
        if self._queue.full():
            self._queue.get_nowait().pending = False
            self._queue.task_done()
            self.dropped += 1
            if self.dropped % LOSSES_PER_LOG_LINE == 1:
                logger.warning(
                    "events are recorded faster than written: %d dropped so far", self.dropped
                )
        series.pending, series.since = True, self.clock()
        self._queue.put_nowait(series)

    async def _write_events(self) -> None:
        while True:
            series = await self._queue.get()
            try:
                while self._must_wait(series):
                    await self.sleep(PAUSE_SECONDS)
                await self._write(series)
            except ApiError as error:
                self._forget(series, error)
            finally:
                series.pending = False
                if series.written and series.count > series.written:  # it happened meanwhile
                    self._enqueue(series)
                self._queue.task_done()

    def _must_wait(self, series: _Series) -> bool:
        if self._draining or self.clock() - series.since >= PATIENCE_SECONDS:
            return False
        return self.gives_way()

    async def _write(self, series: _Series) -> None:
        count = series.count
        if count > 1:
            series.body["series"] = {"count": count, "lastObservedTime": micro_time(series.last)}
        if series.written:
            try:
                await self._patch(series.body)
            except NotFoundError:  # it outlived its time on the server
                await self._create(series.body)
        else:
            await self._create(series.body)
        series.written = count

    async def _create(self, body: dict[str, Any]) -> None:
        path = EVENT.path(body["metadata"]["namespace"])
        # The answer is not parsed, because no one reads it.
        await self.client.request("POST", path, body=orjson.dumps(body))

    async def _patch(self, body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        await self.client.patch(
            EVENT, metadata["name"], {"series": body["series"]}, namespace=metadata["namespace"]
        )

    def _forget(self, series: _Series, error: ApiError) -> None:
        self.refused += 1
        series.written = 0
        # A repeat becomes a new Event with a new name: this one's may be taken after all.
        if self._series.get(series.key) is series:
            self._series.pop(series.key)
        text = f"{type(error).__name__}: {error.status}"
        if text != self._last_refusal or self.refused % LOSSES_PER_LOG_LINE == 0:
            logger.warning("an event was not written: %s", explain(error))
            self._last_refusal = text


def _memory(key: _Key, _series: _Series) -> int:
    regarding, _, _, _, note, _ = key
    return 3000 + len(note.encode()) + 3 * len(regarding.name)


def _cut(note: str) -> str:
    # As truncateMessage in kube-scheduler's schedule_one.go.
    encoded = note.encode()
    if len(encoded) <= NOTE_LIMIT:
        return note
    suffix = " ..."
    return encoded[: NOTE_LIMIT - len(suffix)].decode(errors="ignore") + suffix
