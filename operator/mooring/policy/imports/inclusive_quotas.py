"""Converts queues whose quotas include the quotas of queues below: Volcano, KAI and Koordinator.

The nominalQuota of a Queue is the part that the queues below do not have. If the queues share the
resources of the nodes, a Queue at the root lends the resources that no quota names.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from mooring.model.manifest_error import ManifestError
from mooring.policy.imports.written_queue import WrittenQueue
from mooring.quota.model.queue import Quota

_MOST_SHOWN: Final = 16


@dataclass(slots=True)
class InclusiveQueue:
    """A queue whose amounts include the amounts of the queues below it.

    `parent` is "" for a queue directly below the root. Amounts are by resource: `quota` is None for
    an unlimited resource, `limit` is the most that the queue may use, and `kept` is the amount that
    it does not lend. An unlimited quota becomes the limit, or the amount on all nodes; if neither
    is known, it is left out. `selector` is only for a queue without queues below it.
    """

    name: str
    origin: str
    parent: str = ""
    quota: dict[str, int | None] = field(default_factory=dict)
    limit: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    weight: object = None
    selector: Mapping[str, Any] | None = None


class InclusiveQuotas:
    """Converts a tree of queues below `root` to Queues.

    `capacity` is the amount that the queues share beyond their quotas. Without it the Queue at the
    root has no quota of its own.
    """

    def __init__(
        self,
        queues: Sequence[InclusiveQueue],
        root: InclusiveQueue,
        notes: list[str],
        capacity: Mapping[str, int],
    ) -> None:
        self._queues = {root.name: root}
        for queue in queues:
            other = self._queues.setdefault(queue.name, queue)
            if other is not queue:
                raise ManifestError("", f"{queue.origin} and {other.origin} are one Queue")
        self._root = root
        self._notes = notes
        self._capacity = capacity
        self._below = defaultdict[str, Counter[str]](Counter)
        """The sum of the quotas of the queues below each queue, by resource."""

    def written(self) -> Iterator[WrittenQueue]:
        """Yield the Queues, each after its parent; raise ManifestError if parents form a circle."""
        order = self._children_first()
        quotas = {name: self._quotas(self._queues[name]) for name in order if name in self._queues}
        parents = {self._parent(self._queues[name]) for name in quotas}
        for name in reversed(quotas):
            queue = self._queues[name]
            yield WrittenQueue(
                name,
                queue.origin,
                parent=self._parent(queue),
                quotas=quotas[name],
                weight=queue.weight,
                selector=None if name in parents else queue.selector,
            )

    def _parent(self, queue: InclusiveQueue) -> str:
        return "" if queue is self._root else queue.parent or self._root.name

    def _children_first(self) -> Sequence[str]:
        sorter = TopologicalSorter[str]()
        for queue in reversed(self._queues.values()):  # what is added first is last in the end
            if not (parent := self._parent(queue)):
                continue
            sorter.add(parent, queue.name)
            if parent not in self._queues:
                self._notes.append(f"{queue.origin}: its parent {parent} is not in the file")
        try:
            return [*sorter.static_order()]
        except CycleError as circle:
            names = " -> ".join(circle.args[1][:_MOST_SHOWN])
            raise ManifestError("", f"the parents form a circle: {names}") from None

    def _quotas(self, queue: InclusiveQueue) -> Mapping[str, Quota]:
        below, quotas = dict(self._below[queue.name]), dict[str, Quota]()
        for resource in dict.fromkeys((*queue.quota, *queue.limit, *queue.kept, *below)):
            total = self._total(queue, resource, below.get(resource, 0))
            if total is None:
                continue
            kept, limit = queue.kept.get(resource, 0), queue.limit.get(resource)
            quota = Quota(total - below.get(resource, 0))
            if queue is not self._root:
                self._below[self._parent(queue)][resource] += total
                quota = Quota(
                    quota.nominal,
                    None if limit is None else max(0, limit - total),
                    max(0, total - kept) if kept else None,
                )
            if quota != Quota() or resource not in below:
                quotas[resource] = quota
        return quotas

    def _of_root(self, resource: str) -> int:
        """Return the amount that all queues share: the nodes' amount, or else the root's quota."""
        root = self._root
        own = root.quota.get(resource) or root.limit.get(resource) or 0
        shared = self._capacity.get(resource, own)
        return min(shared, root.limit.get(resource, shared))

    def _total(self, queue: InclusiveQueue, resource: str, below: int) -> int | None:
        """Return the queue's quota, which includes the queues below it; None if it is unlimited."""
        if queue is self._root:
            return max(self._of_root(resource), below)
        quota, limit = queue.quota.get(resource, 0), queue.limit.get(resource)
        if quota is None:
            known = [size for size in (limit, self._capacity.get(resource)) if size is not None]
            if not known:
                why = f"the unlimited quota of {resource} is left out: the file has no Nodes"
                self._notes.append(f"{queue.origin}: {why}")
                return below or None
            return max(below, min(known))
        if limit is not None and limit < max(quota, below):
            why = "the Queues below it may use more" if limit < below else "it is the quota"
            self._notes.append(f"{queue.origin}: the limit of {resource} is below the quota: {why}")
            quota = min(quota, limit)
        elif resource in queue.quota and quota < below:
            why = "less than those of the queues below it, which count"
            self._notes.append(f"{queue.origin}: the quota of {resource} is {why}")
        return max(quota, below)


def note_without_nodes(root: str, kind: str) -> str:
    """Return a note that the shared amount is unknown, because the file has no Nodes."""
    how = f"give the Nodes too: kubectl get nodes,{kind} -o json | mooring convert -"
    return f"Queue {root} lends only what the others do not use; for what the nodes have, {how}"
