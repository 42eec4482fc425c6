"""The active part of the queue: whose turn it is.

Pods are ordered by the queueSort plugin of their profile. Keys of different plugins cannot be
compared, so each plugin has a heap of its own, and of the first pods of the heaps the one with the
highest priority is tried, of equals the one that has waited longest.
"""

import heapq
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from mooring.model.pod import Pod

__all__ = ["ActivePods", "Order", "by_priority"]


class Order(NamedTuple):
    """A pod's place: the plugin that sorts it, and that plugin's key, of which smaller is first."""

    sorter: str
    key: tuple[Any, ...]


class _Active(Protocol):
    @property
    def pod(self) -> Pod: ...
    @property
    def since(self) -> float: ...
    @property
    def ticket(self) -> int: ...


P = TypeVar("P", bound=_Active)


def by_priority(queued: _Active) -> tuple[int, float]:
    """Upstream's key: higher priority first, then who has waited longer (queuesort/)."""
    return -queued.pod.shape.priority, queued.since


_Heap = list[tuple[tuple[Any, ...], int, P]]


class ActivePods(Generic[P]):
    """Pods to be tried; one that has got another ticket since it was added is not here any more."""

    def __init__(self, order: Callable[[P], Order]) -> None:
        self._order = order
        self._heaps: dict[str, _Heap[P]] = {}

    def add(self, queued: P) -> None:
        """The pod may be tried."""
        sorter, key = self._order(queued)
        heapq.heappush(self._heaps.setdefault(sorter, []), (key, queued.ticket, queued))

    def pop(self) -> P | None:
        """The pod whose turn it is, taken off."""
        heaps = [heap for heap in self._heaps.values() if _has_first(heap)]
        if not heaps:
            return None
        heap = heaps[0] if len(heaps) == 1 else min(heaps, key=_turn)
        return heapq.heappop(heap)[2]

    def sort_anew(self) -> None:
        """The order of pods may have changed."""
        entries = [entry for heap in self._heaps.values() for entry in heap]
        self._heaps.clear()
        for _, ticket, queued in entries:
            if queued.ticket == ticket:
                self.add(queued)


def _has_first(heap: _Heap[P]) -> bool:
    """Whether anybody is left once outdated entries have been dropped."""
    while heap and heap[0][1] != heap[0][2].ticket:
        heapq.heappop(heap)
    return bool(heap)


def _turn(heap: _Heap[P]) -> tuple[int, float]:
    return by_priority(heap[0][2])
