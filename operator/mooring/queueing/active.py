"""The active part of the queue: whose turn it is.

Pods are ordered by the queueSort plugin of their profile. Keys of different plugins cannot be
compared, so each plugin has a heap of its own, and of the first pods of the heaps the one with the
highest priority is tried, of equals the one that has waited longest.
"""

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

from mooring.framework.queued_pod import QueuedPod, by_priority

__all__ = ["ActivePods", "Order"]


class Order(NamedTuple):
    """A pod's place: the plugin that sorts it, and that plugin's key, of which smaller is first."""

    sorter: str
    key: tuple[Any, ...]


_Heap = list[tuple[tuple[Any, ...], int, QueuedPod]]


class ActivePods:
    """Pods to be tried; one that has got another ticket since it was added is not here any more."""

    def __init__(self, order: Callable[[QueuedPod], Order]) -> None:
        self._order = order
        self._heaps: dict[str, _Heap] = {}

    def add(self, queued: QueuedPod) -> None:
        """The pod may be tried."""
        sorter, key = self._order(queued)
        heapq.heappush(self._heaps.setdefault(sorter, []), (key, queued.ticket, queued))

    def pop(self) -> QueuedPod | None:
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


def _has_first(heap: _Heap) -> bool:
    """Whether anybody is left once outdated entries have been dropped."""
    while heap and heap[0][1] != heap[0][2].ticket:
        heapq.heappop(heap)
    return bool(heap)


def _turn(heap: _Heap) -> tuple[int, float]:
    return by_priority(heap[0][2])
