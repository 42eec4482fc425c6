"""Where CSI drivers still have room for new volumes, from what they publish."""

import numpy as np

from mooring.model.csi import CSIStorageCapacity
from mooring.model.selectors import NodeSelector, NodeSelectorTerm
from mooring.state.columns import IntArray
from mooring.state.nodes import NodeTable
from mooring.state.storage.best_fit import BEYOND, BestFitIndex
from mooring.state.view import BoolArray

__all__ = ["Capacities"]


class Capacities:
    """Every CSIStorageCapacity, by storage class."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._stocks: dict[str, BestFitIndex[CSIStorageCapacity]] = {}

    def changed(self, before: CSIStorageCapacity | None, after: CSIStorageCapacity | None) -> None:
        """A capacity came, went or changed."""
        if before == after:
            return
        if before is not None and before.largest is not None:
            self._stocks[before.storage_class].remove(before.largest, before.key)
        if after is not None and after.largest is not None:
            stock = self._stocks.get(after.storage_class)
            if stock is None:
                stock = self._stocks[after.storage_class] = BestFitIndex(self._nodes)
            stock.add(after.largest, after.key, _affinity(after), None, after)

    def has_capacity(self, storage_class: str, size: int, rows: IntArray) -> BoolArray:
        """True where a volume of the class and of this size could still be made."""
        found = np.zeros(len(rows), np.bool_)
        stock = self._stocks.get(storage_class)
        if stock is not None:
            enough = stock.large_enough(size, lambda _: True)
            for positions in stock.by_row(enough, rows, depth=1):
                found |= positions < BEYOND
        return found


def _affinity(capacity: CSIStorageCapacity) -> NodeSelector | None:
    """The nodes that the capacity is for: none without a topology, all with an empty one."""
    topology = capacity.node_topology
    if topology is None:
        return NodeSelector()
    if topology.empty:
        return None
    return NodeSelector((NodeSelectorTerm(expressions=topology.requirements),))
