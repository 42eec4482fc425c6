"""Attach limits and migrated plugins of the nodes, as their CSINodes say."""

from collections import Counter
from typing import Final

import numpy as np

from mooring.model.csi import CSINode
from mooring.model.events import Kind
from mooring.state.columns import Column, IntArray
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects
from mooring.state.view import BoolArray

__all__ = ["UNLIMITED", "CSINodes"]

UNLIMITED: Final = 2**62
"""The limit where there is no CSINode, or it names none."""


class CSINodes:
    """An int64 column of limits per driver, and the rows migrated to CSI per in-tree plugin."""

    def __init__(self, nodes: NodeTable, objects: Objects) -> None:
        self._nodes = nodes
        self._objects = objects
        self._shown: dict[str, tuple[int, CSINode]] = {}
        self._limits: dict[str, Column] = {}
        self._limited: Counter[str] = Counter()
        """How many nodes have a limit of each driver; a driver without one has no column."""
        self._migrated: dict[str, set[int]] = {}

    def limits(self, driver: str, rows: IntArray) -> IntArray:
        """Return how many of the driver's volumes each of the rows may have."""
        column = self._limits.get(driver)
        return np.full(len(rows), UNLIMITED) if column is None else column.data[rows]

    def migrated(self, plugin: str, rows: IntArray) -> BoolArray:
        """Return True on rows where the plugin's volumes belong to its CSI driver."""
        return np.isin(rows, list(self._migrated.get(plugin, ())))

    def refresh(self, name: str) -> None:
        """Update the limits for a name whose node or CSINode was added, updated or deleted."""
        shown = self._shown.pop(name, None)
        if shown is not None:
            self._clear(*shown)
        row = self._nodes.row_of.get(name)
        csi_node = self._objects.of(Kind.CSI_NODE).get(name)
        if row is not None and self._nodes.nodes[row] is not None and csi_node is not None:
            self._shown[name] = (row, csi_node)
            self._show(row, csi_node)

    def _show(self, row: int, csi_node: CSINode) -> None:
        for driver, limit in csi_node.limits.items():
            if limit is not None:
                self._column(driver).data[row] = limit
                self._limited[driver] += 1
        for plugin in csi_node.migrated_plugins:
            self._migrated.setdefault(plugin, set()).add(row)

    def _clear(self, row: int, csi_node: CSINode) -> None:
        for driver, limit in csi_node.limits.items():
            if limit is not None:
                self._limits[driver].data[row] = UNLIMITED
                self._limited[driver] -= 1
                if not self._limited[driver]:
                    self._nodes.remove_column(self._limits.pop(driver))
                    del self._limited[driver]
        for plugin in csi_node.migrated_plugins:
            rows = self._migrated[plugin]
            rows.discard(row)
            if not rows:
                del self._migrated[plugin]

    def _column(self, driver: str) -> Column:
        column = self._limits.get(driver)
        if column is None:
            column = self._limits[driver] = self._nodes.add_column(np.int64, UNLIMITED)
        return column
