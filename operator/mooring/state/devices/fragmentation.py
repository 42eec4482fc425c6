"""How much of a node's free GPU cannot be used by requests that are typical of the cluster.

The measure is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): of each class of
requests, what is free on cards that cannot serve it is unusable for it, and where the node cannot
serve it at all, everything free is; the mean over the classes, weighted by how frequent they are,
is the node's fragmentation. A node without the cpu for a class cannot serve it. Amounts are in
thousandths of a card.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mooring.state.columns import IntArray
from mooring.state.devices.cards import CardsLeft, Demand

__all__ = ["Cpu", "growth_by_cpu", "growth_by_share", "growth_by_whole_cards"]

BoolArray = npt.NDArray[np.bool_]


class Cpu(NamedTuple):
    """Per row the free cpu (int64, millicores), and what the pod takes of it."""

    free: IntArray
    taken: int

    def hosts(self, demand: Demand) -> BoolArray:
        """bool[row]: there is enough for the class of requests now."""
        return self.free >= demand.cpu

    def hosts_after(self, demand: Demand) -> BoolArray:
        """bool[row]: there is enough with the pod on the node."""
        return self.free - self.taken >= demand.cpu


def growth_by_share(
    left: CardsLeft, total: IntArray, need: IntArray, typical: Mapping[Demand, int], cpu: Cpu
) -> IntArray:
    """int64[row, card]: by how much fragmentation grows if a share is placed on the card.

    `need` (int64[row, card]) is what the share takes of the memory of each card. The result means
    nothing where the share does not fit.
    """
    after = np.maximum(left.free - need, 0)
    before_permille, after_permille = _permille(left.free, total), _permille(after, total)
    growth = np.zeros(left.free.shape, np.int64)
    sum_before = before_permille.sum(axis=1, keepdims=True)
    sum_after = sum_before - before_permille + after_permille
    for demand, weight in typical.items():
        serves = _serves(left.free, left.untouched, demand)
        serves_after = left.usable & (after >= demand.memory) & (demand.memory > 0)
        stranded = before_permille * ~serves
        stranded_sum = stranded.sum(axis=1, keepdims=True)
        stranded_after = stranded_sum - stranded + after_permille * ~serves_after
        count = serves.sum(axis=1, keepdims=True)
        count_after = count - serves + serves_after
        hosted = (count >= demand.cards) & cpu.hosts(demand)[:, None]
        hosted_after = (count_after >= demand.cards) & cpu.hosts_after(demand)[:, None]
        was = np.where(hosted, stranded_sum, sum_before)
        growth += weight * (np.where(hosted_after, stranded_after, sum_after) - was)
    mean: IntArray = growth // max(1, sum(typical.values()))
    return mean


def growth_by_whole_cards(
    left: CardsLeft, total: IntArray, chosen: BoolArray, typical: Mapping[Demand, int], cpu: Cpu
) -> IntArray:
    """int64[row]: by how much fragmentation grows if the chosen cards (bool[row, card]) go."""
    after = np.where(chosen, np.minimum(left.free, 0), left.free)
    untouched = left.untouched & ~chosen
    growth = np.zeros(len(after), np.int64)
    for demand, weight in typical.items():
        then = _unusable(after, untouched, total, demand, cpu.hosts_after(demand))
        now = _unusable(left.free, left.untouched, total, demand, cpu.hosts(demand))
        growth += weight * (then - now)
    mean: IntArray = growth // max(1, sum(typical.values()))
    return mean


def growth_by_cpu(
    left: CardsLeft, total: IntArray, typical: Mapping[Demand, int], cpu: Cpu
) -> IntArray:
    """int64[row]: by how much fragmentation grows if a pod without cards takes its cpu."""
    nothing = np.zeros(left.free.shape, np.bool_)
    return growth_by_whole_cards(left, total, nothing, typical, cpu)


def _unusable(
    free: IntArray, untouched: BoolArray, total: IntArray, demand: Demand, hosts: BoolArray
) -> IntArray:
    permille, serves = _permille(free, total), _serves(free, untouched, demand)
    enough = hosts & (serves.sum(axis=1) >= demand.cards)
    unusable: IntArray = np.where(enough, (permille * ~serves).sum(axis=1), permille.sum(axis=1))
    return unusable


def _serves(free: IntArray, untouched: BoolArray, demand: Demand) -> BoolArray:
    return untouched if demand.memory == 0 else free >= demand.memory


def _permille(free: IntArray, total: IntArray) -> IntArray:
    """The free part of each card in thousandths, 0 for cards that cannot be used."""
    permille: IntArray = np.maximum(free, 0) * 1000 // np.maximum(total, 1)
    return permille
