"""Binds the claims of a pod once its node is chosen (framework/plugins/volumebinding).

Filter finds volumes on each node, and Reserve assumes the volumes. PreBind writes the changes to
the API server, and waits until the volume controller and the provisioners have bound all claims.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import AfterValidator, Field

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.scores import scores_by_percent
from mooring.framework.verdicts import (
    SKIP,
    Explanation,
    PluginError,
    Skip,
    Unschedulable,
    shortened,
)
from mooring.gpu_cards.card_plugin import AssignsInTrials
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.policy.reading import PolicyModel
from mooring.policy.score_args import (
    LESS_USED_FIRST,
    ShapePoint,
    rising,
)
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.volumes.model.csi import CSIDriver, CSINode, CSIStorageCapacity
from mooring.volumes.model.pod_volumes import ClaimVolume
from mooring.volumes.model.storage_objects import (
    SELECTED_NODE,
    ClaimRef,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    parse_persistent_volume,
    parse_persistent_volume_claim,
)
from mooring.volumes.volume_binding.binding_progress import BindingProgress, VolumesLostError
from mooring.volumes.volume_binding.capacity_score import capacity_scores
from mooring.volumes.volume_binding.find_volumes import PodVolumeClaims, find_volumes


class VolumeBindingArgs(PolicyModel):
    """The time limit for binding a pod's volumes, and the scores of nodes by their storage."""

    bind_timeout_seconds: int = Field(600, ge=0)
    """The most seconds of waiting for the volumes; then the attempt fails and the pod is queued
    again. 0 means no waiting."""
    shape: Annotated[
        tuple[ShapePoint, ...],
        AfterValidator(rising),
        AfterValidator(lambda given: given or LESS_USED_FIRST),
    ] = LESS_USED_FIRST
    """The function from the requested share of the storage to the score; an empty list means the
    default. It is used from Kubernetes 1.37 on."""


_REASONS: Final = (
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) did not have enough free storage",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
)
"""The reasons, in the order of the bits in `find_volumes.py`."""

_READ: Final = (
    Kind.NODE,
    Kind.PERSISTENT_VOLUME,
    Kind.PERSISTENT_VOLUME_CLAIM,
    Kind.STORAGE_CLASS,
    Kind.CSI_NODE,
    Kind.CSI_STORAGE_CAPACITY,
)

_FREED: Final = (Kind.POD, Kind.PERSISTENT_VOLUME, Kind.CSI_DRIVER, Kind.CSI_NODE)
"""The kinds of objects whose deletion may free a volume or lift a limit."""


@dataclass(frozen=True, slots=True)
class _Binding:
    """A volume to bind to a claim; if `prebound`, its claimRef names the claim already."""

    volume: PersistentVolume
    claim: PersistentVolumeClaim
    prebound: bool


@dataclass(frozen=True, slots=True)
class _Reserved:
    """What Reserve assumes for a pod: bindings, and claims that need a new volume."""

    bindings: tuple[_Binding, ...]
    to_provision: tuple[PersistentVolumeClaim, ...]


