from typing import Any

import pytest

from dra.objects import (
    ALL_NODES,
    PER_DEVICE,
    consumption,
    counter_set,
    device,
    on_node,
    resource_slice,
    selected_by,
)
from mooring.claims.model.resource_slices import parse_resource_slice
from mooring.claims.plugin.pools import Inventory, Pool, pools_of_node
from mooring.model.kubernetes_rules import KUBERNETES_RULES

OLD, NEW = KUBERNETES_RULES["1.36"], KUBERNETES_RULES["1.37"]


def pools(*slices: dict[str, Any], node: str = "n0", rules: Any = NEW, **labels: str) -> list[Pool]:
    inventory = Inventory(map(parse_resource_slice, slices), rules)
    return pools_of_node(inventory, node, labels, rules)


def devices(pool: Pool) -> list[str]:
    return [each.name for part in pool.slices for each in part.devices]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (on_node("n0"), True),
        (on_node("n1"), False),
        (ALL_NODES, True),
        (selected_by("zone", "a"), True),
        (selected_by("zone", "b"), False),
        ({}, False),
    ],
)
def test_a_slice_is_relevant_by_its_node_or_selector(where: dict[str, Any], *, found: bool) -> None:
    assert bool(pools(resource_slice("s", where, [device("d")]), zone="a")) == found


def test_a_slice_with_nodes_per_device_is_relevant_if_one_of_them_is() -> None:
    here, there = device("d", **on_node("n0")), device("e", **on_node("n1"))
    assert pools(resource_slice("s", PER_DEVICE, [here, there]))
    assert not pools(resource_slice("s", PER_DEVICE, [there]))


def test_pools_are_ordered_by_driver_and_name_and_those_with_binding_conditions_are_last() -> None:
    slow = device("d", bindingConditions=["Ready"])
    found = pools(
        resource_slice("1", ALL_NODES, [slow], driver="a", pool="a"),
        resource_slice("2", ALL_NODES, [device("d")], driver="b", pool="b"),
        resource_slice("3", ALL_NODES, [device("d")], driver="b", pool="B"),
        resource_slice("4", ALL_NODES, [device("d")], driver="a", pool="z"),
    )
    names = [(pool.driver, pool.name) for pool in found]
    assert names == [("a", "z"), ("b", "B"), ("b", "b"), ("a", "a")]


def test_slices_are_ordered_by_name_and_devices_as_they_are_listed() -> None:
    found = pools(
        resource_slice("b", ALL_NODES, [device("2"), device("1")], count=2),
        resource_slice("a", ALL_NODES, [device("3")], count=2),
    )
    assert devices(found[0]) == ["3", "2", "1"]


def test_only_the_newest_generation_counts() -> None:
    found = pools(
        resource_slice("b", ALL_NODES, [device("new")], generation=2),
        resource_slice("a", ALL_NODES, [device("old")], generation=1),
    )
    assert devices(found[0]) == ["new"]


def test_a_pool_with_missing_slices_is_incomplete() -> None:
    assert pools(resource_slice("a", ALL_NODES, [device("d")], count=2))[0].incomplete


def test_slices_for_other_nodes_complete_a_pool() -> None:
    found = pools(
        resource_slice("a", on_node("n0"), [device("here")], count=2),
        resource_slice("b", on_node("n1"), [device("there")], count=2),
    )
    assert found[0].usable
    assert devices(found[0]) == ["here"]
    assert [each.name for each in found[0].others] == ["b"]


def test_a_pool_is_left_out_if_another_node_has_a_newer_generation_of_it() -> None:
    old = resource_slice("a", on_node("n0"), [device("d")], count=2)
    new = resource_slice("b", on_node("n1"), [device("d")], count=2, generation=2)
    assert pools(old, new) == []


def test_a_complete_generation_is_used_though_there_is_a_newer_one_elsewhere() -> None:
    old = resource_slice("a", on_node("n0"), [device("d")])
    new = resource_slice("b", on_node("n1"), [device("d")], generation=2)
    assert pools(old, new)[0].usable


@pytest.mark.parametrize(
    ("listed", "sets", "text"),
    [
        ([device("d"), device("d")], ["s"], "duplicate device name d"),
        ([device("d")], ["s", "s"], "duplicate counter set name s"),
        ([device("d", consumesCounters=[consumption("t", c="1")])], ["s"], "set t not found"),
        (
            [device("d", consumesCounters=[consumption("s", x="1")])],
            ["s"],
            "counter x not found in counter set s",
        ),
    ],
)
def test_a_pool_that_contradicts_itself_is_invalid(
    listed: list[dict[str, Any]], sets: list[str], text: str
) -> None:
    found = pools(
        resource_slice("a", ALL_NODES, listed, count=2),
        resource_slice(
            "b", ALL_NODES, count=2, counters=[counter_set(name, c="1") for name in sets]
        ),
    )
    assert not found[0].usable
    assert text in found[0].invalid


@pytest.mark.parametrize("rules", [OLD, NEW])
def test_counters_on_another_node_are_those_of_the_whole_pool(rules: Any) -> None:
    found = pools(
        resource_slice(
            "a",
            on_node("n0"),
            [device("d", consumesCounters=[consumption("s", c="1")])],
            count=2,
        ),
        resource_slice("b", on_node("n1"), count=2, counters=[counter_set("s", c="1")]),
        rules=rules,
    )
    assert found[0].usable
    assert set(found[0].counter_sets) == {"s"}


def test_counters_alone_make_a_pool_on_every_node_before_1_37() -> None:
    counters = resource_slice("b", on_node("n1"), counters=[counter_set("s", c="1")])
    assert len(pools(counters, rules=OLD)) == 1
    assert pools(counters, rules=NEW) == []
