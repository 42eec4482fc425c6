"""Limits the disks of a cloud on one node: the Max...VolumeCount predicates.

See nodevolumelimits/non_csi.go of Kubernetes before 1.31. A node's limit is for in-tree disks and
volumes of the cloud's CSI driver together. If a node's in-tree plugin is migrated to the CSI
driver, NodeVolumeLimits checks the limit instead.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from pydantic import Field

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.policy.reading import PolicyModel
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.volumes.model.csi import CSINode
from mooring.volumes.model.migration import csi_source
from mooring.volumes.model.pod_volumes import CSI_DRIVERS, ClaimVolume, Disk, DiskKind
from mooring.volumes.model.storage_objects import CSISource, PersistentVolumeClaim
from mooring.volumes.state.storage import Storage


class VolumeCountArgs(PolicyModel):
    """Arguments of EBSVolumeCount, GCEPDVolumeCount and AzureDiskVolumeCount."""

    max_volumes: int | None = Field(None, ge=1, le=2**31 - 1)
    """The most volumes on a node. It replaces the cloud provider's limit, as KUBE_MAX_PD_VOLS does
    in kube-scheduler; a limit that the node publishes takes precedence."""


_INSTANCE_TYPES: Final = ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type")
_NITRO: Final = re.compile(r"^[cmr]5.*|t3|z1d")
_NITRO_LIMIT: Final = 25


@dataclass(frozen=True, slots=True)
class _CloudDisks:
    """The pod's disks in the cloud, in-tree or of the CSI driver."""

    disks: tuple[CSISource, ...]
    storage: Storage


class _VolumeCount:
    """Rejects nodes where the cloud cannot attach all of the pod's disks."""

    depends_on_node_only: ClassVar[bool] = False
    Args: ClassVar[type[VolumeCountArgs]] = VolumeCountArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.NODE, Action.ADD),
            (Kind.NODE, Action.UPDATE),
            (Kind.CSI_NODE, Action.ADD),
            (Kind.CSI_NODE, Action.UPDATE),
            (Kind.POD, Action.DELETE),
            (Kind.VOLUME_ATTACHMENT, Action.DELETE),
            (Kind.STORAGE_CLASS, Action.DELETE),
            *((Kind.PERSISTENT_VOLUME_CLAIM, action) for action in Action),
        }
    )
    plugin: ClassVar[DiskKind]
    published_as: ClassVar[str]
    """The allocatable resource with a node's limit; 0 means that the node publishes no limit."""
    limit: ClassVar[int]
    """The most disks on a node that publishes no limit, if `max_volumes` is None."""

    def __init__(self, args: VolumeCountArgs, handle: Handle) -> None:
        self._max_volumes = args.max_volumes
        self._driver = CSI_DRIVERS[self.plugin]

    def pre_filter(self, pod: Pod, cluster: ClusterView) -> Skip | _CloudDisks:
        """Return the pod's disks of this cloud; SKIP if it has none."""
        if not pod.volumes:
            return SKIP
        storage = cluster.storage
        found: set[CSISource | None] = set()
        for volume in pod.volumes:
            if isinstance(volume, Disk):
                found.add(csi_source(volume, {}))
            elif isinstance(volume, ClaimVolume):
                found.add(storage.attachable.source(f"{pod.namespace}/{volume.claim}"))
        disks = tuple(disk for disk in found if disk is not None and disk.driver == self._driver)
        return _CloudDisks(disks, storage) if disks else SKIP

    def filter(self, _pod: Pod, nodes: NodeView, wanted: _CloudDisks) -> BoolArray:
        """Return bool[nodes]: True where the attached and the new disks are within the limit.

        Also True where the in-tree plugin is migrated.
        """
        rows, storage = nodes.rows, wanted.storage
        total = storage.attachments.counts(self._driver, rows) + len(wanted.disks)
        for disk in wanted.disks:
            total -= np.isin(rows, list(storage.attachments.rows_using(disk)))
        return (total <= self._limits(nodes)) | storage.csi_nodes.migrated(self.plugin, rows)

    def explain(self, _pod: Pod, nodes: NodeView, _: _CloudDisks) -> Explanation:
        """Return one reason for all nodes; evicting pods can help, because it detaches disks."""
        return Explanation.single("node(s) exceed max volume count", len(nodes), resolvable=True)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a node was added, its limit or migration changed, or a volume was freed.

        Also return QUEUE if a claim of the pod changed, because this may change the pod's disks.
        """
        match event.before, event.after:
            case Pod() as gone, None:
                return queue_if(bool(gone.volumes))
            case (PersistentVolumeClaim() as claim, _) | (None, PersistentVolumeClaim() as claim):
                return queue_if(
                    claim.namespace == pod.namespace
                    and any(
                        isinstance(v, ClaimVolume) and v.claim == claim.name for v in pod.volumes
                    )
                )
            case Node() as before, Node() as after:
                name, was, now = self.published_as, before.labels, after.labels
                published = before.allocatable.get(name) != after.allocatable.get(name)
                return queue_if(published or any(was.get(k) != now.get(k) for k in _INSTANCE_TYPES))
            case CSINode() as before, CSINode() as after:
                return queue_if(before.migrated_plugins != after.migrated_plugins)
            case _:
                return QueueingHint.QUEUE

    def _limits(self, nodes: NodeView) -> IntArray:
        published = nodes.allocatable(self.published_as)
        unpublished = self._unpublished(nodes) if self._max_volumes is None else self._max_volumes
        return np.where(published > 0, published, unpublished)

    def _unpublished(self, _nodes: NodeView) -> int | IntArray:
        return self.limit


class EBSVolumeCount(_VolumeCount):
    """Limits EBS volumes: 25 on Nitro instances, else 39 (Amazon says 40 with the root volume)."""

    name: ClassVar[str] = "EBSVolumeCount"
    plugin = DiskKind.AWS_EBS
    published_as = "attachable-volumes-aws-ebs"
    limit = 39

    def _unpublished(self, nodes: NodeView) -> IntArray:
        nitro = np.zeros(len(nodes), np.bool_)
        for key in _INSTANCE_TYPES:
            types = nodes.label(key).index
            found = [code for value, code in types.items() if _NITRO.search(value)]
            nitro |= np.isin(nodes.label_codes(key), found)
        return np.where(nitro, _NITRO_LIMIT, self.limit)


class GCEPDVolumeCount(_VolumeCount):
    """Limits GCE persistent disks: 16 on any instance."""

    name: ClassVar[str] = "GCEPDVolumeCount"
    plugin = DiskKind.GCE_PD
    published_as = "attachable-volumes-gce-pd"
    limit = 16


class AzureDiskVolumeCount(_VolumeCount):
    """Limits managed Azure disks: 16, although larger machines take more."""

    name: ClassVar[str] = "AzureDiskVolumeCount"
    plugin = DiskKind.AZURE_DISK
    published_as = "attachable-volumes-azure-disk"
    limit = 16
