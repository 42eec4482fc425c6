"""Finds the best-connected set of a node's free cards by comparing all sets.

A set is a bit mask of card numbers; 16 cards have 65,536 sets. Each property of the sets is an
array indexed by the mask, computed once for each matrix of links. The set with the better weakest
link is better connected. If the weakest links are equal, the higher sum of ranks decides.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.gpu_cards.model.cards import MAX_CARDS, Links
from mooring.model.bounded_cache import BoundedCache, bytes_of, cached
from mooring.state.columns import IntArray

_NO_LINK: Final = 127
"""The rank of the weakest link of a set with fewer than two cards, which has no links."""
_GROUPS: Final = (8, 4, 2)


@cached(64 * 2**20)
def subsets(links: Links, count: int) -> "Subsets":
    """Return the sets of a node's cards; nodes with equal links share one object."""
    return Subsets(links, count)


class Subsets:
    """All sets of a node's cards; if `links` is empty, all links have the rank 0 (unknown)."""

    def __init__(self, links: Links, count: int) -> None:
        self.count = count
        size = 1 << count
        self._cards = _bit_counts(size)
        self._weakest = np.full(size, _NO_LINK, np.int32)
        self._sum = np.zeros(size, np.int32)
        for card in range(count):
            self._add_card(card, links[card] if links else (0,) * count)
        self._best_group = {group: self._best_within(group) for group in _GROUPS}
        self._chosen: BoundedCache[tuple[int, int], tuple[int | None]] = BoundedCache(2**20)
        arrays = (self._cards, self._weakest, self._sum, self._best_group)
        self.memory = self._chosen.most_bytes + bytes_of(*arrays)
        """The bytes of this object when its cache is full."""

    def best(self, free: int, cards: int) -> int | None:
        """Return a bit mask: the best-connected `cards` free cards; None if there are too few.

        If several sets are equally good, return the set that leaves the best-connected groups of 8,
        4 or 2 free cards.
        """
        key = (free, cards)
        known = self._chosen.get(key)
        if known is None:
            known = (self._choose(free, cards),)
            self._chosen.put(key, known)
        return known[0]

    def weakest_link(self, chosen: int) -> int:
        """Return the rank of the set's weakest link; a single card has the rank `_NO_LINK`."""
        return int(self._weakest[chosen])

    def quality(self, chosen: int) -> int:
        """Return a number that is higher for better-connected sets of the same size."""
        return int(self._weakest[chosen]) * 2**16 + int(self._sum[chosen])

    def _choose(self, free: int, cards: int) -> int | None:
        masks = np.flatnonzero(self._cards == cards)
        masks = masks[(masks & ~free) == 0]
        if not len(masks):
            return None
        masks = _highest(masks, self._weakest[masks] * 2**16 + self._sum[masks])
        for group in _GROUPS:
            masks = _highest(masks, self._best_group[group][free & ~masks])
        return int(masks[0])

    def _add_card(self, card: int, ranks: tuple[int, ...]) -> None:
        """Compute the links of all sets whose highest card is `card`."""
        size = 1 << card
        weakest, total = np.full(size, _NO_LINK, np.int32), np.zeros(size, np.int32)
        for other in range(card):
            half = 1 << other
            weakest[half : 2 * half] = np.minimum(weakest[:half], ranks[other])
            total[half : 2 * half] = total[:half] + ranks[other]
        self._weakest[size : 2 * size] = np.minimum(self._weakest[:size], weakest)
        self._sum[size : 2 * size] = self._sum[:size] + total

    def _best_within(self, group: int) -> npt.NDArray[np.int32]:
        """Return int32[sets]: the quality of each set's best subset of `group` cards."""
        quality = self._weakest * 2**16 + self._sum
        best = np.where(self._cards == group, quality, -1)
        masks = np.arange(len(best))
        for card in range(self.count):
            without = masks[masks & (1 << card) > 0]
            best[without] = np.maximum(best[without], best[without ^ (1 << card)])
        return best


def _bit_counts(size: int) -> npt.NDArray[np.int32]:
    counts = np.zeros(size, np.int32)
    for bit in range(MAX_CARDS):
        counts += (np.arange(size, dtype=np.int32) >> bit) & 1
    return counts


def _highest(masks: IntArray, values: npt.NDArray[np.int32]) -> IntArray:
    best: IntArray = masks[values == values.max()]
    return best
