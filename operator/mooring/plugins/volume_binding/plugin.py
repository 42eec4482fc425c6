"""A pod's claims get their volumes together with the pod's node (volumebinding/).

Deciding looks for volumes; `reserve` has the state see them as taken; `pre_bind` writes them to the
API server, where the volume controller and provisioners do the rest, and waits until they have.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.verdicts import SKIP, Explanation, PluginError, Skip, Unschedulable
from mooring.model.csi import CSIDriver, CSINode, CSIStorageCapacity
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.storage import (
    SELECTED_NODE,
    ClaimRef,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    parse_persistent_volume,
    parse_persistent_volume_claim,
)
from mooring.model.volumes import ClaimVolume
from mooring.plugins.volume_binding.finding import Claims, find_volumes
from mooring.plugins.volume_binding.progress import BindingProgress, VolumesLostError
from mooring.policy.args import VolumeBindingArgs
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray, NodeView

__all__ = [
    "BOUND_BY_CONTROLLER",
    "VolumeBinding",
    "binding_patch",
    "node_patch",
]

_OBSTACLES: Final = (
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) did not have enough free storage",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
)
"""In the order of the bits in `mooring.plugins.volume_binding.finding`."""

_READ: Final = (
    Kind.NODE,
    Kind.PERSISTENT_VOLUME,
    Kind.PERSISTENT_VOLUME_CLAIM,
    Kind.STORAGE_CLASS,
    Kind.CSI_NODE,
    Kind.CSI_STORAGE_CAPACITY,
)

_FREED: Final = (Kind.POD, Kind.PERSISTENT_VOLUME, Kind.CSI_DRIVER, Kind.CSI_NODE)
"""The kinds of object whose end may free a volume or lift a limit."""


@dataclass(frozen=True, slots=True)
class _Binding:
    """A volume that takes a claim; `prebound` if its user has kept it for the claim."""

    volume: PersistentVolume
    claim: PersistentVolumeClaim
    prebound: bool


@dataclass(frozen=True, slots=True)
class _Reserved:
    """What a pod's place takes: volumes that are there, and claims to make volumes for."""

    bindings: tuple[_Binding, ...]
    to_make: tuple[PersistentVolumeClaim, ...]


