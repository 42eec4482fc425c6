"""Where CSI drivers can provision new volumes, as their CSIStorageCapacity objects say."""

import numpy as np

from mooring.model.csi import CSIStorageCapacity
from mooring.model.selectors import NodeSelector, NodeSelectorTerm
from mooring.state.columns import IntArray
from mooring.state.nodes import NodeTable
from mooring.state.storage.best_fit import NO_POSITION, BestFitIndex
from mooring.state.view import BoolArray

__all__ = ["Capacities"]


class Capacities:
    """Every CSIStorageCapacity, by storage class."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._by_class: dict[str, BestFitIndex[CSIStorageCapacity]] = {}

    def changed(self, before: CSIStorageCapacity | None, after: CSIStorageCapacity | None) -> None:
        """Count a capacity anew that was added, updated or deleted."""
        if before == after:
            return
        if before is not None and before.largest is not None:
            capacities = self._by_class[before.storage_class]
            capacities.remove(before.largest, before.key)
            if not capacities:
                del self._by_class[before.storage_class]
        if after is not None and after.largest is not None:
            found = self._by_class.get(after.storage_class)
            if found is None:
                found = self._by_class[after.storage_class] = BestFitIndex(self._nodes)
            found.add(after.largest, after.key, _affinity(after), None, after)

    def has_capacity(self, storage_class: str, size: int, rows: IntArray) -> BoolArray:
        """Return True where a volume of the class and of this size can be provisioned."""
        found = np.zeros(len(rows), np.bool_)
        capacities = self._by_class.get(storage_class)
        if capacities is not None:
            large_enough = capacities.at_least(size, lambda _: True)
            for positions in capacities.smallest_on(large_enough, rows, count=1):
                found |= positions < NO_POSITION
        return found


def _affinity(capacity: CSIStorageCapacity) -> NodeSelector | None:
    """Return the nodes that the capacity is for: none without a topology, all with an empty one."""
    topology = capacity.node_topology
    if topology is None:
        return NodeSelector()
    if topology.empty:
        return None
    return NodeSelector((NodeSelectorTerm(expressions=topology.requirements),))
