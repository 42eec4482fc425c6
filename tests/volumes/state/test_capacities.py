from typing import Any

import pytest

from mooring.model.events import Kind
from mooring.model.node import ZONE
from mooring.model.objects import object_key, parse_object
from mooring.model.quantity import parse_quantity
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node
from mooring.volumes.state.capacities import UNKNOWN
from storage_builders import storage_capacity

NODES = (node("n1", zone="a"), node("n2", zone="b"), node("n3"))


def has_capacity(state: ClusterState, size: int, storage_class: str = "fast") -> set[str]:
    cluster = ClusterView(state)
    capacities = cluster.storage.capacities.of(storage_class)
    least = capacities.at_least(parse_quantity(size).nano)
    found = capacities.largest_on(cluster.nodes.rows)
    return {cluster.nodes.name(i) for i, largest in enumerate(found) if largest >= least}


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        (storage_capacity("c", "fast", 10, {ZONE: "a"}), {"n1"}),
        (storage_capacity("c", "fast", 10, {}), {"n1", "n2", "n3"}),
        (storage_capacity("c", "fast", 10), set()),
        (storage_capacity("c", "fast", 9, {}), set()),
        (storage_capacity("c", "fast", 99, {}, maximumVolumeSize="9"), set()),
        (storage_capacity("c", "fast", 9, {}, maximumVolumeSize="10"), {"n1", "n2", "n3"}),
        (storage_capacity("c", "slow", 10, {}), set()),
    ],
)
def test_a_volume_can_be_provisioned_where_a_capacity_of_the_class_is_large_enough(
    capacity: dict[str, Any], expected: set[str]
) -> None:
    assert has_capacity(cluster(*NODES, capacity), 10) == expected


def test_nothing_can_be_provisioned_from_a_capacity_of_unknown_size() -> None:
    capacity = storage_capacity("c", "fast", 10, {})
    del capacity["capacity"]
    assert has_capacity(cluster(*NODES, capacity), 0) == set()


def test_several_capacities_cover_more_nodes_but_no_larger_volumes() -> None:
    state = cluster(
        *NODES,
        storage_capacity("c1", "fast", 6, {ZONE: "a"}),
        storage_capacity("c2", "fast", 6, {ZONE: "a"}),
        storage_capacity("c3", "fast", 10, {ZONE: "b"}),
    )
    assert has_capacity(state, 6) == {"n1", "n2"}
    assert has_capacity(state, 7) == {"n2"}


def test_a_capacity_that_changes_or_goes_is_known_as_it_is_now() -> None:
    state = cluster(*NODES, storage_capacity("c", "fast", 10, {}))
    for raw, expected in (
        (storage_capacity("c", "fast", 4, {}), set[str]()),
        (storage_capacity("c", "fast", 20, {ZONE: "b"}), {"n2"}),
    ):
        kind = Kind.CSI_STORAGE_CAPACITY
        state.put(kind, object_key(kind, raw), parse_object(kind, raw))
        assert has_capacity(state, 10) == expected
    state.delete(Kind.CSI_STORAGE_CAPACITY, "default/c")
    assert has_capacity(state, 10) == set()


def capacity(state: ClusterState, size: int) -> dict[str, int]:
    view = ClusterView(state)
    found = view.storage.capacities.capacity("fast", parse_quantity(size), view.nodes.rows)
    return {view.nodes.name(i): amount for i, amount in enumerate(found.tolist())}


def test_the_capacity_of_a_node_is_that_from_which_a_volume_can_be_made() -> None:
    state = cluster(
        *NODES,
        storage_capacity("c1", "fast", 10, {ZONE: "a"}),
        storage_capacity("c2", "fast", 90, {ZONE: "b"}, maximumVolumeSize="7"),
    )
    assert capacity(state, 7) == {"n1": 10, "n2": 90, "n3": UNKNOWN}
    assert capacity(state, 8) == {"n1": 10, "n2": UNKNOWN, "n3": UNKNOWN}
    assert capacity(cluster(*NODES), 8) == dict.fromkeys(("n1", "n2", "n3"), UNKNOWN)


def test_of_several_capacities_the_one_with_the_smallest_largest_size_counts() -> None:
    state = cluster(
        *NODES,
        storage_capacity("b", "fast", 50, {}, maximumVolumeSize="8"),
        storage_capacity("a", "fast", 40, {}, maximumVolumeSize="8"),
        storage_capacity("c", "fast", 9, {ZONE: "a"}),
    )
    assert capacity(state, 8) == {"n1": 40, "n2": 40, "n3": 40}
    assert capacity(state, 9) == {"n1": 9, "n2": UNKNOWN, "n3": UNKNOWN}


def test_a_capacity_that_names_no_more_than_its_largest_size_is_unknown() -> None:
    raw = storage_capacity("c", "fast", 10, {}, maximumVolumeSize="8")
    del raw["capacity"]
    assert set(capacity(cluster(*NODES, raw), 8).values()) == {UNKNOWN}
