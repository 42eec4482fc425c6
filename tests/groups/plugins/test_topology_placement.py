"""The topology domains in which a group may be placed."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from driving import driven
from mooring.framework.placements import Placement
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Unschedulable
from mooring.groups.model.pod_group import GroupFormat, GroupSource
from mooring.groups.plugins.topology_placement import TopologyPlacementGenerator
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import (
    cluster,
    hyper_node,
    node,
    pod,
    pod_group,
    volcano_pod_group,
)
from mooring.testing.fakes import handle

KEYS = "scheduling.mooring.dev/topology-keys"
MODE = "scheduling.mooring.dev/topology-mode"


def nodes() -> list[dict[str, Any]]:
    return [
        node("a1", cpu="8", labels={"rack": "1", "block": "a"}),
        node("a2", cpu="2", labels={"rack": "2", "block": "a"}),
        node("b3", cpu="4", labels={"rack": "3", "block": "b"}),
        node("elsewhere"),
    ]


def placements(state: ClusterState) -> tuple[Placement, ...] | Unschedulable:
    (group,) = state.pod_groups
    cluster_view = ClusterView(state)
    generator = TopologyPlacementGenerator(NoArgs(), handle(state))
    parent = Placement(cluster_view.nodes_in_order)
    return generator.generate_placements(group, parent, cluster_view)


def described(state: ClusterState) -> list[tuple[int, str, str, list[str]]]:
    found = placements(state)
    assert not isinstance(found, Unschedulable)
    return [(p.tier, p.key, p.value, sorted(_names(state, p.rows.tolist()))) for p in found]


def _names(state: ClusterState, rows: Iterable[int]) -> list[str]:
    return [state.nodes.names[row] for row in rows]


def test_a_group_without_a_constraint_may_be_anywhere() -> None:
    state = cluster(*nodes(), pod_group("g", 2))
    assert described(state) == [(0, "", "", ["a1", "a2", "b3", "elsewhere"])]


def test_each_value_of_the_label_is_a_placement_the_fullest_first() -> None:
    state = cluster(*nodes(), pod_group("g", 2, topology=["rack"]))
    assert described(state) == [
        (0, "rack", "2", ["a2"]),
        (0, "rack", "3", ["b3"]),
        (0, "rack", "1", ["a1"]),
    ]


def test_wider_domains_come_after_all_tighter_ones() -> None:
    state = cluster(*nodes(), pod_group("g", 2, annotations={KEYS: "block,rack"}))
    assert [(tier, value) for tier, _, value, _ in described(state)] == [
        (0, "2"),
        (0, "3"),
        (0, "1"),
        (1, "b"),
        (1, "a"),
    ]


def test_a_preferred_constraint_ends_with_all_nodes() -> None:
    annotations = {KEYS: "block", MODE: "Preferred"}
    state = cluster(*nodes(), pod_group("g", 2, annotations=annotations))
    assert described(state)[-1] == (1, "", "", ["a1", "a2", "b3", "elsewhere"])


def test_only_the_domain_of_the_members_on_a_node_is_left() -> None:
    group = pod_group("g", 2, topology=["rack"])
    state = cluster(*nodes(), group, pod("m0", group="g", node="b3"))
    assert described(state) == [(0, "rack", "3", ["b3"])]


def test_members_in_several_domains_leave_none() -> None:
    placed = [pod("m0", group="g", node="b3"), pod("m1", group="g", node="a1")]
    state = cluster(*nodes(), pod_group("g", 2, topology=["rack"]), *placed)
    assert placements(state) == Unschedulable(
        "no topology domain of all members that are placed already: rack"
    )


def slowly_described(
    raws: Iterable[dict[str, Any]], keys: list[str], order: list[str], occupied: dict[str, int]
) -> list[tuple[int, str, str, list[str]]]:
    """Return the expected result of `described`, computed node by node.

    `order` has the names of all nodes in order. `occupied` has the requested cpus of each node that
    has members of the group.
    """
    labels = {raw["metadata"]["name"]: raw["metadata"].get("labels", {}) for raw in raws}
    free = {
        raw["metadata"]["name"]: int(raw["status"]["allocatable"]["cpu"])
        - occupied.get(raw["metadata"]["name"], 0)
        for raw in raws
    }
    found = list[tuple[int, str, str, list[str]]]()
    for tier, key in enumerate(reversed(keys)):
        domains = dict[str, list[str]]()
        for name in order:
            if key in labels[name]:
                domains.setdefault(labels[name][key], []).append(name)
        fullest = sorted(domains, key=lambda value: sum(free[name] for name in domains[value]))
        found += [
            (tier, key, value, domains[value])
            for value in fullest
            if set(occupied) <= set(domains[value])
        ]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_placements_are_those_of_a_slow_search_of_each_domain(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - has to be repeatable
    keys = ["block", "rack", "kubernetes.io/hostname"]
    raws = list[dict[str, Any]]()
    for i in range(40):
        labels = {"kubernetes.io/hostname": f"n{i}"}
        if rng.random() < 0.8:
            labels["rack"] = str(rng.randrange(8))
        if rng.random() < 0.9:
            labels["block"] = rng.choice("ab")
        raws.append(node(f"n{i}", cpu=str(rng.randrange(2, 10**6)), labels=labels))
    occupied = {f"n{i}": 1 for i in rng.sample(range(40), rng.choice((0, 0, 1, 2, 3)))}
    members = [pod(f"m-{name}", group="g", node=name, cpu="1") for name in occupied]
    rng.shuffle(raws)
    group = pod_group("g", 2, annotations={KEYS: ",".join(keys)})
    state = cluster(*raws, group, *members)
    found = placements(state)
    order = _names(state, ClusterView(state).nodes_in_order.tolist())
    expected = slowly_described(raws, keys, order, occupied)
    if isinstance(found, Unschedulable):
        assert expected == []
    else:
        got = [(p.tier, p.key, p.value, _names(state, p.rows.tolist())) for p in found]
        assert got == expected


def named(kind: str, *names: str) -> list[dict[str, Any]]:
    """Return entries for a HyperNode's members: nodes or HyperNodes (`kind`) with these names."""
    return [{"type": kind, "selector": {"exactMatch": {"name": name}}} for name in names]


