"""Volumes, claims, and what pods and nodes have to do with them; written by ClusterState only."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.model.storage import CSISource, PersistentVolume, PersistentVolumeClaim
from mooring.model.volumes import PodVolume
from mooring.state.columns import IntArray
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects
from mooring.state.storage.attachable_volumes import AttachableVolumes
from mooring.state.storage.attachments import Attachments, ObservedAttachments
from mooring.state.storage.best_fit import BestFitIndex
from mooring.state.storage.capacities import Capacities
from mooring.state.storage.csi_nodes import CSINodes
from mooring.state.storage.volume_users import VolumeUsers
from mooring.state.storage.volumes import Volumes
from mooring.state.view import BoolArray

__all__ = ["Storage", "StorageView"]


class Storage:
    """Keeps every count and index of storage up to date."""

    def __init__(self, nodes: NodeTable, objects: Objects) -> None:
        self._nodes = nodes
        self.volumes = Volumes(nodes, objects)
        self.capacities = Capacities(nodes)
        self.users = VolumeUsers()
        self.attachments = Attachments(nodes)
        self.attachable = AttachableVolumes(objects, self.attachments)
        self.csi_nodes = CSINodes(nodes, objects)
        self._observed = ObservedAttachments(nodes, objects, self.attachments)

    def add_pod(self, row: int, pod: Pod) -> None:
        """Count the volumes of a pod on the row; most pods have none that matters here.

        A pod whose node does not exist keeps no other pod from its volumes, and no driver attaches
        them there.
        """
        if pod.volumes and not self._nodes.is_unknown(row):
            self.users.add(row, pod)
            self.attachable.add_pod(row, pod)

    def remove_pod(self, row: int, pod: Pod) -> None:
        """Undo `add_pod` exactly."""
        if pod.volumes and not self._nodes.is_unknown(row):
            self.users.remove(row, pod)
            self.attachable.remove_pod(row, pod)

    def node_changed(self, name: str) -> None:
        """Update what depends on the node, which was added or deleted."""
        self.csi_nodes.refresh(name)
        self._observed.node_changed(name)

    def object_changed(self, kind: Kind, key: str, before: Any | None, after: Any | None) -> None:
        """Update what is derived from an object that is neither node nor pod; None: deleted."""
        match kind:
            case Kind.PERSISTENT_VOLUME:
                self.volumes.volume_changed(key, after)
                if _identity(before) != _identity(after):
                    self.attachable.volume_changed(key)
                    self._observed.volume_changed(key)
            case Kind.PERSISTENT_VOLUME_CLAIM:
                self.volumes.claim_changed(key, after)
                self.attachable.claim_changed(key)
            case Kind.STORAGE_CLASS if before != after:
                self.attachable.class_changed(key)
            case Kind.CSI_NODE:
                self.csi_nodes.refresh(key)
            case Kind.CSI_STORAGE_CAPACITY:
                self.capacities.changed(before, after)
            case Kind.VOLUME_ATTACHMENT:
                self._observed.changed(before, after)
            case _:
                return


def _identity(volume: PersistentVolume | None) -> tuple[Any, Any] | None:
    """Return the parts of a PersistentVolume that say which CSI volume it is."""
    return (volume.source, volume.labels) if volume is not None else None


class StorageView:
    """What decisions read of storage; a volume or claim is as assumed, else as mirrored."""

    __slots__ = ("_storage",)

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def volume(self, name: str) -> PersistentVolume | None:
        """Return the volume of this name; None if it is unknown."""
        return self._storage.volumes.volume(name)

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """Return the claim of this namespace/name; None if it is unknown."""
        return self._storage.volumes.claim(key)

    def with_claim_ref(self, claim: PersistentVolumeClaim) -> Sequence[PersistentVolume]:
        """Return the volumes of the claim's class bound or pre-bound to it, by name."""
        return self._storage.volumes.with_claim_ref(claim)

    def available(self, storage_class: str) -> BestFitIndex[PersistentVolume]:
        """Return the Available volumes of a class; not to be changed."""
        return self._storage.volumes.available(storage_class)

    def largest_capacity(self, storage_class: str, rows: IntArray) -> IntArray:
        """Return int64[rows]: the bytes of the largest volume that a driver can make, or -1."""
        return self._storage.capacities.largest(storage_class, rows)

    def capacity(self, storage_class: str, size: int, rows: IntArray) -> IntArray:
        """Return int64[rows]: the capacity that has room for a volume of this size, or UNKNOWN."""
        return self._storage.capacities.capacity(storage_class, size, rows)

    def claim_in_use(self, key: str) -> bool:
        """Return whether a pod on a node that exists names the claim.

        Ephemeral ones are not named.
        """
        return self._storage.users.claim_in_use(key)

    def rows_in_conflict(self, volume: PodVolume) -> Iterator[int]:
        """Return the rows with a pod that uses the same disk and excludes a second user."""
        return self._storage.users.rows_in_conflict(volume)

    def source(self, claim: str) -> CSISource | None:
        """Return the CSI volume of a claim; None if it is not counted or not known."""
        return self._storage.attachable.source(claim)

    def rows_using(self, source: CSISource) -> Collection[int]:
        """Return the rows whose pods use the volume."""
        return self._storage.attachments.rows_using(source)

    def attached(self, driver: str, rows: IntArray) -> IntArray:
        """Return how many of a driver's volumes are on each of the rows (int64)."""
        return self._storage.attachments.counts(driver, rows)

    def attach_limits(self, driver: str, rows: IntArray) -> IntArray:
        """Return how many of a driver's volumes each of the rows may have (int64)."""
        return self._storage.csi_nodes.limits(driver, rows)

    def lacks_driver(self, volumes: Iterable[CSISource], driver: str, rows: IntArray) -> BoolArray:
        """Return True on rows without the driver on which it would attach one of its volumes.

        On a node without a CSINode, no driver attaches the volumes of in-tree plugins.
        """
        csi_nodes = self._storage.csi_nodes
        lacking = ~csi_nodes.installed(driver, rows)
        if all(volume.migrated for volume in volumes):
            lacking &= csi_nodes.present(rows)
        return lacking

    def migrated(self, plugin: str, rows: IntArray) -> BoolArray:
        """Return True on rows where an in-tree plugin is migrated to its CSI driver."""
        return self._storage.csi_nodes.migrated(plugin, rows)
