"""Which volume a claim would take on each node (component-helpers storage/volume/pv_helpers.go).

A volume that is kept for the claim, or else the smallest free one that suits it and can be reached
from the node. Where volumes are equal in size, upstream takes any; here the first by name is taken.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from mooring.model.storage import PersistentVolume, PersistentVolumeClaim
from mooring.state.columns import IntArray
from mooring.state.storage.best_fit import BEYOND
from mooring.state.storage.node_affinities import reachable
from mooring.state.storage.storage import StorageView
from mooring.state.view import BoolArray, NodeView

__all__ = ["Choice", "choices"]

_NOTHING: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What a claim would take: `chosen` is int64[nodes], an index into `volumes` or -1.

    Valid until the next change of volumes.
    """

    claim: PersistentVolumeClaim
    volumes: Sequence[PersistentVolume]
    chosen: IntArray

    @property
    def found(self) -> BoolArray:
        """True where there is a volume for the claim."""
        return np.not_equal(self.chosen, _NOTHING)

    def at(self, index: int) -> PersistentVolume | None:
        """The volume on one of the nodes."""
        chosen = int(self.chosen[index])
        return None if chosen == _NOTHING else self.volumes[chosen]


def choices(
    claims: Iterable[PersistentVolumeClaim], nodes: NodeView, storage: StorageView
) -> list[Choice]:
    """The choice of each unbound claim; a volume taken by one is not there for the next."""
    made: list[Choice] = []
    for claim in claims:
        kept = [volume for volume in storage.kept_for(claim) if _suits(volume, claim)]
        if kept:
            reached = reachable(nodes, kept[0].node_affinity)
            made.append(Choice(claim, kept, np.where(reached, 0, _NOTHING)))
        else:
            made.append(_smallest(claim, nodes, storage, made))
    return made


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.capacity >= (claim.requested or 0)
        and volume.volume_mode == claim.volume_mode
        and volume.attributes_class == claim.attributes_class
        and not volume.deleting
    )


def _suits_freely(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Whether a volume suits that is large enough and kept for nobody, labels left aside."""
    return _suits(volume, claim) and claim.access_modes <= volume.access_modes


def _smallest(
    claim: PersistentVolumeClaim, nodes: NodeView, storage: StorageView, made: Sequence[Choice]
) -> Choice:
    """The smallest free volume on each node that no claim before has taken there."""
    free = storage.free(claim.storage_class)
    positions = free.large_enough(claim.requested or 0, partial(_suits_freely, claim))
    if claim.selector is not None:
        selected = [claim.selector.matches(free.items[at].labels) for at in positions]
        positions = positions[np.array(selected, np.bool_)]
    taken = [choice.chosen for choice in made if choice.volumes is free.items]
    best = np.full(len(nodes), BEYOND)
    for candidates in free.by_row(positions, nodes.rows, depth=len(taken) + 1):
        for elsewhere in taken:
            candidates[candidates == elsewhere] = BEYOND
        np.minimum(best, candidates, out=best)
    return Choice(claim, free.items, np.where(best == BEYOND, _NOTHING, best))
