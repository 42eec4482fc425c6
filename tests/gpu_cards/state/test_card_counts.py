"""Counts free amounts of cards, compared with a slow model."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devices.objects import gpu_node, share_pod, whole_pod
from mooring.gpu_cards.card_args import PRESETS
from mooring.gpu_cards.model.cards import MAX_CARDS
from mooring.gpu_cards.state.card_counts import CardDemand, Cards
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.testing.builders import cluster, pod, uid_of

GPUSHARE = PRESETS["gpushare"]
ROW = np.array([0], np.int64)


def books(*objects: dict[str, Any], preset: str = "gpushare") -> tuple[ClusterState, Cards]:
    state = cluster(*objects)
    return state, state.track_cards(PRESETS[preset])


def free(cards: Cards, row: int = 0) -> list[int]:
    """Return the free memory of each of the row's cards; -1 for an unusable card."""
    left = cards.free(np.array([row], np.int64))[0]
    return [int(amount) for amount in left[: len(cards.known(row))]]


def test_a_card_has_left_what_pods_do_not_have() -> None:
    _, cards = books(
        gpu_node("n", 2, 16),
        share_pod("a", 4, node="n", card=1),
        share_pod("b", 6, cores=30, node="n", card=1),
    )
    assert free(cards) == [16, 6]
    assert cards.remaining(ROW).free_cores[0][:2].tolist() == [100, 70]
    assert cards.free_cards(ROW).tolist() == [0b01]


def test_a_whole_card_has_nothing_left() -> None:
    _, cards = books(gpu_node("n", 4, 16), whole_pod("a", 2, node="n", on="1,3"))
    assert free(cards) == [16, 0, 16, 0]
    assert cards.free_cards(ROW).tolist() == [0b0101]


def test_a_pod_whose_cards_are_not_known_counts_where_it_fits_best_after_all_others() -> None:
    objects = [
        share_pod("a", 5, node="n"),
        share_pod("b", 10, node="n", card=1),
        gpu_node("n", 2, 16),
    ]
    for ordered in (objects, objects[::-1]):
        state, cards = books(*ordered)
        assert free(cards, state.nodes.row_of["n"]) == [16, 1]


def test_pods_whose_cards_are_not_known_are_counted_in_the_order_of_their_names() -> None:
    """In another order, the pod a would get a card alone, and the other card would have 1 free."""
    unknown = [share_pod(name, memory, node="n") for name, memory in (("a", 9), ("b", 8), ("c", 7))]
    for ordered in (unknown, unknown[::-1]):
        _, cards = books(gpu_node("n", 2, 16), *ordered)
        assert free(cards) == [0, 8]


@pytest.mark.parametrize("card", ["x", "-1", "1,1", "99999", "0;1", "", "0" * 5000])
def test_an_annotation_that_cannot_be_read_counts_as_none(card: str) -> None:
    _, cards = books(gpu_node("n", 2, 16), share_pod("a", 5, node="n", card=card))
    assert sorted(free(cards)) == [11, 16]
    assert [owner.known for owner in cards.owners(0)] == [False]


def test_a_pod_on_a_card_that_its_node_does_not_have_counts_where_it_fits_best() -> None:
    held = share_pod("a", 5, node="n", card=2)
    state, cards = books(gpu_node("n", 2, 16), held)
    assert free(cards) == [11, 16]
    state.put(Kind.NODE, "n", parse_node(gpu_node("n", 3, 16)))
    assert free(cards) == [16, 16, 11]


def test_an_unhealthy_card_is_not_used_and_its_books_are_right_when_it_comes_back() -> None:
    held = share_pod("a", 5, node="n", card=1)
    state, cards = books(gpu_node("n", 3, 16, unhealthy="1"), held)
    assert free(cards) == [16, -1, 16]
    state.put(Kind.NODE, "n", parse_node(gpu_node("n", 3, 16)))
    assert free(cards) == [16, 11, 16]


def test_of_lost_cards_that_have_no_name_the_last_without_a_pod_is_not_used() -> None:
    held = share_pod("a", 5, node="n", card=2)
    _, cards = books(gpu_node("n", 3, 16, lost=1), held)
    assert free(cards) == [16, -1, 11]
    _, cards = books(gpu_node("n", 3, 16, lost=1, unhealthy="0"), held)
    assert free(cards) == [-1, 16, 11]


def test_cards_beyond_the_sixteenth_are_left_alone() -> None:
    _, cards = books(gpu_node("n", 20, 8))
    assert len(free(cards)) == MAX_CARDS


def test_overcommitted_cards_are_told() -> None:
    _, cards = books(
        gpu_node("n", 2, 8),
        share_pod("a", 5, node="n", card=1),
        share_pod("b", 5, node="n", card=1),
    )
    assert cards.overcommitted(0) == [1]
    assert free(cards) == [8, 0]


def test_pods_that_come_before_their_node_are_counted_when_it_comes() -> None:
    state, cards = books(share_pod("a", 5, node="n", card=0))
    state.put(Kind.NODE, "n", parse_node(gpu_node("n", 1, 8)))
    assert free(cards, state.nodes.row_of["n"]) == [3]
    state.delete(Kind.NODE, "n")
    state.put(Kind.NODE, "n", parse_node(gpu_node("n", 2, 8)))
    assert free(cards, state.nodes.row_of["n"]) == [3, 8]


def test_a_request_that_cannot_be_read_counts_as_none() -> None:
    bad = pod("a", node="n", annotations={"gpu-fraction": "a lot"})
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "100"}
    _, cards = books(gpu_node("n", 1, labels=labels), bad, preset="kai")
    assert free(cards) == [100]


