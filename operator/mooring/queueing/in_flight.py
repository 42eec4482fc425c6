"""Pods in flight, and the cluster events since their attempts began.

An event that comes during an attempt may make the pod schedulable after all. A pod that turns out
to be unschedulable is therefore checked against the events it missed (active_queue.go).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mooring.framework.queued_pod import QueuedPod
from mooring.model.events import ClusterEvent

__all__ = ["InFlight"]

MOST_EVENTS: Final = 10_000
"""How many events are kept; a pod that missed more is tried again whatever they were."""


class InFlight:
    """The pods by key, in the order in which their attempts began."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[QueuedPod, int]] = {}
        self._events: list[ClusterEvent] = []
        self._start = 0
        """How many events came before the first that is kept."""

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return (queued for queued, _ in self._pods.values())

    def events(self) -> Iterator[ClusterEvent]:
        """The events that are kept; at most 10,000."""
        return iter(self._events)

    def enter(self, queued: QueuedPod) -> None:
        """The pod's attempt begins; no pod of its key may be in flight."""
        self._pods[queued.pod.key] = (queued, self._start + len(self._events))

    def get(self, key: str) -> QueuedPod | None:
        """The pod of this key whose attempt runs."""
        entry = self._pods.get(key)
        return entry[0] if entry is not None else None

    def leave(self, key: str) -> Sequence[ClusterEvent] | None:
        """Takes the pod off; the events since it entered, None if they were too many to keep."""
        _, since = self._pods.pop(key)
        missed = None if since < self._start else self._events[since - self._start :]
        self._trim()
        return missed

    def add_events(self, events: Iterable[ClusterEvent]) -> None:
        """Keeps the events for the pods that are in flight now."""
        if self._pods:
            self._events += events
            self._trim()

    def _trim(self) -> None:
        """Drop the events that every pod knows, and the oldest if there are too many."""
        _, longest = next(iter(self._pods.values()), (None, self._start + len(self._events)))
        drop = max(longest - self._start, len(self._events) - MOST_EVENTS)
        if drop > 0:
            del self._events[:drop]
            self._start += drop
