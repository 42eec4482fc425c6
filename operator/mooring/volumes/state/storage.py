"""Keeps volumes, claims, and their use by pods and nodes; only ClusterState writes it."""

from typing import Any

from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.state.nodes import NodeTable
from mooring.state.objects import Objects
from mooring.volumes.model.storage_objects import PersistentVolume
from mooring.volumes.state.attachable_volumes import AttachableVolumes
from mooring.volumes.state.attachments import Attachments, ObservedAttachments
from mooring.volumes.state.capacities import Capacities
from mooring.volumes.state.csi_nodes import CSINodes
from mooring.volumes.state.volume_index import Volumes
from mooring.volumes.state.volume_users import VolumeUsers


class Storage:
    """Volumes and claims as decisions see them, with all counts and indexes of storage."""

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
        """Count the volumes of a pod on the row's node; do nothing if the node does not exist."""
        # Other pods may use the volumes of a pod whose node does not exist.
        if pod.volumes and not self._nodes.is_unknown(row):
            self.users.add(row, pod)
            self.attachable.add_pod(row, pod)

    def remove_pod(self, row: int, pod: Pod) -> None:
        """Stop counting the pod's volumes on the row's node."""
        if pod.volumes and not self._nodes.is_unknown(row):
            self.users.remove(row, pod)
            self.attachable.remove_pod(row, pod)

    def node_changed(self, name: str) -> None:
        """Update all counts that depend on the node after it was added or deleted."""
        self.csi_nodes.refresh(name)
        self._observed.node_changed(name)

    def object_changed(self, kind: Kind, key: str, before: Any | None, after: Any | None) -> None:
        """Update all indexes after a storage object changed; `after` is None if it was deleted.

        Objects of other kinds are ignored.
        """
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
    # The CSI volume depends on nothing else.
    return (volume.source, volume.labels) if volume is not None else None