def test_typical_demand_follows_the_pods_from_time_to_time_if_a_plugin_reads_it() -> None:
    state, cards = books(gpu_node("n", 16, 64))
    version = state.nodes.set_version
    for index in range(20):
        state.put(Kind.POD, uid_of(f"o{index}"), parse_pod(pod(f"o{index}", node="n")))
    assert state.track_cards(GPUSHARE, demand=True) is cards
    assert not cards.typical
    assert state.nodes.set_version == version
    version = state.nodes.set_version
    for index in range(16):
        state.put(Kind.POD, uid_of(f"p{index}"), parse_pod(share_pod(f"p{index}", 4, node="n")))
    assert cards.typical == {CardDemand(1, 4): 16}
    assert state.nodes.set_version == version + 1


NODES = ("n0", "n1")
PODS = tuple(f"p{i}" for i in range(4))
drawn_nodes = st.builds(
    gpu_node,
    st.sampled_from(NODES),
    st.sampled_from((3, 2, 3, 1, 0)),
    st.sampled_from((16, 8)),
    unhealthy=st.sampled_from(("", "", "0", "1,2", "rubbish")),
    lost=st.sampled_from((0, 0, 0, 1)),
)
drawn_pods = st.one_of(
    st.builds(
        share_pod,
        st.sampled_from(PODS),
        st.integers(1, 16),
        cores=st.sampled_from((0, 30, 80)),
        card=st.sampled_from((0, 1, 2, None, None, "junk")),
        node=st.sampled_from(NODES),
    ),
    st.builds(
        whole_pod,
        st.sampled_from(PODS),
        st.integers(1, 3),
        on=st.sampled_from((None, "0", "0,1", "1,2", "0,1,2")),
        node=st.sampled_from(NODES),
    ),
)


def everything(state: ClusterState, cards: Cards) -> dict[str, Any]:
    """Return all counts of each node, by the node's name."""
    return {
        name: (
            free(cards, row),
            cards.remaining(np.array([row])).free_cores[0].tolist(),
            cards.free_cards(np.array([row])).tolist(),
            [tuple(owner) for owner in cards.owners(row)],
        )
        for name, row in state.nodes.row_of.items()
    }


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            drawn_pods,
            drawn_pods,
            drawn_nodes,
            st.tuples(st.just("pod gone"), st.sampled_from(PODS)),
            st.tuples(st.just("node gone"), st.sampled_from(NODES)),
            st.just(("a row is counted", "")),
        ),
        max_size=25,
    ),
    tried=drawn_pods,
    removed=st.sets(st.sampled_from(PODS)),
    begun=st.integers(0, 12),
    looked_at=st.booleans(),
)
def test_books_are_those_of_a_restart_and_a_trial_leaves_no_trace(
    steps: list[Any], tried: dict[str, Any], removed: set[str], begun: int, *, looked_at: bool
) -> None:
    """Counts that begin at step `begun` equal counts that begin with the first step.

    If `looked_at` is True, the trial counts rows that were not counted before.
    """
    first = gpu_node("n0", 3, 16)
    state = cluster(first)
    cards: Cards | None = None
    objects: dict[tuple[str, str], dict[str, Any]] = {("Node", "n0"): first}
    for number, step in enumerate(steps):
        if number == begun:
            cards = state.track_cards(GPUSHARE)
        if step == ("a row is counted", ""):
            if cards is not None:
                cards.count_row()
        elif isinstance(step, tuple):
            kind, name = (
                (Kind.POD, uid_of(step[1])) if step[0] == "pod gone" else (Kind.NODE, step[1])
            )
            state.delete(kind, name)
            objects.pop((kind.value, step[1]), None)
        else:
            name = step["metadata"]["name"]
            if step["kind"] == "Node":
                state.put(Kind.NODE, name, parse_node(step))
            else:
                state.put(Kind.POD, uid_of(name), parse_pod(step))
            objects[step["kind"], name] = step
    cards = cards or state.track_cards(GPUSHARE)

    anew = cluster(*objects.values())
    before = everything(anew, anew.track_cards(GPUSHARE))

    row = state.nodes.row_of.get("n0")
    if row is not None and state.nodes.nodes[row] is not None:
        with state.trial() as trial:
            for name in sorted(removed):
                trial.remove(uid_of(name))
            tried["metadata"] |= {"name": "tried", "uid": "tried"}
            trial.add(parse_pod(tried), row)
            if looked_at:
                everything(state, cards)
    assert everything(state, cards) == before


def test_typical_demand_is_that_of_all_pods_however_few_nodes_were_looked_at() -> None:
    state, cards = books(
        gpu_node("n", 2, 16),
        gpu_node("m", 2, 16),
        share_pod("a", 4, node="n"),
        share_pod("b", 4, node="m"),
    )
    assert state.track_cards(GPUSHARE, demand=True) is cards
    assert free(cards) == [12, 16]
    assert cards.uncounted == 1
    assert cards.typical == {CardDemand(1, 4): 2}
    assert not cards.uncounted


@settings(max_examples=150, deadline=None)
@given(
    count=st.integers(1, 4),
    shares=st.lists(
        st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(0, 50)), max_size=8
    ),
)
def test_what_is_left_is_the_total_without_every_share_that_names_the_card(
    count: int, shares: list[tuple[int, int, int]]
) -> None:
    shares = [share for share in shares if share[1] < count]
    _, cards = books(
        gpu_node("n", count, 16),
        *(
            share_pod(f"p{i}", memory, cores=cores, card=card, node="n")
            for i, (memory, card, cores) in enumerate(shares)
        ),
    )
    for card in range(count):
        taken = sum(memory for memory, on, _ in shares if on == card)
        cores = sum(cores for _, on, cores in shares if on == card)
        assert free(cards)[card] == max(0, 16 - taken)
        assert cards.remaining(ROW).free_cores[0][card] == max(0, 100 - cores)