class VolumeBinding(AssignsInTrials):
    """Rejects nodes where a claim cannot be bound, scores nodes by storage, and binds claims."""

    name: ClassVar[str] = "VolumeBinding"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE
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
        self._exact = handle.kubernetes.storage_capacity_exact
        self._scores_capacity = handle.kubernetes.storage_capacity_scoring
        self._score_by_percent = scores_by_percent(args.shape)
        self._cluster = handle.cluster
        self._api = handle.api
        self._assume_cache = handle.assume_cache
        self._reserved: dict[str, _Reserved] = {}

    def pre_filter(self, pod: Pod, cluster: ClusterView) -> Skip | PodVolumeClaims | Unschedulable:
        """Return the pod's claims, or why a claim rejects the pod on every node.

        SKIP if the pod has no claims. A claim that is not bound needs a class that delays binding.
        """
        volumes = [volume for volume in pod.volumes if isinstance(volume, ClaimVolume)]
        if not volumes:
            return SKIP
        for volume in volumes:
            rejection = _unusable(volume, pod, cluster)
            if rejection is not None:
                return rejection
        return _claims_of(pod, volumes, cluster, exact=self._exact)

    def filter(self, _pod: Pod, nodes: NodeView, claims: PodVolumeClaims) -> BoolArray:
        """Return bool[nodes]: True where all claims have usable volumes, or can get volumes."""
        return np.equal(find_volumes(claims, nodes, self._cluster).conflicts, 0)

    def explain(self, _pod: Pod, nodes: NodeView, claims: PodVolumeClaims) -> Explanation:
        """Return the conflicts of each node; preemption cannot help, because it frees no volume."""
        conflicts = find_volumes(claims, nodes, self._cluster).conflicts
        return Explanation(_REASONS, conflicts, np.zeros(len(nodes), np.bool_))

    def pre_score(self, pod: Pod, _nodes: NodeView, cluster: ClusterView) -> Skip | PodVolumeClaims:
        """Return the pod's claims if storage is scored and a claim is not bound yet; else SKIP."""
        if not self._scores_capacity or not pod.volumes:
            return SKIP
        claims = self.pre_filter(pod, cluster)
        return claims if isinstance(claims, PodVolumeClaims) and claims.unbound else SKIP

    def score(self, _pod: Pod, nodes: NodeView, claims: PodVolumeClaims) -> IntArray:
        """Return int64[nodes]: the score for the share of storage that the claims request."""
        return capacity_scores(claims, self._score_by_percent, nodes, self._cluster)

    def reserve(self, pod: Pod, node: str) -> Unschedulable | None:
        """For each unbound claim, assume a volume on the node, or that the claim selects the node.

        Returns Unschedulable, with the reason, if a claim can get no volume; otherwise None.
        """
        found = self._assumed(pod, node)
        if isinstance(found, _Reserved):
            self._reserved[pod.uid] = found
        return found if isinstance(found, Unschedulable) else None

    def assign(self, pod: Pod, row: int) -> Unschedulable | None:
        """Assume volumes on the row's node for a pod that a trial has put there.

        Returns Unschedulable, with the reason, if a claim can get no volume there; else None.
        """
        found = self._assumed(pod, self._cluster.nodes.name(row))
        return found if isinstance(found, Unschedulable) else None

    def _assumed(self, pod: Pod, node: str) -> _Reserved | Unschedulable | None:
        claims = self.pre_filter(pod, self._cluster)
        if isinstance(claims, Unschedulable):
            return claims
        if claims is SKIP or not claims.unbound:
            return None
        there = self._cluster.nodes.only(node)
        if not len(there):
            return Unschedulable(f"node {node} does not exist any more")
        found = find_volumes(claims, there, self._cluster)
        if found.conflicts.any():
            return Unschedulable(", ".join(self.explain(pod, there, claims).reasons_at(0)))
        bindings = tuple(
            self._binding(volume, choice.claim)
            for choice in found.choices
            if (volume := choice.at(0)) is not None
        )
        to_provision = tuple(
            replace(claim, selected_node=node) for claim, where in found.to_provision if where[0]
        )
        self._assume_cache.assume_volumes(
            pod, [binding.volume for binding in bindings], to_provision
        )
        return _Reserved(bindings, to_provision)

    def unreserve(self, pod: Pod, _node: str) -> None:
        """Remove the assumptions about volumes and claims for the pod."""
        self._reserved.pop(pod.uid, None)
        self._assume_cache.restore_volumes(pod)

    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Write volumes and claims, and wait until all of the pod's claims are bound.

        Raises PluginError if a claim is not bound in time or can no longer be bound.
        """
        reserved = self._reserved.pop(pod.uid, None)
        if reserved is None:
            return
        # If a write fails, earlier writes stay, as in kube-scheduler.
        progress = BindingProgress(
            pod,
            node,
            [(await self._bind(binding), binding.claim) for binding in reserved.bindings],
            [await self._write_selected_node(claim, node) for claim in reserved.to_provision],
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
        patch = binding_patch(binding.volume, binding.claim, prebound=binding.prebound)
        name = binding.volume.name
        return parse_persistent_volume(
            await self._api.patch("persistentvolumes", None, name, patch)
        )

    async def _write_selected_node(
        self, claim: PersistentVolumeClaim, node: str
    ) -> PersistentVolumeClaim:
        patch = selected_node_patch(claim, node)
        return parse_persistent_volume_claim(
            await self._api.patch("persistentvolumeclaims", claim.namespace, claim.name, patch)
        )

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if one of the pod's claims may get a volume after the event."""
        match event.before, event.after:
            case _, PersistentVolumeClaim() as claim:
                named = {v.claim for v in pod.volumes if isinstance(v, ClaimVolume)}
                may_help = claim.namespace == pod.namespace and claim.name in named
            case StorageClass() as before, StorageClass() as after:
                may_help = before != after  # another one of the name, if no watch saw it go
            case Node() as before, Node() as after:
                may_help = before.labels != after.labels
            case CSINode() as before, CSINode() as after:
                may_help = before.migrated_plugins != after.migrated_plugins
            case CSIStorageCapacity() as before, CSIStorageCapacity() as after:
                may_help = self._amount(after) > self._amount(before)
            case CSIDriver() as before, after:
                limits = isinstance(after, CSIDriver) and after.storage_capacity
                may_help = before.storage_capacity and not limits
            case PersistentVolume() as before, None:
                may_help = (
                    before.claim is not None
                )  # of a claim; an available one is no use deleted
            case Pod() as gone, None:  # volumes assumed for a pod that was not bound are free again
                claims = any(isinstance(volume, ClaimVolume) for volume in gone.volumes)
                may_help = claims and gone.phase == "Pending"
            case _:
                may_help = True
        return queue_if(may_help)

    def _amount(self, capacity: CSIStorageCapacity) -> int:
        if capacity.largest is None:
            return -1
        return capacity.largest.nano if self._exact else capacity.largest.whole


