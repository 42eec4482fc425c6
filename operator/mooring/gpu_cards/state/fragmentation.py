"""Measures how much of a node's free GPU the cluster's typical requests cannot use.

The measure follows Weng et al., "Beware of Fragmentation" (USENIX ATC 2023). A class of requests
cannot use a card whose free part is too small for a request. It cannot use any card of a node that
has too few cards or too little cpu for a request. A node's fragmentation is the mean of the
unusable amounts over the classes, weighted by frequency. In the paper, cpu for one request makes
all free GPU usable; here, the free cpu limits the number of requests.

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
    """The free cpu of each node (int64, millicores), and the cpu that the pod requests."""

    free: IntArray
    taken: int


def growth_by_share(
    remaining: RemainingCards,
    total: IntArray,
    need: IntArray,
    typical: Mapping[CardDemand, int],
    cpu: Cpu,
) -> IntArray:
    """Return int64[row, card]: how much the node's fragmentation grows if the card gets the share.

    `need` (int64[row, card]) is the memory of the share on each card. The result is valid where the
    share fits.
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
    """Return int64[row]: how much fragmentation grows if the pod takes the chosen cards."""
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
    """Return int64[row]: how much the node's fragmentation grows if a pod takes only cpu."""
    nothing = np.zeros(remaining.free.shape, np.bool_)
    return growth_by_whole_cards(remaining, total, nothing, typical, cpu)


def _growth(lost: IntArray, taken: IntArray, typical: Mapping[CardDemand, int]) -> IntArray:
    if not typical:
        return np.zeros_like(lost)
    growth: IntArray = lost // sum(typical.values()) - taken
    return growth


def _usable(served: IntArray, cards: IntArray, demand: CardDemand, limit: IntArray) -> IntArray:
    # `served` is the free GPU of the suitable `cards`; the free cpu is enough for `limit`.
    usable: IntArray = np.where(cards >= demand.cards, np.minimum(served, limit), 0)
    return usable


def _limit(demand: CardDemand, total: IntArray, free_cpu: IntArray) -> IntArray:
    """Return int64[row, 1]: the most GPU that `demand` can use with the free cpu."""
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
    permille: IntArray = np.maximum(free, 0) * 1000 // np.maximum(total, 1)
    return permille
