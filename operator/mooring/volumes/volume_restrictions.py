"""Rejects nodes if pods cannot share a disk or claim (kube-scheduler's volumerestrictions/)."""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Explanation, Skip, Unschedulable, shortened
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView
from mooring.volumes.model.pod_volumes import ClaimVolume, PodVolume
from mooring.volumes.model.storage_objects import PersistentVolumeClaim
from mooring.volumes.state.volume_users import in_conflict, is_restricted

_NO_DISK: Final = "node(s) had no available disk"
_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)


@dataclass(frozen=True, slots=True)
class _ExclusiveVolumes:
    """Disks that only one pod per node can use, and claims (namespace/name) for only one pod."""

    disks: tuple[PodVolume, ...]
    claims: tuple[str, ...]


class VolumeRestrictions:
    """Rejects nodes where a disk of the pod is in use.

    All nodes are rejected if a ReadWriteOncePod claim of the pod is in use.
    """

    name: ClassVar[str] = "VolumeRestrictions"
    depends_on_node_only: ClassVar[bool] = False
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.POD, Action.DELETE),
            (Kind.NODE, Action.ADD),
            (Kind.NODE, Action.DELETE),
            (Kind.PERSISTENT_VOLUME_CLAIM, Action.ADD),
        }
    )

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._cluster = handle.cluster

    def pre_filter(
        self, pod: Pod, cluster: ClusterView
    ) -> Skip | _ExclusiveVolumes | Unschedulable:
        """Return the pod's exclusive disks and claims; Unschedulable if a claim is missing.

        SKIP if the pod has no exclusive disk, and none of its exclusive claims is in use.
        """
        if not pod.volumes:
            return SKIP
        once = []
        for volume in pod.volumes:
            if not isinstance(volume, ClaimVolume) or volume.ephemeral:
                continue
            key = f"{pod.namespace}/{volume.claim}"
            claim: PersistentVolumeClaim | None
            claim = cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM).get(key)
            if claim is None:
                missing = shortened(volume.claim)
                return Unschedulable(f'persistentvolumeclaim "{missing}" not found')
            if "ReadWriteOncePod" in claim.access_modes:
                once.append(key)
        disks = tuple(filter(is_restricted, pod.volumes))
        taken = any(map(cluster.storage.users.claim_in_use, once))
        return _ExclusiveVolumes(disks, tuple(once)) if disks or taken else SKIP

    def filter(self, _pod: Pod, nodes: NodeView, wanted: _ExclusiveVolumes) -> BoolArray:
        """Return bool[nodes]: False where a wanted disk is in use.

        All nodes are False if a wanted claim is in use on any node.
        """
        if any(map(self._cluster.storage.users.claim_in_use, wanted.claims)):
            return np.zeros(len(nodes), np.bool_)
        return ~self._conflicts(nodes, wanted)

    def explain(self, _pod: Pod, nodes: NodeView, wanted: _ExclusiveVolumes) -> Explanation:
        """Return one reason per node: a disk in use, or else a claim in use. Evictions can help."""
        bits = np.where(self._conflicts(nodes, wanted), np.uint64(1), np.uint64(2))
        return Explanation((_NO_DISK, _IN_USE), bits, np.ones(len(nodes), np.bool_))

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a disk or claim became free, or a node or the pod's claim was added."""
        claims = {v.claim for v in pod.volumes if isinstance(v, ClaimVolume) and not v.ephemeral}
        match event.before, event.after:
            case Pod() as gone, None:
                shared = claims if gone.namespace == pod.namespace else set[str]()
                return queue_if(any(_frees(volume, pod, shared) for volume in gone.volumes))
            case Node(), None:
                # Unlike kube-scheduler: the claims of the deleted node's pods become free.
                return queue_if(bool(claims))
            case None, PersistentVolumeClaim() as claim:
                return queue_if(claim.namespace == pod.namespace and claim.name in claims)
            case _:
                return QueueingHint.QUEUE

    def _conflicts(self, nodes: NodeView, wanted: _ExclusiveVolumes) -> BoolArray:
        storage = self._cluster.storage
        rows = {row for disk in wanted.disks for row in storage.users.rows_in_conflict(disk)}
        return np.isin(nodes.rows, list(rows))


def _frees(volume: PodVolume, pod: Pod, claims: set[str]) -> bool:
    if isinstance(volume, ClaimVolume):
        return not volume.ephemeral and volume.claim in claims
    return any(in_conflict(volume, own) for own in pod.volumes)
