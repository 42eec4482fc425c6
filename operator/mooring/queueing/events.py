"""The cluster events that some pod has still to be checked against, in the order they came."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from mooring.model.bounded_cache import bytes_of
from mooring.model.events import ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec

__all__ = ["MOST_EVENTS", "EventLog"]

MOST_EVENTS: Final = 10_000
"""How many events are kept; a pod that missed an older one is tried again whatever it was."""
_MOST_BYTES: Final = 64 * 2**20
_EVENT: Final = 2048
"""Bytes of an ordinary event; the specs that pods share are counted once."""


class EventLog:
    """Events by number: the first that ever came has number 0. The oldest are dropped."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        """About how many bytes the events take, with objects that may be gone."""
        self._specs = Counter[PodSpec]()
        self._events: list[ClusterEvent] = []
        self._sizes: list[int] = []
        self.start = 0
        """The number of the first event that is kept."""

    def __len__(self) -> int:
        """Return how many events are kept."""
        return len(self._events)

    def __iter__(self) -> Iterator[ClusterEvent]:
        """Iterate over the events that are kept."""
        return iter(self._events)

    def __getitem__(self, number: int) -> ClusterEvent:
        return self._events[number - self.start]

    @property
    def end(self) -> int:
        """The number that the next event will have."""
        return self.start + len(self._events)

    def extend(self, events: Iterable[ClusterEvent]) -> None:
        """Add the events; drop the oldest if there are too many or they take too many bytes."""
        for event in events:
            self._events.append(event)
            self._sizes.append(_size(event))
            self.bytes += self._sizes[-1] + self._specs_that_come(event)
        self.drop_before(self.end - MOST_EVENTS)
        while self.bytes > self.most_bytes:
            self.drop_before(self.start + 1 + len(self._events) // 8)

    def drop_before(self, number: int) -> None:
        """Drop the events with smaller numbers."""
        if number > self.start:
            dropped = slice(number - self.start)
            for event, size in zip(self._events[dropped], self._sizes[dropped], strict=True):
                self.bytes -= size + self._specs_that_go(event)
            del self._events[dropped], self._sizes[dropped]
            self.start = number

    def _specs_that_come(self, event: ClusterEvent) -> int:
        """Return how many bytes those specs take that no earlier event has."""
        total = 0
        for spec in _specs(event):
            self._specs[spec] += 1
            total += spec.memory if self._specs[spec] == 1 else 0
        return total

    def _specs_that_go(self, event: ClusterEvent) -> int:
        """Return how many bytes those specs took that no other event has."""
        total = 0
        for spec in _specs(event):
            self._specs[spec] -= 1
            if not self._specs[spec]:
                del self._specs[spec]
                total += spec.memory
        return total


def _specs(event: ClusterEvent) -> list[PodSpec]:
    return [pod.spec for pod in (event.before, event.after) if isinstance(pod, Pod)]


def _size(event: ClusterEvent) -> int:
    """Return about how many bytes the event takes, without the specs of its pods."""
    total = _EVENT
    for found in (event.before, event.after):
        if isinstance(found, Pod):
            texts = (found.labels, found.annotations)
            total += sum(sum(map(len, (*some, *some.values()))) for some in texts)
        elif found is not None and event.kind is not Kind.NODE:  # no tenant writes nodes
            total += bytes_of(found)
    return total
