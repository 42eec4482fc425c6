from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mooring.model.node import ZONE
from mooring.model.selectors import NodeSelector, parse_node_selector
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.testing.builders import cluster, node
from mooring.volumes.state.best_fit import NO_POSITION, BestFitIndex
from mooring.volumes.state.node_affinities import check_node_affinity
from node_selectors import expression, node_selector, term

STATE = cluster(*(node(f"n{i}", zone="abc"[i % 3]) for i in range(5)))
NODES = ClusterView(STATE).nodes


@dataclass(frozen=True, slots=True)
class Thing:
    """An item of the index; its `mode` is its traits."""

    size: int
    name: str
    affinity: NodeSelector | None
    mode: str


def in_zones(*zones: str) -> NodeSelector | None:
    return parse_node_selector(node_selector(term(expression(ZONE, "In", *zones))))


AFFINITIES = (None, in_zones("a"), in_zones("b"), in_zones("c"), in_zones("a", "b"), NodeSelector())
THINGS = st.builds(
    Thing,
    st.integers(0, 4),
    st.sampled_from([f"t{i}" for i in range(12)]),
    st.sampled_from(AFFINITIES),
    st.sampled_from(("plain", "fancy")),
)


def index_of(*things: Thing) -> BestFitIndex[Thing]:
    index: BestFitIndex[Thing] = BestFitIndex(STATE.nodes)
    for thing in things:
        index.add(thing.size, thing.name, thing.affinity, thing.mode, thing, 0)
    return index


def plain(thing: Thing) -> bool:
    return thing.mode == "plain"


def suitable_from(index: BestFitIndex[Thing], size: int) -> IntArray:
    positions = np.arange(index.at_least(size), len(index))
    return index.suitable(positions, index.largest_of_traits(), plain)


def smallest(index: BestFitIndex[Thing], size: int, count: int) -> list[list[Thing]]:
    """Return the items found for each node, the smallest first."""
    found = index.smallest_on(suitable_from(index, size), NODES.rows, count)
    per_node = np.array([*found]).reshape(-1, len(NODES)).T
    return [
        [index.items[at] for at in sorted(row) if at != NO_POSITION] for row in per_node.tolist()
    ]


def expected(things: list[Thing], size: int) -> list[list[Thing]]:
    """Return the suitable items of each node, sorted by size and then by name."""
    fitting = sorted(
        (t for t in things if t.size >= size and plain(t)), key=lambda t: (t.size, t.name)
    )
    masks = [check_node_affinity(NODES, thing.affinity) for thing in fitting]
    return [
        [thing for thing, mask in zip(fitting, masks, strict=True) if mask[i]]
        for i in range(len(NODES))
    ]


def check(index: BestFitIndex[Thing], things: list[Thing], size: int, count: int) -> None:
    for found, suitable in zip(smallest(index, size, count), expected(things, size), strict=True):
        assert found[:count] == suitable[:count]
        assert all(thing in suitable for thing in found)


@settings(deadline=None)
@given(st.lists(THINGS, unique_by=lambda t: t.name), st.integers(0, 5), st.integers(1, 3))
def test_the_smallest_suitable_items_are_found_for_each_node(
    things: list[Thing], size: int, count: int
) -> None:
    check(index_of(*things), things, size, count)


@settings(deadline=None)
@given(st.lists(THINGS, unique_by=lambda t: t.name))
def test_the_largest_item_is_found_for_each_node(things: list[Thing]) -> None:
    index = index_of(*things)
    masks = [check_node_affinity(NODES, thing.affinity) for thing in index.items]
    positions = [
        max((at for at, mask in enumerate(masks) if mask[i]), default=-1) for i in range(len(NODES))
    ]
    assert index.largest_on(NODES.rows).tolist() == positions


class IndexMachine(RuleBasedStateMachine):
    """Adds and removes items in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.index = index_of()
        self.things: dict[str, Thing] = {}

    @rule(thing=THINGS)
    def an_item_comes_or_is_replaced(self, thing: Thing) -> None:
        self.an_item_goes(thing.name)
        self.index.add(thing.size, thing.name, thing.affinity, thing.mode, thing, 0)
        self.things[thing.name] = thing

    @rule(name=st.sampled_from([f"t{i}" for i in range(12)]))
    def an_item_goes(self, name: str) -> None:
        gone = self.things.pop(name, None)
        if gone is not None:
            self.index.remove(gone.size, name)

    @rule(size=st.integers(0, 5), count=st.integers(1, 3))
    def the_smallest_are_right(self, size: int, count: int) -> None:
        check(self.index, list(self.things.values()), size, count)

    @invariant()
    def it_has_the_items_that_were_added_and_not_removed(self) -> None:
        held = sorted(self.things.values(), key=lambda t: (t.size, t.name))
        assert self.index.items == held
        assert len(self.index) == len(held)


IndexMachine.TestCase.settings = settings(deadline=None)
TestIndex = IndexMachine.TestCase


def test_affinities_that_no_item_has_any_more_are_dropped() -> None:
    many = [Thing(1, f"t{i}", in_zones(f"z{i}"), "plain") for i in range(200)]
    last = Thing(1, "last", in_zones("a"), "plain")
    index = index_of(*many, last)
    for thing in many:
        index.remove(thing.size, thing.name)
    assert len(index._affinities) < 100
    check(index, [last], 1, 1)


def test_many_changes_between_two_reads_are_all_seen() -> None:
    index = index_of()
    check(index, [], 0, 1)
    things = [Thing(i, f"t{i}", in_zones("abc"[i % 3]), "plain") for i in range(200)]
    for thing in things:
        index.add(thing.size, thing.name, thing.affinity, thing.mode, thing, 0)
    check(index, things, 50, 2)


def test_removing_an_unknown_item_is_an_error() -> None:
    with pytest.raises(ValueError, match="not in list"):
        index_of(Thing(1, "t1", None, "plain")).remove(1, "t2")


def test_items_are_found_after_many_others_with_traits_of_their_own_have_gone() -> None:
    kept = [Thing(1, "a", in_zones("a"), "plain"), Thing(2, "b", in_zones("b"), "fancy")]
    index = index_of(*kept)
    for number in range(200):
        index.add(0, f"gone{number}", in_zones("c"), f"mode{number}", kept[0], 0)
        index.remove(0, f"gone{number}")
    assert index.items == kept
    assert suitable_from(index, 0).tolist() == [0]
    assert smallest(index, 0, 1) == smallest(index_of(*kept), 0, 1)
