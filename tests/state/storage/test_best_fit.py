from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mooring.model.node import ZONE
from mooring.model.selectors import NodeSelector, parse_node_selector
from mooring.state.snapshot import Snapshot
from mooring.state.storage.best_fit import BEYOND, BestFitIndex
from mooring.state.storage.node_affinities import reachable
from mooring.testing.builders import cluster, node

STATE = cluster(*(node(f"n{i}", zone="abc"[i % 3]) for i in range(5)))
NODES = Snapshot(STATE).nodes


@dataclass(frozen=True, slots=True)
class Thing:
    """An item: `kind` are its traits."""

    size: int
    name: str
    affinity: NodeSelector | None
    kind: str


def in_zones(*zones: str) -> NodeSelector | None:
    term: dict[str, Any] = {
        "matchExpressions": [{"key": ZONE, "operator": "In", "values": [*zones]}]
    }
    return parse_node_selector({"nodeSelectorTerms": [term]})


AFFINITIES = (None, in_zones("a"), in_zones("b"), in_zones("c"), in_zones("a", "b"), NodeSelector())
THINGS = st.builds(
    Thing,
    st.integers(0, 4),
    st.sampled_from([f"t{i}" for i in range(12)]),
    st.sampled_from(AFFINITIES),
    st.sampled_from(("plain", "fancy")),
)


def stocked(*things: Thing) -> BestFitIndex[Thing]:
    stock: BestFitIndex[Thing] = BestFitIndex(STATE.nodes)
    for thing in things:
        stock.add(thing.size, thing.name, thing.affinity, thing.kind, thing)
    return stock


def plain(thing: Thing) -> bool:
    return thing.kind == "plain"


def smallest(stock: BestFitIndex[Thing], size: int, depth: int) -> list[list[Thing]]:
    """Per node, the items that are found for it, smallest first."""
    found = stock.by_row(stock.large_enough(size, plain), NODES.rows, depth)
    per_node = np.array([*found]).reshape(-1, len(NODES)).T
    return [[stock.items[at] for at in sorted(row) if at != BEYOND] for row in per_node.tolist()]


def expected(things: list[Thing], size: int) -> list[list[Thing]]:
    """Per node, all that do, smallest first and then by name."""
    fitting = sorted(
        (t for t in things if t.size >= size and plain(t)), key=lambda t: (t.size, t.name)
    )
    masks = [reachable(NODES, thing.affinity) for thing in fitting]
    return [
        [thing for thing, mask in zip(fitting, masks, strict=True) if mask[i]]
        for i in range(len(NODES))
    ]


def check(stock: BestFitIndex[Thing], things: list[Thing], size: int, depth: int) -> None:
    for found, all_that_do in zip(
        smallest(stock, size, depth), expected(things, size), strict=True
    ):
        assert found[:depth] == all_that_do[:depth]
        assert all(thing in all_that_do for thing in found)


@settings(deadline=None)
@given(st.lists(THINGS, unique_by=lambda t: t.name), st.integers(0, 5), st.integers(1, 3))
def test_the_smallest_that_do_are_found_for_each_node(
    things: list[Thing], size: int, depth: int
) -> None:
    check(stocked(*things), things, size, depth)


class StockMachine(RuleBasedStateMachine):
    """Items come and go between questions."""

    def __init__(self) -> None:
        super().__init__()
        self.stock = stocked()
        self.things: dict[str, Thing] = {}

    @rule(thing=THINGS)
    def an_item_comes_or_is_replaced(self, thing: Thing) -> None:
        self.an_item_goes(thing.name)
        self.stock.add(thing.size, thing.name, thing.affinity, thing.kind, thing)
        self.things[thing.name] = thing

    @rule(name=st.sampled_from([f"t{i}" for i in range(12)]))
    def an_item_goes(self, name: str) -> None:
        gone = self.things.pop(name, None)
        if gone is not None:
            self.stock.remove(gone.size, name)

    @rule(size=st.integers(0, 5), depth=st.integers(1, 3))
    def it_is_asked(self, size: int, depth: int) -> None:
        check(self.stock, list(self.things.values()), size, depth)

    @invariant()
    def it_holds_what_came_and_did_not_go(self) -> None:
        held = sorted(self.things.values(), key=lambda t: (t.size, t.name))
        assert self.stock.items == held
        assert len(self.stock) == len(held)


StockMachine.TestCase.settings = settings(deadline=None)
TestStock = StockMachine.TestCase


def test_places_where_nothing_is_left_are_forgotten() -> None:
    many = [Thing(1, f"t{i}", in_zones(f"z{i}"), "plain") for i in range(200)]
    last = Thing(1, "last", in_zones("a"), "plain")
    stock = stocked(*many, last)
    for thing in many:
        stock.remove(thing.size, thing.name)
    assert len(stock._places) < 100
    check(stock, [last], 1, 1)


def test_many_changes_between_two_questions_are_all_seen() -> None:
    stock = stocked()
    check(stock, [], 0, 1)
    things = [Thing(i, f"t{i}", in_zones("abc"[i % 3]), "plain") for i in range(200)]
    for thing in things:
        stock.add(thing.size, thing.name, thing.affinity, thing.kind, thing)
    check(stock, things, 50, 2)


def test_removing_what_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="not in list"):
        stocked(Thing(1, "t1", None, "plain")).remove(1, "t2")
