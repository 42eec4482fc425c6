from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.events import Kind
from mooring.model.node import HOSTNAME, ZONE, parse_node
from mooring.model.selectors import NodeSelector, parse_node_selector
from mooring.state.cluster import ClusterState
from mooring.state.snapshot import Snapshot
from mooring.state.storage.node_affinities import NO_AFFINITY, NodeAffinities, reachable
from mooring.testing.builders import cluster, node


def selector(*terms: dict[str, Any]) -> NodeSelector:
    parsed = parse_node_selector({"nodeSelectorTerms": [*terms]})
    assert parsed is not None
    return parsed


def among(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [*values]}]}


def by_name(operator: str, name: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": operator, "values": [name]}
    return {"matchFields": [field]}


def reached(state: ClusterState, affinity: NodeSelector | None) -> set[str]:
    nodes = Snapshot(state).nodes
    return {nodes.name(i) for i, fits in enumerate(reachable(nodes, affinity)) if fits}


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (None, {"n1", "n2", "n3"}),
        (selector(), set()),
        (selector({}), set()),
        (selector(among(ZONE, "a")), {"n1", "n2"}),
        (selector(among(ZONE, "a"), among(HOSTNAME, "n3")), {"n1", "n2", "n3"}),
        (selector(among(ZONE, "nowhere")), set()),
        (selector(by_name("In", "n1")), {"n1", "n2", "n3"}),
        (selector(among(ZONE, "a") | by_name("In", "n1")), {"n1", "n2"}),
        (selector(among(ZONE, "-not a label value-")), set()),
    ],
)
def test_a_volume_is_reachable_by_labels_whatever_names_it_asks_for(
    affinity: NodeSelector | None, expected: set[str]
) -> None:
    state = cluster(node("n1", zone="a"), node("n2", zone="a"), node("n3", zone="b"))
    assert reached(state, affinity) == expected


def check(places: NodeAffinities, state: ClusterState) -> None:
    """Every place is found in just one column, where a volume of it can be had."""
    nodes = Snapshot(state).nodes
    columns = np.array(places.by_row())
    for number, affinity in enumerate(places.affinities):
        found = columns == number
        assert (found.any(axis=1)).sum() <= 1
        assert found.any(axis=0).tolist() == reachable(nodes, affinity).tolist()
    assert columns.min(initial=NO_AFFINITY) >= NO_AFFINITY


AFFINITIES = st.sampled_from(
    (
        None,
        selector(),
        *(selector(among(ZONE, zone)) for zone in "abc"),
        *(selector(among(HOSTNAME, name)) for name in ("n1", "n2", "n9")),
        selector(among(ZONE, "a", "b")),
        selector(among(ZONE, "a"), among(HOSTNAME, "n3")),
        selector(by_name("NotIn", "n1")),
        selector(among(ZONE, "b") | by_name("In", "n1")),
    )
)
NODES = st.builds(node, st.sampled_from(("n1", "n2", "n3")), zone=st.sampled_from(("a", "b", None)))


@settings(deadline=None)
@given(st.lists(AFFINITIES), st.lists(st.one_of(NODES, AFFINITIES)))
def test_columns_say_what_the_affinities_say_whatever_comes_and_changes(
    first: list[NodeSelector | None], events: list[Any]
) -> None:
    state = cluster(node("n1", zone="a"))
    places = NodeAffinities(state.nodes)
    for affinity in first:
        places.number(affinity)
    check(places, state)
    for event in events:
        if isinstance(event, dict):
            changed = parse_node(event)
            state.put(Kind.NODE, changed.name, changed)
        else:
            assert places.affinities[places.number(event)] == event
        check(places, state)


def test_an_affinity_keeps_its_number() -> None:
    places = NodeAffinities(cluster().nodes)
    numbers = [places.number(selector(among(ZONE, zone))) for zone in "aba"]
    assert numbers == [0, 1, 0]
    assert len(places) == 2


def test_a_node_that_goes_and_one_that_takes_its_row_are_told_apart() -> None:
    state = cluster(node("n1", zone="a"), node("n2", zone="b"))
    places = NodeAffinities(state.nodes)
    places.number(selector(among(ZONE, "a")))
    check(places, state)
    state.delete(Kind.NODE, "n1")
    state.put(Kind.NODE, "n3", parse_node(node("n3", zone="b")))
    check(places, state)
