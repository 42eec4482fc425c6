"""Keeps the drivers, attach limits and migrated plugins of nodes, from their CSINodes."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from mooring.model.events import Kind
from mooring.model.indexes import drop_item
from mooring.state.columns import IntArray
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects
from mooring.state.view import BoolArray
from mooring.volumes.model.csi import CSINode
from mooring.volumes.model.storage_objects import CSISource

UNLIMITED: Final = 2**62
"""Stands for "no limit"; a node without a CSINode has no limit either."""


class CSINodes:
    """The volume limits of all drivers on each node, and the nodes with migrated plugins."""

    def __init__(self, nodes: NodeTable, objects: Objects) -> None:
        self._nodes = nodes
        self._objects = objects
        self._shown: dict[str, tuple[int, CSINode]] = {}
        self._present = nodes.add_column(np.bool_)
        self._limits = nodes.add_resource_columns()
        """For each driver and row, the limit plus 1; 0 if the node lacks the driver."""
        self._migrated: dict[str, set[int]] = {}

    def lacks_driver(self, volumes: Iterable[CSISource], driver: str, rows: IntArray) -> BoolArray:
        """Return bool[rows]: True where the node lacks the driver but needs it for a volume.

        On a node without a CSINode, in-tree plugins attach their volumes themselves.
        """
        lacking = np.equal(self._limits.of_rows(driver, rows), 0)
        if all(volume.migrated for volume in volumes):
            lacking &= self._present.data[rows]
        return lacking

    def limits(self, driver: str, rows: IntArray) -> IntArray:
        """Return int64[rows]: the most volumes of the driver on each node, or UNLIMITED."""
        more = self._limits.of_rows(driver, rows)
        return np.where(more == 0, UNLIMITED, more - 1)

    def migrated(self, plugin: str, rows: IntArray) -> BoolArray:
        """Return bool[rows]: True where a CSI driver attaches the in-tree plugin's volumes."""
        return np.isin(rows, list(self._migrated.get(plugin, ())))

    def refresh(self, name: str) -> None:
        """Update the limits and migrated plugins of a node after it or its CSINode changed."""
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
            # Files that no API server has checked may have any number.
            known = UNLIMITED if limit is None else min(max(limit, 0), UNLIMITED)
            self._limits.put(driver, row, 1 + known)
        for plugin in csi_node.migrated_plugins:
            self._migrated.setdefault(plugin, set()).add(row)

    def _clear(self, row: int, csi_node: CSINode) -> None:
        self._present.data[row] = False
        for driver in csi_node.limits:
            self._limits.put(driver, row, 0)
        for plugin in csi_node.migrated_plugins:
            drop_item(self._migrated, plugin, row)