def _unusable(volume: ClaimVolume, pod: Pod, cluster: ClusterView) -> Unschedulable | None:
    claim: PersistentVolumeClaim | None
    claim = cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM).get(f"{pod.namespace}/{volume.claim}")
    said = f'persistentvolumeclaim "{shortened(volume.claim)}"'
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


def _claims_of(
    pod: Pod, volumes: Iterable[ClaimVolume], cluster: ClusterView, *, exact: bool
) -> PodVolumeClaims | Unschedulable:
    keys = dict.fromkeys(f"{pod.namespace}/{volume.claim}" for volume in volumes)
    bound, unbound = [], []
    for claim in filter(None, map(cluster.storage.volumes.claim, keys)):
        storage_class: StorageClass | None = cluster.objects(Kind.STORAGE_CLASS).get(
            claim.storage_class
        )
        if claim.bound:
            bound.append(claim)
        elif (
            storage_class is not None and storage_class.waits_for_consumer and not claim.volume_name
        ):
            unbound.append(claim)
        else:
            return Unschedulable("pod has unbound immediate PersistentVolumeClaims")
    return PodVolumeClaims(tuple(bound), tuple(unbound), exact)


BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""The annotation that a volume has if a controller, not a user, has written its claimRef."""


def binding_patch(
    volume: PersistentVolume, claim: PersistentVolumeClaim, *, prebound: bool
) -> dict[str, Any]:
    """Return the patch that binds the volume; `prebound`: its claimRef already named the claim."""
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


def selected_node_patch(claim: PersistentVolumeClaim, node: str) -> dict[str, Any]:
    """Return the patch that lets the claim's provisioner create a volume for the node."""
    return {
        "metadata": {
            "resourceVersion": claim.resource_version,
            "annotations": {SELECTED_NODE: node},
        }
    }
