"""Keeps the capacities for new volumes that CSI drivers publish in CSIStorageCapacity objects."""

from typing import Final

import numpy as np

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

    def changed(self, before: CSIStorageCapacity | None, after: CSIStorageCapacity | None) -> None:
        """Update the index after a capacity was added, updated or deleted."""
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
            amount = UNKNOWN if after.capacity is None else after.capacity
            found.add(after.largest, after.key, _affinity(after), None, after, amount=amount)

    def largest(self, storage_class: str, rows: IntArray) -> IntArray:
        """Return int64[rows]: the size in bytes of the largest new volume on each node, or -1."""
        capacities = self._by_class.get(storage_class)
        return np.full(len(rows), -1) if capacities is None else capacities.largest_on(rows)

    def capacity(self, storage_class: str, size: int, rows: IntArray) -> IntArray:
        """Return int64[rows]: the bytes that each node offers for a volume of this class and size.

        The capacity is UNKNOWN (-1) if no object allows this size. Of several objects, the one with
        the smallest maximum size is used, then the first by name.
        """
        smallest = self._smallest(storage_class, size, rows)
        found = np.full(len(rows), UNKNOWN)
        there = np.flatnonzero(smallest != NO_POSITION)
        if len(there):
            found[there] = self._by_class[storage_class].amounts[smallest[there]]
        return found

    def _smallest(self, storage_class: str, size: int, rows: IntArray) -> IntArray:
        """Return int64[rows]: the position of the smallest sufficient capacity, or NO_POSITION."""
        smallest = np.full(len(rows), NO_POSITION)
        capacities = self._by_class.get(storage_class)
        if capacities is not None:
            large_enough = np.arange(capacities.at_least(size), len(capacities))
            for positions in capacities.smallest_on(large_enough, rows, count=1):
                np.minimum(smallest, positions, out=smallest)
        return smallest


def _affinity(capacity: CSIStorageCapacity) -> NodeSelector | None:
    """Return the capacity's nodes: none if it has no topology, all if its topology is empty."""
    topology = capacity.node_topology
    if topology is None:
        return NodeSelector()
    if topology.empty:
        return None
    return NodeSelector((NodeSelectorTerm(expressions=topology.requirements),))
