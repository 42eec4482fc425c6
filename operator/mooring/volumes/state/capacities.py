"""Keeps the capacities for new volumes that CSI drivers publish in CSIStorageCapacity objects."""

from typing import Final

import numpy as np

from mooring.model.quantity import Quantity
from mooring.model.selectors import NodeSelector, NodeSelectorTerm
from mooring.state.columns import IntArray
from mooring.state.nodes import NodeTable
from mooring.volumes.model.csi import CSIStorageCapacity
from mooring.volumes.state.best_fit import NO_POSITION, BestFitIndex

UNKNOWN: Final = -1
"""Stands for a capacity that no object publishes."""


class Capacities:
    """All CSIStorageCapacity objects, by storage class."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._by_class: dict[str, BestFitIndex[CSIStorageCapacity]] = {}
        self._none: BestFitIndex[CSIStorageCapacity] = BestFitIndex(nodes)

    def changed(self, before: CSIStorageCapacity | None, after: CSIStorageCapacity | None) -> None:
        """Update the index after a capacity was added, updated or deleted."""
        if before == after:
            return
        if before is not None and before.largest is not None:
            capacities = self._by_class[before.storage_class]
            capacities.remove(before.largest.nano, before.key)
            if not capacities:
                del self._by_class[before.storage_class]
        if after is not None and after.largest is not None:
            found = self._by_class.get(after.storage_class)
            if found is None:
                found = self._by_class[after.storage_class] = BestFitIndex(self._nodes)
            amount = UNKNOWN if after.capacity is None else after.capacity.whole
            found.add(after.largest.nano, after.key, _affinity(after), None, after, amount)

    def of(self, storage_class: str) -> BestFitIndex[CSIStorageCapacity]:
        """Return an index of the class's objects by largest volume size (billionths of a byte)."""
        return self._by_class.get(storage_class, self._none)

    def capacity(self, storage_class: str, size: Quantity, rows: IntArray) -> IntArray:
        """Return int64[rows]: the bytes that each node offers for a volume of this class and size.

        The result is UNKNOWN (-1) if no object allows the size, or if the object states no
        capacity.
        """
        # The object with the smallest sufficient maximum size is used, or the first of these by
        # name.
        capacities = self.of(storage_class)
        large_enough = np.arange(capacities.at_least(size.nano), len(capacities))
        smallest = np.full(len(rows), NO_POSITION)
        for positions in capacities.smallest_on(large_enough, rows, count=1):
            np.minimum(smallest, positions, out=smallest)
        found = np.full(len(rows), UNKNOWN)
        there = np.flatnonzero(smallest != NO_POSITION)
        found[there] = capacities.amounts[smallest[there]]
        return found


def _affinity(capacity: CSIStorageCapacity) -> NodeSelector | None:
    topology = capacity.node_topology
    if topology is None:
        # A missing topology stands for no node.
        return NodeSelector()
    if topology.empty:
        return None
    return NodeSelector((NodeSelectorTerm(expressions=topology.requirements),))
