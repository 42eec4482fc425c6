"""Counts of devices per node, compared with a slow model that counts all devices each time."""

import random
from typing import Any

import numpy as np
import pytest

from device_builders import (
    allocated,
    device,
    device_claim,
    device_class,
    device_result,
    resource_slice,
)
from mooring.claims.device_counts import DeviceCounts
from mooring.claims.model.device_classes import parse_device_class
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.claims.model.resource_slices import parse_resource_slice
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import handle

Raw = dict[str, Any]

GPU = "example.com/gpu"
CLASS = device_class("gpu", extendedResourceName=GPU)
LARGE = device_class("gpu", "device.attributes['gpu.example.com'].large", extendedResourceName=GPU)
ON_SSD = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}]}


def counted(state: ClusterState, counts: DeviceCounts | None = None) -> dict[str, tuple[int, int]]:
    found = counts or DeviceCounts(handle(state), [GPU])
    nodes = ClusterView(state).nodes
    offered, requested = found.columns(GPU, nodes)
    pairs = zip(offered.tolist(), requested.tolist(), strict=True)
    return {nodes.name(i): pair for i, pair in enumerate(pairs) if nodes.node(i) is not None}


@pytest.mark.parametrize(
    ("spec", "on"),
    [
        ({"nodeName": "a"}, {"a"}),
        ({"allNodes": True}, {"a", "b"}),
        ({"nodeSelector": ON_SSD}, {"b"}),
    ],
)
def test_devices_count_on_the_nodes_of_their_slice_or_their_own(spec: Raw, on: set[str]) -> None:
    own: Raw = {"perDeviceNodeSelection": True}
    for each in (
        resource_slice("s", ["d0", "d1"], **spec),
        resource_slice("s", [device("d0", **spec), device("d1", **spec)], **own),
    ):
        state = cluster(node("a"), node("b", labels={"ssd": ""}), CLASS, each)
        assert counted(state) == {name: (2 if name in on else 0, 0) for name in ("a", "b")}


def test_only_devices_that_the_class_selects_count() -> None:
    devices = [device("d0", attributes={"large": True}), device("d1", attributes={"large": False})]
    state = cluster(node("a"), LARGE, resource_slice("s", devices, node="a"))
    assert counted(state) == {"a": (1, 0)}


def test_a_number_is_not_taken_for_a_truth_value() -> None:
    equal = [device("d0", attributes={"large": 1}), device("d1", attributes={"large": True})]
    chosen = device_class("gpu", "device.attributes['gpu.example.com'].large == true")
    chosen["spec"]["extendedResourceName"] = GPU
    state = cluster(node("a"), chosen, resource_slice("s", equal, node="a"))
    assert counted(state) == {"a": (1, 0)}


@pytest.mark.parametrize("selector", ["device.attributes['x.com'].no", "device.("])
def test_a_node_has_no_devices_if_the_class_fails_for_one_of_them(selector: str) -> None:
    failing = device_class("gpu", selector, extendedResourceName=GPU)
    state = cluster(node("a"), node("b"), failing, resource_slice("s", ["d0"], node="a"))
    assert counted(state) == {"a": (0, 0), "b": (0, 0)}


def test_what_a_node_offers_itself_counts_in_place_of_devices() -> None:
    state = cluster(
        node("a", resources={GPU: 4}),
        CLASS,
        resource_slice("s", ["d0"], node="a"),
        pod(requests={GPU: 3}, node="a"),
    )
    assert counted(state) == {"a": (4, 3)}


def test_devices_with_admin_access_are_not_in_use_and_shares_are() -> None:
    results = [
        device_result("d0", pool="a", adminAccess=True),
        device_result("d1", pool="a", shareID="x"),
        device_result("d2", pool="a"),
    ]
    state = cluster(
        node("a"),
        CLASS,
        resource_slice("s", ["d0", "d1", "d2", "d3"], node="a"),
        device_claim(allocation=allocated(*results)),
    )
    assert counted(state) == {"a": (4, 2)}


def test_without_a_class_nothing_is_counted() -> None:
    state = cluster(node("a"), device_class("gpu"), resource_slice("s", ["d0"], node="a"))
    assert counted(state) == {"a": (0, 0)}


def test_counts_follow_any_change() -> None:
    rng = random.Random(23)  # noqa: S311 - a seed, not a secret
    state = cluster(CLASS)
    counts = DeviceCounts(handle(state), [GPU])
    seen = set()
    for step in range(300):
        change(state, rng, step)
        found = counted(state, counts)
        assert found == counted(state), step
        seen.add(tuple(sorted(found.items())))
    assert len(seen) > 100


def change(state: ClusterState, rng: random.Random, step: int) -> None:
    """Store or delete a random node, slice, claim or class."""
    name, number = rng.choice("abcd"), rng.randrange(4)
    match rng.randrange(8):
        case 0:
            labels = {"ssd": ""} if rng.random() < 0.5 else {}
            state.put(Kind.NODE, name, parse_node(node(name, labels=labels)))
        case 1:
            state.delete(Kind.NODE, name)
        case 2 | 3:
            large = [device(f"d{i}", attributes={"large": rng.random() < 0.7}) for i in range(3)]
            where: Raw = rng.choice([{"node": name}, {"allNodes": True}, {"nodeSelector": ON_SSD}])
            raw = resource_slice(f"s{number}", large, pool="pool", generation=step, **where)
            state.put(Kind.RESOURCE_SLICE, f"s{number}", parse_resource_slice(raw))
        case 4:
            state.delete(Kind.RESOURCE_SLICE, f"s{number}")
        case 5 | 6:
            results = [f"d{i}" for i in range(3) if rng.random() < 0.4]
            raw = device_claim(f"c{number}", allocation=allocated(*results), version=step + 2)
            state.put(Kind.RESOURCE_CLAIM, f"default/c{number}", parse_resource_claim(raw))
        case _:
            raw = rng.choice([CLASS, LARGE])
            state.put(Kind.DEVICE_CLASS, "gpu", parse_device_class(raw))


def test_the_version_is_that_of_devices_for_pods_that_request_the_resource() -> None:
    state = cluster(node("a"), CLASS)
    counts = DeviceCounts(handle(state), ["cpu", GPU])
    wanted, other = parse_pod(pod(requests={GPU: 1})), parse_pod(pod(requests={"x.com/y": 1}))
    before = counts.version(wanted)
    state.put(Kind.RESOURCE_SLICE, "s", parse_resource_slice(resource_slice("s", ["d"], node="a")))
    assert counts.version(wanted) != before
    assert (counts.version(other), counts.version(parse_pod(pod(cpu="1")))) == (None, None)
    assert DeviceCounts(handle(state), ["cpu"]).version(wanted) is None


def test_some_nodes_can_be_asked_for() -> None:
    state = cluster(node("a"), node("b"), CLASS, resource_slice("s", ["d0"], node="b"))
    row = state.nodes.row_of["b"]
    nodes = ClusterView(state).nodes.take(np.array([row]))
    offered, requested = DeviceCounts(handle(state), [GPU]).columns(GPU, nodes)
    assert (offered.tolist(), requested.tolist()) == ([1], [0])
