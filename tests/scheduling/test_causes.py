"""The cause of an unschedulable pod: the reasons of the nodes nearest to fitting."""

from collections.abc import Mapping
from typing import Any

from deciding import Deciding
from mooring.scheduling.outcome import FitError
from mooring.testing.builders import node, pod
from pod_terms import apart, near, spread_evenly, to_pods
from storage_builders import pv, pvc

Raw = Mapping[str, Any]
OTHER_POOL = [node(f"other-{number}", labels={"pool": "other"}) for number in range(9)]
GPU = "nvidia.com/gpu"


def cause(deciding: Deciding, raw: Raw) -> str:
    outcome = deciding.outcome(raw)
    assert isinstance(outcome, FitError)
    return outcome.cause


def selecting(name: str, key: str, value: str, **fields: Any) -> Raw:
    return pod(name, spec={"nodeSelector": {key: value}}, **fields)


def test_a_pod_that_is_too_large_for_its_own_pool_lacks_cpu() -> None:
    deciding = Deciding(node("own", cpu="2", labels={"pool": "own"}), *OTHER_POOL)
    assert cause(deciding, selecting("web", "pool", "own", cpu="3")) == "Insufficient cpu"


def test_a_pod_whose_own_pool_is_full_lacks_cpu() -> None:
    own = node("own", cpu="2", labels={"pool": "own"})
    deciding = Deciding(own, pod("first", cpu="2", node="own"), *OTHER_POOL)
    assert cause(deciding, selecting("web", "pool", "own", cpu="1")) == "Insufficient cpu"


def test_a_node_without_any_of_a_resource_is_not_near() -> None:
    deciding = Deciding(
        *OTHER_POOL,
        node("gpu", resources={GPU: 8}, taints=["dedicated=gpu:NoSchedule"]),
    )
    assert cause(deciding, pod("train", requests={GPU: 1})) == ("node(s) had untolerated taint(s)")


def test_a_node_that_one_filter_rejects_is_nearer_than_one_that_two_reject() -> None:
    away = apart(to_pods({"app": "db"}, "zone"))
    full = [node(f"full-{number}", cpu="1", labels={"zone": "z"}) for number in range(5)]
    users = [pod(f"user-{number}", cpu="1", node=f"full-{number}") for number in range(5)]
    deciding = Deciding(
        *full,
        *users,
        node("free", labels={"zone": "z"}),
        pod("db-0", labels={"app": "db"}, node="free"),
    )
    assert cause(deciding, pod("db-1", cpu="500m", labels={"app": "db"}, affinity=away)) == (
        "node(s) didn't match pod anti-affinity rules"
    )


def test_all_that_the_nearest_node_lacks_is_named() -> None:
    deciding = Deciding(node("a", cpu="1", memory="1Gi"), node("b", cpu="1", memory="1Gi"))
    assert cause(deciding, pod("web", cpu="2", memory="2Gi")) == (
        "Insufficient cpu and Insufficient memory"
    )


def test_a_node_that_lacks_less_is_nearer() -> None:
    deciding = Deciding(
        *(node(f"small-{number}", cpu="1", memory="1Gi") for number in range(5)),
        node("large", cpu="4", memory="1Gi"),
    )
    assert cause(deciding, pod("web", cpu="2", memory="2Gi")) == "Insufficient memory"


def test_a_volume_keeps_a_pod_in_a_zone_that_is_full() -> None:
    zone = "topology.kubernetes.io/zone"
    deciding = Deciding(
        node("a", cpu="1", labels={zone: "a"}),
        pod("first", cpu="1", node="a"),
        *(node(f"b-{number}", labels={zone: "b"}) for number in range(5)),
        pv("v", labels={zone: "a"}, claim="default/data"),
        pvc("data", volume="v"),
    )
    assert cause(deciding, pod("web", cpu="1", claims=["data"])) == "Insufficient cpu"


def test_where_all_filters_run_the_nearest_node_is_the_one_that_the_fewest_reject() -> None:
    deciding = Deciding(
        *(node(f"cordoned-{number}", cpu="1", unschedulable=True) for number in range(5)),
        node("small", cpu="1"),
        alwaysCheckAllFilters=True,
    )
    assert cause(deciding, pod("web", cpu="2")) == "Insufficient cpu"


def test_a_label_that_no_node_has_is_named() -> None:
    deciding = Deciding(*OTHER_POOL)
    assert cause(deciding, selecting("web", "pool", "onw")) == "no node has the label pool=onw"


def test_a_topology_key_that_no_node_has_is_named() -> None:
    zone = "topology.kubernetes.io/zone"
    spread = spread_evenly({"app": "web"}, "topology.kubernetes.io/zome")
    beside = near(to_pods({"app": "web"}, "zome"))
    deciding = Deciding(node("a", labels={zone: "a"}))
    labels = {"app": "web"}
    assert cause(deciding, pod("web", labels=labels, spread=[spread])) == (
        "no node has the topologyKey topology.kubernetes.io/zome"
    )
    assert cause(deciding, pod("web", labels=labels, affinity=beside)) == (
        "no node has the topologyKey zome"
    )


def test_a_storage_class_that_does_not_exist_is_named() -> None:
    deciding = Deciding(node("a"), pvc("data", storage_class="fsat"))
    assert cause(deciding, pod("web", claims=["data"])) == (
        'StorageClass "fsat" of an unbound claim does not exist'
    )


def test_the_cause_may_be_that_there_is_no_node() -> None:
    assert cause(Deciding(), pod("web")) == "no nodes available to schedule pods"
