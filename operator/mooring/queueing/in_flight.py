"""Pods whose attempts run, and the changes that came meanwhile.

A change that comes while a pod is in flight may be the cure of a rejection that was decided before
it; whoever is rejected at the end of a long attempt has to look at what it missed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from mooring.model.events import ClusterEvent

__all__ = ["InFlight"]

MOST_CHANGES: Final = 10_000
"""How many changes are kept; whoever has missed more is told so instead."""

P = TypeVar("P")


class InFlight(Generic[P]):
    """The pods by key, in the order in which their attempts began."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[P, int]] = {}
        self._changes: list[ClusterEvent] = []
        self._start = 0
        """How many changes have come before the first that is kept."""

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[P]:
        return (pod for pod, _ in self._pods.values())

    def enter(self, key: str, pod: P) -> None:
        """The pod's attempt begins; its key must be free."""
        self._pods[key] = (pod, self._start + len(self._changes))

    def get(self, key: str) -> P | None:
        """The pod of this key whose attempt runs."""
        entry = self._pods.get(key)
        return entry[0] if entry is not None else None

    def leave(self, key: str) -> Sequence[ClusterEvent] | None:
        """The pod's attempt is over; the changes it missed, None if they were too many to keep."""
        _, since = self._pods.pop(key)
        missed = None if since < self._start else self._changes[since - self._start :]
        self._trim()
        return missed

    def changed(self, events: Iterable[ClusterEvent]) -> None:
        """The cluster changed."""
        if self._pods:
            self._changes += events
            self._trim()

    def _trim(self) -> None:
        """Keep what the pod longest in flight has missed, if that is not too much."""
        _, longest = next(iter(self._pods.values()), (None, self._start + len(self._changes)))
        drop = max(longest - self._start, len(self._changes) - MOST_CHANGES)
        if drop > 0:
            del self._changes[:drop]
            self._start += drop
