"""A heap of queued pods; an entry becomes void when its pod moves to another queue."""

import heapq
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import ref

from mooring.runtime.queued_pod import QueuedPod

_FEW_ENTRIES: Final = 64
"""The most entries of a heap that is not searched for void entries."""
_LOOKED_AT: Final = 4
"""The most entries of the second heap that each `push` examines."""
_MANY_VOID: Final = 500
"""The number of void entries dropped from the head after which all entries are examined, because
dropping an entry takes 50 times as long as examining one."""
_FREED: Final = 20
"""The most dropped entries that one call frees from memory; later calls free the others."""

_Key = TypeVar("_Key")


class _Entry(NamedTuple, Generic[_Key]):
    """A pod in the heap; valid while the pod's `ticket` is unchanged."""

    key: _Key
    ticket: int
    pod: "ref[QueuedPod]"
    """Weak, because to free 100,000 pods with their entries would take 0.15 s."""

    def queued(self) -> QueuedPod | None:
        """Return the pod if it has not moved to another queue, else None."""
        queued = self.pod()
        return queued if queued is not None and queued.ticket == self.ticket else None


class PodHeap(Generic[_Key]):
    """A heap of queued pods by key; the pod with the smallest key is first.

    A pod's entry becomes void when the pod moves, because its ticket changes. Void entries are
    dropped when they come first. Once the heap has doubled in size, each `push` searches a few
    entries for void ones.
    """

    __slots__ = ("_dropped", "_entries", "_most", "_searched")

    def __init__(self) -> None:
        self._entries: list[_Entry[_Key]] = []
        self._searched: list[_Entry[_Key]] = []
        """A second heap; `push` moves its valid entries to the first heap."""
        self._most = _FEW_ENTRIES
        self._dropped: list[_Entry[_Key]] = []
        """Dropped entries, which are freed a few at a time."""

    def __len__(self) -> int:
        """Return the number of entries, including void ones."""
        return len(self._entries) + len(self._searched)

    def push(self, key: _Key, queued: QueuedPod) -> None:
        """Add the pod; `pop` returns pods with smaller keys first."""
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
        for _ in range(min(_LOOKED_AT, len(self._searched))):
            entry = self._searched.pop()  # without its last entry a heap is one still
            if entry.queued() is not None:
                heapq.heappush(self._entries, entry)
        if not self._searched:
            self._most = max(2 * len(self._entries), _FEW_ENTRIES)

    def _with_first(self) -> list[_Entry[_Key]]:
        del self._dropped[-_FREED:]
        if not self._entries and not self._searched:
            return self._entries
        for heap in (self._entries, self._searched):
            self._drop_void_first(heap)
        if self._searched and not (self._entries and self._entries[0] < self._searched[0]):
            return self._searched
        return self._entries

    def _drop_void_first(self, heap: list[_Entry[_Key]]) -> None:
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