def hyper_nodes() -> list[dict[str, Any]]:
    """Return the HyperNodes leaf-1 and leaf-2 (tier 1), spine (tier 2) and core (tier 3)."""
    of_rack = {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "3"}}}}
    leaves = {"type": "HyperNode", "selector": {"regexMatch": {"pattern": "^leaf"}}}
    circle = named("HyperNode", "spine")
    return [
        hyper_node("spine", 2, leaves, *circle, tierName="spines"),
        hyper_node("leaf-1", 1, *named("Node", "a1", "a2", "gone"), tierName="leaves"),
        hyper_node("leaf-2", 1, of_rack, *circle),
        hyper_node("core", 3, *named("HyperNode", "spine"), *named("Node", "elsewhere")),
    ]


def of_volcano(state: ClusterState, **network: Any) -> ClusterState:
    """Put a Volcano group with this networkTopology into the state; return the state."""
    raw = volcano_pod_group("g", 2, networkTopology=network)
    kind = Kind.VOLCANO_POD_GROUP
    state.put(kind, "default/g", parse_object(kind, raw))
    return state


LEAVES = [(1, "leaf-2", ["b3"]), (1, "leaf-1", ["a1", "a2"])]
SPINE = (2, "spine", ["a1", "a2", "b3"])
CORE = (3, "core", ["a1", "a2", "b3", "elsewhere"])


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ({"highestTierAllowed": 1}, LEAVES),
        ({"highestTierName": "leaves"}, LEAVES),
        ({"highestTierName": "spines"}, [*LEAVES, SPINE]),
        ({"highestTierAllowed": 9}, [*LEAVES, SPINE, CORE]),
        ({"mode": "soft", "highestTierAllowed": 1}, [*LEAVES, (2, "", CORE[2])]),
        ({"mode": "soft"}, [*LEAVES, SPINE, CORE, (4, "", CORE[2])]),
    ],
)
def test_a_group_of_volcano_is_placed_in_hyper_nodes_of_low_tiers_first(
    network: dict[str, Any], expected: list[tuple[int, str, list[str]]]
) -> None:
    state = of_volcano(cluster(*nodes(), *hyper_nodes()), **network)
    assert [(tier, value, names) for tier, _, value, names in described(state)] == expected


def test_a_group_with_members_on_nodes_stays_in_a_hyper_node_of_them_all() -> None:
    annotations = {"scheduling.k8s.io/group-name": "g"}
    placed = [pod(name, node=name, annotations=annotations) for name in ("a1", "b3")]
    state = cluster(*nodes(), *hyper_nodes(), *placed)
    form = GroupFormat("scheduling.k8s.io/group-name", source=GroupSource.VOLCANO)
    state.track_pod_groups((form,))
    assert [value for _, _, value, _ in described(of_volcano(state, highestTierAllowed=2))] == [
        "spine"
    ]
    found = placements(of_volcano(state, highestTierAllowed=1))
    assert isinstance(found, Unschedulable)
    assert found.reason == (
        "no HyperNode of tier 1 or lower has all members that are placed already"
    )


@pytest.mark.parametrize("network", [{"highestTierAllowed": 0}, {"highestTierName": "none"}])
def test_a_group_that_no_hyper_node_is_for_says_so(network: dict[str, Any]) -> None:
    found = placements(of_volcano(cluster(*nodes(), *hyper_nodes()), **network))
    (tier,) = network.values()
    assert isinstance(found, Unschedulable)
    assert found.reason == f"no HyperNode of tier {tier} or lower has nodes"


def test_tiers_of_hyper_nodes_are_below_those_of_a_wider_label() -> None:
    annotations = {KEYS: "block,topology.volcano.sh/hypernode"}
    group = pod_group("g", 2, annotations=annotations)
    found = described(cluster(*nodes(), *hyper_nodes(), group))
    assert [(tier, value) for tier, _, value, _ in found] == [
        (1, "leaf-2"),
        (1, "leaf-1"),
        (2, "spine"),
        (3, "core"),
        (4, "b"),
        (4, "a"),
    ]


def test_the_nodes_of_hyper_nodes_are_found_with_pauses_and_once_until_something_changes() -> None:
    raws = [hyper_node(f"h{i}", 1, *named("Node", f"n{i}")) for i in range(20)]
    state = of_volcano(cluster(*(node(f"n{i}") for i in range(21)), *raws), highestTierAllowed=1)
    (group,), view = state.pod_groups, ClusterView(state)
    generator = TopologyPlacementGenerator(NoArgs(), handle(state))
    last = hyper_node("h20", 1, *named("Node", "n20"))

    def found() -> tuple[int, int]:
        """Return the number of placements for the group, and the number of pauses."""
        parent = Placement(view.nodes_in_order)
        placements, pauses = driven(lambda: generator.generate_placements(group, parent, view))
        assert not isinstance(placements, Unschedulable)
        return len(placements), pauses

    number, first = found()
    assert (number, found()) == (20, (20, 20))
    assert first >= 40
    state.put(Kind.HYPER_NODE, "h20", parse_object(Kind.HYPER_NODE, last))
    assert found()[0] == 21
    state.delete(Kind.NODE, "n20")
    assert found()[0] == 20
