"""Finds the volume for an unbound claim on each node.

That is a volume whose claimRef names the claim, or else the smallest available one that matches the
claim and the node. Of equally small ones kube-scheduler takes any, here it is the first by name
(FindMatchingVolume in component-helpers storage/volume/pv_helpers.go).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from mooring.model.storage import PersistentVolume, PersistentVolumeClaim
from mooring.state.columns import IntArray
from mooring.state.storage.best_fit import NO_POSITION, BestFitIndex
from mooring.state.storage.node_affinities import check_node_affinity
from mooring.state.storage.storage import StorageView
from mooring.state.view import BoolArray, NodeView

__all__ = ["Choice", "choices"]

_NOTHING: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The volume for a claim on each node: `chosen` is int64[nodes], an index into `volumes` or -1.

    `sizes` are the capacities of all `volumes` in bytes (int64). It is valid until a volume is
    added, updated or deleted.
    """

    claim: PersistentVolumeClaim
    volumes: Sequence[PersistentVolume]
    sizes: IntArray
    chosen: IntArray

    @property
    def found(self) -> BoolArray:
        """True where there is a volume for the claim."""
        return np.not_equal(self.chosen, _NOTHING)

    def at(self, index: int) -> PersistentVolume | None:
        """Return the volume on the node at this position; None if there is none."""
        chosen = int(self.chosen[index])
        return None if chosen == _NOTHING else self.volumes[chosen]


class _Taken:
    """The available volumes of a class that claims of a pod have taken already, on some nodes."""

    def __init__(self, available: BestFitIndex[PersistentVolume], nodes: NodeView) -> None:
        self.available = available
        self._left = available.rows_with(nodes.rows)
        """On how many of the nodes each volume is left that have it."""
        self.partly: list[IntArray] = []
        """What one claim each has taken: an index into the volumes by node, also of some that are
        left on other nodes."""

    def take(self, chosen: IntArray) -> None:
        """Note what one more claim has taken on each node, an index or -1."""
        found = chosen[chosen != _NOTHING]
        self._left -= np.bincount(found, minlength=len(self._left))
        self.partly = [each for each in (*self.partly, chosen) if self._is_left(each)]

    def without(self, positions: IntArray) -> IntArray:
        """Return those of the positions of volumes that are left on some node that has them."""
        return positions[self._left[positions] > 0]

    def _is_left(self, chosen: IntArray) -> bool:
        found = chosen[chosen != _NOTHING]
        return bool((self._left[found] > 0).any())


def choices(
    claims: Iterable[PersistentVolumeClaim], nodes: NodeView, storage: StorageView
) -> list[Choice]:
    """Return the choice for each unbound claim; no two claims get the same volume on a node."""
    made: list[Choice] = []
    taken: dict[str, _Taken] = {}
    for claim in claims:
        prebound = [v for v in storage.with_claim_ref(claim) if _matches(v, claim)]
        if prebound:
            matching = check_node_affinity(nodes, prebound[0].node_affinity)
            sizes = np.array([volume.capacity for volume in prebound])
            made.append(Choice(claim, prebound, sizes, np.where(matching, 0, _NOTHING)))
            continue
        known = taken.get(claim.storage_class)
        if known is None:
            available = storage.available(claim.storage_class)
            known = taken[claim.storage_class] = _Taken(available, nodes)
        made.append(_smallest(claim, nodes, known))
        known.take(made[-1].chosen)
    return made


def _matches(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.capacity >= (claim.requested or 0)
        and volume.volume_mode == claim.volume_mode
        and volume.attributes_class == claim.attributes_class
        and not volume.deleting
    )


def _available_matches(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Return whether an available volume matches the claim, apart from the claim's selector."""
    return _matches(volume, claim) and claim.access_modes <= volume.access_modes


def _smallest(claim: PersistentVolumeClaim, nodes: NodeView, taken: _Taken) -> Choice:
    """Return the smallest available volume on each node that no claim before it has taken there."""
    available = taken.available
    positions = available.at_least(claim.requested or 0, partial(_available_matches, claim))
    positions = taken.without(positions)
    if claim.selector is not None:
        selected = [claim.selector.matches(available.items[at].labels) for at in positions]
        positions = positions[np.array(selected, np.bool_)]
    best = np.full(len(nodes), NO_POSITION)
    most = len(taken.partly) + 1
    for candidates in available.smallest_on(positions, nodes.rows, count=most):
        for elsewhere in taken.partly:
            candidates[candidates == elsewhere] = NO_POSITION
        np.minimum(best, candidates, out=best)
    chosen = np.where(best == NO_POSITION, _NOTHING, best)
    return Choice(claim, available.items, available.amounts, chosen)
