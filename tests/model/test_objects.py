from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_builders import (
    allocated,
    device,
    device_claim,
    device_class,
    device_result,
    device_taint_rule,
    request,
    resource_slice,
)
from mooring.model.events import Kind
from mooring.model.manifest_error import ManifestError
from mooring.model.objects import NAMESPACED, is_older, object_key, parse_object
from mooring.testing.builders import (
    api_object,
    coscheduling_pod_group,
    hyper_node,
    kai_pod_group,
    node,
    pdb,
    pod,
    pod_gang,
    pod_group,
    priority_class,
    queue_object,
    service,
    toleration,
    volcano_pod_group,
)
from queue_files import elastic_quota
from storage_builders import pv, pvc, storage_class

Path = tuple[str | int, ...]

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}],
}
RESOURCES = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}


def _whole_affinity() -> dict[str, Any]:
    node_term = {
        "matchExpressions": [{"key": "disk", "operator": "Gt", "values": ["5"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
    }
    pod_term = {
        "topologyKey": "zone",
        "labelSelector": SELECTOR,
        "namespaces": ["a"],
        "namespaceSelector": SELECTOR,
    }
    both_ways = {HARD: [pod_term], SOFT: [{"weight": 1, "podAffinityTerm": pod_term}]}
    return {
        "nodeAffinity": {
            HARD: {"nodeSelectorTerms": [node_term]},
            SOFT: [{"weight": 1, "preference": node_term}],
        },
        "podAffinity": both_ways,
        "podAntiAffinity": both_ways,
    }


def _whole_status() -> dict[str, Any]:
    statuses = [{"name": "c0", "resources": RESOURCES, "allocatedResources": {"cpu": "1"}}]
    return {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "m"},
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible"},
        ],
        "containerStatuses": statuses,
        "initContainerStatuses": statuses,
        "resources": RESOURCES,
        "allocatedResources": {"cpu": "1"},
    }


def a_pod_with_everything() -> dict[str, Any]:
    return pod(
        namespace="team-a",
        cpu="1",
        labels={"app": "web"},
        annotations={"a": "b"},
        node="n1",
        nominated="n2",
        ports=[{"containerPort": 80, "hostPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"}],
        node_selector={"disk": "ssd"},
        affinity=_whole_affinity(),
        spread=[{"maxSkew": 1, "topologyKey": "zone", "minDomains": 1, "labelSelector": SELECTOR}],
        tolerations=[toleration("a", "b")],
        gates=["wait"],
        group="train",
        owner={"kind": "ReplicaSet", "name": "web", "uid": "1"},
        started="2026-01-01T00:00:00Z",
        terminating=True,
        spec={
            "initContainers": [{"name": "i", "image": "i", "resources": RESOURCES}],
            "overhead": {"cpu": "1"},
            "resources": RESOURCES,
            "resourceClaims": [{"name": "gpu"}],
            "volumes": [
                {"name": "v", "image": {"reference": "model"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "e", "ephemeral": {}},
                {"name": "d", "awsElasticBlockStore": {"volumeID": "1", "readOnly": True}},
                {"name": "r", "rbd": {"monitors": ["m"], "pool": "p", "image": "i"}},
                {"name": "s", "csi": {"driver": "d"}},
            ],
        },
        status=_whole_status(),
    )


def a_node_with_everything() -> dict[str, Any]:
    return node(
        "n1",
        zone="a",
        annotations={"a": "b"},
        taints=["a=b:NoSchedule"],
        unschedulable=True,
        images={"app": 5},
        resources={"example.com/gpu": 1},
    )


WORKLOAD = {"selector": {"matchLabels": {"app": "web"}}}
OBJECTS: dict[Kind, dict[str, Any]] = {
    Kind.POD: a_pod_with_everything(),
    Kind.NODE: a_node_with_everything(),
    Kind.NAMESPACE: api_object("Namespace", "team-a", labels={"a": "b"}),
    Kind.SERVICE: service("web", {"app": "web"}),
    Kind.PERSISTENT_VOLUME: pv("pv-1", nodes=["n1"], claim="team-a/data", labels={"a": "b"}),
    Kind.PERSISTENT_VOLUME_CLAIM: pvc("data", volume="pv-1"),
    Kind.STORAGE_CLASS: storage_class(
        "fast",
        allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
    ),
    Kind.CSI_NODE: api_object(
        "CSINode", "n1", spec={"drivers": [{"name": "d", "allocatable": {"count": 1}}]}
    ),
    Kind.CSI_DRIVER: api_object("CSIDriver", "d", spec={"storageCapacity": True}),
    Kind.CSI_STORAGE_CAPACITY: api_object(
        "CSIStorageCapacity",
        "c",
        namespace="team-a",
        storageClassName="fast",
        nodeTopology={"matchLabels": {"zone": "a"}},
        capacity="1Gi",
    ),
    Kind.VOLUME_ATTACHMENT: api_object(
        "VolumeAttachment",
        "a",
        spec={"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
    ),
    Kind.POD_DISRUPTION_BUDGET: pdb("web", {"app": "web"}),
    Kind.REPLICA_SET: api_object("ReplicaSet", "web", namespace="team-a", spec=WORKLOAD),
    Kind.REPLICATION_CONTROLLER: api_object(
        "ReplicationController", "web", spec={"template": {"metadata": {"labels": {"a": "b"}}}}
    ),
    Kind.STATEFUL_SET: api_object("StatefulSet", "web", spec=WORKLOAD),
    Kind.PRIORITY_CLASS: priority_class("high", 10),
    Kind.POD_GROUP: pod_group(
        "train",
        3,
        topology=["rack"],
        disruption_mode="PodGroup",
        priority=1,
        annotations={"a": "b"},
        status={"conditions": [{"type": "PodGroupScheduled", "status": "True"}]},
    ),
    Kind.VOLCANO_POD_GROUP: volcano_pod_group("g", 2),
    Kind.HYPER_NODE: hyper_node(
        "s0",
        1,
        {"type": "Node", "selector": {"exactMatch": {"name": "n"}}},
        {"type": "Node", "selector": {"regexMatch": {"pattern": "^n"}}},
        {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "r"}}}},
        {"type": "HyperNode", "selector": {"exactMatch": {"name": "s1"}}},
        tierName="rack",
    ),
    Kind.QUEUE: queue_object(
        "team-a",
        {"cpu": {"nominalQuota": "4", "borrowingLimit": 2, "lendingLimit": "1"}, "pods": 10},
        parent="all",
        selector={"matchLabels": {"team": "a"}},
        fairSharing={"weight": "2"},
        preemption={"reclaimWithinCohort": "Any", "withinQueue": "Never"},
        status={"pods": 1},
    ),
    Kind.ELASTIC_QUOTA: elastic_quota(
        "team-a", "team-a", min={"cpu": 4, "pods": 10}, max={"cpu": "5500m", "memory": "1Gi"}
    ),
    Kind.POD_GANG: pod_gang(
        "g",
        {"a": 2},
        topologyConstraint={"packConstraint": {"required": "zone", "preferred": "rack"}},
        topologyConstraintGroupConfigs=[{"name": "c", "topologyConstraint": {}}],
    ),
    Kind.KAI_POD_GROUP: kai_pod_group(
        "g",
        2,
        topologyConstraint={"requiredTopologyLevel": "rack"},
        subGroups=[{"name": "a", "minMember": 1, "parent": "b"}, {"name": "b"}],
    ),
    Kind.COSCHEDULING_POD_GROUP: coscheduling_pod_group(
        "train",
        3,
        resources={"cpu": 1},
        timeout=60,
        annotations={"scheduling.mooring.dev/topology-keys": "rack"},
        status={"phase": "Running", "running": 1},
    ),
    Kind.RESOURCE_CLAIM: device_claim(
        "c",
        request(selectors=[{"cel": {"expression": "true"}}], tolerations=[{"key": "a"}]),
        {"name": "s", "firstAvailable": [{"name": "t", "capacity": {"requests": {"m": "1"}}}]},
        owner="web",
        allocation=allocated(device_result("d", consumedCapacity={"m": "1"}), node="n1"),
        reserved_for=["web"],
        status={
            "devices": [{"driver": "d", "conditions": [{"type": "Ready", "status": "True"}]}],
        },
        constraints=[{"requests": ["r"], "matchAttribute": "d/a"}],
        config=[{"requests": ["r"], "opaque": {"driver": "d", "parameters": {}}}],
    ),
    Kind.RESOURCE_SLICE: resource_slice(
        "s",
        [
            device(
                "d",
                attributes={"a": 1, "b": "x", "c": True},
                capacity={
                    "m": {
                        "value": "1",
                        "requestPolicy": {
                            "default": "1",
                            "validValues": ["1"],
                            "validRange": {"min": "1"},
                        },
                    }
                },
                consumesCounters=[{"counterSet": "s", "counters": {"m": {"value": "1"}}}],
                nodeSelector={"nodeSelectorTerms": []},
                taints=[{"key": "a", "effect": "NoSchedule"}],
            )
        ],
        node="n1",
        sharedCounters=[{"name": "s", "counters": {"m": {"value": "1"}}}],
    ),
    Kind.DEVICE_CLASS: device_class(
        "gpu",
        "true",
        config=[{"opaque": {"driver": "d", "parameters": {}}}],
        extendedResourceName="example.com/gpu",
    ),
    Kind.DEVICE_TAINT_RULE: device_taint_rule("sick", "a:NoSchedule", driver="d", pool="p"),
}
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**63, 1.5, float("nan"), "", "x", "9" * 5000),
    *([], [None], [[]], [1], ["x"], [{}]),
    *({}, {"x": None}, {"x": 1}, {"x": "y"}, {"x": []}, {"x": {}}),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
)


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every field and list item, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*at, key)
        if isinstance(inner, dict | list):
            yield from paths(inner, (*at, key))


