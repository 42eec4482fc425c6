"""Keeps cluster events, in order, until no pod's hints need them or there are too many."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mooring.model.bounded_cache import bytes_of
from mooring.model.events import ClusterEvent, Kind
from mooring.model.pod import Pod

MOST_EVENTS: Final = 10_000
"""The most events that are kept; a pod that missed an older event is always retried."""
_MOST_BYTES: Final = 64 * 2**20
_EVENT: Final = 2048
"""The estimated bytes of an event, without the objects that several events share."""


class EventLog:
    """Cluster events by sequence number, from 0 on; the oldest events are dropped."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        """The approximate size of all events in bytes, with their objects."""
        self._shared: dict[int, _Shared] = {}
        """Objects that several events may refer to, by `id`; an event keeps its objects alive."""
        self._events: list[ClusterEvent] = []
        self._sizes: list[int] = []
        self.start = 0
        """The sequence number of the oldest event that is kept."""

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[ClusterEvent]:
        return iter(self._events)

    def __getitem__(self, number: int) -> ClusterEvent:
        return self._events[number - self.start]

    @property
    def end(self) -> int:
        """The sequence number that the next event will have."""
        return self.start + len(self._events)

    def extend(self, events: Iterable[ClusterEvent]) -> None:
        """Add the events; drop the oldest if there are too many or they take too many bytes."""
        for event in events:
            self._events.append(event)
            self._sizes.append(_size(event))
            self.bytes += self._sizes[-1]
            for part in _shared(event):
                self._refer_to(part)
        self.drop_before(self.end - MOST_EVENTS)
        while self.bytes > self.most_bytes:
            self.drop_before(self.start + 1 + len(self._events) // 8)

    def drop_before(self, number: int) -> None:
        """Drop the events with sequence numbers below `number`."""
        if number > self.start:
            dropped = slice(number - self.start)
            self.bytes -= sum(self._sizes[dropped])
            for event in self._events[dropped]:
                for part in _shared(event):
                    self._refer_no_more_to(part)
            del self._events[dropped], self._sizes[dropped]
            self.start = number

    def _refer_to(self, part: object) -> None:
        known = self._shared.get(id(part))
        if known is None:
            known = self._shared[id(part)] = _Shared(bytes_of(part))
            self.bytes += known.memory
        known.uses += 1

    def _refer_no_more_to(self, part: object) -> None:
        known = self._shared[id(part)]
        known.uses -= 1
        if not known.uses:
            del self._shared[id(part)]
            self.bytes -= known.memory


@dataclass(slots=True)
class _Shared:
    """The approximate bytes of an object, and how many events refer to it."""

    memory: int
    uses: int = 0


def _shared(event: ClusterEvent) -> list[object]:
    if event.kind is Kind.NODE:  # no tenant writes nodes
        return []
    # The newer version of an object in one event is the older version in the next event.
    found = [each for each in (event.before, event.after) if each is not None]
    return [each.spec if isinstance(each, Pod) else each for each in found]


def _size(event: ClusterEvent) -> int:
    # Bytes, roughly. The objects of `_shared` are not counted.
    total = _EVENT
    for found in (event.before, event.after):
        if isinstance(found, Pod):
            texts = (found.labels, found.annotations)
            total += sum(sum(map(len, (*some, *some.values()))) for some in texts)
    return total
