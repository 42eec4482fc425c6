"""Finds volumes for a pod's claims on all nodes (FindPodVolumes in volumebinding/binder.go)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.model.events import Kind
from mooring.model.quantity import Quantity
from mooring.pausing import pause
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView
from mooring.volumes.model.csi import CSIDriver
from mooring.volumes.model.migration import migrated_affinity
from mooring.volumes.model.pod_volumes import CSI_DRIVERS, Disk
from mooring.volumes.model.storage_objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from mooring.volumes.state.node_affinities import check_node_affinity
from mooring.volumes.volume_binding.choice import Choice, choices

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""The provisioner in a StorageClass whose volumes an administrator creates."""

NODE_CONFLICT: Final = np.uint64(1)
"""The bit in `PodVolumes.conflicts`: the node does not match a bound volume's node affinity."""
BIND_CONFLICT: Final = np.uint64(2)
"""The bit in `PodVolumes.conflicts`: no volume is available or can be provisioned on the node."""
NOT_ENOUGH_SPACE: Final = np.uint64(4)
"""The bit in `PodVolumes.conflicts`: the driver's capacity is too small for a volume there."""
PV_NOT_EXIST: Final = np.uint64(8)
"""The bit in `PodVolumes.conflicts`: a claim is bound to a volume that does not exist."""


@dataclass(frozen=True, slots=True)
class PodVolumeClaims:
    """A pod's claims without duplicates: bound claims, and claims of classes that delay binding.

    `exact` says whether sizes of new volumes are compared exactly, not in whole bytes.
    """

    bound: tuple[PersistentVolumeClaim, ...]
    unbound: tuple[PersistentVolumeClaim, ...]
    exact: bool


@dataclass(frozen=True, slots=True, eq=False)
class PodVolumes:
    """The volumes for a pod's claims on some nodes.

    Attributes:
        conflicts: uint64[nodes] of bits (NODE_CONFLICT and others); 0 where all claims have
            volumes.
        choices: The available volumes for claims.
        to_provision: Pairs: a claim, and bool[nodes] (True where the claim needs a new volume).
    """

    conflicts: npt.NDArray[np.uint64]
    choices: Sequence[Choice]
    to_provision: Sequence[tuple[PersistentVolumeClaim, BoolArray]]


@dataclass(frozen=True, slots=True, eq=False)
class UnboundClaims:
    """Available volumes for a pod's unbound claims on some nodes.

    Attributes:
        choices: The available volumes for claims.
        left: Pairs: a claim, and bool[nodes] (True where `selected` is True and the claim has no
            volume).
        selected: bool[nodes]: False where a claim's selected node is another node.
    """

    choices: Sequence[Choice]
    left: Sequence[tuple[PersistentVolumeClaim, BoolArray]]
    selected: BoolArray


def find_choices(
    unbound: Sequence[PersistentVolumeClaim], nodes: NodeView, cluster: ClusterView
) -> UnboundClaims:
    """Find an available volume for each claim on each node; the smallest claim chooses first.

    A claim with a selected node gets no available volume, because a new volume is made for it.
    """
    by_size = sorted(
        (claim for claim in unbound if claim.selected_node is None),
        key=lambda claim: claim.size,
    )
    provisioning = [claim for claim in unbound if claim.selected_node is not None]
    selected = np.ones(len(nodes), np.bool_)
    for claim in provisioning:
        selected &= nodes.named(claim.selected_node or "")
    chosen = choices(by_size, nodes, cluster.storage)
    left = [(claim, selected) for claim in provisioning]
    left += [(choice.claim, selected & ~choice.found) for choice in chosen]
    return UnboundClaims(chosen, left, selected)


def find_volumes(claims: PodVolumeClaims, nodes: NodeView, cluster: ClusterView) -> PodVolumes:
    """Return the volumes for the claims on each node, and the conflicts of unsuitable nodes."""
    conflicts = np.zeros(len(nodes), np.uint64)
    _check_bound(claims.bound, nodes, cluster, conflicts)
    found = find_choices(claims.unbound, nodes, cluster)
    conflicts[~found.selected] |= BIND_CONFLICT
    to_provision = tuple(
        _check_provisions(found.left, nodes, cluster, conflicts, exact=claims.exact)
    )
    return PodVolumes(conflicts, found.choices, to_provision)


