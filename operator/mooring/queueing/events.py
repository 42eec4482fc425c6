"""The cluster events that some pod has still to be checked against, in the order they came."""

from collections.abc import Iterable, Iterator
from typing import Final

from mooring.model.events import ClusterEvent

__all__ = ["MOST_EVENTS", "EventLog"]

MOST_EVENTS: Final = 10_000
"""How many events are kept; a pod that missed an older one is tried again whatever it was."""


class EventLog:
    """Events by number: the first that ever came has number 0. The oldest are dropped."""

    def __init__(self) -> None:
        self._events: list[ClusterEvent] = []
        self.start = 0
        """The number of the first event that is kept."""

    def __len__(self) -> int:
        """How many events are kept."""
        return len(self._events)

    def __iter__(self) -> Iterator[ClusterEvent]:
        """The events that are kept."""
        return iter(self._events)

    def __getitem__(self, number: int) -> ClusterEvent:
        return self._events[number - self.start]

    @property
    def end(self) -> int:
        """The number that the next event will have."""
        return self.start + len(self._events)

    def extend(self, events: Iterable[ClusterEvent]) -> None:
        """Adds the events, and drops the oldest if there are too many."""
        self._events += events
        self.drop_before(self.end - MOST_EVENTS)

    def drop_before(self, number: int) -> None:
        """Drops the events with smaller numbers."""
        if number > self.start:
            del self._events[: number - self.start]
            self.start = number
