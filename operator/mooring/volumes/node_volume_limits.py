"""Limits the volumes that a CSI driver attaches to one node (nodevolumelimits/csi.go)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Explanation, Skip, shortened
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.volumes.model.csi import CSIDriver, CSINode, VolumeAttachment
from mooring.volumes.model.migration import csi_source
from mooring.volumes.model.pod_volumes import CSI_DRIVERS, ClaimVolume, Disk, PodVolume
from mooring.volumes.model.storage_objects import (
    CSISource,
    PersistentVolumeClaim,
    StorageClass,
)
from mooring.volumes.state.storage import Storage

_FULL: Final = "node(s) exceed max volume count"
_NOT_INSTALLED: Final = "{} CSI driver is not installed on the node"


@dataclass(frozen=True, slots=True)
class _CSIVolumes:
    """The pod's volumes by CSI driver, or a message about a missing claim."""

    volumes: Mapping[str, Sequence[CSISource]]
    # The drivers that the node must have, sorted by name.
    required: Sequence[str] = ()
    missing: str | None = None


class NodeVolumeLimits:
    """Rejects nodes to which the CSI drivers cannot attach all of the pod's volumes."""

    name: ClassVar[str] = "NodeVolumeLimits"
    depends_on_node_only: ClassVar[bool] = False
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.NODE, Action.ADD),
            (Kind.CSI_NODE, Action.ADD),
            (Kind.CSI_NODE, Action.UPDATE),
            (Kind.CSI_NODE, Action.DELETE),
            (Kind.CSI_DRIVER, Action.UPDATE),
            (Kind.CSI_DRIVER, Action.DELETE),
            (Kind.POD, Action.ADD),
            (Kind.POD, Action.DELETE),
            (Kind.PERSISTENT_VOLUME_CLAIM, Action.ADD),
            (Kind.PERSISTENT_VOLUME_CLAIM, Action.UPDATE),
            (Kind.VOLUME_ATTACHMENT, Action.DELETE),
            (Kind.STORAGE_CLASS, Action.UPDATE),
            (Kind.STORAGE_CLASS, Action.DELETE),
        }
    )

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._may_require_drivers = handle.kubernetes.volume_limit_scaling

    def pre_filter(self, pod: Pod, cluster: ClusterView) -> Skip | _CSIVolumes:
        """Return the volumes that CSI drivers must attach, or which claim is missing.

        SKIP if there are no such volumes.
        """
        if not any(map(_counts, pod.volumes)):
            return SKIP
        for volume in pod.volumes:
            if isinstance(volume, ClaimVolume):
                key = f"{pod.namespace}/{volume.claim}"
                if key not in cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM):
                    name = shortened(volume.claim)
                    missing = f'persistentvolumeclaim "{name}" not found'
                    said = f"looking up PVC {pod.namespace}/{name}: {missing}"
                    return _CSIVolumes({}, missing=said)
        by_driver: dict[str, list[CSISource]] = {}
        for source in _sources(pod, cluster.storage):
            by_driver.setdefault(source.driver, []).append(source)
        return _CSIVolumes(by_driver, self._required(by_driver)) if by_driver else SKIP

    def _wanted(self, pod: Pod) -> _CSIVolumes:
        found = self.pre_filter(pod, self._cluster)
        return _CSIVolumes({}) if found is SKIP else found

    def _required(self, drivers: Iterable[str]) -> list[str]:
        if not self._may_require_drivers:
            return []
        known = self._cluster.objects(Kind.CSI_DRIVER)
        return sorted(name for name in drivers if name in known and known[name].required_on_node)

    def filter(self, pod: Pod, nodes: NodeView, wanted: _CSIVolumes | None) -> BoolArray:
        """Return bool[nodes]: False if a required driver is missing or a limit would be exceeded.

        All nodes are False if a claim of the pod is missing.
        """
        # Without PreFilter, the pod's volumes are found here, as in kube-scheduler.
        wanted = wanted or self._wanted(pod)
        fits = np.full(len(nodes), wanted.missing is None)
        storage, rows = self._cluster.storage, nodes.rows
        for driver in wanted.required:
            fits &= ~storage.csi_nodes.lacks_driver(wanted.volumes[driver], driver, rows)
        for driver, volumes in wanted.volumes.items():
            new = _new(volumes, rows, storage)
            total = storage.attachments.counts(driver, rows) + new
            fits &= (new == 0) | (total <= storage.csi_nodes.limits(driver, rows))
        return fits

    def explain(self, pod: Pod, nodes: NodeView, wanted: _CSIVolumes | None) -> Explanation:
        """Return one reason per node; preemption can help unless a claim is missing.

        If a node lacks several drivers, the reason names the alphabetically first driver;
        kube-scheduler names any of them.
        """
        wanted = wanted or self._wanted(pod)
        if wanted.missing is not None:
            return Explanation.single(wanted.missing, len(nodes), resolvable=False)
        storage, undecided = self._cluster.storage, np.ones(len(nodes), np.bool_)
        masks: list[tuple[str, BoolArray]] = []
        for driver in wanted.required:
            lacking = (
                storage.csi_nodes.lacks_driver(wanted.volumes[driver], driver, nodes.rows)
                & undecided
            )
            masks.append((_NOT_INSTALLED.format(driver), lacking))
            undecided &= ~lacking
        masks.append((_FULL, undecided))
        return Explanation.from_masks(masks, resolvable=np.ones(len(nodes), np.bool_))

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a node was added or can attach more, or if a volume or claim changed."""
        match event.before, event.after:
            case CSINode() as before, CSINode() as after:
                # Unlike kube-scheduler: a driver without a limit came to the node.
                came = self._may_require_drivers and after.limits.keys() - before.limits.keys()
                helps = bool(came) or any(
                    limit is not None and _rose(limit, after.limits.get(driver))
                    for driver, limit in before.limits.items()
                )
            case CSIDriver() as before, after:
                # Unlike kube-scheduler: nodes no longer require the driver.
                needed = isinstance(after, CSIDriver) and after.required_on_node
                helps = self._may_require_drivers and before.required_on_node > needed
            case (Pod() as other, None) | (None, Pod() as other):
                gone = event.action is Action.DELETE
                # Unlike kube-scheduler: another pod on a node may use a volume of the pod now.
                helps = any(map(_counts, other.volumes)) and (
                    gone or _have_one_in_common(pod, other, cluster.storage)
                )
            case _, PersistentVolumeClaim() as claim:
                named = {v.claim for v in pod.volumes if isinstance(v, ClaimVolume)}
                helps = claim.namespace == pod.namespace and claim.name in named
            case VolumeAttachment() as detached, None:
                # Unlike kube-scheduler: also for a pod with ephemeral volumes.
                helps = any(_detached(volume, detached) for volume in pod.volumes)
            case StorageClass() as before, StorageClass() as after:
                # Unlike kube-scheduler: the class may have another provisioner now.
                helps = before.provisioner != after.provisioner
            case _:
                helps = True
        return queue_if(helps)


def _sources(pod: Pod, storage: Storage) -> set[CSISource]:
    sources: set[CSISource | None] = set()
    for volume in pod.volumes:
        if isinstance(volume, Disk):
            sources.add(csi_source(volume, {}))
        elif isinstance(volume, ClaimVolume):
            sources.add(storage.attachable.source(f"{pod.namespace}/{volume.claim}"))
    return {source for source in sources if source is not None}


def _have_one_in_common(pod: Pod, other: Pod, storage: Storage) -> bool:
    return not _sources(pod, storage).isdisjoint(_sources(other, storage))


def _new(volumes: Sequence[CSISource], rows: IntArray, storage: Storage) -> IntArray:
    """Return int64[rows]: how many of these volumes no pod on the node uses yet."""
    new = np.full(len(rows), len(volumes), np.int64)
    for volume in volumes:
        # A volume that is attached, but that no pod uses, is counted twice, as in kube-scheduler.
        used = storage.attachments.rows_using(volume)
        if used:
            new -= np.isin(rows, list(used))
    return new


def _rose(before: int, after: int | None) -> bool:
    return after is None or after > before


def _counts(volume: PodVolume) -> bool:
    return isinstance(volume, ClaimVolume) or (
        isinstance(volume, Disk) and volume.kind in CSI_DRIVERS
    )


def _detached(volume: PodVolume, attachment: VolumeAttachment) -> bool:
    """Return whether the end of the attachment may have made room for this volume."""
    if isinstance(volume, Disk):
        return CSI_DRIVERS.get(volume.kind) == attachment.attacher
    return isinstance(volume, ClaimVolume)
