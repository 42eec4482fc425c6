"""Rejects nodes outside the zones and regions of the pod's volumes (volumezone/volume_zone.go)."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, TypeAlias

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Explanation, Skip, Unschedulable, shortened
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import BETA_REGION, BETA_ZONE, REGION, ZONE, Node
from mooring.model.pod import Pod
from mooring.model.selectors import Requirement
from mooring.state.cluster_view import ClusterView
from mooring.state.labels import ABSENT
from mooring.state.view import BoolArray, NodeView
from mooring.volumes.model.migration import ZONE_DELIMITER
from mooring.volumes.model.pod_volumes import ClaimVolume
from mooring.volumes.model.storage_objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)

_KEYS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_CURRENT: Final[Mapping[str, str]] = {BETA_ZONE: ZONE, BETA_REGION: REGION}
"""Maps each beta label to the label that replaced it; a node may have only one of the two."""

_Topology: TypeAlias = tuple[str, tuple[str, ...]]
"""The key of a volume's label, and the values that a node may have for this key."""


class VolumeZone:
    """Rejects nodes outside the zones and regions in the labels of bound volumes."""

    name: ClassVar[str] = "VolumeZone"
    depends_on_node_only: ClassVar[bool] = False
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.STORAGE_CLASS, Action.ADD),
            (Kind.STORAGE_CLASS, Action.UPDATE),
            (Kind.NODE, Action.ADD),
            (Kind.NODE, Action.UPDATE),
            (Kind.PERSISTENT_VOLUME_CLAIM, Action.ADD),
            (Kind.PERSISTENT_VOLUME_CLAIM, Action.UPDATE),
            (Kind.PERSISTENT_VOLUME, Action.ADD),
            (Kind.PERSISTENT_VOLUME, Action.UPDATE),
        }
    )

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._cluster = handle.cluster

    def pre_filter(
        self, pod: Pod, cluster: ClusterView
    ) -> Skip | tuple[_Topology, ...] | Unschedulable:
        """Return the zones and regions in the labels of the pod's bound volumes; SKIP if none.

        Returns Unschedulable, with the reason, if a claim cannot get a volume.
        """
        topologies: list[_Topology] = []
        for volume in pod.volumes:
            if isinstance(volume, ClaimVolume) and not volume.ephemeral:
                found = _volume_of(pod.namespace, volume.claim, cluster)
                if isinstance(found, Unschedulable):
                    return found
                if found is not None:
                    topologies += _topologies(found)
        return tuple(topologies) or SKIP

    def filter(
        self, pod: Pod, nodes: NodeView, topologies: tuple[_Topology, ...] | None
    ) -> BoolArray:
        """Return bool[nodes]: True if the node matches the zone and region labels of all volumes.

        Nodes without zone and region labels match, too.
        """
        if topologies is None:
            # The profile disables PreFilter; kube-scheduler reads the labels here, too.
            found = self.pre_filter(pod, self._cluster)
            if isinstance(found, Unschedulable):
                return np.zeros(len(nodes), np.bool_)
            topologies = () if found is SKIP else found
        somewhere = np.zeros(len(nodes), np.bool_)
        for key in _KEYS:
            somewhere |= nodes.label_codes(key) != ABSENT
        fits = np.ones(len(nodes), np.bool_)
        for key, values in topologies:
            matched = nodes.meets(Requirement(key, "In", values))
            if key in _CURRENT:
                unlabelled = nodes.label_codes(key) == ABSENT
                matched |= unlabelled & nodes.meets(Requirement(_CURRENT[key], "In", values))
            fits &= matched
        return fits | ~somewhere

    def explain(
        self, pod: Pod, nodes: NodeView, topologies: tuple[_Topology, ...] | None
    ) -> Explanation:
        """Return one reason for all nodes; evictions cannot help, because they change no labels."""
        reason = "node(s) had no available volume zone"
        if topologies is None and isinstance(
            found := self.pre_filter(pod, self._cluster), Unschedulable
        ):
            reason = found.reason
        return Explanation.single(reason, len(nodes), resolvable=False)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a node or volume is new or changed zones, or the pod's claim changed."""
        before, after = event.before, event.after
        match after:
            case StorageClass():
                # The class may have been created again while no watch was open.
                waited = isinstance(before, StorageClass) and before.waits_for_consumer
                return queue_if(after.waits_for_consumer and not waited)
            case PersistentVolumeClaim():
                named = {v.claim for v in pod.volumes if isinstance(v, ClaimVolume)}
                return queue_if(after.namespace == pod.namespace and after.name in named)
            case PersistentVolume() if isinstance(before, PersistentVolume):
                return queue_if([*_topologies(before)] != [*_topologies(after)])
            case Node() if isinstance(before, Node):
                return queue_if(any(before.labels.get(k) != after.labels.get(k) for k in _KEYS))
            case _:
                return QueueingHint.QUEUE


def _volume_of(
    namespace: str, name: str, cluster: ClusterView
) -> PersistentVolume | Unschedulable | None:
    if not name:
        return Unschedulable("PersistentVolumeClaim had no name")
    claim: PersistentVolumeClaim | None
    claim = cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM).get(f"{namespace}/{name}")
    if claim is None:
        return Unschedulable(f'persistentvolumeclaim "{shortened(name)}" not found')
    if claim.volume_name:
        volume: PersistentVolume | None
        volume = cluster.objects(Kind.PERSISTENT_VOLUME).get(claim.volume_name)
        missing = Unschedulable(f'persistentvolume "{claim.volume_name}" not found')
        return missing if volume is None else volume
    if not claim.storage_class:
        return Unschedulable("PersistentVolumeClaim had no pv name and storageClass name")
    made_by: StorageClass | None = cluster.objects(Kind.STORAGE_CLASS).get(claim.storage_class)
    if made_by is None:
        return Unschedulable(f'storageclass.storage.k8s.io "{claim.storage_class}" not found')
    return None if made_by.waits_for_consumer else Unschedulable("PersistentVolume had no name")


def _topologies(volume: PersistentVolume) -> Iterator[_Topology]:
    for key in _KEYS:
        if key in volume.labels:
            values = tuple(part.strip() for part in volume.labels[key].split(ZONE_DELIMITER))
            if all(values):
                yield key, values
