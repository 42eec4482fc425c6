"""A heap of queued pods whose entries become void when the pod moves."""

import heapq
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import ref

from mooring.runtime.queued_pod import QueuedPod

_FEW_ENTRIES: Final = 64
"""A heap with fewer entries is not searched for void ones."""
_LOOKED_AT: Final = 4
"""Entries that one `push` looks at."""
_MANY_VOID: Final = 500
"""If so many entries are void one after the other, all are looked at: 100,000 pods may have gone.

To drop one that is first takes 50 times as long as to look at one."""
_FREED: Final = 20
"""How many of these entries are freed together later: freeing takes as long as examining."""

_Key = TypeVar("_Key")


class _Entry(NamedTuple, Generic[_Key]):
    """A pod that was queued with this ticket."""

    key: _Key
    ticket: int
    pod: "ref[QueuedPod]"

    def queued(self) -> QueuedPod | None:
        """Return the pod; None if it has moved or gone."""
        queued = self.pod()
        return queued if queued is not None and queued.ticket == self.ticket else None


class PodHeap(Generic[_Key]):
    """Queued pods by a key; the pod with the smallest key is first.

    A pod's entry is void once the pod has moved, which changes its ticket. Void entries are dropped
    when they come first, and all of them once the heap has doubled in size, so a pod that moves
    often leaves no more entries than there are pods. Examining 100,000 entries at once takes long,
    so each `push` examines some of them. The heap holds no pods that have gone: freeing 100,000 of
    them with their entries would take 0.15 s.
    """

    __slots__ = ("_dropped", "_entries", "_most", "_searched")

    def __init__(self) -> None:
        self._entries: list[_Entry[_Key]] = []
        self._searched: list[_Entry[_Key]] = []
        """A heap as well, whose entries go to the other one unless they are void."""
        self._most = _FEW_ENTRIES
        self._dropped: list[_Entry[_Key]] = []
        """Entries that were dropped together, and are freed a few at a time."""

    def __len__(self) -> int:
        """Return the number of entries, including void ones."""
        return len(self._entries) + len(self._searched)

    def push(self, key: _Key, queued: QueuedPod) -> None:
        """Add the pod with its present ticket."""
        if not self._searched and len(self._entries) >= self._most:
            self._entries, self._searched = [], self._entries
        if self._searched:
            self._search_some()
        heapq.heappush(self._entries, _Entry(key, queued.ticket, ref(queued)))

    def first(self) -> tuple[_Key, QueuedPod] | None:
        """Return the smallest key and its pod; None if there is none."""
        heap = self._with_first()
        queued = heap[0].queued() if heap else None
        return (heap[0].key, queued) if queued is not None else None

    def pop(self) -> QueuedPod | None:
        """Remove and return the pod with the smallest key; None if there is none."""
        heap = self._with_first()
        return heapq.heappop(heap).queued() if heap else None

    def _search_some(self) -> None:
        """Move some entries to the other heap, without void ones."""
        for _ in range(min(_LOOKED_AT, len(self._searched))):
            entry = self._searched.pop()  # without its last entry a heap is one still
            if entry.queued() is not None:
                heapq.heappush(self._entries, entry)
        if not self._searched:
            self._most = max(2 * len(self._entries), _FEW_ENTRIES)

    def _with_first(self) -> list[_Entry[_Key]]:
        """Return the heap whose first entry is the smallest and not void; an empty one without."""
        del self._dropped[-_FREED:]
        if not self._entries and not self._searched:
            return self._entries
        for heap in (self._entries, self._searched):
            self._drop_void_first(heap)
        if self._searched and not (self._entries and self._entries[0] < self._searched[0]):
            return self._searched
        return self._entries

    def _drop_void_first(self, heap: list[_Entry[_Key]]) -> None:
        """Drop void entries until the first one is not void."""
        for _ in range(_MANY_VOID):
            if not heap or heap[0].queued() is not None:
                return
            heapq.heappop(heap)
        kept = [  # as `queued`, which would take three times as long
            entry
            for entry in heap
            if (found := entry[2]()) is not None and found.ticket == entry[1]
        ]
        heapq.heapify(kept)
        self._dropped += heap
        heap[:] = kept
