"""Each device of a node has one state, and the names of the claims and pods that hold it."""

from device_builders import (
    DRIVER,
    allocated,
    device,
    device_claim,
    device_class,
    device_result,
    resource_slice,
)
from mooring.claims.device_view import Devices, NodeDevice
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.model.pod import parse_pod
from mooring.observe.documents import plain
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, uid_of
from node_selectors import named, node_selector

SICK = [{"key": "sick", "value": "very", "effect": "NoExecute"}]


def devices(state: ClusterState, name: str = "a") -> list[NodeDevice]:
    return [*Devices(ClusterView(state), classes=True).of_node(state.nodes.row_of[name])]


def states(state: ClusterState, name: str = "a") -> dict[str, str]:
    return {each.id.device: each.state for each in devices(state, name)}


def test_a_device_in_use_names_the_claim_and_all_its_pods() -> None:
    claim = device_claim("c", allocation=allocated("d0", node="a"), reserved_for=["web", "db"])
    state = cluster(node("a"), resource_slice("s", ["d0", "d1"], node="a"), claim)
    held, free = devices(state)
    assert (held.state, free.state, free.holders) == ("in use", "free", ())
    assert plain(held.holders) == [
        {"claim": "default/c", "pods": ["default/web", "default/db"], "adminAccess": False}
    ]


def test_a_device_that_is_being_allocated_names_the_pod_for_which_it_is() -> None:
    state = cluster(node("a"), resource_slice("s", ["d0"], node="a"), device_claim("c"))
    state.assume(parse_pod(pod("web")), state.nodes.row_of["a"])
    allocation = parse_resource_claim(device_claim(allocation=allocated("d0", node="a"))).allocation
    assert allocation is not None
    claim = ClusterView(state).dynamic_resources.claims.get("default/c")
    assert claim is not None
    state.hold_claims(uid_of("web"), {claim.uid: allocation})
    (held,) = devices(state)
    assert (held.state, held.holders[0].pods) == ("in use", ("default/web",))


def test_admin_access_does_not_use_a_device_and_is_told() -> None:
    monitor = device_result("d0", pool="a", adminAccess=True)
    claim = device_claim("c", allocation=allocated(monitor, node="a"))
    (only,) = devices(cluster(node("a"), resource_slice("s", ["d0"], node="a"), claim))
    assert (only.state, only.holders[0].admin_access) == ("free", True)


def test_tainted_devices_and_those_of_pools_that_cannot_be_used_are_not_free() -> None:
    mild = device("mild", taints=[{"key": "old", "effect": "None"}])
    state = cluster(
        node("a"),
        resource_slice("s", [device("d0", taints=SICK), mild], node="a"),
        resource_slice("half", ["d0"], node="a", pool="half", slices=2),
        resource_slice("twice", ["d0", "d0"], node="a", pool="twice"),
    )
    assert [(each.id.pool, each.state, each.taints) for each in devices(state)] == [
        ("a", "tainted", ("sick=very:NoExecute",)),
        ("a", "free", ()),
        ("half", "incomplete pool", ()),
        ("twice", "invalid pool", ()),
        ("twice", "invalid pool", ()),
    ]


def test_a_shared_device_says_what_is_consumed_of_what_it_has() -> None:
    shared = device("d0", capacity={"memory": {"value": "80Gi"}}, allowMultipleAllocations=True)
    share = device_result("d0", pool="a", shareID="1", consumedCapacity={"memory": "30Gi"})
    claim = device_claim("c", allocation=allocated(share, node="a"))
    (only,) = devices(cluster(node("a"), resource_slice("s", [shared], node="a"), claim))
    assert (only.state, only.capacity) == ("shared", {"memory": ("80Gi", "30Gi")})
    assert only.document()["capacity"] == {"memory": {"value": "80Gi", "consumed": "30Gi"}}


def test_a_device_whose_counters_another_one_takes_is_not_free() -> None:
    consumes = [{"counterSet": "gpu", "counters": {"memory": {"value": "60Gi"}}}]
    parts = [device(name, consumesCounters=consumes) for name in ("whole", "half")]
    counters = [{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}]
    state = cluster(
        node("a"),
        resource_slice("s", parts, node="a", slices=2),
        resource_slice("t", node="a", slices=2, sharedCounters=counters),
        device_claim("c", allocation=allocated("whole", node="a")),
    )
    assert states(state) == {"whole": "in use", "half": "no counters left"}


def test_classes_and_attributes_of_a_device_are_told() -> None:
    typed = {"model": "h100", "index": 3, "healthy": True}
    failing = f"device.attributes['{DRIVER}'].serial == 'x'"
    state = cluster(
        node("a"),
        resource_slice("s", [device("d0", attributes=typed)], node="a"),
        device_class("gpu", f"device.driver == '{DRIVER}'"),
        device_class("net", "device.driver == 'net'"),
        device_class("broken", failing),
    )
    (only,) = devices(state)
    assert only.classes == ("gpu",)
    assert only.attributes == {"model": "h100", "index": "3", "healthy": "true"}


def test_devices_that_several_nodes_can_use_are_told_once() -> None:
    on_b = {"nodeSelector": node_selector(named("b"))}
    state = cluster(
        node("a"),
        node("b"),
        resource_slice("own", ["d0"], node="a"),
        resource_slice("fabric", ["f0"], pool="fabric"),
        resource_slice(
            "each",
            [device("e0", nodeName="b"), device("e1", allNodes=True), device("e2", **on_b)],
            pool="each",
            perDeviceNodeSelection=True,
        ),
    )
    found = Devices(ClusterView(state), classes=False)
    rows = [state.nodes.row_of[name] for name in ("a", "b")]
    assert [[d.id.device for d in found.of_node(row)] for row in rows] == [["d0"], ["e0"]]
    assert [[d.id.device for d in found.of_several(row)] for row in rows] == [["e1", "f0"], ["e2"]]
    assert [found.count(row) for row in rows] == [3, 4]
