"""Drivers, attach limits and migrated plugins of the nodes, as their CSINodes say."""

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
_NOT_INSTALLED: Final = UNLIMITED + 1
"""Stands in a column of limits where the driver is not on the node."""


class CSINodes:
    """An int64 column of limits per driver, and the rows migrated to CSI per in-tree plugin."""

    def __init__(self, nodes: NodeTable, objects: Objects) -> None:
        self._nodes = nodes
        self._objects = objects
        self._shown: dict[str, tuple[int, CSINode]] = {}
        self._present = nodes.add_column(np.bool_)
        self._limits: dict[str, Column] = {}
        self._installed: Counter[str] = Counter()
        """On how many nodes each driver is; a driver that is on none has no column."""
        self._migrated: dict[str, set[int]] = {}

    def present(self, rows: IntArray) -> BoolArray:
        """Return True on rows whose node has a CSINode."""
        found: BoolArray = self._present.data[rows]
        return found

    def installed(self, driver: str, rows: IntArray) -> BoolArray:
        """Return True on rows whose CSINode names the driver."""
        column = self._limits.get(driver)
        if column is None:
            return np.zeros(len(rows), np.bool_)
        there: BoolArray = np.not_equal(column.data[rows], _NOT_INSTALLED)
        return there

    def limits(self, driver: str, rows: IntArray) -> IntArray:
        """Return how many of the driver's volumes each of the rows may have."""
        column = self._limits.get(driver)
        if column is None:
            return np.full(len(rows), UNLIMITED)
        limits: IntArray = np.minimum(column.data[rows], UNLIMITED)
        return limits

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
        self._present.data[row] = True
        for driver, limit in csi_node.limits.items():
            column = self._limits.get(driver)
            if column is None:
                column = self._nodes.add_column(np.int64, _NOT_INSTALLED)
                self._limits[driver] = column
            column.data[row] = UNLIMITED if limit is None else limit
            self._installed[driver] += 1
        for plugin in csi_node.migrated_plugins:
            self._migrated.setdefault(plugin, set()).add(row)

    def _clear(self, row: int, csi_node: CSINode) -> None:
        self._present.data[row] = False
        for driver in csi_node.limits:
            self._limits[driver].data[row] = _NOT_INSTALLED
            self._installed[driver] -= 1
            if not self._installed[driver]:
                self._nodes.remove_column(self._limits.pop(driver))
                del self._installed[driver]
        for plugin in csi_node.migrated_plugins:
            rows = self._migrated[plugin]
            rows.discard(row)
            if not rows:
                del self._migrated[plugin]
