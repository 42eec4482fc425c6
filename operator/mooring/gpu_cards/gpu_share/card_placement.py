"""Chooses cards for the shares of a pod, on many nodes at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mooring.gpu_cards.model.cards import Assignment, CardRequest, CardShare
from mooring.gpu_cards.state.card_counts import CardDemand, RemainingCards
from mooring.gpu_cards.state.fragmentation import Cpu, growth_by_share
from mooring.state.columns import IntArray

BoolArray = npt.NDArray[np.bool_]
Choice = Literal["Binpack", "Spread", "FirstFit", "LeastFragmentation"]

_NOT = np.int64(2**62)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedShares:
    """The cards for a pod's shares, on each of many nodes.

    `fits` is bool[row]: True if all shares fit; elsewhere, the other values have no meaning.
    `chosen` has the cards of each share (int64[row, n]). `remaining` has the amounts that stay
    free.
    """

    fits: BoolArray
    chosen: tuple[IntArray, ...]
    remaining: RemainingCards

    def assignment(self, index: int) -> Assignment:
        """Return the cards of each share on the node at this index."""
        return tuple(tuple(sorted(cards[index].tolist())) for cards in self.chosen)


def needed(share: CardShare, total: IntArray) -> IntArray:
    """Return int64[row, card]: the memory that the share takes if it is on this card."""
    if share.permille:
        part: IntArray = -(-total * share.permille // 1000)
        return part
    return np.full(total.shape, share.memory, np.int64)


def fitting(
    share: CardShare, remaining: RemainingCards, need: IntArray, suitable: BoolArray | None
) -> BoolArray:
    """Return bool[row, card]: True if the card may be used and has room for the share."""
    fits: BoolArray = remaining.free >= need
    if share.cores:
        fits &= remaining.free_cores >= share.cores
    if suitable is not None:
        fits &= suitable
    return fits


def place_shares(
    request: CardRequest,
    remaining: RemainingCards,
    total: IntArray,
    suitable: BoolArray | None,
    choice: Choice,
    typical: Mapping[CardDemand, int],
    cpu: Cpu | None,
) -> PlacedShares:
    """Choose cards with room for the shares of a pod, on every node; the largest share first.

    The search may miss a solution if several shares request compute or several cards. If `cpu` is
    None, `LeastFragmentation` chooses like `Binpack`.
    """
    now = RemainingCards(remaining.free.copy(), remaining.free_cores.copy(), remaining.free_cards)
    fits = np.ones(len(total), np.bool_)
    chosen: dict[int, IntArray] = {}
    rows = np.arange(len(total))[:, None]
    order = sorted(enumerate(request.shares), key=lambda entry: _size(entry[1]), reverse=True)
    for number, share in order:
        need = needed(share, total)
        ok = fitting(share, now, need, suitable)
        fits &= ok.any(axis=1) if share.cards == 1 else ok.sum(axis=1) >= share.cards
        preference = np.where(ok, _preference(now, total, need, choice, typical, cpu), _NOT)
        # Among equal cards, the lowest number is chosen.
        cards = _smallest(preference, min(share.cards, total.shape[1]))
        chosen[number] = cards
        now.free[rows, cards] -= need[rows, cards]
        if share.cores:
            now.free_cores[rows, cards] -= share.cores
    in_order = tuple(chosen[number] for number in range(len(request.shares)))
    return PlacedShares(fits, in_order, now)


def place_plain_share(
    free: IntArray, memory: int, choice: Literal["Binpack", "Spread", "FirstFit"]
) -> IntArray:
    """Return int64[row]: the card that `place_shares` chooses for a single share with memory only.

    On a node without room, the card has no meaning.
    """
    order: IntArray = -free if choice == "Spread" else free
    fits = free >= memory
    card: IntArray
    if choice == "FirstFit":
        card = np.argmax(fits, axis=1)
    else:
        card = np.argmin(np.where(fits, order, _NOT), axis=1)
    return card


def _size(share: CardShare) -> tuple[int, int, int, int]:
    return share.memory, share.permille, share.cores, share.cards


def _smallest(preference: IntArray, count: int) -> IntArray:
    columns: IntArray
    if count == 1:
        columns = np.argmin(preference, axis=1)[:, None]
    else:
        columns = np.argsort(preference, axis=1, kind="stable")[:, :count]
    return columns


def _preference(
    remaining: RemainingCards,
    total: IntArray,
    need: IntArray,
    choice: Choice,
    typical: Mapping[CardDemand, int],
    cpu: Cpu | None,
) -> IntArray:
    """Return int64[row, card]: the share gets the card with the smallest value."""
    free_after: IntArray = remaining.free - need
    match choice:
        case "Binpack":
            return free_after
        case "Spread":
            most_first: IntArray = -free_after
            return most_first
        case "FirstFit":
            return np.zeros_like(free_after)
        case "LeastFragmentation":
            if cpu is None:
                return free_after
            growth = growth_by_share(remaining, total, need, typical, cpu)
            preference: IntArray = growth * 2**41 + np.minimum(free_after, 2**40)
            return preference