def replaced(raw: Any, path: Path, value: Any) -> Any:
    """Return a copy with this value at the path; the copy shares all other parts with `raw`."""
    key, *rest = path
    changed = raw.copy()
    changed[key] = replaced(raw[key], tuple(rest), value) if rest else value
    return changed


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [("9", "10", True), ("10", "9", False), ("10", "10", False), ("10", "11", True)],
)
def test_resource_versions_are_compared_as_numbers(
    version: str,
    than: str,
    older: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert is_older(version, than) == older


def test_every_kind_of_object_is_tried_here() -> None:
    assert OBJECTS.keys() == set(Kind) - {Kind.UNSCHEDULED_POD}


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_kind_is_parsed(kind: Kind) -> None:
    raw = OBJECTS[kind]
    assert parse_object(kind, raw).name == raw["metadata"]["name"]


@pytest.mark.parametrize("kind", OBJECTS)
def test_the_key_is_the_name_with_the_namespace_where_there_is_one(kind: Kind) -> None:
    raw = api_object(str(kind), "web")
    assert object_key(kind, raw) == ("default/web" if kind in NAMESPACED else "web")
    assert object_key(kind, {**raw, "metadata": {"name": "web", "namespace": "team-a"}}) == (
        "team-a/web" if kind in NAMESPACED else "web"
    )


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("metadata", [{}, {"name": ""}, {"name": ["web"]}, None, []])
def test_an_object_without_a_name_raises_an_error(kind: Kind, metadata: Any) -> None:
    raw = {**OBJECTS[kind], "metadata": metadata}
    with pytest.raises(ManifestError, match=rf"^{raw['kind']} .*metadata"):
        parse_object(kind, raw)
    with pytest.raises(ManifestError, match="metadata"):
        object_key(kind, raw)


@pytest.mark.deep
@pytest.mark.parametrize("kind", OBJECTS)
def test_any_value_in_a_field_is_parsed_or_raises_an_error_with_the_objects_name(
    kind: Kind,
) -> None:
    raw = OBJECTS[kind]
    for path in paths(raw):
        for value in ODD_VALUES:
            with suppress(ManifestError):
                parse_object(kind, replaced(raw, path, value))


@pytest.mark.parametrize("kind", OBJECTS)
@given(data=st.data())
def test_any_json_in_a_field_is_parsed_or_raises_an_error_with_the_objects_name(
    kind: Kind, data: st.DataObject
) -> None:
    raw = OBJECTS[kind]
    path = data.draw(st.sampled_from(list(paths(raw))))
    with suppress(ManifestError):
        parse_object(kind, replaced(raw, path, data.draw(JSON)))