class VolumeBinding:
    """Refuses nodes where the pod's claims cannot have volumes, and binds those it gets."""

    name: ClassVar[str] = "VolumeBinding"
    row_local: ClassVar[bool] = False
    Args: ClassVar[type[VolumeBindingArgs]] = VolumeBindingArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.CSI_DRIVER, Action.UPDATE),
            *((kind, Action.DELETE) for kind in _FREED),
            *((kind, action) for kind in _READ for action in (Action.ADD, Action.UPDATE)),
        }
    )

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        self._timeout = args.bind_timeout_seconds
        self._cluster = handle.cluster
        self._api = handle.api
        self._assume_cache = handle.assume_cache
        self._reserved: dict[str, _Reserved] = {}

    def pre_filter(self, pod: Pod, cluster: Snapshot) -> Skip | Claims | Unschedulable:
        """The pod's claims; each must be usable, and bound unless it waits for the node."""
        volumes = [volume for volume in pod.volumes if isinstance(volume, ClaimVolume)]
        if not volumes:
            return SKIP
        for volume in volumes:
            rejection = _unusable(volume, pod, cluster)
            if rejection is not None:
                return rejection
        return _sorted_out(pod, volumes, cluster)

    def filter(self, _pod: Pod, nodes: NodeView, claims: Claims) -> BoolArray:
        """True where all claims have volumes, can take some, or can have some made."""
        return np.equal(find_volumes(claims, nodes, self._cluster).obstacles, 0)

    def explain(self, _pod: Pod, nodes: NodeView, claims: Claims) -> Explanation:
        """Every obstacle; evicting pods frees no volume."""
        obstacles = find_volumes(claims, nodes, self._cluster).obstacles
        return Explanation(_OBSTACLES, obstacles, np.zeros(len(nodes), np.bool_))

    def reserve(self, pod: Pod, node: str) -> Unschedulable | None:
        """The volumes found on the node are the pod's, and claims are sent to it."""
        claims = self.pre_filter(pod, self._cluster)
        if isinstance(claims, Unschedulable):
            return claims
        if claims is SKIP or not claims.waiting:
            return None
        there = self._cluster.nodes.only(node)
        if not len(there):
            return Unschedulable(f"node {node} does not exist any more")
        found = find_volumes(claims, there, self._cluster)
        if found.obstacles.any():
            return Unschedulable(", ".join(self.explain(pod, there, claims).reasons_at(0)))
        bindings = tuple(
            self._binding(volume, choice.claim)
            for choice in found.choices
            if (volume := choice.at(0)) is not None
        )
        to_make = tuple(
            replace(claim, selected_node=node) for claim, where in found.to_make if where[0]
        )
        self._reserved[pod.uid] = _Reserved(bindings, to_make)
        self._assume_cache.assume_volumes(pod, [binding.volume for binding in bindings], to_make)
        return None

    def unreserve(self, pod: Pod, _node: str) -> None:
        """Volumes and claims are seen as the API server shows them."""
        self._reserved.pop(pod.uid, None)
        self._assume_cache.restore_volumes(pod)

    async def pre_bind(self, pod: Pod, node: str) -> None:
        """All of the pod's claims are bound.

        What was written stays written if this fails, as it does upstream.

        Raises:
            PluginError: if a claim is not bound in time, or cannot be any more.
        """
        reserved = self._reserved.pop(pod.uid, None)
        if reserved is None:
            return
        progress = BindingProgress(
            pod,
            node,
            [(await self._bind(binding), binding.claim) for binding in reserved.bindings],
            [await self._send(claim, node) for claim in reserved.to_make],
            self._cluster,
        )
        try:
            await self._api.until(progress.done, self._timeout)
        except VolumesLostError as error:
            raise PluginError(f"binding volumes: {error}") from error
        except TimeoutError as error:
            raise PluginError(
                "binding volumes: context deadline exceeded: not bound after "
                f"{self._timeout} s: {', '.join(progress.unbound())}"
            ) from error

    def _binding(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> _Binding:
        shown = self._cluster.objects(Kind.PERSISTENT_VOLUME)[volume.name]
        taken = replace(volume, claim=ClaimRef(claim.namespace, claim.name, claim.uid))
        return _Binding(taken, claim, prebound=shown.claim is not None)

    async def _bind(self, binding: _Binding) -> PersistentVolume:
        """The volume as written."""
        patch = binding_patch(binding.volume, binding.claim, prebound=binding.prebound)
        name = binding.volume.name
        return parse_persistent_volume(
            await self._api.patch("persistentvolumes", None, name, patch)
        )

    async def _send(self, claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
        """The claim as written."""
        patch = node_patch(claim, node)
        return parse_persistent_volume_claim(
            await self._api.patch("persistentvolumeclaims", claim.namespace, claim.name, patch)
        )

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: Snapshot) -> QueueingHint:
        """Something came, changed in what matters here, or went with the limits it set."""
        match event.before, event.after:
            case _, PersistentVolumeClaim() as claim:
                named = {v.claim for v in pod.volumes if isinstance(v, ClaimVolume)}
                cured = claim.namespace == pod.namespace and claim.name in named
            case StorageClass() as before, StorageClass() as after:
                cured = before.allowed_topologies != after.allowed_topologies
            case Node() as before, Node() as after:
                cured = before.labels != after.labels
            case CSINode() as before, CSINode() as after:
                cured = before.migrated_plugins != after.migrated_plugins
            case CSIStorageCapacity() as before, CSIStorageCapacity() as after:
                cured = (after.largest or 0) > (before.largest or 0)
            case CSIDriver() as before, after:
                limits = isinstance(after, CSIDriver) and after.storage_capacity
                cured = before.storage_capacity and not limits
            case PersistentVolume() as before, None:
                cured = before.claim is not None  # kept for a claim, but not one that would do
            case Pod() as gone, None:  # volumes assumed for a pod that was not bound are free again
                claims = any(isinstance(volume, ClaimVolume) for volume in gone.volumes)
                cured = claims and gone.phase == "Pending"
            case _:
                cured = True
        return queue_if(cured)


def _unusable(volume: ClaimVolume, pod: Pod, cluster: Snapshot) -> Unschedulable | None:
    """Why the pod cannot run with this claim wherever it went."""
    claim: PersistentVolumeClaim | None
    claim = cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM).get(f"{pod.namespace}/{volume.claim}")
    said = f'persistentvolumeclaim "{volume.claim}"'
    if claim is None:
        waiting = f"waiting for ephemeral volume controller to create the {said}"
        return Unschedulable(waiting if volume.ephemeral else f"{said} not found")
    if claim.phase == "Lost":
        missing = f'non-existent persistentvolume "{claim.volume_name}"'
        return Unschedulable(f"{said} bound to {missing}")
    if claim.deleting:
        return Unschedulable(f"{said} is being deleted")
    if volume.ephemeral and claim.controller_uid != pod.uid:
        return Unschedulable(
            f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"
        )
    return None


def _sorted_out(
    pod: Pod, volumes: Iterable[ClaimVolume], cluster: Snapshot
) -> Claims | Unschedulable:
    """The pod's claims, each once, though upstream looks for a volume for every mention."""
    keys = dict.fromkeys(f"{pod.namespace}/{volume.claim}" for volume in volumes)
    bound, waiting = [], []
    for claim in filter(None, map(cluster.storage.claim, keys)):
        made_by: StorageClass | None = cluster.objects(Kind.STORAGE_CLASS).get(claim.storage_class)
        if claim.bound:
            bound.append(claim)
        elif made_by is not None and made_by.waits_for_consumer and not claim.volume_name:
            waiting.append(claim)
        else:
            return Unschedulable("pod has unbound immediate PersistentVolumeClaims")
    return Claims(tuple(bound), tuple(waiting))


BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""The annotation that says that nobody but a controller chose the claim for a volume."""


def binding_patch(
    volume: PersistentVolume, claim: PersistentVolumeClaim, *, prebound: bool
) -> dict[str, Any]:
    """Binds the volume to the claim; `prebound` says that its user had kept it for the claim."""
    metadata: dict[str, Any] = {"resourceVersion": volume.resource_version}
    if not prebound:
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    claim_ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.resource_version,
    }
    return {"metadata": metadata, "spec": {"claimRef": claim_ref}}


def node_patch(claim: PersistentVolumeClaim, node: str) -> dict[str, Any]:
    """Has the claim's provisioner make a volume for the node."""
    return {
        "metadata": {
            "resourceVersion": claim.resource_version,
            "annotations": {SELECTED_NODE: node},
        }
    }
