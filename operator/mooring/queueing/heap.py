"""A heap of queued pods whose entries become void when the pod moves."""

import heapq
from typing import Final, Generic, TypeVar

from mooring.framework.queued_pod import QueuedPod

__all__ = ["PodHeap"]

_FEW_ENTRIES: Final = 64
"""A heap with fewer entries is not searched for void ones."""

_Key = TypeVar("_Key")


class PodHeap(Generic[_Key]):
    """Queued pods by a key; the pod with the smallest key is first.

    A pod's entry is void once its ticket has changed, that is, once it has moved. Void entries are
    dropped when they are first, and all of them when the heap has grown to twice its size: a pod
    that moves again and again leaves no more entries behind than there are pods.
    """

    __slots__ = ("_entries", "_most")

    def __init__(self) -> None:
        self._entries: list[tuple[_Key, int, QueuedPod]] = []
        self._most = _FEW_ENTRIES

    def __len__(self) -> int:
        """Return how many entries there are, void ones included."""
        return len(self._entries)

    def push(self, key: _Key, queued: QueuedPod) -> None:
        """Add the pod with its present ticket."""
        if len(self._entries) >= self._most:
            self._entries = [entry for entry in self._entries if entry[1] == entry[2].ticket]
            heapq.heapify(self._entries)
            self._most = max(2 * len(self._entries), _FEW_ENTRIES)
        heapq.heappush(self._entries, (key, queued.ticket, queued))

    def first(self) -> tuple[_Key, QueuedPod] | None:
        """Return the smallest key and its pod; None if there is none."""
        entries = self._entries
        while entries and entries[0][1] != entries[0][2].ticket:
            heapq.heappop(entries)
        return (entries[0][0], entries[0][2]) if entries else None

    def pop(self) -> QueuedPod | None:
        """Remove and return the pod with the smallest key; None if there is none."""
        return heapq.heappop(self._entries)[2] if self.first() is not None else None
