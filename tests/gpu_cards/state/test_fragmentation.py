"""The measure of fragmentation, compared with its definition card by card."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.gpu_cards.model.cards import MAX_CARDS
from mooring.gpu_cards.state.card_counts import CardDemand, RemainingCards
from mooring.gpu_cards.state.fragmentation import (
    Cpu,
    growth_by_cpu,
    growth_by_share,
    growth_by_whole_cards,
)

TOTAL = 10


def unusable(free: list[int], demand: CardDemand, cpu: int) -> int:
    """Return how much free GPU of a node the class cannot use, in thousandths of a card."""
    serves = [
        remaining == TOTAL if demand.memory == 0 else remaining >= demand.memory
        for remaining in free
    ]
    usable = sum(remaining * 100 for remaining, ok in zip(free, serves, strict=True) if ok)
    if sum(serves) < demand.cards:
        usable = 0
    if demand.cpu:
        of_one_request = demand.cards * (demand.memory or TOTAL) * 100
        usable = min(usable, max(0, cpu) // demand.cpu * of_one_request)
    return sum(remaining * 100 for remaining in free) - usable


def fragmentation(free: list[int], typical: dict[CardDemand, int], cpu: int) -> int:
    return sum(weight * unusable(free, demand, cpu) for demand, weight in typical.items())


def columns(
    free: list[int],
) -> tuple[RemainingCards, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    padded = np.array([free + [-1] * (MAX_CARDS - len(free))], np.int64)
    mask = sum(1 << card for card, remaining in enumerate(free) if remaining == TOTAL)
    remaining = RemainingCards(padded, np.where(padded >= 0, 100, -1), np.array([mask], np.int64))
    return remaining, np.where(padded >= 0, TOTAL, 0)


CPUS = st.sampled_from((0, 2, 4))
demands = st.dictionaries(
    st.one_of(
        st.builds(CardDemand, st.just(1), st.integers(1, TOTAL), CPUS),
        st.builds(CardDemand, st.integers(1, 4), st.just(0), CPUS),
    ),
    st.integers(1, 5),
    min_size=1,
    max_size=4,
)
cards = st.lists(st.integers(0, TOTAL), min_size=1, max_size=5)


@settings(max_examples=300, deadline=None)
@given(free=cards, typical=demands, need=st.integers(1, TOTAL), cpu=st.integers(0, 5), taken=CPUS)
def test_a_share_lets_fragmentation_grow_by_what_the_definition_says(
    free: list[int], typical: dict[CardDemand, int], need: int, cpu: int, taken: int
) -> None:
    remaining, total = columns(free)
    growth = growth_by_share(
        remaining, total, np.full(total.shape, need), typical, Cpu(np.array([cpu]), taken)
    )
    for card, amount in enumerate(free):
        if amount >= need:
            after = [*free[:card], amount - need, *free[card + 1 :]]
            expected = fragmentation(after, typical, cpu - taken) - fragmentation(
                free, typical, cpu
            )
            assert growth[0, card] == expected // sum(typical.values())


@settings(max_examples=200, deadline=None)
@given(free=cards, typical=demands, wanted=st.integers(0, 3), cpu=st.integers(0, 5), taken=CPUS)
def test_whole_cards_let_fragmentation_grow_by_what_the_definition_says(
    free: list[int], typical: dict[CardDemand, int], wanted: int, cpu: int, taken: int
) -> None:
    remaining, total = columns(free)
    chosen = remaining.untouched & (np.cumsum(remaining.untouched, axis=1) <= wanted)
    growth = growth_by_whole_cards(remaining, total, chosen, typical, Cpu(np.array([cpu]), taken))
    after = [0 if chosen[0, card] else amount for card, amount in enumerate(free)]
    expected = fragmentation(after, typical, cpu - taken) - fragmentation(free, typical, cpu)
    assert growth[0] == expected // sum(typical.values())


def test_without_any_demand_nothing_is_fragmented() -> None:
    remaining, total = columns([5, 10])
    cpu = Cpu(np.array([1000]), 500)
    assert not growth_by_share(remaining, total, total, {}, cpu).any()
    assert not growth_by_cpu(remaining, total, {}, cpu).any()


def test_a_pod_without_cards_strands_those_whose_cpu_it_takes() -> None:
    remaining, total = columns([10, 10])
    typical = {CardDemand(1, 0, 4): 1}
    assert growth_by_cpu(remaining, total, typical, Cpu(np.array([4]), 1)).tolist() == [1000]
    assert growth_by_cpu(remaining, total, typical, Cpu(np.array([5]), 1)).tolist() == [0]
    assert growth_by_cpu(remaining, total, typical, Cpu(np.array([8]), 5)).tolist() == [2000]
