"""Measures how much of a node's free GPU typical requests of the cluster cannot use.

The measure follows Weng et al., "Beware of Fragmentation" (USENIX ATC 2023). A class of requests
cannot use the free amounts of cards that are too small for it. If the node lacks cards or cpu for
the class, the class can use none of the node's free GPU. The node's fragmentation is the mean over
the classes, weighted by their frequency.

In the paper, cpu for one request of a class makes all of a node's free GPU usable for it. Here the
usable GPU is limited to the number of requests that the node's free cpu allows.

Amounts of GPU are in thousandths of a card.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mooring.gpu_cards.state.card_counts import CardDemand, RemainingCards
from mooring.state.columns import IntArray

BoolArray = npt.NDArray[np.bool_]

_NO_LIMIT: Final = 2**40


class Cpu(NamedTuple):
    """Per row the free cpu (int64, millicores), and the cpu that the pod takes."""

    free: IntArray
    taken: int


def growth_by_share(
    remaining: RemainingCards,
    total: IntArray,
    need: IntArray,
    typical: Mapping[CardDemand, int],
    cpu: Cpu,
) -> IntArray:
    """Return int64[row, card]: by how much fragmentation grows if a share is placed on the card.

    `need` (int64[row, card]) is the memory that the share takes of each card. The result is
    undefined where the share does not fit.
    """
    after = np.maximum(remaining.free - need, 0)
    before_permille, after_permille = _permille(remaining.free, total), _permille(after, total)
    lost = np.zeros(remaining.free.shape, np.int64)
    for demand, weight in typical.items():
        serves = _serves(remaining.free, remaining.untouched, demand)
        serves_after = remaining.usable & (after >= demand.memory) & (demand.memory > 0)
        on_cards = before_permille * serves
        served, cards = (part.sum(axis=1, keepdims=True) for part in (on_cards, serves))
        now = _usable(served, cards, demand, _limit(demand, total, cpu.free))
        then = _usable(
            served - on_cards + after_permille * serves_after,
            cards - serves + serves_after,
            demand,
            _limit(demand, total, cpu.free - cpu.taken),
        )
        lost += weight * (now - then)
    return _growth(lost, before_permille - after_permille, typical)


def growth_by_whole_cards(
    remaining: RemainingCards,
    total: IntArray,
    chosen: BoolArray,
    typical: Mapping[CardDemand, int],
    cpu: Cpu,
) -> IntArray:
    """Return int64[row]: by how much fragmentation grows if the chosen cards (bool) are taken."""
    after = np.where(chosen, np.minimum(remaining.free, 0), remaining.free)
    untouched = remaining.untouched & ~chosen
    before_permille, after_permille = _permille(remaining.free, total), _permille(after, total)
    lost = np.zeros((len(after), 1), np.int64)
    for demand, weight in typical.items():
        serves = _serves(remaining.free, remaining.untouched, demand)
        serves_after = _serves(after, untouched, demand)
        now, then = (
            _usable(
                (permille * there).sum(axis=1, keepdims=True),
                there.sum(axis=1, keepdims=True),
                demand,
                _limit(demand, total, free_cpu),
            )
            for permille, there, free_cpu in (
                (before_permille, serves, cpu.free),
                (after_permille, serves_after, cpu.free - cpu.taken),
            )
        )
        lost += weight * (now - then)
    taken = (before_permille - after_permille).sum(axis=1, keepdims=True)
    return _growth(lost, taken, typical)[:, 0]


def growth_by_cpu(
    remaining: RemainingCards, total: IntArray, typical: Mapping[CardDemand, int], cpu: Cpu
) -> IntArray:
    """Return int64[row]: by how much fragmentation grows if a pod without cards takes its cpu."""
    nothing = np.zeros(remaining.free.shape, np.bool_)
    return growth_by_whole_cards(remaining, total, nothing, typical, cpu)


def _growth(lost: IntArray, taken: IntArray, typical: Mapping[CardDemand, int]) -> IntArray:
    """Return the growth of unusable GPU: the classes' mean loss, without the pod's own share."""
    if not typical:
        return np.zeros_like(lost)
    growth: IntArray = lost // sum(typical.values()) - taken
    return growth


def _usable(served: IntArray, cards: IntArray, demand: CardDemand, limit: IntArray) -> IntArray:
    """Return how much of `served`, the free amount on `cards` suitable cards, the class can use."""
    usable: IntArray = np.where(cards >= demand.cards, np.minimum(served, limit), 0)
    return usable


def _limit(demand: CardDemand, total: IntArray, free_cpu: IntArray) -> IntArray:
    """Return int64[row, 1]: the GPU of as many requests of the class as the free cpu allows."""
    if not demand.cpu:
        return np.full((len(total), 1), _NO_LIMIT, np.int64)
    each = np.full((len(total), 1), 1000 * demand.cards, np.int64)
    if demand.memory:
        smallest = np.where(total > 0, total, _NO_LIMIT).min(axis=1, keepdims=True)
        each = each * demand.memory // smallest
    limit: IntArray = each * (np.maximum(free_cpu, 0) // demand.cpu)[:, None]
    return limit


def _serves(free: IntArray, untouched: BoolArray, demand: CardDemand) -> BoolArray:
    return untouched if demand.memory == 0 else free >= demand.memory


def _permille(free: IntArray, total: IntArray) -> IntArray:
    """Return the free part of each card in thousandths, 0 for cards that cannot be used."""
    permille: IntArray = np.maximum(free, 0) * 1000 // np.maximum(total, 1)
    return permille
