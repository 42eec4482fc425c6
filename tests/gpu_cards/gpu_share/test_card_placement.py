"""Places shares on many nodes at once; a slow search on one node gives the expected results."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.gpu_cards.gpu_share.card_placement import (
    Choice,
    PlacedShares,
    needed,
    place_plain_share,
    place_shares,
)
from mooring.gpu_cards.model.cards import MAX_CARDS, CardRequest, CardShare
from mooring.gpu_cards.state.card_counts import RemainingCards


def placed(free: list[int], shares: list[CardShare], choice: Choice = "Binpack") -> PlacedShares:
    padded = np.array([free + [-1] * (MAX_CARDS - len(free))], np.int64)
    cores = np.where(padded >= 0, 100, -1)
    remaining = RemainingCards(padded, cores, np.zeros(1, np.int64))
    total = np.where(padded >= 0, 16, 0)
    suitable = np.ones(padded.shape, np.bool_)
    return place_shares(CardRequest(tuple(shares)), remaining, total, suitable, choice, {}, None)


def possible(free: list[int], shares: list[CardShare]) -> bool:
    """Return whether all shares fit on the cards, by trying all combinations."""
    flat = [
        (number, share.memory) for number, share in enumerate(shares) for _ in range(share.cards)
    ]
    for ways in product(range(len(free)), repeat=len(flat)):
        remaining = list(free)
        on: set[tuple[int, int]] = set()
        for (number, memory), card in zip(flat, ways, strict=True):
            remaining[card] -= memory
            on.add((number, card))
        if min(remaining) >= 0 and len(on) == len(flat):
            return True
    return False


@settings(max_examples=300, deadline=None)
@given(
    free=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    shares=st.lists(st.builds(CardShare, st.just(1), st.integers(1, 9)), min_size=1, max_size=2),
    choice=st.sampled_from(("Binpack", "FirstFit")),
)
def test_one_or_two_shares_find_a_place_exactly_where_there_is_one(
    free: list[int], shares: list[CardShare], choice: Choice
) -> None:
    assert bool(placed(free, shares, choice).fits[0]) == possible(free, shares)


@settings(max_examples=200, deadline=None)
@given(
    free=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    shares=st.lists(
        st.builds(CardShare, st.integers(1, 2), st.integers(1, 9)), min_size=1, max_size=3
    ),
    choice=st.sampled_from(("Binpack", "Spread", "FirstFit")),
)
def test_no_card_gives_more_than_it_has_and_a_share_is_on_distinct_cards(
    free: list[int], shares: list[CardShare], choice: Choice
) -> None:
    answer = placed(free, shares, choice)
    if not answer.fits[0]:
        return
    remaining = list(free)
    for share, cards in zip(shares, answer.assignment(0), strict=True):
        assert len(set(cards)) == share.cards
        for card in cards:
            remaining[card] -= share.memory
    assert min(remaining) >= 0
    assert remaining == answer.remaining.free[0, : len(free)].tolist()


def test_a_share_on_more_cards_than_a_node_can_have_fits_nowhere() -> None:
    assert not placed([16] * 16, [CardShare(17, 1)]).fits[0]


@pytest.mark.parametrize(("permille", "expected"), [(0, 5), (500, 8), (1, 1)])
def test_a_fraction_is_one_of_the_cards_own_memory(permille: int, expected: int) -> None:
    assert needed(CardShare(1, 5, permille), np.array([[16]])).tolist() == [[expected]]


@settings(max_examples=200, deadline=None)
@given(
    free=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    memory=st.integers(1, 9),
    choice=st.sampled_from(("Binpack", "Spread", "FirstFit")),
)
def test_the_short_way_for_a_plain_share_chooses_the_same_card(
    free: list[int], memory: int, choice: Choice
) -> None:
    answer = placed(free, [CardShare(1, memory)], choice)
    if answer.fits[0]:
        padded = np.array([free + [-1] * (MAX_CARDS - len(free))], np.int64)
        assert choice != "LeastFragmentation"
        assert place_plain_share(padded, memory, choice)[0] == answer.chosen[0][0, 0]
