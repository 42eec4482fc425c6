import gc
from typing import Any, Final

import orjson
import pytest

from memory import traced_memory
from mooring.claims.model.resource_claims import PodClaim
from mooring.model.manifest_error import ManifestError
from mooring.model.pod import parse_pod
from mooring.model.pod_spec import HostPort, PodSpec, PodSpecCache
from mooring.testing.builders import pod, toleration

HARD: Final = "requiredDuringSchedulingIgnoredDuringExecution"
LARGE: Final = {"key": "app", "operator": "In", "values": [f"{n:060}" for n in range(3000)]}


def anti_affinity(**term: Any) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {HARD: [{"topologyKey": "zone", **term}]}}}


def spec_of(raw: dict[str, Any]) -> PodSpec:
    return parse_pod(raw).spec


def spec(**fields: Any) -> dict[str, Any]:
    return pod(spec=fields)


def test_copies_of_a_template_share_one_spec() -> None:
    first = pod("web-1", cpu="1", labels={"app": "web"}, annotations={"a": "1"})
    second = pod("web-2", cpu="1", labels={"app": "db"})
    assert spec_of(first) is spec_of(second)


@pytest.mark.parametrize(
    "other",
    [
        pod(cpu="2"),
        pod(cpu="1", namespace="team-b"),
        pod(cpu="1", priority=5),
        pod(cpu="1", ports=[80]),
        pod(cpu="1", images=("other",)),
        pod(cpu="1", node_selector={"disk": "ssd"}),
        pod(cpu="1", tolerations=[toleration()]),
        pod(cpu="1", gates=["wait"]),
        pod(cpu="1", affinity={"podAffinity": {}}),
        pod(cpu="1", spread=[{"topologyKey": "zone"}]),
        pod(cpu="1", spec={"schedulerName": "mooring"}),
    ],
)
def test_pods_that_differ_in_a_field_of_the_spec_have_different_specs(
    other: dict[str, Any],
) -> None:
    assert spec_of(other) is not spec_of(pod(cpu="1"))


def test_the_key_of_a_spec_that_is_kept_occupies_little() -> None:
    assert min(memory_of_specs(range(n, n + 200)) for n in (1, 201, 401)) < 4_000 * 200


def memory_of_specs(millis: range) -> int:
    """Return the bytes that the specs of pods with these cpu requests (millicores) take."""
    pods = [pod("web", cpu=f"{n}m") for n in millis]
    with traced_memory() as taken_so_far:
        kept = [parse_pod(raw).spec for raw in pods]
        assert len(kept) == len(millis)
        return taken_so_far()


def test_a_pod_with_defaults_has_no_constraints() -> None:
    parsed = spec_of(spec(containers=[{"name": "c"}], schedulerName=None, priority=None))
    assert parsed.scheduler_name == "default-scheduler"
    assert (parsed.priority, parsed.preempts, parsed.qos) == (0, True, "BestEffort")
    assert parsed.node_selector.empty
    assert parsed.affinity.empty
    assert not parsed.demand.resources
    assert not any((parsed.gates, parsed.tolerations, parsed.host_ports, parsed.spread))


def test_a_parsed_spec_has_the_fields_of_the_raw_one() -> None:
    parsed = spec_of(
        spec(
            priority=10,
            preemptionPolicy="Never",
            schedulingGates=[{"name": "a"}, {"name": "b"}],
            nodeSelector={"disk": "ssd"},
            resourceClaims=[
                {"name": "gpu", "resourceClaimTemplateName": "one"},
                {"name": "nic", "resourceClaimName": "shared"},
            ],
        )
    )
    assert (parsed.priority, parsed.preempts) == (10, False)
    assert parsed.resource_claims == (PodClaim("gpu", "", "one"), PodClaim("nic", "shared", ""))
    assert parsed.gates == ("a", "b")
    assert parsed.node_selector.matches({"disk": "ssd", "other": "label"})


