"""Finds the CSI volumes that a node must attach for a pod's claims and disks.

kube-scheduler treats an in-tree plugin as migrated on every node that has a CSINode
(nodevolumelimits/csi.go). Here, plugins are migrated on every node. The result is the same, because
a node without a CSINode has no limits.
"""

from typing import Final

from mooring.model.events import Kind
from mooring.model.indexes import drop_item
from mooring.model.pod import Pod
from mooring.state.objects import Objects
from mooring.state.row_counts import RowCounts
from mooring.volumes.model.migration import csi_source
from mooring.volumes.model.pod_volumes import CSI_DRIVERS, ClaimVolume, Disk
from mooring.volumes.model.storage_objects import (
    CSISource,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from mooring.volumes.state.attachments import Attachments

_NOT_MIGRATED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
"""In-tree provisioners; nodes have no limit for their volumes (nodevolumelimits/utils.go)."""


class AttachableVolumes:
    """Finds the volumes of claims, and records the uses of volumes in `Attachments`."""

    def __init__(self, objects: Objects, attachments: Attachments) -> None:
        self._objects = objects
        self._attachments = attachments
        self._rows: dict[str, RowCounts] = {}
        """For each claim in use, the number of pods that use it on each row."""
        self._sources: dict[str, CSISource | None] = {}
        self._volumes: dict[str, str] = {}
        self._claims_of: dict[str, set[str]] = {}

    def source(self, key: str) -> CSISource | None:
        """Return the CSI volume of the claim `key`; None if the claim is unknown or has none.

        If the claim's volume is unknown, the result has the driver of the claim's class and a name
        made from `key`.
        """
        claim: PersistentVolumeClaim | None
        claim = self._objects.of(Kind.PERSISTENT_VOLUME_CLAIM).get(key)
        if claim is None:
            return None
        volume: PersistentVolume | None
        volume = self._objects.of(Kind.PERSISTENT_VOLUME).get(claim.volume_name)
        if volume is not None:
            return _source_of(volume)
        made_by: StorageClass | None
        made_by = self._objects.of(Kind.STORAGE_CLASS).get(claim.storage_class)
        if made_by is None or not made_by.provisioner or made_by.provisioner in _NOT_MIGRATED:
            return None
        driver = CSI_DRIVERS.get(made_by.provisioner)
        return CSISource(
            driver or made_by.provisioner, f"unbound:{key}", migrated=driver is not None
        )

    def add_pod(self, row: int, pod: Pod) -> None:
        """Count the pod's volumes on the row's node."""
        for volume in pod.volumes:
            if isinstance(volume, ClaimVolume):
                self._add_claim(f"{pod.namespace}/{volume.claim}", row)
            elif isinstance(volume, Disk):
                self._use(csi_source(volume, {}), row, 1)

    def remove_pod(self, row: int, pod: Pod) -> None:
        """Stop counting the pod's volumes on the row's node."""
        for volume in pod.volumes:
            if isinstance(volume, ClaimVolume):
                self._remove_claim(f"{pod.namespace}/{volume.claim}", row)
            elif isinstance(volume, Disk):
                self._use(csi_source(volume, {}), row, -1)

    def claim_changed(self, key: str) -> None:
        """Update the counts for this claim, which was added, updated or deleted."""
        if key in self._rows:
            self._resolve(key)

    def volume_changed(self, name: str) -> None:
        """Update the counts for all claims that name this volume, because it changed."""
        for key in tuple(self._claims_of.get(name, ())):
            self._resolve(key)

    def class_changed(self, name: str) -> None:
        """Update the counts for this class's claims without a known volume; the class changed."""
        claims = self._objects.of(Kind.PERSISTENT_VOLUME_CLAIM)
        volumes = self._objects.of(Kind.PERSISTENT_VOLUME)
        for key in self._rows:
            claim = claims.get(key)
            if claim is None or claim.storage_class != name or claim.volume_name in volumes:
                continue
            self._resolve(key)

    def _add_claim(self, key: str, row: int) -> None:
        rows = self._rows.get(key)
        if rows is None:
            rows = self._rows[key] = RowCounts()
            self._resolve(key)
        rows.add(row)
        self._use(self._sources[key], row, 1)

    def _remove_claim(self, key: str, row: int) -> None:
        rows = self._rows[key]
        rows.remove(row)
        self._use(self._sources[key], row, -1)
        if not rows:
            del self._rows[key], self._sources[key]
            self._bind(key, "")

    def _resolve(self, key: str) -> None:
        before, after = self._sources.get(key), self.source(key)
        self._sources[key] = after
        claim = self._objects.of(Kind.PERSISTENT_VOLUME_CLAIM).get(key)
        self._bind(key, claim.volume_name if claim is not None else "")
        if before != after:
            for row, times in self._rows[key].items():
                self._use(before, row, -times)
                self._use(after, row, times)

    def _bind(self, key: str, volume: str) -> None:
        before = self._volumes.pop(key, "")
        if before:
            drop_item(self._claims_of, before, key)
        if volume:
            self._volumes[key] = volume
            self._claims_of.setdefault(volume, set()).add(key)

    def _use(self, source: CSISource | None, row: int, times: int) -> None:
        if source is not None:
            self._attachments.use(source, row, times)


def _source_of(volume: PersistentVolume) -> CSISource | None:
    match volume.source:
        case CSISource(driver, handle):
            return volume.source if driver and handle else None
        case Disk():
            return csi_source(volume.source, volume.labels)
        case None:
            return None
