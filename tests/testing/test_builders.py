from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.model.pod_spec import HostPort
from mooring.model.taints import Taint, Toleration
from mooring.testing.builders import (
    CREATED,
    api_object,
    cluster,
    namespace,
    node,
    pdb,
    pod,
    priority_class,
    service,
    toleration,
)


def test_a_pod_of_one_word_is_stored_pending_and_requests_nothing() -> None:
    raw = pod("web")
    parsed = parse_pod(raw)
    assert (parsed.key, parsed.phase, parsed.node_name) == ("default/web", "Pending", None)
    assert parsed.uid
    assert raw["metadata"]["creationTimestamp"] == CREATED
    assert parsed.spec.demand.resources == {}


def test_a_pod_says_what_it_was_told() -> None:
    raw = pod(
        "web",
        namespace="team-a",
        cpu="500m",
        requests={"example.com/gpu": 2},
        node="n1",
        ports=[80, {"containerPort": 1, "hostPort": 53, "protocol": "UDP"}],
        images=("a", "b"),
        gates=["wait"],
        claims=["data"],
        nominated="n2",
        terminating=True,
        owner={"kind": "ReplicaSet", "name": "web", "uid": "u"},
    )
    parsed = parse_pod(raw)
    assert parsed.spec.demand.resources == {"cpu": 500, "example.com/gpu": 2}
    assert (parsed.node_name, parsed.phase, parsed.nominated_node) == ("n1", "Running", "n2")
    assert parsed.spec.host_ports == (
        HostPort("TCP", 80, "0.0.0.0"),
        HostPort("UDP", 53, "0.0.0.0"),
    )
    assert parsed.spec.images == ("a:latest", "b:latest")
    assert parsed.spec.gates == ("wait",)
    assert parsed.terminating
    assert parsed.owner is not None
    assert len(parsed.volumes) == 1


def test_further_fields_of_spec_and_status_replace_those_of_the_builder() -> None:
    raw = pod(spec={"schedulerName": "other"}, status={"phase": "Succeeded"})
    assert raw["spec"]["schedulerName"] == "other"
    assert parse_pod(raw).finished


def test_taints_are_written_as_for_kubectl() -> None:
    parsed = parse_node(node("n1", taints=["dedicated=gpu:NoSchedule", "broken:NoExecute"]))
    assert parsed.taints == (
        Taint("dedicated", "gpu", "NoSchedule"),
        Taint("broken", "", "NoExecute"),
    )


def test_a_toleration_without_a_value_tolerates_every_value() -> None:
    (any_value, one_value) = parse_pod(
        pod(tolerations=[toleration("dedicated"), toleration("dedicated", "gpu", "NoSchedule")])
    ).spec.tolerations
    assert any_value == Toleration("dedicated", "Exists", "", "")
    assert one_value == Toleration("dedicated", "Equal", "gpu", "NoSchedule")


def test_a_node_carries_its_hostname_and_zone_as_labels() -> None:
    parsed = parse_node(node("n1", zone="a", labels={"disk": "ssd"}, images={"img:v1": 7}))
    assert parsed.labels == {
        "kubernetes.io/hostname": "n1",
        "topology.kubernetes.io/zone": "a",
        "disk": "ssd",
    }
    assert parsed.images == {"img:v1": 7}
    assert parsed.conditions == {"Ready": "True"}


def test_a_cluster_places_pods_on_their_nodes_and_keeps_the_other_objects() -> None:
    state = cluster(
        node("n1"),
        pod("web", cpu="1", node="n1"),
        pod("waiting"),
        namespace("team-a", {"env": "prod"}),
        service("front", {"app": "web"}),
        priority_class("high", 10, default=True, policy="Never"),
        pdb("budget", {"app": "web"}, allowed=1),
        api_object("CSINode", "n1", spec={"drivers": []}),
    )
    assert [placed.pod.key for placed in state.pods] == ["default/web"]
    assert state.nodes.requested.at("cpu", 0) == 1000
    assert state.objects.namespace_labels("team-a")["env"] == "prod"
    assert [*state.objects.of(Kind.SERVICE)] == ["default/front"]
    assert state.objects.of(Kind.PRIORITY_CLASS)["high"].preemption_policy == "Never"
    assert state.objects.of(Kind.POD_DISRUPTION_BUDGET)["default/budget"].disruptions_allowed == 1
    assert [*state.objects.of(Kind.CSI_NODE)] == ["n1"]
