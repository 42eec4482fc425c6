from typing import Any

import pytest

from mooring.model.events import Kind
from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST
from mooring.model.pod import parse_pod
from mooring.model.resources import CPU, MEMORY
from mooring.model.workloads import parse_priority_class
from mooring.simulate.admission import Admission, Forbidden, as_stored
from mooring.testing.builders import api_object, node, pod_group, priority_class, toleration
from storage_builders import pv


def manifest(**spec: Any) -> dict[str, Any]:
    """Return a raw pod with this spec, as a user writes it."""
    return {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [], **spec}}


def admitted(
    raw: dict[str, Any], *objects: dict[str, Any], version: str = NEWEST.version
) -> dict[str, Any]:
    classes = [parse_priority_class(o) for o in objects if o["kind"] == "PriorityClass"]
    runtimes = [o for o in objects if o["kind"] == "RuntimeClass"]
    limit_ranges = [o for o in objects if o["kind"] == "LimitRange"]
    rules = KUBERNETES_RULES[version]
    return Admission(classes, runtimes, limit_ranges, kubernetes=rules).pod(raw)


def test_a_pod_without_a_uid_gets_one_that_is_always_the_same() -> None:
    assert admitted(manifest())["metadata"]["uid"] == "default/web"


def test_a_pod_gets_the_priority_and_the_policy_of_its_class() -> None:
    spec = admitted(manifest(priorityClassName="high"), priority_class("high", 7, policy="Never"))[
        "spec"
    ]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")


@pytest.mark.parametrize(
    ("name", "value"),
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)],
)
def test_the_system_priority_classes_always_exist(name: str, value: int) -> None:
    assert admitted(manifest(priorityClassName=name))["spec"]["priority"] == value


def test_a_pod_without_a_class_gets_the_global_default_with_the_lowest_value() -> None:
    spec = admitted(
        manifest(),
        priority_class("some", 5, default=True),
        priority_class("less", 3, default=True),
        priority_class("none", 1),
    )["spec"]
    assert spec["priority"] == 3


def test_without_any_default_a_pod_has_priority_0() -> None:
    spec = admitted(manifest(), priority_class("some", 5))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")


def test_a_stored_pod_keeps_its_priority_though_its_class_is_gone() -> None:
    raw = manifest(priority=1, priorityClassName="gone")
    raw["metadata"]["uid"] = "u"
    assert admitted(raw)["spec"]["priority"] == 1


def rejection(raw: dict[str, Any], *objects: dict[str, Any]) -> str:
    with pytest.raises(Forbidden) as caught:
        admitted(raw, *objects)
    return str(caught.value)


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        (manifest(priorityClassName="high"), "no PriorityClass with name high was found"),
        (manifest(runtimeClassName="kata"), 'pod rejected: RuntimeClass "kata" not found'),
        (
            manifest(overhead={"cpu": "1m"}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    ],
)
def test_a_class_that_does_not_exist_forbids_the_pod_as_the_api_server_says(
    raw: dict[str, Any], answer: str
) -> None:
    assert rejection(raw) == f'pods "web" is forbidden: {answer}'


