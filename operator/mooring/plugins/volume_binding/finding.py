"""Where a pod's claims can be had (volumebinding/binder.go, FindPodVolumes)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.model.csi import CSIDriver
from mooring.model.events import Kind
from mooring.model.migration import migrated_affinity
from mooring.model.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from mooring.model.volumes import CSI_DRIVERS, Disk
from mooring.plugins.volume_binding.choice import Choice, choices
from mooring.state.snapshot import Snapshot
from mooring.state.storage.node_affinities import check_node_affinity
from mooring.state.view import BoolArray, NodeView

__all__ = [
    "NOT_REACHED",
    "NO_SPACE",
    "NO_VOLUME",
    "VOLUME_GONE",
    "Claims",
    "Found",
    "can_reach",
    "find_volumes",
]

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""The provisioner of classes whose volumes are made by hand."""

NOT_REACHED: Final = np.uint64(1)
"""A bound volume's node affinity does not select the node."""
NO_VOLUME: Final = np.uint64(2)
"""There is no volume to take, and none can be made there."""
NO_SPACE: Final = np.uint64(4)
"""The driver has no room there for a volume to make."""
VOLUME_GONE: Final = np.uint64(8)
"""A claim is bound to a volume that does not exist."""


@dataclass(frozen=True, slots=True)
class Claims:
    """A pod's claims, each once: those bound for good, and those that wait for its node."""

    bound: tuple[PersistentVolumeClaim, ...]
    waiting: tuple[PersistentVolumeClaim, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The answer for some nodes.

    `obstacles` is uint64[nodes], of the bits above, 0 where nothing is in the way. `choices` says
    which volumes claims take there, and `to_make` for which claims volumes are made, with
    bool[nodes] for where.
    """

    obstacles: npt.NDArray[np.uint64]
    choices: Sequence[Choice]
    to_make: Sequence[tuple[PersistentVolumeClaim, BoolArray]]


def find_volumes(claims: Claims, nodes: NodeView, cluster: Snapshot) -> Found:
    """Where, and with which volumes, all of the claims can be satisfied."""
    obstacles = np.zeros(len(nodes), np.uint64)
    _check_bound(claims.bound, nodes, cluster, obstacles)
    by_size = sorted(
        (claim for claim in claims.waiting if claim.selected_node is None),
        key=lambda claim: claim.requested or 0,
    )
    sent = [claim for claim in claims.waiting if claim.selected_node is not None]
    here = np.ones(len(nodes), np.bool_)
    for claim in sent:
        here &= nodes.named(claim.selected_node or "")
    obstacles[~here] |= NO_VOLUME
    made = choices(by_size, nodes, cluster.storage)
    lacking = [(claim, here) for claim in sent]
    lacking += [(choice.claim, here & ~choice.found) for choice in made]
    to_make = tuple(_check_makeable(lacking, nodes, cluster, obstacles))
    return Found(obstacles, made, to_make)


def _check_bound(
    claims: Sequence[PersistentVolumeClaim],
    nodes: NodeView,
    cluster: Snapshot,
    obstacles: npt.NDArray[np.uint64],
) -> None:
    """A node's first bound claim that does not fit is its obstacle."""
    undecided = np.ones(len(nodes), np.bool_)
    for claim in claims:
        volume = cluster.storage.volume(claim.volume_name)
        if volume is None:
            obstacles[undecided] |= VOLUME_GONE
            return
        reached = can_reach(volume, nodes, cluster)
        obstacles[undecided & ~reached] |= NOT_REACHED
        undecided &= reached


def can_reach(volume: PersistentVolume, nodes: NodeView, cluster: Snapshot) -> BoolArray:
    """True on nodes that a bound volume's node affinity selects."""
    reached = check_node_affinity(nodes, volume.node_affinity)
    if not isinstance(volume.source, Disk) or volume.source.kind not in CSI_DRIVERS:
        return reached
    migrated = cluster.storage.migrated(volume.source.kind, nodes.rows)
    return np.where(migrated, check_node_affinity(nodes, migrated_affinity(volume)), reached)


def _check_makeable(
    lacking: Sequence[tuple[PersistentVolumeClaim, BoolArray]],
    nodes: NodeView,
    cluster: Snapshot,
    obstacles: npt.NDArray[np.uint64],
) -> Iterator[tuple[PersistentVolumeClaim, BoolArray]]:
    """A node's first claim for which no volume can be made there is its obstacle."""
    undecided = np.ones(len(nodes), np.bool_)
    for claim, where in lacking:
        asked = where & undecided
        if not asked.any():
            continue
        made_by: StorageClass = cluster.objects(Kind.STORAGE_CLASS)[claim.storage_class]
        allowed = _allowed(made_by, nodes)
        has_capacity = _has_enough_capacity(claim, made_by, nodes, cluster)
        obstacles[asked & ~allowed] |= NO_VOLUME
        obstacles[asked & allowed & ~has_capacity] |= NO_SPACE
        undecided &= ~asked | (allowed & has_capacity)
        yield claim, asked


def _allowed(made_by: StorageClass, nodes: NodeView) -> BoolArray:
    """Where the class has somebody to make volumes, for nodes in its topologies."""
    if made_by.provisioner in ("", _NO_PROVISIONER):
        return np.zeros(len(nodes), np.bool_)
    return check_node_affinity(nodes, made_by.allowed_topologies)


def _has_enough_capacity(
    claim: PersistentVolumeClaim, made_by: StorageClass, nodes: NodeView, cluster: Snapshot
) -> BoolArray:
    """Where a driver that publishes its free capacity could still make the volume."""
    driver: CSIDriver | None = cluster.objects(Kind.CSI_DRIVER).get(made_by.provisioner)
    if claim.requested is None or driver is None or not driver.storage_capacity:
        return np.ones(len(nodes), np.bool_)
    return cluster.storage.has_capacity(made_by.name, claim.requested, nodes.rows)
