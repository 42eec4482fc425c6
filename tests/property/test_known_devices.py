"""What is known of nodes from earlier pods is what a new search finds, whatever has changed."""

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from device_builders import (
    allocated,
    device,
    device_claim,
    device_class,
    device_result,
    request,
    resource_slice,
)
from mooring.claims.plugin.plugin import DynamicResources, DynamicResourcesArgs
from mooring.claims.plugin.pod_claims import PodClaims
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import handle
from node_selectors import expression, node_selector, term

Raw = dict[str, Any]

NODES = [f"n{number}" for number in range(4)]
COUNTERS = [{"name": "c", "counters": {"memory": {"value": "2"}}}]
SHARED = [{"counterSet": "c", "counters": {"memory": {"value": "1"}}}]


def plugin_of(state: ClusterState) -> DynamicResources:
    return DynamicResources(DynamicResourcesArgs(), handle(state))


def feasible(plugin: DynamicResources, state: ClusterState, count: int) -> list[str]:
    """Return the nodes on which a new claim for so many devices can be allocated."""
    claim = device_claim(f"new-{count}", request(count=count))
    put(state, claim)
    entry = {"name": "gpu", "resourceClaimName": f"new-{count}"}
    wanted = parse_pod(pod("web", spec={"resourceClaims": [entry]}))
    view = ClusterView(state)
    claims = plugin.pre_filter(wanted, view)
    assert isinstance(claims, PodClaims)
    fits = plugin.filter(wanted, view.nodes, claims)
    return [view.nodes.name(index) for index in np.flatnonzero(fits).tolist()]


def put(state: ClusterState, raw: Raw) -> None:
    kind = Kind(raw["kind"])
    value = parse_object(kind, raw)
    state.put(kind, getattr(value, "key", value.name), value)


def slice_of(name: str, count: int, **fields: Any) -> Raw:
    return resource_slice(f"s-{name}", [f"d{i}" for i in range(count)], node=name, **fields)


def spread(generation: int, name: str) -> Raw:
    """Return a slice of a pool that two nodes have together."""
    return slice_of(name, 2, generation=generation, pool="wide", slices=2)


def everywhere(count: int) -> Raw:
    names = [f"e{index}" for index in range(count)]
    selector = node_selector(term(expression("zone", "In", "a")))
    return resource_slice("s-all", names, pool="all", nodeSelector=selector)


def counters(name: str) -> Raw:
    return resource_slice(f"k-{name}", node=name, slices=2, sharedCounters=COUNTERS)


def counted(name: str, count: int) -> Raw:
    devices = [device(f"d{index}", consumesCounters=SHARED) for index in range(count)]
    return resource_slice(f"s-{name}", devices, node=name, slices=2)


def use(name: str, index: int) -> Raw:
    allocation = allocated(device_result(f"d{index}", pool=name), node=name)
    return device_claim(f"used-{name}-{index}", allocation=allocation)


def change(state: ClusterState, what: Raw | tuple[Kind, str]) -> None:
    """Put the object, or delete the one of this kind and key."""
    if isinstance(what, dict):
        put(state, what)
    else:
        state.delete(*what)


OF_A_NODE = st.sampled_from(NODES)
CHANGES = st.one_of(
    st.builds(slice_of, OF_A_NODE, st.integers(0, 2)),
    st.builds(spread, st.integers(1, 3), OF_A_NODE),
    st.builds(everywhere, st.integers(0, 2)),
    st.builds(counters, OF_A_NODE),
    st.builds(counted, OF_A_NODE, st.integers(0, 3)),
    st.builds(use, OF_A_NODE, st.integers(0, 1)),
    st.builds(lambda zone, name: node(name, labels={"zone": zone}), st.just("b"), OF_A_NODE),
    st.builds(lambda text: device_class("gpu", text), st.sampled_from(["true", "false"])),
    st.builds(lambda name: (Kind.RESOURCE_SLICE, f"s-{name}"), OF_A_NODE),
    st.builds(lambda name: (Kind.RESOURCE_CLAIM, f"default/used-{name}-0"), OF_A_NODE),
    st.builds(lambda name: (Kind.NODE, name), OF_A_NODE),
)


@settings(max_examples=200, deadline=None)
@example([spread(1, "n0"), spread(1, "n1"), spread(2, "n1")], 1)
@example([counters("n0"), spread(1, "n0"), slice_of("n0", 1)], 1)
@given(changes=st.lists(CHANGES, max_size=14), count=st.integers(1, 2))
def test_nothing_is_known_that_is_not_so_any_more(
    changes: list[Raw | tuple[Kind, str]], count: int
) -> None:
    raw = (node(name, labels={"zone": "a"}) for name in NODES)
    state = cluster(*raw, device_class("gpu"), *(slice_of(name, 2) for name in NODES))
    plugin = plugin_of(state)
    for what in changes:
        change(state, what)
        assert feasible(plugin, state, count) == feasible(plugin_of(state), state, count)