def test_a_stored_pod_keeps_its_place_though_its_runtime_class_is_gone() -> None:
    raw = manifest(runtimeClassName="kata")
    raw["metadata"]["uid"] = "u"
    assert admitted(raw)["spec"] == raw["spec"] | {
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def test_a_new_pod_may_only_say_the_priority_of_its_class() -> None:
    high = priority_class("high", 7, policy="Never")
    same = manifest(priorityClassName="high", priority=7, preemptionPolicy="Never")
    assert admitted(same, high)["spec"]["priority"] == 7
    assert rejection(manifest(priority=100)) == (
        'pods "web" is forbidden: the integer value of priority (100) must not be provided in pod '
        "spec; priority admission controller computed 0 from the given PriorityClass name"
    )
    assert rejection(manifest(priorityClassName="high", priority=8), high).endswith(
        "computed 7 from the given PriorityClass name"
    )
    assert "the string value of PreemptionPolicy (Never) must not be provided" in rejection(
        manifest(preemptionPolicy="Never")
    )


HEAVY = api_object("RuntimeClass", "heavy", overhead={"podFixed": {"cpu": "250m"}})


def test_a_pod_gets_the_overhead_of_its_runtime_class() -> None:
    spec = admitted(manifest(runtimeClassName="heavy"), HEAVY)["spec"]
    assert spec["overhead"] == {"cpu": "250m"}
    same = manifest(runtimeClassName="heavy", overhead={"cpu": "0.25"})
    assert admitted(same, HEAVY)["spec"]["overhead"] == {"cpu": "0.25"}


def test_another_overhead_than_that_of_the_runtime_class_forbids_the_pod() -> None:
    own = manifest(runtimeClassName="heavy", overhead={"cpu": "1m"})
    assert "Pod's Overhead doesn't match" in rejection(own, HEAVY)


def test_a_pod_gets_node_selector_and_tolerations_of_its_runtime_class() -> None:
    tolerated = toleration("kata")
    kata = api_object(
        "RuntimeClass",
        "kata",
        scheduling={"nodeSelector": {"runtime": "kata"}, "tolerations": [tolerated]},
    )
    own = manifest(runtimeClassName="kata", nodeSelector={"disk": "ssd"})
    spec = admitted(own, kata)["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "runtime": "kata"}
    assert tolerated in spec["tolerations"]
    other = manifest(runtimeClassName="kata", nodeSelector={"runtime": "runc"})
    assert "conflict: runtimeClass.scheduling.nodeSelector[runtime] = kata" in rejection(
        other, kata
    )


def test_a_new_pod_tolerates_nodes_that_are_not_ready_for_a_time() -> None:
    keys = [t["key"] for t in admitted(manifest())["spec"]["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    everything = {"operator": "Exists"}
    assert admitted(manifest(tolerations=[everything]))["spec"]["tolerations"] == [everything]


def test_on_the_network_of_the_host_a_port_of_a_container_is_one_of_the_node() -> None:
    container = {"name": "c", "ports": [{"containerPort": 80}]}
    spec = admitted(manifest(hostNetwork=True, containers=[container]))["spec"]
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80}]


def test_label_keys_of_terms_narrow_their_selectors_for_a_new_pod() -> None:
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        "matchLabelKeys": ["version", "absent"],
        "mismatchLabelKeys": ["team"],
    }
    without = {"topologyKey": "zone", "matchLabelKeys": ["version"]}
    affinity = {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": term}
            ]
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term, without]},
    }
    raw = manifest(affinity=affinity)
    raw["metadata"]["labels"] = {"version": "2", "team": "a"}
    expected = [
        {"key": "app", "operator": "Exists"},
        {"key": "version", "operator": "In", "values": ["2"]},
        {"key": "team", "operator": "NotIn", "values": ["a"]},
    ]
    merged = {**term, "labelSelector": {"matchExpressions": expected}}
    assert admitted(raw)["spec"]["affinity"] == {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": merged}
            ]
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [merged, without]},
    }
    raw["metadata"]["uid"] = "u"
    assert admitted(raw)["spec"]["affinity"] == affinity


