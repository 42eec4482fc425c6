"""Placed and nominated pods as columns: what preemption counts with.

One slot per pod: its node's row, priority, start and requests, and whether it is being evicted. A
nominated pod holds no place yet; it has a slot because whoever plans for its node must leave it the
room.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from mooring.model.pod import Pod
from mooring.state.columns import Columns, IntArray, ResourceColumns, read_only

__all__ = ["PodColumns"]

_NOWHERE = -1
_NOT_STARTED = np.inf


class PodColumns:
    """Columns over slots; a free slot's `rows` is -1.

    Requests are int64 in the units of the node table; `started` is float64 seconds since the epoch,
    infinite for a pod that has not started, because such a pod counts as started now.
    """

    def __init__(self) -> None:
        columns = self._columns = Columns()
        self._rows = columns.add(np.int64, _NOWHERE)
        self._priority = columns.add(np.int64)
        self._started = columns.add(np.float64)
        self._nominated = columns.add(np.bool_)
        self._evicted = columns.add(np.bool_)
        self._namespaces = columns.add(np.int64)
        self._namespace_codes: dict[str, int] = {}
        self._requests = ResourceColumns(columns)
        self.pods: list[Pod | None] = []
        self._slots: dict[tuple[str, bool], int] = {}
        self._free: list[int] = []

    def put(self, pod: Pod, row: int, *, nominated: bool, evicted: bool = False) -> None:
        """The pod counts on the row; a pod may be placed and nominated, each in its own slot."""
        slot = self._free.pop() if self._free else len(self.pods)
        if slot == len(self.pods):
            self.pods.append(None)
            self._columns.reserve(slot + 1)
        self._slots[pod.key, nominated] = slot
        self.pods[slot] = pod
        self._rows.data[slot] = row
        self._priority.data[slot] = pod.shape.priority
        self._started.data[slot] = _NOT_STARTED if pod.started is None else pod.started
        self._nominated.data[slot] = nominated
        self._evicted.data[slot] = evicted
        codes = self._namespace_codes
        self._namespaces.data[slot] = codes.setdefault(pod.namespace, len(codes))
        for resource, amount in pod.shape.demand.resources.items():
            self._requests.column(resource).data[slot] = amount

    def drop(self, pod: Pod, *, nominated: bool) -> None:
        """The pod counts no more."""
        slot = self._slots.pop((pod.key, nominated))
        self.pods[slot] = None
        self._rows.data[slot] = _NOWHERE
        for resource in pod.shape.demand.resources:
            self._requests.column(resource).data[slot] = 0
        self._free.append(slot)

    def slot(self, key: str, *, nominated: bool) -> int | None:
        """The slot of the placed or nominated pod of this namespace/name, if it has one."""
        return self._slots.get((key, nominated))

    def renew(self, pod: Pod) -> None:
        """A placed pod's newer version, of which only the start may differ in what is counted."""
        slot = self._slots[pod.key, False]
        self.pods[slot] = pod
        self._started.data[slot] = _NOT_STARTED if pod.started is None else pod.started

    def mark(self, pod: Pod, *, evicted: bool) -> None:
        """A pod is on its way out, or stays after all; nothing if it holds no place."""
        slot = self._slots.get((pod.key, False))
        if slot is not None:
            self._evicted.data[slot] = evicted

    @property
    def rows(self) -> IntArray:
        """The node row of each slot, -1 for free slots."""
        return read_only(self._rows.data[: len(self.pods)])

    @property
    def priority(self) -> IntArray:
        """The pods' priorities."""
        return read_only(self._priority.data[: len(self.pods)])

    @property
    def started(self) -> npt.NDArray[np.float64]:
        """When the pods started."""
        return read_only(self._started.data[: len(self.pods)])

    @property
    def nominated(self) -> npt.NDArray[np.bool_]:
        """True for slots of nominated pods."""
        return read_only(self._nominated.data[: len(self.pods)])

    @property
    def evicted(self) -> npt.NDArray[np.bool_]:
        """True for slots of pods that this scheduler is evicting."""
        return read_only(self._evicted.data[: len(self.pods)])

    def in_namespaces(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """True for slots of pods in one of the namespaces."""
        codes = [self._namespace_codes[name] for name in names if name in self._namespace_codes]
        return np.isin(self._namespaces.data[: len(self.pods)], codes)

    def nominated_demand(
        self, resources: Iterable[str], least_priority: int, other_than: str, rows: int
    ) -> tuple[IntArray, dict[str, IntArray]]:
        """int64[rows]: how many pods, and of each resource how much, is promised to nominated pods.

        Counts those of at least the priority, without the one of that key.
        """
        chosen = self.nominated & (self.rows >= 0) & (self.priority >= least_priority)
        own = self.slot(other_than, nominated=True)
        if own is not None:
            chosen[own] = False
        slots = np.flatnonzero(chosen)
        at = self.rows[slots]
        sums = {name: np.zeros(rows, np.int64) for name in resources}
        for name, total in sums.items():
            np.add.at(total, at, self.requests(name)[slots])
        return np.bincount(at, minlength=rows), sums

    def requests(self, resource: str) -> IntArray:
        """What the pods request of a resource."""
        column = self._requests.known(resource)
        if column is None:
            return np.zeros(len(self.pods), np.int64)
        return read_only(column.data[: len(self.pods)])
