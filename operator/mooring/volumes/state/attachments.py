"""Counts the volumes of each CSI driver on each node (nodevolumelimits/csi.go).

A volume is counted once per node, even if several pods use it and a VolumeAttachment names it.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final, TypeAlias

import numpy as np

from mooring.model.events import Kind
from mooring.model.indexes import add_count, drop_item
from mooring.state.columns import Column, IntArray
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects
from mooring.volumes.model.csi import VolumeAttachment
from mooring.volumes.model.storage_objects import CSISource, PersistentVolume

_Uses: TypeAlias = dict[CSISource, Counter[int]]
_NONE: Final[Counter[int]] = Counter()


class Attachments:
    """The number of different volumes on each node, as an int64 column for each driver."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._counts: dict[str, Column] = {}
        self._on_rows: Counter[str] = Counter()
        """The number of volumes of each driver on all nodes; a driver without volumes has no
        column."""
        self._used: _Uses = {}
        self._observed: _Uses = {}

    def rows_using(self, source: CSISource) -> Collection[int]:
        """Return the rows of nodes with a pod that uses the volume."""
        return self._used.get(source, _NONE)

    def counts(self, driver: str, rows: IntArray) -> IntArray:
        """Return how many volumes of the driver are on each of these nodes."""
        column = self._counts.get(driver)
        return np.zeros(len(rows), np.int64) if column is None else column.data[rows]

    def use(self, source: CSISource, row: int, times: int) -> None:
        """Add `times` uses of the volume by pods on the row's node; negative: remove uses."""
        self._add(self._used, self._observed, source, row, times)

    def observe(self, source: CSISource, row: int, times: int) -> None:
        """Add `times` VolumeAttachments of the volume to the row's node; negative: remove them."""
        self._add(self._observed, self._used, source, row, times)

    def _add(self, counters: _Uses, others: _Uses, source: CSISource, row: int, times: int) -> None:
        rows = counters.setdefault(source, Counter())
        before = rows[row]
        add_count(rows, row, times)
        after = rows[row]
        if not rows:
            del counters[source]
        # The volume is on the node while it is in `counters` or in `others`.
        if bool(before) != bool(after) and row not in others.get(source, _NONE):
            self._count(source.driver, row, 1 if after else -1)

    def _count(self, driver: str, row: int, change: int) -> None:
        column = self._counts.get(driver)
        if column is None:
            column = self._counts[driver] = self._nodes.add_column(np.int64)
        column.data[row] += change
        self._on_rows[driver] += change
        if not self._on_rows[driver]:
            self._nodes.remove_column(self._counts.pop(driver))
            del self._on_rows[driver]


class ObservedAttachments:
    """Counts in `Attachments` the VolumeAttachments of known CSI volumes to existing nodes."""

    def __init__(self, nodes: NodeTable, objects: Objects, attachments: Attachments) -> None:
        self._nodes = nodes
        self._objects = objects
        self._attachments = attachments
        self._observed: dict[str, tuple[CSISource, int]] = {}
        self._by_node: dict[str, set[str]] = {}
        self._by_volume: dict[str, set[str]] = {}

    def changed(self, before: VolumeAttachment | None, after: VolumeAttachment | None) -> None:
        """Update the counts for a VolumeAttachment that was added, updated or deleted."""
        if before == after:
            return
        if before is not None:
            drop_item(self._by_node, before.node_name, before.name)
            drop_item(self._by_volume, before.volume_name, before.name)
            self._refresh(before.name)
        if after is not None:
            self._by_node.setdefault(after.node_name, set()).add(after.name)
            self._by_volume.setdefault(after.volume_name, set()).add(after.name)
            self._refresh(after.name)

    def node_changed(self, node: str) -> None:
        """Update the counts for the VolumeAttachments of a node that was added or deleted."""
        for name in self._by_node.get(node, ()):
            self._refresh(name)

    def volume_changed(self, volume: str) -> None:
        """Update the counts for the VolumeAttachments of a volume that was changed."""
        for name in self._by_volume.get(volume, ()):
            self._refresh(name)

    def _refresh(self, name: str) -> None:
        was = self._observed.pop(name, None)
        if was is not None:
            self._attachments.observe(*was, -1)
        attachment = self._objects.of(Kind.VOLUME_ATTACHMENT).get(name)
        found = self._found(attachment) if attachment is not None else None
        if found is not None:
            self._observed[name] = found
            self._attachments.observe(*found, 1)

    def _found(self, attachment: VolumeAttachment) -> tuple[CSISource, int] | None:
        row = self._nodes.row_of.get(attachment.node_name)
        volume: PersistentVolume | None = self._objects.of(Kind.PERSISTENT_VOLUME).get(
            attachment.volume_name
        )
        if row is None or self._nodes.nodes[row] is None or volume is None:
            return None
        if not isinstance(volume.source, CSISource) or not attachment.attacher:
            return None
        return CSISource(attachment.attacher, volume.source.handle), row
