"""What `mooring simulate` makes of new objects is what the API server makes of them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from controlplane import ControlPlane
from controlplane.client import ApiError, Client
from mooring.kube.resources import Resource
from mooring.model.events import Kind
from mooring.simulate.admission import Admission, Forbidden, as_stored
from mooring.simulate.kinds import READ, as_read
from object_fields import TABLE

Raw = dict[str, Any]

TYPES: dict[str, dict[str, str]] = json.loads(TABLE.read_text())
SERVED = (
    "resource.k8s.io/v1beta1=true",
    "resource.k8s.io/v1beta2=true",
    "scheduling.k8s.io/v1beta1=true",
    "scheduling.k8s.io/v1alpha3=true",
)
OF_V1BETA1: dict[str, list[Raw]] = {
    "ResourceSlice": [
        {
            "driver": "gpu.example.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "gpu-0",
                    "basic": {
                        "attributes": {"model": {"string": "small"}},
                        "capacity": {"memory": {"value": "40Gi"}},
                    },
                },
                {"name": "gpu-1", "basic": {}},
            ],
        }
    ],
    "ResourceClaim": [
        {
            "devices": {
                "requests": [
                    {"name": "all", "deviceClassName": "a", "allocationMode": "All"},
                    {"name": "two", "deviceClassName": "a", "count": 2, "selectors": []},
                    {
                        "name": "either",
                        "firstAvailable": [
                            {"name": "large", "deviceClassName": "a", "count": 1},
                            {"name": "small", "deviceClassName": "b", "allocationMode": "All"},
                        ],
                    },
                ],
                "constraints": [{"requests": ["two"], "matchAttribute": "example.com/numa"}],
            }
        }
    ],
    "DeviceClass": [{"selectors": [{"cel": {"expression": "device.driver == 'a'"}}]}],
}
OF_V1BETA1["ResourceClaimTemplate"] = [{"spec": spec} for spec in OF_V1BETA1["ResourceClaim"]]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    flags = {"kube-apiserver": (f"--runtime-config={','.join(SERVED)}",)}
    with ControlPlane(flags=flags) as plane, plane.access.client() as client:
        yield client


def schemas(client: Client, resource: Resource) -> Mapping[str, Any]:
    prefix = f"apis/{resource.group}" if resource.group else "api"
    found: Mapping[str, Any] = client.get(f"/openapi/v3/{prefix}/{resource.version}")
    return found["components"]["schemas"]


def unknown_fields(name: str, schema: Mapping[str, Any], all_of: Mapping[str, Any]) -> set[str]:
    """Return the fields that the server has and the table has not, those of inner types as well."""
    found, seen = set[str](), set[tuple[str, str]]()
    left = [(name, schema)]
    while left:
        own, of_server = left.pop()
        for field, inner in of_server.get("properties", {}).items():
            if field not in TYPES[own]:
                found.add(f"{own}.{field}")
                continue
            referred = reference(inner)
            type_name = TYPES[own][field].strip("[]{}")
            if referred and type_name in TYPES and (type_name, referred) not in seen:
                seen.add((type_name, referred))
                left.append((type_name, all_of[referred]))
    return found


def reference(schema: Mapping[str, Any]) -> str:
    """Return the name of the schema that a field, or each of its items or values, has."""
    for inner in (schema, *schema.get("allOf", ())):
        if "$ref" in inner:
            return str(inner["$ref"]).rpartition("/")[2]
        for field in ("items", "additionalProperties"):
            if isinstance(inner.get(field), Mapping) and (found := reference(inner[field])):
                return found
    return ""


def test_every_field_that_the_server_knows_is_known(client: Client) -> None:
    compared, unknown = 0, set[str]()
    served = client.get("/openapi/v3")["paths"]
    for resource in READ:
        if resource.path().rpartition("/")[0].lstrip("/") not in served:
            continue  # a version of another release, or of scheduling.x-k8s.io
        all_of = schemas(client, resource)
        kind = {"group": resource.group, "kind": resource.kind, "version": resource.version}
        for schema in all_of.values():
            if kind in schema.get("x-kubernetes-group-version-kind", ()):
                root = f"{resource.api_version} {resource.kind}"
                unknown |= unknown_fields(root, schema, all_of)
                compared += 1
    assert unknown == set()
    assert compared > 30


def with_defaults(spec: Any) -> Any:
    """Return the fields with those that the API server fills in, and without empty ones."""
    if isinstance(spec, list):
        return [with_defaults(each) for each in spec]
    if not isinstance(spec, dict):
        return spec
    kept = {name: with_defaults(value) for name, value in spec.items()}
    if "deviceClassName" in kept:
        kept = {"allocationMode": "ExactCount", **kept}
        if kept["allocationMode"] == "ExactCount":
            kept = {"count": 1, **kept}
    return {name: value for name, value in kept.items() if value not in ([], {}, None)}


@pytest.mark.parametrize("kind", OF_V1BETA1)
def test_objects_of_v1beta1_are_read_as_the_server_stores_them(client: Client, kind: str) -> None:
    (resource,) = (r for r in READ if (r.kind, r.version) == (kind, "v1beta1"))
    (stable,) = (r for r in READ if (r.kind, r.api_version) == (kind, "resource.k8s.io/v1"))
    namespace = "default" if resource.namespaced else None
    for number, spec in enumerate(OF_V1BETA1[kind]):
        name = f"a{number}"
        raw = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": name}}
        client.post(f"{resource.path(namespace)}?fieldValidation=Strict", {**raw, "spec": spec})
        stored = client.get(stable.path(namespace, name))
        read = as_read({**raw, "spec": spec})
        assert with_defaults(read["spec"]) == with_defaults(stored["spec"])


def test_a_node_has_its_capacity_and_a_controller_its_labels(client: Client) -> None:
    node = {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4", "pods": "2"}}}
    stored = client.post("/api/v1/nodes", node)
    assert stored["status"]["allocatable"] == as_stored(Kind.NODE, node)["status"]["allocatable"]
    template = {
        "metadata": {"labels": {"app": "rc"}},
        "spec": {"containers": [{"name": "c", "image": "a"}]},
    }
    controller = {"metadata": {"name": "rc"}, "spec": {"replicas": 0, "template": template}}
    made = client.post("/api/v1/namespaces/default/replicationcontrollers", controller)
    ours = as_stored(Kind.REPLICATION_CONTROLLER, controller)
    assert made["spec"]["selector"] == ours["spec"]["selector"]


@pytest.mark.parametrize(
    "spec",
    [
        {"priority": 100},
        {"priority": 0},
        {"preemptionPolicy": "Never"},
        {"priorityClassName": "system-node-critical", "priority": 7},
        {"priorityClassName": "nosuch"},
    ],
    ids=str,
)
def test_a_priority_is_admitted_as_by_the_server(client: Client, spec: Raw) -> None:
    containers = [{"name": "c", "image": "a"}]
    raw = {"metadata": {"name": "web"}, "spec": {"containers": containers, **spec}}
    try:
        ours = Admission((), ()).pod(raw)["spec"]
        answer = {name: ours[name] for name in ("priority", "preemptionPolicy")}
    except Forbidden as error:
        answer = {"forbidden": f"403: {error}"}
    try:
        stored = client.post("/api/v1/namespaces/default/pods?dryRun=All", raw)["spec"]
        theirs = {name: stored[name] for name in ("priority", "preemptionPolicy")}
    except ApiError as error:
        theirs = {"forbidden": str(error)}
    assert answer == theirs
