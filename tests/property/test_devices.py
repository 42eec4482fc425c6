"""Random mixes of shares and whole cards, placed by the engine and checked by adding up."""

from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deciding import Deciding
from devices.objects import gpu_node, share_pod, whole_pod
from mooring.engine.binding import assume_and_reserve
from mooring.engine.outcome import FitError, ScheduleResult
from mooring.model.devices import link_rank
from mooring.model.pod import parse_pod

PLUGINS = {"multiPoint": {"enabled": [{"name": "GPUShare"}, {"name": "GPUTopology"}]}}
MEMORY = 16

Wanted = tuple[str, int]
"""A share of so much memory, or so many whole cards."""


@st.composite
def drawn_nodes(draw: st.DrawFn) -> list[tuple[int, dict[tuple[int, int], str]]]:
    """Nodes as their number of cards and the codes of the links between them."""
    nodes = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 6))
        codes = st.sampled_from(("SYS", "NODE", "PIX", "NV2", "NV4"))
        nodes.append((count, {pair: draw(codes) for pair in combinations(range(count), 2)}))
    return nodes


def raw_node(index: int, count: int, links: dict[tuple[int, int], str]) -> dict[str, Any]:
    matrix = [
        ["X" if i == j else links[min(i, j), max(i, j)] for j in range(count)] for i in range(count)
    ]
    return gpu_node(f"n{index}", count, MEMORY, links=matrix)


def raw_pod(index: int, wanted: Wanted) -> dict[str, Any]:
    kind, amount = wanted
    make = share_pod if kind == "share" else whole_pod
    return make(f"p{index}", amount)


def quality(cards: tuple[int, ...], links: dict[tuple[int, int], str]) -> tuple[int, int]:
    ranks = [link_rank(links[pair]) for pair in combinations(sorted(cards), 2)]
    return (min(ranks, default=0), sum(ranks))


@settings(max_examples=120, deadline=None)
@given(
    nodes=drawn_nodes(),
    wanted=st.lists(
        st.one_of(
            st.tuples(st.just("share"), st.integers(1, MEMORY)),
            st.tuples(st.just("whole"), st.integers(1, 4)),
        ),
        max_size=20,
    ),
    gone=st.sets(st.integers(0, 19)),
)
def test_no_card_is_overcommitted_and_no_set_is_worse_connected_than_the_best_free_one(
    nodes: list[tuple[int, dict[tuple[int, int], str]]], wanted: list[Wanted], gone: set[int]
) -> None:
    deciding = Deciding(
        *(raw_node(i, count, links) for i, (count, links) in enumerate(nodes)), plugins=PLUGINS
    )
    used = {f"n{i}": [0] * count for i, (count, _) in enumerate(nodes)}
    links_of = {f"n{i}": links for i, (_, links) in enumerate(nodes)}
    taken: dict[int, tuple[str, tuple[int, ...], int]] = {}
    for index, (kind, amount) in enumerate(wanted):
        raw = raw_pod(index, (kind, amount))
        free = {name: [c for c, u in enumerate(cards) if not u] for name, cards in used.items()}
        outcome = deciding.outcome(raw)
        fits = any(
            len(free[name]) >= amount if kind == "whole" else min(cards) + amount <= MEMORY
            for name, cards in used.items()
        )
        assert isinstance(outcome, ScheduleResult) == fits
        if isinstance(outcome, ScheduleResult):
            pod = parse_pod(raw)
            assume_and_reserve(pod, outcome.row, deciding.pipeline, deciding.state).pop_all()
            placed = deciding.state.pods.get(pod.key)
            assert placed is not None
            assert placed.cards is not None
            ((*cards,),) = placed.cards[1]
            if kind == "whole":
                assert set(cards) <= set(free[outcome.node])
                links = links_of[outcome.node]
                best = max(
                    quality(each, links) for each in combinations(free[outcome.node], amount)
                )
                assert quality(tuple(cards), links) == best
            for card in cards:
                used[outcome.node][card] += MEMORY if kind == "whole" else amount
                assert used[outcome.node][card] <= MEMORY
            taken[index] = (outcome.node, tuple(cards), MEMORY if kind == "whole" else amount)
        if index in gone and index in taken:
            node, given_back, each = taken[index]
            deciding.state.forget(parse_pod(raw))
            for card in given_back:
                used[node][card] -= each


def test_a_share_preempts_the_pod_that_has_the_card_and_no_other() -> None:
    """Which card a victim frees counts, not only how much of the node."""
    deciding = Deciding(
        gpu_node("n", 2, MEMORY),
        share_pod("small", 2, node="n", card=0),
        share_pod("large", 12, node="n", card=1),
        share_pod("beside", 12, node="n", card=0, priority=10),
        plugins=PLUGINS,
    )
    outcome = deciding.outcome(share_pod("urgent", 8, priority=5))
    assert isinstance(outcome, FitError)
    assert outcome.nomination is not None
    assert [victim.name for victim in outcome.nomination.victims] == ["large"]


def test_two_nominated_pods_are_not_promised_the_same_card() -> None:
    held = share_pod("held", 12, node="n", card=0)
    deciding = Deciding(gpu_node("n", 1, MEMORY), held, plugins=PLUGINS)
    deciding.nominate(share_pod("first", 4, priority=5), "n")
    assert isinstance(deciding.outcome(share_pod("second", 4)), FitError)
    assert isinstance(deciding.outcome(share_pod("first", 4, priority=5)), ScheduleResult)
