"""The active queue: pods to be scheduled, in the order of their profile's QueueSort plugin.

Each plugin has its own heap, because keys of different plugins cannot be compared. `pop` compares
the first pods of all heaps, and takes a pod with the highest priority. Among equals, it prefers a
namespace that does not rest (`ActivePods.rest`), and then the pod that has waited longest.
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
    """The name of the QueueSort plugin, and the pod's sort key."""

    plugin: str
    key: tuple[Any, ...]


class ActivePods:
    """Pods to be scheduled. A pod leaves this queue when its `ticket` changes.

    While a namespace rests (see `rest`), its pods are in separate heaps, so that the pods of other
    namespaces are found quickly.
    """

    def __init__(self) -> None:
        self._heaps: dict[tuple[str, str], PodHeap[tuple[Any, ...]]] = {}
        """The heaps by plugin and namespace; the key "" holds all namespaces that do not rest."""
        self._rests: dict[str, float] = {}
        """Maps a namespace to the time until which it rests, in seconds on the caller's clock."""

    def rest(self, namespace: str, until: float) -> None:
        """Let pods of other namespaces with equal priority come first until the time `until`."""
        self._rests[namespace] = until

    def add(self, queued: QueuedPod) -> None:
        """Add the pod to a heap of its QueueSort plugin; a resting namespace has its own heap."""
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
        """Return the namespace of the next pod, and the heap that holds the pod."""
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

    Between two pods of one namespace, each other namespace gets at most one turn.
    """

    def __init__(self) -> None:
        self._by_priority: dict[int, OrderedDict[str, ActivePods]] = {}

    def add(self, queued: QueuedPod) -> None:
        """Add the pod; a namespace without other pods of this priority gets its turn last."""
        namespaces = self._by_priority.setdefault(queued.pod.spec.priority, OrderedDict())
        pods = namespaces.get(queued.pod.namespace)
        if pods is None:
            pods = namespaces[queued.pod.namespace] = ActivePods()
        pods.add(queued)

    def rest(self, namespace: str, until: float) -> None:
        """Do nothing: namespaces take turns already."""

    def pop(self, now: float) -> QueuedPod | None:
        """Remove and return the first pod of the next namespace; None if there is no pod."""
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