def test_node_affinity_is_compiled() -> None:
    match = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [match]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": match}],
        }
    }
    parsed = spec_of(pod(affinity=affinity))
    assert parsed.required_nodes is not None
    assert parsed.required_nodes.matches("n1", {"disk": "ssd"})
    assert [preferred.weight for preferred in parsed.preferred_nodes] == [3]


def test_host_ports_are_those_of_containers_and_sidecars_each_once() -> None:
    def container(*ports: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {"name": "c", "ports": list(ports), **fields}

    parsed = spec_of(
        spec(
            containers=[
                container({"hostPort": 80}, {"containerPort": 9}, {"hostPort": 0}),
                container({"hostPort": 80}),
            ],
            initContainers=[
                container({"hostPort": 81}),
                container(
                    {"hostPort": 82, "protocol": "UDP", "hostIP": "10.0.0.1"},
                    restartPolicy="Always",
                ),
            ],
        )
    )
    assert set(parsed.host_ports) == {
        HostPort("TCP", 80, "0.0.0.0"),
        HostPort("UDP", 82, "10.0.0.1"),
    }
    assert len(parsed.host_ports) == 2


def test_images_are_those_of_all_containers_and_of_image_volumes() -> None:
    parsed = spec_of(
        spec(
            initContainers=[{"name": "i", "image": "init:v1"}],
            containers=[{"name": "c", "image": "app"}, {"name": "d"}],
            volumes=[
                {"name": "v", "image": {"reference": "model:v2"}},
                {"name": "e", "emptyDir": {}, "image": None},
            ],
        )
    )
    assert parsed.images == ("init:v1", "app:latest")
    assert parsed.volume_images == ("model:v2",)
    assert parsed.container_count == 3


def test_a_resize_under_way_counts_for_an_assigned_pod_only() -> None:
    grown = {"containerStatuses": [{"name": "c0", "resources": {"requests": {"cpu": "3"}}}]}
    waiting, placed = pod(cpu="1", status=grown), pod(cpu="1", node="n1", status=grown)
    assert spec_of(waiting).demand.resources["cpu"] == 1000
    assert spec_of(placed).demand.resources["cpu"] == 3000


def test_in_an_infeasible_resize_the_used_amounts_count() -> None:
    status = {
        "containerStatuses": [{"name": "c0", "resources": {"requests": {"cpu": "1"}}}],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    }
    assert spec_of(pod(cpu="8", node="n1", status=status)).demand.resources["cpu"] == 1000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"containers": {}}, "spec.containers: must be a list, not {}"),
        ({"initContainers": [1]}, "spec.initContainers[0]: must be an object, not 1"),
        ({"nodeSelector": ["a"]}, "spec.nodeSelector: must be an object, not ['a']"),
        ({"priority": "high"}, "spec.priority: must be a whole number, not 'high'"),
        ({"affinity": {"nodeAffinity": 1}}, "spec.affinity.nodeAffinity: must be an object, not 1"),
        ({"schedulingGates": ["a"]}, "spec.schedulingGates[0]: must be an object, not 'a'"),
        ({"volumes": [{"image": "x"}]}, "spec.volumes[0].image: must be an object, not 'x'"),
        (
            {"containers": [{"ports": [{"hostPort": "80"}]}]},
            "spec.containers[0].ports[0].hostPort: must be a whole number, not '80'",
        ),
        (
            {"initContainers": [{"image": 7}]},
            "spec.initContainers[0].image: must be a string, not 7",
        ),
    ],
)
def test_a_malformed_field_raises_an_error_with_its_name(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_pod(spec(**fields))
    assert str(caught.value) == f"Pod default/web {message}"


def test_a_value_that_json_does_not_have_raises_an_error() -> None:
    with pytest.raises(ManifestError, match="Pod default/web spec: cannot be written as JSON"):
        parse_pod(spec(nodeSelector={1: "a"}))


def worst(field: str, number: int) -> dict[str, Any]:
    return {field: [{} for _ in range(number)]}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        worst("tolerations", 1000),
        worst("tolerations", 60),
        worst("containers", 500),
        {"containers": [{"image": f"a{number}"} for number in range(500)]},
        {"affinity": {"nodeAffinity": {HARD: {"nodeSelectorTerms": [{}] * 1000}}}},
        anti_affinity(namespaces=[f"n{number}" for number in range(9000)]),
        anti_affinity(labelSelector={"matchExpressions": [LARGE]}),
    ],
    ids=",".join,
)
def test_a_spec_takes_no_more_memory_than_it_says(fields: dict[str, Any]) -> None:
    taken, said = min(memory_of(fields) for _ in range(3))
    assert taken <= said + 5_000
    assert said <= 3 * taken + 50_000


