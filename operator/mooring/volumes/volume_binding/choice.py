"""Chooses a volume for an unbound claim on each node.

A volume whose claimRef names the claim is preferred. Otherwise the smallest available volume that
matches the claim and the node is chosen (FindMatchingVolume in component-helpers
storage/volume/pv_helpers.go). If several are equally small, the first by name is chosen;
kube-scheduler chooses any.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np

from mooring.model.selectors import Requirement
from mooring.pausing import pause
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.volumes.model.storage_objects import PersistentVolume, PersistentVolumeClaim
from mooring.volumes.state.best_fit import NO_POSITION, BestFitIndex
from mooring.volumes.state.node_affinities import check_node_affinity
from mooring.volumes.state.storage import Storage

_NOTHING: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The volume for a claim on each node: `chosen` is int64[nodes], an index of `volumes` or -1.

    `sizes` are the capacities of all `volumes` in bytes (int64). The object is valid until a volume
    is added, updated or deleted.
    """

    claim: PersistentVolumeClaim
    volumes: Sequence[PersistentVolume]
    sizes: IntArray
    chosen: IntArray

    @property
    def found(self) -> BoolArray:
        """bool[nodes]: True for nodes that have a volume for the claim."""
        return np.not_equal(self.chosen, _NOTHING)

    def at(self, index: int) -> PersistentVolume | None:
        """Return the volume on the node at this index; None if there is none."""
        chosen = int(self.chosen[index])
        return None if chosen == _NOTHING else self.volumes[chosen]


class _Taken:
    """The volumes of a storage class that the pod's smaller claims leave available."""

    def __init__(self, available: BestFitIndex[PersistentVolume], nodes: NodeView) -> None:
        # A volume's position is its index in `available.items`.
        self.available = available
        self.nowhere: IntArray = np.full(len(nodes), _NOTHING)
        self._left = available.rows_with(nodes.rows)
        """int64[volumes]: the number of nodes where the volume fits and is not taken yet."""
        self._positions = np.flatnonzero(self._left)
        self._largest = available.largest_of_traits()
        self._values: dict[str, tuple[Mapping[str | None, int], IntArray]] = {}
        self.partly: list[IntArray] = []
        """Arrays that `take` got, if one of their volumes is still available on some node."""

    def take(self, chosen: IntArray) -> None:
        """Mark volumes as taken; `chosen` (int64[nodes]) has the volume's index or -1 for none."""
        found = chosen[chosen != _NOTHING]
        first = int(found.min())
        counts = np.bincount(found - first)
        end = first + len(counts)
        self._left[first:end] -= counts
        begin, past = np.searchsorted(self._positions, (first, end))
        between = self._positions[begin:past]
        left = between[self._left[between] > 0]
        if len(left) < len(between):
            before, after = self._positions[:begin], self._positions[past:]
            self._positions = np.concatenate((before, left, after))
        self.partly = [each for each in (*self.partly, chosen) if self._is_left(each)]

    def matching(self, claim: PersistentVolumeClaim) -> IntArray:
        """Return the positions of suitable volumes that are still available on at least one node.

        Volumes that are too small for this claim are dropped, because later claims are not smaller.
        """
        smallest = self.available.at_least(claim.size.nano)
        self._positions = self._positions[np.searchsorted(self._positions, smallest) :]
        if not len(self._positions):
            return self._positions
        suits = partial(_available_matches, claim)
        positions = self.available.suitable(self._positions, self._largest, suits)
        for requirement in claim.selector.requirements if claim.selector is not None else ():
            positions = self._selected(positions, requirement)
        return positions

    def _selected(self, positions: IntArray, requirement: Requirement) -> IntArray:
        if requirement.key not in self._keys:
            return positions if requirement.matches(None) else positions[:0]
        numbers, codes = self._values_of(requirement.key)
        selects = np.full(len(numbers), requirement.operator in ("NotIn", "Exists"))
        # Other values are not compared, because a label may have thousands of values.
        for value in (*requirement.values, None):
            if value in numbers:
                selects[numbers[value]] = requirement.matches(value)
        if not selects.any():
            return positions[:0]
        selected: IntArray = positions[selects[codes[positions]]]
        return selected

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(key for volume in self.available.items for key in volume.labels)

    def _values_of(self, key: str) -> tuple[Mapping[str | None, int], IntArray]:
        """Return a number for each value of the label, and int64[volumes]: each volume's number."""
        found = self._values.get(key)
        if found is None:
            numbers: dict[str | None, int] = {}
            labels = (volume.labels for volume in self.available.items)
            codes = [numbers.setdefault(each.get(key), len(numbers)) for each in labels]
            found = self._values[key] = numbers, np.array(codes, np.int64)
        return found

    def _is_left(self, chosen: IntArray) -> bool:
        found = chosen[chosen != _NOTHING]
        return bool((self._left[found] > 0).any())


def choices(
    claims: Iterable[PersistentVolumeClaim], nodes: NodeView, storage: Storage
) -> list[Choice]:
    """Return a Choice for each unbound claim; no two claims get the same volume on a node.

    The claims must be sorted by size, the smallest first.
    """
    made: list[Choice] = []
    taken: dict[str, _Taken] = {}
    for claim in claims:
        pause()
        prebound = [v for v in storage.volumes.with_claim_ref(claim) if _matches(v, claim)]
        if prebound:
            matching = check_node_affinity(nodes, prebound[0].node_affinity)
            sizes = np.array([volume.capacity.whole for volume in prebound])
            made.append(Choice(claim, prebound, sizes, np.where(matching, 0, _NOTHING)))
            continue
        known = taken.get(claim.storage_class)
        if known is None:
            available = storage.volumes.available(claim.storage_class)
            known = taken[claim.storage_class] = _Taken(available, nodes)
        choice = _smallest(claim, nodes, known)
        if choice.chosen is not known.nowhere and choice.found.any():
            known.take(choice.chosen)
        made.append(choice)
    return made


def _matches(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        volume.capacity >= claim.size
        and volume.volume_mode == claim.volume_mode
        and volume.attributes_class == claim.attributes_class
        and not volume.deleting
    )


def _available_matches(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    # `_selected` applies the selector of the claim.
    return _matches(volume, claim) and claim.access_modes <= volume.access_modes


def _smallest(claim: PersistentVolumeClaim, nodes: NodeView, taken: _Taken) -> Choice:
    available, positions = taken.available, taken.matching(claim)
    if not len(positions):
        return Choice(claim, available.items, available.amounts, taken.nowhere)
    best = np.full(len(nodes), NO_POSITION)
    most = len(taken.partly) + 1
    for candidates in available.smallest_on(positions, nodes.rows, count=most):
        for elsewhere in taken.partly:
            candidates[candidates == elsewhere] = NO_POSITION
        np.minimum(best, candidates, out=best)
    chosen = np.where(best == NO_POSITION, _NOTHING, best)
    return Choice(claim, available.items, available.amounts, chosen)
