"""The active queue: pods to be scheduled, in the order of their profile's QueueSort plugin.

Keys of different plugins cannot be compared, so each plugin has a heap of its own. Of the first
pods of all heaps, the one with the highest priority is popped, of equals the one that has waited
longest.
"""

import heapq
import logging
from typing import Any, NamedTuple

from mooring.framework.plugin import by_priority
from mooring.framework.queued_pod import QueuedPod

__all__ = ["ActivePods"]

logger = logging.getLogger(__name__)


class _Order(NamedTuple):
    """The name of the QueueSort plugin, and its key; the smallest key is popped first."""

    plugin: str
    key: tuple[Any, ...]


_Heap = list[tuple[tuple[Any, ...], int, QueuedPod]]


class ActivePods:
    """Pods to be scheduled; a pod whose ticket changed after it was added has left."""

    def __init__(self) -> None:
        self._heaps: dict[str, _Heap] = {}
        self._failed: set[str] = set()

    def add(self, queued: QueuedPod) -> None:
        """Adds the pod where its QueueSort plugin puts it."""
        plugin, key = self._order(queued)
        heapq.heappush(self._heaps.setdefault(plugin, []), (key, queued.ticket, queued))

    def pop(self) -> QueuedPod | None:
        """Takes off the first pod; None if there is none."""
        heaps = [heap for heap in self._heaps.values() if _has_first(heap)]
        if not heaps:
            return None
        heap = heaps[0] if len(heaps) == 1 else min(heaps, key=_first_by_priority)
        return heapq.heappop(heap)[2]

    def _order(self, queued: QueuedPod) -> _Order:
        """The plugin's key for the pod; priority and time if the plugin fails."""
        plugin = queued.pipeline.queue_sort
        try:
            return _Order(plugin.name, _comparable(plugin.sort_key(queued)))
        except Exception:
            if plugin.name not in self._failed:
                text = "plugin %s cannot sort pod %s: priority decides instead"
                logger.exception(text, plugin.name, queued.pod.key)
                self._failed.add(plugin.name)
            return _Order("", by_priority(queued))


def _has_first(heap: _Heap) -> bool:
    """Whether the heap holds a pod once void entries have been dropped from its top."""
    while heap and heap[0][1] != heap[0][2].ticket:
        heapq.heappop(heap)
    return bool(heap)


def _first_by_priority(heap: _Heap) -> tuple[int, float]:
    return by_priority(heap[0][2])


def _comparable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key in a form of which any two can be compared: numbers come before texts.

    Raises:
        TypeError: if the key has anything but numbers and texts.
    """
    for item in key:
        if not isinstance(item, int | float | str):
            raise TypeError(f"a sort key has numbers and texts, not {item!r}")
    return tuple((isinstance(item, str), item) for item in key)
