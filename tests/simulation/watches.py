"""The watches of the model API server, each with its own delay.

A stream keeps the order of its events. The delay of each event is random. Faults stall a stream,
repeat an event, leave its connection half-open or end it. `Watches.told` returns the version up to
which a process has received everything, so that invariants know what a replica could know. Data
delivered to a stopped process is lost if the connection breaks before the process continues.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from math import inf
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Any, Final

import orjson

from mooring.kube.api_resources import Resource
from simulation.network import Link, Request, status
from simulation.storage import Change, Raw, Storage, selector

if TYPE_CHECKING:
    from simulation.timeline import Timeline


_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_BOOKMARK_SECONDS: Final = 50.0


class Stream:
    """One watch of one process."""

    def __init__(
        self,
        link: Link,
        request: Request,
        resource: Resource,
        timeline: "Timeline",
        told: Callable[[str, str, Resource, int], None],
    ) -> None:
        query = request.query
        self.process = request.process
        self.link, self.resource = link, resource
        self.agent = request.headers.get("User-Agent", "")
        self.matches = selector(query.get("fieldSelector", ""), query.get("labelSelector", ""))
        self.bookmarks = query.get("allowWatchBookmarks") == "true"
        self.stalled_until = 0.0
        self.behind = 0.0
        self.hides_next = False
        """Whether the next object that comes is not told, so that its first event is an update."""
        self._timeline = timeline
        self._told = told
        self._last_due = 0.0
        self._last = b""
        self._version = 0
        self._unread = 0
        """How many events were delivered that the process has not received."""
        self._delivered = 0
        """Up to which version all was delivered."""

    def send(self, kind: str, raw: Mapping[str, Any], delay: float, version: int) -> None:
        """Send an event after all earlier events."""
        self._last = orjson.dumps({"type": kind, "object": raw}) + b"\n"
        self.send_line(self._last, delay, version)

    def send_line(self, line: bytes, delay: float, version: int) -> None:
        """Send a line; an empty line only reports that there is nothing new up to this version."""
        self._version = version
        now = self._timeline.now
        due = max(self._last_due, now + delay, self.stalled_until)
        self._last_due = due
        self._timeline.at(due, lambda: self._deliver(line, version))

    def repeat(self) -> None:
        """Send the last event once more."""
        if self._last:
            self.send_line(self._last, 0.0, self._version)

    def stall(self, seconds: float) -> None:
        """Hold back new events for `seconds`."""
        self.stalled_until = max(self.stalled_until, self._timeline.now + seconds)

    def tell_all(self) -> None:
        """Stop hiding the next new object."""
        self.hides_next = False

    def end(self) -> None:
        """End the stream in order, as a server does after its time limit."""
        self.link.deliver(b"0\r\n\r\n")
        self.link.finish()

    def end_after_what_was_sent(self) -> None:
        """End the stream in order after all sent events are delivered."""
        self._timeline.at(self._last_due, self.end)

    def _deliver(self, line: bytes, version: int) -> None:
        if self.link.half_open or not self.link.is_open:
            return
        self._delivered = max(self._delivered, version)
        if line:
            self._unread += 1
            received = partial(self._received, version)
            self.link.deliver(b"%x\r\n%s\r\n" % (len(line), line), received)
        elif not self._unread:
            self._told(self.process.identity, self.agent, self.resource, version)

    def _received(self, version: int) -> None:
        """Note a version that the process has received; after the last event, all before now."""
        self._unread -= 1
        version = version if self._unread else self._delivered
        self._told(self.process.identity, self.agent, self.resource, version)


class Watches:
    """All open watches, and the versions from which watches may begin."""

    def __init__(self, timeline: "Timeline", random: Random, storage: Storage) -> None:
        self.streams: dict[Stream, None] = {}
        self.lag = 0.005
        """Seconds that an event takes about."""
        self.behind = 0.0
        """By how many seconds the second API server, which has every other watch, is behind."""
        self._opened = 0
        self._told: defaultdict[tuple[str, str, Resource], list[tuple[float, int]]]
        self._told = defaultdict(list)
        self.compacted = 0
        """No watch may begin before this version."""
        self._timeline = timeline
        self._random = random
        self._storage = storage

    def open(self, request: Request, resource: Resource) -> dict[str, Any] | None:
        """Open a watch; return None, or the Status if it is rejected."""
        query = request.query
        since = query.get("resourceVersion")
        initial = query.get("sendInitialEvents") == "true"
        if since and not initial and int(since) < self.compacted:
            message = f"too old resource version: {since} ({self.compacted})"
            return status(410, "Expired", message)
        stream = Stream(request.link, request, resource, self._timeline, self._note_told)
        self._opened += 1
        stream.behind = self.behind if self._opened % 2 else 0.0
        stream.send_line(b"", 0.0, 0)
        self._timeline.after(0.0, lambda: request.link.deliver(_HEAD))
        self.streams[stream] = None
        request.link.on_closed = lambda: self.streams.pop(stream, None)
        if initial:
            self._send_all(stream)
        elif since:
            self._send_since(stream, int(since))
        else:
            stream.send_line(b"", self._delay(stream), self._storage.version)
        if "timeoutSeconds" in query:
            self._timeline.after(float(query["timeoutSeconds"]), lambda: self._time_out(stream))
        if stream.bookmarks:
            self._timeline.after(self._bookmark_seconds(), lambda: self._bookmark(stream))
        return None

    def changed(self, change: Change) -> None:
        """Send the change to every watch of its resource."""
        for stream in self.streams:
            if stream.resource is change.resource:
                self._tell(stream, change, self._delay(stream))

    def told(
        self, identity: str, resource: Resource, agent: str = "mooring", at: float = inf
    ) -> int:
        """Return the version up to which the process had received everything at this time."""
        told = self._told[identity, agent, resource]
        index = bisect_right(told, at, key=itemgetter(0))
        return told[index - 1][1] if index else 0

    def told_between(
        self, identity: str, resource: Resource, first: int, last: int, at: float
    ) -> bool:
        """Return whether the process received `first`, and later `last`, by this time.

        Returns False if both came at the same time, as in a list.
        """
        versions = [
            version for when, version in self._told[identity, "mooring", resource] if when <= at
        ]
        return any(first <= each < last for each in versions) and versions[-1] >= last

    def expire(self, stream: Stream) -> None:
        """End the stream with 410, because its version is too old."""
        body = status(410, "Expired", "too old resource version")
        stream.send("ERROR", body, 0.0, 0)
        self.streams.pop(stream, None)  # what would follow is not told
        stream.end_after_what_was_sent()

    def of(self, choose: Callable[[Stream], bool]) -> list[Stream]:
        """Return the open watches that `choose` accepts."""
        return [stream for stream in self.streams if choose(stream)]

    def _note_told(self, identity: str, agent: str, resource: Resource, version: int) -> None:
        told = self._told[identity, agent, resource]
        if not told or told[-1][1] < version:
            told.append((self._timeline.now, version))

    def _send_all(self, stream: Stream) -> None:
        version = self._storage.version
        for raw in self._storage.all(stream.resource):
            if stream.matches(raw):
                stream.send("ADDED", raw, 0.0, 0)
        annotations = {"k8s.io/initial-events-end": "true"}
        metadata = {"resourceVersion": str(version), "annotations": annotations}
        stream.send("BOOKMARK", _bare(stream.resource, metadata), self._delay(stream), version)

    def _send_since(self, stream: Stream, since: int) -> None:
        late = list(takewhile(lambda c: c.version > since, reversed(self._storage.history)))
        for change in reversed(late):
            if change.resource is stream.resource:
                self._tell(stream, change, self._delay(stream))
        stream.send_line(b"", 0.0, self._storage.version)

    def _tell(self, stream: Stream, change: Change, delay: float) -> None:
        """Send the change as the stream's selector shows it (see apiserver's cacher.go)."""
        before = change.before is not None and stream.matches(change.before)
        after = change.after is not None and stream.matches(change.after)
        if after and not before and stream.hides_next:
            stream.hides_next = False
            stream.send_line(b"", delay, change.version)
        elif after:
            stream.send("MODIFIED" if before else "ADDED", change.object, delay, change.version)
        elif before and change.before is not None:
            metadata = {**change.before["metadata"], "resourceVersion": str(change.version)}
            stream.send("DELETED", {**change.before, "metadata": metadata}, delay, change.version)
        else:
            stream.send_line(b"", delay, change.version)

    def _bookmark(self, stream: Stream) -> None:
        if stream in self.streams:
            version = self._storage.version
            metadata = {"resourceVersion": str(version)}
            stream.send("BOOKMARK", _bare(stream.resource, metadata), 0.0, version)
            self._timeline.after(self._bookmark_seconds(), lambda: self._bookmark(stream))

    def _time_out(self, stream: Stream) -> None:
        if stream in self.streams:
            stream.end()

    def _bookmark_seconds(self) -> float:
        return _BOOKMARK_SECONDS * self._random.uniform(0.5, 1.0)

    def _delay(self, stream: Stream) -> float:
        return stream.behind + self.lag * self._random.expovariate(1.0)


def _bare(resource: Resource, metadata: Raw) -> Raw:
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
