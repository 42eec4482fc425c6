from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.events import Kind
from mooring.model.node import HOSTNAME, ZONE, parse_node
from mooring.model.selectors import NodeSelector, parse_node_selector
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node
from mooring.volumes.state.node_affinities import NO_AFFINITY, NodeAffinities, check_node_affinity


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
    nodes = ClusterView(state).nodes
    return {nodes.name(i) for i, fits in enumerate(check_node_affinity(nodes, affinity)) if fits}


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
def test_only_match_expressions_of_an_affinity_count(
    affinity: NodeSelector | None, expected: set[str]
) -> None:
    state = cluster(node("n1", zone="a"), node("n2", zone="a"), node("n3", zone="b"))
    assert reached(state, affinity) == expected


def check(affinities: NodeAffinities, state: ClusterState) -> None:
    """Check that every affinity is in just one column, on the nodes that match it."""
    nodes = ClusterView(state).nodes
    columns = np.array(affinities.by_row())
    for number, affinity in enumerate(affinities.affinities):
        found = columns == number
        assert (found.any(axis=1)).sum() <= 1
        assert found.any(axis=0).tolist() == check_node_affinity(nodes, affinity).tolist()
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
def test_columns_agree_with_the_affinities_after_any_events(
    first: list[NodeSelector | None], events: list[Any]
) -> None:
    state = cluster(node("n1", zone="a"))
    affinities = NodeAffinities(state.nodes)
    for affinity in first:
        affinities.number(affinity)
    check(affinities, state)
    for event in events:
        if isinstance(event, dict):
            changed = parse_node(event)
            state.put(Kind.NODE, changed.name, changed)
        else:
            assert affinities.affinities[affinities.number(event)] == event
        check(affinities, state)


def test_an_affinity_keeps_its_number() -> None:
    affinities = NodeAffinities(cluster().nodes)
    numbers = [affinities.number(selector(among(ZONE, zone))) for zone in "aba"]
    assert numbers == [0, 1, 0]
    assert len(affinities) == 2


def test_a_node_does_not_inherit_the_affinities_of_its_rows_former_node() -> None:
    state = cluster(node("n1", zone="a"), node("n2", zone="b"))
    affinities = NodeAffinities(state.nodes)
    affinities.number(selector(among(ZONE, "a")))
    check(affinities, state)
    state.delete(Kind.NODE, "n1")
    state.put(Kind.NODE, "n3", parse_node(node("n3", zone="b")))
    check(affinities, state)
