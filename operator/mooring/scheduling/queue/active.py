"""The active queue: pods to be scheduled, in the order of their profile's QueueSort plugin.

Keys of different plugins cannot be compared, so each plugin has its own heap. `pop` compares the
first pods of all heaps and takes the one with the highest priority, among equals the one that has
waited longest. If namespaces take turns, this order holds within each namespace and priority.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

from mooring.framework.plugin import by_priority
from mooring.framework.plugin_failures import PluginFailed
from mooring.pausing import pause
from mooring.runtime.extension_points import run_sort_key
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.queue.heap import PodHeap


class _Order(NamedTuple):
    """The name of the QueueSort plugin, and its key; the smallest key is popped first."""

    plugin: str
    key: tuple[Any, ...]


class ActivePods:
    """Pods to be scheduled; a pod whose ticket changed after it was added has left.

    A resting namespace has its own heaps, so that the pods of others are found quickly.
    """

    def __init__(self) -> None:
        self._heaps: dict[tuple[str, str], PodHeap[tuple[Any, ...]]] = {}
        """By the QueueSort plugin, and the namespace or ""."""
        self._rests: dict[str, float] = {}
        """Until when namespaces rest."""

    def rest(self, namespace: str, until: float) -> None:
        """Put pods of other namespaces with equal priority before those of this one."""
        self._rests[namespace] = until

    def add(self, queued: QueuedPod) -> None:
        """Add the pod at the place that its QueueSort plugin gives it."""
        plugin, key = self._order(queued)
        namespace = queued.pod.namespace if queued.pod.namespace in self._rests else ""
        self._heaps.setdefault((plugin, namespace), PodHeap()).push(key, queued)

    def pop(self, now: float) -> QueuedPod | None:
        """Remove and return the first pod; None if there is none."""
        if self._rests:
            self._rests = {name: until for name, until in self._rests.items() if until > now}
        if len(self._heaps) == 1 and not self._rests:
            (heap,) = self._heaps.values()
            return heap.pop()
        while (place := self._first()) is not None:
            namespace, heap = place
            found = heap.pop()
            if found is None or namespace or found.pod.namespace not in self._rests:
                return found
            self.add(found)  # to the heap of its namespace, which began to rest meanwhile
            pause()
        return None

    def _first(self) -> tuple[str, PodHeap[tuple[Any, ...]]] | None:
        """Return the namespace and the heap whose first pod is next; forget empty heaps.

        Among pods of the highest priority, those of namespaces that are not resting come first.
        """
        best: tuple[int, bool, float] | None = None
        chosen: tuple[str, PodHeap[tuple[Any, ...]]] | None = None
        for place, heap in tuple(self._heaps.items()):
            _, namespace = place
            rests = namespace in self._rests
            if (first := heap.first()) is None:
                if namespace and not rests:
                    del self._heaps[place]
                continue
            priority, since = by_priority(first[1])
            if best is None or (priority, rests, since) < best:
                best, chosen = (priority, rests, since), (namespace, heap)
        return chosen

    def _order(self, queued: QueuedPod) -> _Order:
        """Return the plugin and its key for the pod; priority and time if the plugin fails."""
        pipeline = queued.pipeline
        plugin = pipeline.queue_sort
        try:
            # So that any two can be compared, numbers come before texts.
            key = run_sort_key(pipeline, plugin, queued)
            return _Order(plugin.name, tuple((isinstance(item, str), item) for item in key))
        except PluginFailed:
            return _Order("", by_priority(queued))


class ActivePodsByNamespace:
    """Pods to be scheduled; namespaces with pods of the highest priority take turns.

    So a namespace waits for at most one pod of each other namespace before its next pod is popped,
    however many pods of the same priority the others have.
    """

    def __init__(self) -> None:
        self._by_priority: dict[int, OrderedDict[str, ActivePods]] = {}

    def add(self, queued: QueuedPod) -> None:
        """Add the pod; a namespace that had none of its priority gets the last turn."""
        namespaces = self._by_priority.setdefault(queued.pod.spec.priority, OrderedDict())
        pods = namespaces.get(queued.pod.namespace)
        if pods is None:
            pods = namespaces[queued.pod.namespace] = ActivePods()
        pods.add(queued)

    def rest(self, namespace: str, until: float) -> None:
        """Do nothing: namespaces take turns however long their attempts take."""

    def pop(self, now: float) -> QueuedPod | None:
        """Remove and return the first pod of the namespace whose turn it is; None without any."""
        while self._by_priority:
            priority = max(self._by_priority)
            namespaces = self._by_priority[priority]
            while namespaces:
                namespace, pods = next(iter(namespaces.items()))
                queued = pods.pop(now)
                if queued is not None:
                    namespaces.move_to_end(namespace)
                    return queued
                del namespaces[namespace]
            del self._by_priority[priority]
        return None
