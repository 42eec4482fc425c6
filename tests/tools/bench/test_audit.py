from typing import Any

import pytest

from bench.audit import device_faults, faults, quantity
from bench.workloads import Devices

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def a_node(name: str, zone: str = "z1", **capacity: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {HOST: name, ZONE: zone}},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10", **capacity}},
    }


def a_pod(name: str, node: str | None, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    placed = {"nodeName": node} if node else {}
    requests = {"cpu": cpu, "memory": "1Mi"}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    return {
        "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": containers, **placed, **spec},
    }


def term(topology_key: str, app: str = "a") -> dict[str, Any]:
    return {"topologyKey": topology_key, "labelSelector": {"matchLabels": {"app": app}}}


def alone(topology_key: str) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term(topology_key)]}
    return {"affinity": {"podAntiAffinity": required}}


def spread(when: str = "DoNotSchedule") -> dict[str, Any]:
    constraint = {**term(ZONE), "maxSkew": 1, "whenUnsatisfiable": when}
    return {"topologySpreadConstraints": [constraint]}


NODES = [a_node("n1", "z1"), a_node("n2", "z2")]


def on_card(name: str, card: int, memory: int) -> dict[str, Any]:
    """Return a pod with `memory` of a card of 16."""
    prefix = "ALIYUN_COM_GPU_MEM"
    raw = a_pod(name, "n1")
    raw["metadata"]["annotations"] = {
        f"{prefix}_IDX": str(card),
        f"{prefix}_POD": str(memory),
        f"{prefix}_DEV": "16",
    }
    return raw


def test_a_card_of_which_more_is_given_away_than_it_has_is_a_fault() -> None:
    full = [on_card("a", 0, 8), on_card("b", 0, 8), on_card("c", 1, 16)]
    assert faults(NODES, full, []) == []
    assert faults(NODES, [*full, on_card("d", 0, 1)], []) == [
        "card 0 of node n1 is over its memory"
    ]


@pytest.mark.parametrize(
    ("text", "value"), [("250m", 0.25), ("4", 4), ("1k", 1000), ("2Gi", 2 * 1024**3)]
)
def test_quantities_are_read(text: str, value: float) -> None:
    assert quantity(text) == value


def test_an_unknown_suffix_is_an_error_rather_than_a_wrong_sum() -> None:
    with pytest.raises(ValueError, match="1T"):
        quantity("1T")


def test_a_right_placement_has_no_faults() -> None:
    pods = [a_pod("p1", "n1", "500m"), a_pod("p2", "n1", "500m"), a_pod("waits", None)]
    assert faults(NODES, pods, ["p1", "p2"]) == []


def test_a_node_over_its_cpu_is_a_fault() -> None:
    pods = [a_pod("p1", "n1", "500m"), a_pod("p2", "n1", "501m")]
    assert faults(NODES, pods, []) == ["node n1 is over its allocatable cpu"]


def test_a_node_with_too_many_pods_is_a_fault() -> None:
    pods = [a_pod("p1", "n1"), a_pod("p2", "n1")]
    assert faults([a_node("n1", pods="1")], pods, []) == ["node n1 is over its allocatable pods"]


def test_a_pod_without_a_node_is_a_fault_if_it_was_to_be_bound() -> None:
    assert faults(NODES, [a_pod("p1", None)], ["p1"]) == ["1 pods are not bound, p1 among them"]


def test_a_pod_on_a_node_that_does_not_exist_is_a_fault() -> None:
    assert faults(NODES, [a_pod("p1", "n3")], ["p1"]) == [
        "pods are bound to 1 nodes that do not exist"
    ]


def test_two_pods_of_an_app_on_one_host_break_anti_affinity() -> None:
    pods = [a_pod("p1", "n1", **alone(HOST)), a_pod("p2", "n1"), a_pod("p3", "n2", **alone(HOST))]
    assert faults(NODES, pods, []) == ["pod p1 is beside 1 that it refuses"]


def test_anti_affinity_holds_in_the_whole_domain() -> None:
    nodes = [a_node("n1", "z1"), a_node("n2", "z1")]
    pods = [a_pod("p1", "n1", **alone(ZONE)), a_pod("p2", "n2")]
    assert faults(nodes, pods, []) == ["pod p1 is beside 1 that it refuses"]


def test_a_skew_over_the_most_allowed_is_a_fault_an_empty_zone_included() -> None:
    pods = [a_pod("p1", "n1", **spread()), a_pod("p2", "n1", **spread())]
    assert faults(NODES, pods, []) == [f"pods {{'app': 'a'}} have a skew of 2 over {ZONE}"]


def test_the_most_skew_allowed_is_no_fault() -> None:
    pods = [a_pod("p1", "n1", **spread()), a_pod("p2", "n1", **spread()), a_pod("p3", "n2")]
    assert faults(NODES, pods, []) == []


def test_a_soft_spread_is_only_a_wish() -> None:
    pods = [a_pod("p1", "n1", **spread("ScheduleAnyway")), a_pod("p2", "n1")]
    assert faults(NODES, pods, []) == []


def in_group(name: str, node: str | None, group: str = "g1") -> dict[str, Any]:
    return a_pod(name, node, schedulingGroup={"podGroupName": group})


def test_a_group_of_which_only_some_members_are_bound_is_a_fault() -> None:
    whole = [in_group("a", "n1"), in_group("b", "n2"), in_group("c", None, "g2")]
    assert faults(NODES, whole, []) == []
    partly = [*whole, in_group("d", None)]
    assert faults(NODES, partly, []) == ["group g1 is partly bound: 2 of 3 pods"]


def claim(uid: str, node: str, *numbers: int, pod: str = "") -> dict[str, Any]:
    results = [{"pool": node, "device": f"device-{number}"} for number in numbers]
    reserved = [{"resource": "pods", "name": pod, "uid": pod}] if pod else []
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return {"metadata": {"uid": uid}, "status": status}


def on_n1(name: str) -> dict[str, Any]:
    raw = a_pod(name, "n1")
    return {**raw, "metadata": {**raw["metadata"], "uid": name}}


def test_a_device_of_two_claims_is_a_fault() -> None:
    right = [claim("c1", "n1", 0, pod="a"), claim("c2", "n1", 1), claim("c3", "n2", 0)]
    assert device_faults([on_n1("a")], right, Devices()) == []
    assert device_faults([on_n1("a")], [*right, claim("c4", "n1", 0)], Devices()) == [
        "device-0 of node n1 is allocated 2 times"
    ]


@pytest.mark.parametrize(
    ("of_pod", "fault"),
    [
        ([], "pod a has 0 devices instead of 2"),
        ([claim("c1", "n1", 0, pod="a")], "pod a has 1 devices instead of 2"),
        ([claim("c1", "n2", 0, 2, pod="a")], "pod a is on n1, and its devices are on another node"),
        ([claim("c1", "n1", 0, 1, pod="a")], "the devices of pod a are on 2 PCI roots"),
    ],
)
def test_the_devices_of_a_bound_pod_have_to_be_what_it_claims(
    of_pod: list[dict[str, Any]], fault: str
) -> None:
    wanted = Devices(requests=2, one_root=True)
    assert device_faults([on_n1("a")], [claim("c1", "n1", 0, 2, pod="a")], wanted) == []
    assert device_faults([on_n1("a")], of_pod, wanted) == [fault]


def test_the_claims_of_a_pod_without_a_node_may_wait() -> None:
    waiting = {**on_n1("a"), "spec": {}}
    assert device_faults([waiting], [{"metadata": {"uid": "c1"}}], Devices()) == []