def test_a_new_pod_gets_what_the_limit_range_says_and_a_stored_one_does_not() -> None:
    item = {"type": "Container", "default": {"cpu": "1"}}
    limit_range = api_object("LimitRange", "small", namespace="default", spec={"limits": [item]})
    raw = manifest(containers=[{"name": "c"}])
    (container,) = admitted(raw, limit_range)["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    raw["metadata"]["uid"] = "u"
    assert admitted(raw, limit_range)["spec"]["containers"] == [{"name": "c"}]


def test_what_the_limit_range_does_not_allow_is_forbidden() -> None:
    item = {"type": "Pod", "min": {"cpu": "1"}, "max": {"memory": "1Gi"}}
    limit_range = api_object("LimitRange", "small", namespace="default", spec={"limits": [item]})
    assert rejection(manifest(containers=[{"name": "c"}]), limit_range) == (
        'pods "web" is forbidden: [minimum cpu usage per Pod is 1.  No request is specified, '
        "maximum memory usage per Pod is 1Gi.  No limit is specified]"
    )


def test_the_given_object_is_not_modified() -> None:
    raw = manifest(priorityClassName="system-node-critical")
    admitted(raw)
    assert raw == manifest(priorityClassName="system-node-critical")


def test_a_namespace_carries_its_name_as_a_label() -> None:
    stored = as_stored(Kind.NAMESPACE, {"metadata": {"name": "a", "labels": {"env": "prod"}}})
    assert stored["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a", "env": "prod"}


def test_a_volume_without_a_phase_is_available_unless_it_has_a_claim() -> None:
    free, taken = pv("v"), pv("v", claim="default/data")
    del free["status"], taken["status"]
    assert as_stored(Kind.PERSISTENT_VOLUME, free)["status"]["phase"] == "Available"
    assert as_stored(Kind.PERSISTENT_VOLUME, taken)["status"]["phase"] == "Bound"
    lost = pv("v") | {"status": {"phase": "Released"}}
    assert as_stored(Kind.PERSISTENT_VOLUME, lost) == lost


def test_a_volume_without_a_source_is_an_empty_folder() -> None:
    disk = {"name": "b", "gcePersistentDisk": {"pdName": "b"}}
    spec = admitted(manifest(volumes=[{"name": "a"}, disk]))["spec"]
    assert spec["volumes"] == [{"name": "a", "emptyDir": {}}, disk]


def test_a_node_with_a_capacity_only_has_it_for_pods() -> None:
    capacity = {"cpu": "4", "pods": "2"}
    raw = {"metadata": {"name": "n1"}, "status": {"capacity": capacity}}
    assert as_stored(Kind.NODE, raw)["status"]["allocatable"] == capacity
    with_less = node("n1", cpu="3")
    with_less["status"]["capacity"] = capacity
    assert as_stored(Kind.NODE, with_less) == with_less


def test_a_replication_controller_without_a_selector_has_the_labels_of_its_template() -> None:
    template = {"metadata": {"labels": {"app": "web"}}}
    raw: dict[str, Any] = {"metadata": {"name": "web"}, "spec": {"template": template}}
    assert as_stored(Kind.REPLICATION_CONTROLLER, raw)["spec"]["selector"] == {"app": "web"}
    raw["spec"]["selector"] = {"tier": "front"}
    assert as_stored(Kind.REPLICATION_CONTROLLER, raw) == raw


ITEM = {"type": "Container", "defaultRequest": {"cpu": "250m", "memory": "64Mi"}}
DEFAULTS = api_object("LimitRange", "small", namespace="default", spec={"limits": [ITEM]})
TWO = [{"name": "a", "resources": {"requests": {"cpu": "1500m"}}}, {"name": "b"}]
POD_LIMITS = {"limits": {"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "4Mi"}}


@pytest.mark.parametrize(
    ("version", "cpu", "memory"),
    [("1.34", 1500, 2**30), ("1.36", 1500, 2**30), ("1.37", 1750, 128 * 2**20)],
)
def test_pod_level_requests_follow_those_of_the_containers_before_or_after_limit_ranges(
    version: str, cpu: int, memory: int
) -> None:
    """The API server sets them before admission plugins until 1.36, and after them since 1.37."""
    raw = admitted(manifest(containers=TWO, resources=POD_LIMITS), DEFAULTS, version=version)
    resources = parse_pod(raw).spec.demand.resources
    assert (resources[CPU], resources[MEMORY]) == (cpu, memory)
    assert resources["hugepages-2Mi"] == 4 * 2**20


def test_pod_level_requests_that_are_set_are_kept() -> None:
    own = {**POD_LIMITS, "requests": {"cpu": "2"}}
    raw = admitted(manifest(containers=TWO, resources=own), DEFAULTS, version="1.36")
    requests = {"cpu": "2", "memory": str(2**30), "hugepages-2Mi": str(4 * 2**20)}
    assert raw["spec"]["resources"]["requests"] == requests


@pytest.mark.parametrize("resources", [None, {"requests": {"cpu": "2"}}])
def test_without_pod_level_limits_no_pod_level_requests_are_filled_in(
    resources: dict[str, Any] | None,
) -> None:
    raw = admitted(manifest(containers=TWO, resources=resources), version="1.36")
    assert raw["spec"]["resources"] == resources


def test_a_group_without_a_class_gets_the_priority_of_the_default_one() -> None:
    raw = pod_group("train", 2)
    default = parse_priority_class(priority_class("some", 5, default=True))
    assert Admission([default], []).pod_group(raw)["spec"]["priority"] == 5
    assert Admission([], []).pod_group(raw)["spec"]["priority"] == 0


def test_a_group_may_only_say_the_priority_of_its_class() -> None:
    given = pod_group("train", 2, priority=7)
    high = parse_priority_class(priority_class("high", 7, default=True))
    assert Admission([high], []).pod_group(given)["spec"]["priority"] == 7
    with pytest.raises(Forbidden, match=r"pod group \(7\) must match the priority computed \(0\)"):
        Admission([], []).pod_group(given)
