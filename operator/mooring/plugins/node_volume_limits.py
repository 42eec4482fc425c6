"""A CSI driver attaches only so many volumes to a node (nodevolumelimits/csi.go)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.csi import CSINode, VolumeAttachment
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.migration import csi_source
from mooring.model.pod import Pod
from mooring.model.storage import CSISource, PersistentVolumeClaim
from mooring.model.volumes import CSI_DRIVERS, ClaimVolume, Disk, PodVolume
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.storage.storage import StorageView
from mooring.state.view import BoolArray, NodeView

__all__ = ["NodeVolumeLimits"]

_FULL: Final = "node(s) exceed max volume count"


@dataclass(frozen=True, slots=True)
class _CSIVolumes:
    """The pod's volumes by CSI driver, or a message about a claim that does not exist."""

    volumes: Mapping[str, Sequence[CSISource]]
    missing: str | None


class NodeVolumeLimits:
    """Rejects nodes to which a CSI driver cannot attach all of the pod's volumes."""

    name: ClassVar[str] = "NodeVolumeLimits"
    depends_on_node_only: ClassVar[bool] = False
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.NODE, Action.ADD),
            (Kind.CSI_NODE, Action.ADD),
            (Kind.CSI_NODE, Action.UPDATE),
            (Kind.CSI_NODE, Action.DELETE),
            (Kind.POD, Action.DELETE),
            (Kind.PERSISTENT_VOLUME_CLAIM, Action.ADD),
            (Kind.PERSISTENT_VOLUME_CLAIM, Action.UPDATE),
            (Kind.VOLUME_ATTACHMENT, Action.DELETE),
            (Kind.STORAGE_CLASS, Action.DELETE),
        }
    )

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._cluster = handle.cluster

    def pre_filter(self, pod: Pod, cluster: ClusterView) -> Skip | _CSIVolumes:
        """Return the volumes that count against a limit; SKIP if there are none."""
        if not any(map(_counts, pod.volumes)):
            return SKIP
        sources: set[CSISource | None] = set()
        for volume in pod.volumes:
            if isinstance(volume, Disk):
                sources.add(csi_source(volume, {}))
            elif isinstance(volume, ClaimVolume):
                key = f"{pod.namespace}/{volume.claim}"
                if key not in cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM):
                    missing = f'persistentvolumeclaim "{volume.claim}" not found'
                    return _CSIVolumes({}, f"looking up PVC {key}: {missing}")
                sources.add(cluster.storage.source(key))
        by_driver: dict[str, list[CSISource]] = {}
        for source in sources:
            if source is not None:
                by_driver.setdefault(source.driver, []).append(source)
        return _CSIVolumes(by_driver, None) if by_driver else SKIP

    def filter(self, _pod: Pod, nodes: NodeView, wanted: _CSIVolumes) -> BoolArray:
        """Return False where a driver would have more volumes than its limit."""
        fits = np.full(len(nodes), wanted.missing is None)
        storage, rows = self._cluster.storage, nodes.rows
        for driver, volumes in wanted.volumes.items():
            new = _new(volumes, rows, storage)
            total = storage.attached(driver, rows) + new
            fits &= (new == 0) | (total <= storage.attach_limits(driver, rows))
        return fits

    def explain(self, _pod: Pod, nodes: NodeView, wanted: _CSIVolumes) -> Explanation:
        """Return one reason; evicting pods detaches their volumes, but creates no claim."""
        if wanted.missing is not None:
            return Explanation.single(wanted.missing, len(nodes), resolvable=False)
        return Explanation.single(_FULL, len(nodes), resolvable=True)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE when a node came, a limit rose, volumes were detached or a claim changed."""
        match event.before, event.after:
            case CSINode() as before, CSINode() as after:
                return queue_if(
                    any(
                        limit is not None and _rose(limit, after.limits.get(driver))
                        for driver, limit in before.limits.items()
                    )
                )
            case Pod() as gone, None:
                return queue_if(any(map(_counts, gone.volumes)))
            case _, PersistentVolumeClaim() as claim:
                named = {v.claim for v in pod.volumes if isinstance(v, ClaimVolume)}
                return queue_if(claim.namespace == pod.namespace and claim.name in named)
            case VolumeAttachment() as detached, None:
                return queue_if(any(_detached(volume, detached) for volume in pod.volumes))
            case _:
                return QueueingHint.QUEUE


def _new(volumes: Sequence[CSISource], rows: IntArray, storage: StorageView) -> IntArray:
    """Return int64[rows]: how many of the volumes no pod on the row uses yet.

    A volume that only a VolumeAttachment shows on a node counts twice there, as in kube-scheduler.
    """
    new = np.full(len(rows), len(volumes), np.int64)
    for volume in volumes:
        used = storage.rows_using(volume)
        if used:
            new -= np.isin(rows, list(used))
    return new


def _rose(before: int, after: int | None) -> bool:
    """Return whether a limit is higher now, or gone."""
    return after is None or after > before


def _counts(volume: PodVolume) -> bool:
    """Return whether the volume may be one that a CSI driver attaches."""
    return isinstance(volume, ClaimVolume) or (
        isinstance(volume, Disk) and volume.kind in CSI_DRIVERS
    )


def _detached(volume: PodVolume, attachment: VolumeAttachment) -> bool:
    """Return whether a volume was detached of which the pod may need one less now."""
    if isinstance(volume, Disk):
        return CSI_DRIVERS.get(volume.kind) == attachment.attacher
    return isinstance(volume, ClaimVolume) and not volume.ephemeral
