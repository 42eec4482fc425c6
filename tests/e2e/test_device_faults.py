"""Faults while devices are allocated: none is allocated twice, and none is lost.

No claim controller runs: the test frees the claims of the pods that it deletes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.nodes import create_nodes
from device_builders import device_claim, device_class, resource_slice
from e2e.replicas import PROFILES, QUICK_LEASE, delete_now, eventually
from faults.rules import Kind, Rule
from faults.scene import Scene
from mooring.claims.model.resource_claims import ResourceClaim, parse_resource_claim
from mooring.testing import builders

Raw = dict[str, Any]

RESOURCES: Final = "/apis/resource.k8s.io/v1"
NODES: Final = 4
PER_NODE: Final = 4
DEVICES: Final = NODES * PER_NODE
CLAIMS: Final = "/resourceclaims/"
GROUP, MINIMUM = "example.com/group", "example.com/minimum"


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    capacity = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    names = create_nodes(plane.access, NODES, capacity=capacity)
    groups = {"podGroupLabels": [{"name": GROUP, "minimum": MINIMUM}]}
    spec = {"pluginConfig": [{"name": "GangScheduling", "args": groups}]}
    with plane.access.client() as client:
        client.patch(f"{PROFILES}/mooring", {"spec": spec})
        post(client, "deviceclasses", device_class("gpu"))
        for name in names:
            devices = [f"d{number}" for number in range(PER_NODE)]
            post(client, "resourceslices", resource_slice(name, devices, node=name))
    return plane


def post(client: Client, resource: str, raw: Raw, namespace: str = "") -> None:
    place = f"/namespaces/{namespace}" if namespace else ""
    metadata = {"name": raw["metadata"]["name"]}
    client.post(f"{RESOURCES}{place}/{resource}", {**raw, "metadata": metadata})


def create(client: Client, namespace: str, names: Sequence[str], group: str = "") -> None:
    """Create for each name a pod and its claim; `group` makes all pods members of one group."""
    for name in names:
        post(client, "resourceclaims", device_claim(name), namespace)
        entry = {"name": "gpu", "resourceClaimName": name}
        spec = {"schedulerName": "mooring", "resourceClaims": [entry]}
        raw = builders.pod(name, namespace=namespace, spec=spec)
        if group:
            raw["metadata"]["labels"] = {GROUP: group}
            raw["metadata"]["annotations"] = {MINIMUM: str(len(names))}
        client.post(f"/api/v1/namespaces/{namespace}/pods", raw)


def claims_of(client: Client, namespace: str) -> dict[str, ResourceClaim]:
    raw = client.get(f"{RESOURCES}/namespaces/{namespace}/resourceclaims")["items"]
    return {claim.name: claim for claim in map(parse_resource_claim, raw)}


def any_reserved(claims: Mapping[str, ResourceClaim]) -> bool:
    """Return whether at least one of the claims is reserved for a pod."""
    return any(claim.reserved_for for claim in claims.values())


def nodes_of(client: Client, namespace: str) -> dict[str, str]:
    pods = client.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    names = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in pods}
    return {name: node for name, node in names.items() if node}


def free(client: Client, namespace: str, names: Sequence[str]) -> None:
    """Delete the pods, and free and delete their claims, as the claim controller does."""
    for name in names:
        delete_now(client, namespace, name)
        path = f"{RESOURCES}/namespaces/{namespace}/resourceclaims/{name}"
        client.patch(f"{path}/status", {"status": {"allocation": None, "reservedFor": None}})
        client.patch(path, {"metadata": {"finalizers": None}})
        client.delete(path)


def assert_every_pod_has_its_device(client: Client, namespace: str, names: Sequence[str]) -> None:
    nodes = eventually(
        lambda: nodes_of(client, namespace),
        lambda bound: bound.keys() >= set(names),
        f"{len(names)} pods bound",
    )
    claims = claims_of(client, namespace)
    used = []
    for name in names:
        claim = claims[name]
        assert claim.allocation is not None
        (result,) = claim.allocation.results
        used.append(result.device)
        assert result.device.pool == nodes[name]
        assert [consumer.name for consumer in claim.reserved_for] == [name]
    assert len(set(used)) == len(used)


FAULTS: Final = {
    "writes": [
        Rule(kind, "PATCH", CLAIMS, count=12, seconds=20.0, probability=0.2)
        for kind in (Kind.LOSE, Kind.DROP, Kind.INTERNAL, Kind.CONFLICT, Kind.UNAVAILABLE)
    ],
    "no answers": [Rule(Kind.HALF_OPEN, "PATCH", CLAIMS, count=3, seconds=4.0)],
    "bindings": [
        Rule(kind, "POST", "/binding", count=12, seconds=20.0, probability=0.3)
        for kind in (Kind.LOSE, Kind.INTERNAL, Kind.CONFLICT)
    ],
    "a late watch": [
        Rule(Kind.DELAY, "GET", r"/resourceclaims\?", count=50, seconds=30.0, delay=3)
    ],
}


@pytest.mark.parametrize("faults", FAULTS)
def test_no_device_is_allocated_twice_and_none_is_lost(
    scene: Scene, namespace: str, faults: str
) -> None:
    """Two waves of pods use all devices, so the second wave would miss a lost device."""
    scene.start()
    scene.wait_for_leader()
    first, second = ([f"{side}-{n}" for n in range(DEVICES)] for side in ("a", "b"))
    with scene.plane.access.client() as client:
        for rule in FAULTS[faults]:
            scene.inject(rule)
        create(client, namespace, first)
        assert_every_pod_has_its_device(client, namespace, first)
        free(client, namespace, first)
        create(client, namespace, second)
        assert_every_pod_has_its_device(client, namespace, second)
        free(client, namespace, second)
    assert scene.settle().faults == []


def test_a_leader_that_is_killed_while_claims_are_written_leaves_nothing_behind(
    scene: Scene, namespace: str
) -> None:
    leader, _ = scene.start_pair(*QUICK_LEASE)
    names = [f"a-{number}" for number in range(DEVICES)]
    with scene.plane.access.client() as client:
        held = Rule(Kind.STALL, "POST", "/binding", count=DEVICES, delay=2.0)
        injected = scene.inject(held, leader)
        create(client, namespace, names)
        eventually(injected.strikes, bool, "a Binding held up, whose claim is written")
        leader.kill()
        assert_every_pod_has_its_device(client, namespace, names)
        free(client, namespace, names)
    assert scene.settle().faults == []


def test_a_leader_that_is_killed_while_claims_of_a_group_are_written_leaves_it_to_the_next(
    scene: Scene, namespace: str
) -> None:
    leader, _ = scene.start_pair(*QUICK_LEASE)
    names = [f"g-{number}" for number in range(DEVICES)]
    with scene.plane.access.client() as client:
        slow = Rule(
            Kind.STALL, "PATCH", CLAIMS, count=DEVICES, seconds=60.0, delay=5.0, probability=0.5
        )
        injected = scene.inject(slow, leader)
        create(client, namespace, names, "g")
        eventually(
            lambda: injected.strikes() and any_reserved(claims_of(client, namespace)),
            bool,
            "a claim reserved, and the write of another held up",
        )
        leader.kill()
        assert len(nodes_of(client, namespace)) < DEVICES
        assert_every_pod_has_its_device(client, namespace, names)
        free(client, namespace, names)
    assert scene.settle().faults == []