def memory_of(fields: dict[str, Any]) -> tuple[int, int]:
    """Return the measured bytes of a new spec, and the bytes in its field `memory`.

    Other threads, such as that of pytest-xdist, may add to the measured bytes.
    """
    key = orjson.dumps({"namespace": "default", "spec": fields})
    specs = PodSpecCache(2**30)
    specs.of(b'{"namespace": "", "spec": {}}')  # what every first spec makes
    with traced_memory() as taken_so_far:
        parsed = specs.of(key)
        gc.collect()
        taken = taken_so_far()
    return taken, parsed.memory


class TestPodSpecCache:
    @staticmethod
    def key(number: int, size: int = 0) -> bytes:
        spec = {"nodeSelector": {"n": str(number), "x": "x" * size}}
        return orjson.dumps({"namespace": "default", "spec": spec})

    def test_equal_fields_have_one_spec(self) -> None:
        cache = PodSpecCache(100_000)
        assert cache.of(self.key(1)) is cache.of(self.key(1))

    def test_it_keeps_so_many_bytes_and_drops_what_was_used_longest_ago(self) -> None:
        cache = PodSpecCache(1_000_000)
        first = cache.of(self.key(0)).memory
        for number in range(1, 2000):
            cache.of(self.key(number))
            cache.of(self.key(0))
        assert 900_000 <= cache.recent_bytes <= 1_000_000
        assert 200 <= len(cache) <= 1_000_000 // first
        before = len(cache)
        cache.of(self.key(0))
        assert len(cache) == before

    def test_a_huge_spec_drops_no_others_and_goes_with_its_last_pod(self) -> None:
        cache = PodSpecCache(1_000_000)
        cache.of(self.key(0))
        huge = cache.of(self.key(1, size=9_000))
        assert cache.of(self.key(1, size=9_000)) is huge
        assert len(cache) == 2
        del huge
        assert len(cache) == 1

    def test_pods_share_a_spec_for_which_there_is_no_space(self) -> None:
        cache = PodSpecCache(0)
        first = cache.of(self.key(0))
        assert cache.of(self.key(0)) is first
        assert cache.recent_bytes == 0


def test_the_requests_of_containers_are_kept_where_extended_resources_are_requested() -> None:
    containers = [{"name": "app", "resources": {"limits": {"example.com/gpu": 2, "cpu": "1"}}}]
    init = [
        {"name": "setup", "resources": {"requests": {"cpu": "0"}}},
        {"name": "proxy", "restartPolicy": "Always"},
    ]
    spec = parse_pod(pod(spec={"containers": containers, "initContainers": init})).spec
    assert spec.containers == (
        ("setup", "init", {"cpu": 0}),
        ("proxy", "sidecar", {}),
        ("app", "app", {"example.com/gpu": 2, "cpu": 1000}),
    )
    assert spec.extended == ({"example.com/gpu": 2},)
    plain = parse_pod(pod(cpu="1")).spec
    assert (plain.containers, plain.extended) == ((), ())
