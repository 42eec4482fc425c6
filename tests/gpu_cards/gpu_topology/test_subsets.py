"""Finds the best-connected set of cards; a simple comparison of all sets gives the expected set."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.gpu_cards.gpu_topology.subsets import Subsets
from mooring.gpu_cards.model.cards import Links, link_rank

RANKS = [link_rank(code) for code in ("SYS", "NODE", "PIX", "NV1", "NV4")]


def quality(links: Links, cards: tuple[int, ...]) -> tuple[int, int]:
    """Return the rank of the set's weakest link, and the sum of its links' ranks."""
    pairs = [links[a][b] for a, b in combinations(cards, 2)]
    return (min(pairs, default=127), sum(pairs))


def cards_of(mask: int) -> tuple[int, ...]:
    return tuple(card for card in range(16) if mask >> card & 1)


@st.composite
def drawn_links(draw: st.DrawFn) -> Links:
    count = draw(st.integers(1, 7))
    pairs = {pair: draw(st.sampled_from(RANKS)) for pair in combinations(range(count), 2)}
    return tuple(
        tuple(0 if i == j else pairs[min(i, j), max(i, j)] for j in range(count))
        for i in range(count)
    )


@settings(max_examples=200, deadline=None)
@given(links=drawn_links(), free=st.integers(0, 127), wanted=st.integers(1, 8))
def test_no_set_of_free_cards_is_better_connected_than_the_chosen_one(
    links: Links, free: int, wanted: int
) -> None:
    free &= (1 << len(links)) - 1
    chosen = Subsets(links, len(links)).best(free, wanted)
    sets = list(combinations(cards_of(free), wanted))
    if chosen is None:
        assert not sets
        return
    cards = cards_of(chosen)
    assert cards in sets
    assert quality(links, cards) == max(quality(links, each) for each in sets)


def pairs_in_fours() -> Links:
    """Return the links of two groups of four cards: NVLink inside, the system bus between them."""
    return tuple(
        tuple(0 if i == j else link_rank("NV4" if i // 4 == j // 4 else "SYS") for j in range(8))
        for i in range(8)
    )


def test_a_single_card_comes_from_the_group_that_is_broken_already() -> None:
    sets = Subsets(pairs_in_fours(), 8)
    assert sets.best(0b1111_0111, 1) in (0b001, 0b010, 0b100)
    assert sets.best(0b1101_1111, 1) in (0b0001_0000, 0b0100_0000, 0b1000_0000)


def test_two_cards_come_from_the_group_that_is_broken_already_if_they_are_linked_there() -> None:
    assert Subsets(pairs_in_fours(), 8).best(0b0011_1111, 2) == 0b0011_0000


def test_sixteen_cards_are_looked_at_exactly() -> None:
    """Only the cards 3, 5, 11 and 14 are connected by NVLink; the search must find these."""
    bridge = {(3, 14), (5, 11), (3, 5), (3, 11), (5, 14), (11, 14)}
    links = tuple(
        tuple(
            0 if i == j else link_rank("NV2" if (min(i, j), max(i, j)) in bridge else "PIX")
            for j in range(16)
        )
        for i in range(16)
    )
    assert cards_of(Subsets(links, 16).best(0xFFFF, 4) or 0) == (3, 5, 11, 14)
    assert Subsets(links, 16).best(0xFFFF, 16) == 0xFFFF


def test_without_a_matrix_any_free_cards_will_do() -> None:
    sets = Subsets((), 4)
    assert sets.best(0b1010, 2) == 0b1010
    assert sets.best(0b1010, 3) is None
    assert sets.weakest_link(0b1010) == 0
    assert sets.quality(0b1010) == 0