def _check_bound(
    claims: Sequence[PersistentVolumeClaim],
    nodes: NodeView,
    cluster: ClusterView,
    conflicts: npt.NDArray[np.uint64],
) -> None:
    undecided = np.ones(len(nodes), np.bool_)
    for claim in claims:
        pause()
        volume = cluster.storage.volumes.volume(claim.volume_name)
        if volume is None:
            conflicts[undecided] |= PV_NOT_EXIST
            return
        matches = matches_node_affinity(volume, nodes, cluster)
        conflicts[undecided & ~matches] |= NODE_CONFLICT
        undecided &= matches


def matches_node_affinity(
    volume: PersistentVolume, nodes: NodeView, cluster: ClusterView
) -> BoolArray:
    """Return bool[nodes]: True where the node matches the node affinity of a bound volume.

    Where a CSI driver attaches an in-tree disk, its `migrated_affinity` is compared.
    """
    matches = check_node_affinity(nodes, volume.node_affinity)
    if not isinstance(volume.source, Disk) or volume.source.kind not in CSI_DRIVERS:
        return matches
    migrated = cluster.storage.csi_nodes.migrated(volume.source.kind, nodes.rows)
    return np.where(migrated, check_node_affinity(nodes, migrated_affinity(volume)), matches)


def _check_provisions(
    without_volume: Sequence[tuple[PersistentVolumeClaim, BoolArray]],
    nodes: NodeView,
    cluster: ClusterView,
    conflicts: npt.NDArray[np.uint64],
    *,
    exact: bool,
) -> Iterator[tuple[PersistentVolumeClaim, BoolArray]]:
    """Add the nodes' conflicts. Yield each claim and bool[nodes]: where it needs a new volume."""
    undecided = np.ones(len(nodes), np.bool_)
    classes: dict[str, _Provisioner] = {}
    for claim, where in without_volume:
        pause()
        wanted = where & undecided
        if not wanted.any():
            continue
        found = classes.get(claim.storage_class)
        if found is None:
            of_class = cluster.objects(Kind.STORAGE_CLASS)[claim.storage_class]
            found = classes[claim.storage_class] = _Provisioner(of_class, nodes, cluster)
        has_capacity = found.has_capacity(claim, exact=exact)
        rejected = wanted & ~(found.allowed & has_capacity)
        if rejected.any():
            conflicts[wanted & ~found.allowed] |= BIND_CONFLICT
            conflicts[wanted & found.allowed & ~has_capacity] |= NOT_ENOUGH_SPACE
            # Later claims are not checked on nodes with a conflict.
            undecided &= ~rejected
        yield claim, wanted


class _Provisioner:
    """The nodes on which the provisioner of a StorageClass can create volumes."""

    def __init__(self, storage_class: StorageClass, nodes: NodeView, cluster: ClusterView) -> None:
        self._class, self._cluster = storage_class, cluster
        self._everywhere = np.ones(len(nodes), np.bool_)
        self._capacities = cluster.storage.capacities.of(storage_class.name)
        self._largest = self._capacities.largest_on(nodes.rows)
        self.allowed = (
            ~self._everywhere
            if storage_class.provisioner in ("", _NO_PROVISIONER)
            else check_node_affinity(nodes, storage_class.allowed_topologies)
        )

    def has_capacity(self, claim: PersistentVolumeClaim, *, exact: bool) -> BoolArray:
        """Return bool[nodes]: True where the capacity is enough for the claim, or unknown."""
        least = least_capacity(claim, self._class, self._cluster, exact=exact)
        if least is None:
            return self._everywhere
        return np.greater_equal(self._largest, self._capacities.at_least(least.nano))


def least_capacity(
    claim: PersistentVolumeClaim, storage_class: StorageClass, cluster: ClusterView, *, exact: bool
) -> Quantity | None:
    """Return the least capacity that is sufficient for the claim.

    Returns None if the claim requests no size, or the driver of the class publishes no capacity.
    """
    driver: CSIDriver | None = cluster.objects(Kind.CSI_DRIVER).get(storage_class.provisioner)
    if claim.requested is None or driver is None or not driver.storage_capacity:
        return None
    return claim.requested if exact else claim.requested.least_of_whole
