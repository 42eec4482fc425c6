"""`mooring simulate` completes new objects in the same way as the API server."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane import ControlPlane
from controlplane.client import ApiError, Client
from controlplane.releases import chosen_release
from mooring.kube import api_resources as resources
from mooring.kube.api_resources import Resource
from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.simulate.admission import Admission, Forbidden, as_stored
from mooring.simulate.kinds import KINDS, READ, as_read
from object_fields import TABLE

Raw = dict[str, Any]

TYPES: dict[str, dict[str, str]] = json.loads(TABLE.read_text())
SERVED = "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"
RULES = KUBERNETES_RULES[chosen_release().minor]
COUNTED = {"uid", "resource_version", "created", "generation", "equal", "alike", "memory", "phase"}
OBJECTS = yaml.safe_load(Path(__file__).with_name("new_objects.yaml").read_text())
OF_V1BETA1: dict[str, list[Raw]] = {
    **OBJECTS["v1beta1"],
    "ResourceClaimTemplate": [{"spec": spec} for spec in OBJECTS["v1beta1"]["ResourceClaim"]],
}
STORED: dict[str, Resource] = {
    each.kind: each for each in vars(resources).values() if isinstance(each, Resource)
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    flags = dict(chosen_release().pod_group_flags())
    flags["kube-apiserver"] = (*flags.get("kube-apiserver", ()), SERVED)
    with ControlPlane(flags=flags) as plane, plane.access.client() as client:
        yield client


def schemas(client: Client, resource: Resource) -> Mapping[str, Any]:
    prefix = f"apis/{resource.group}" if resource.group else "api"
    found: Mapping[str, Any] = client.get(f"/openapi/v3/{prefix}/{resource.version}")
    schemas: Mapping[str, Any] = found["components"]["schemas"]
    return schemas


def unknown_fields(name: str, schema: Mapping[str, Any], all_of: Mapping[str, Any]) -> set[str]:
    """Return the fields that the server's schema has and Mooring's table lacks, at any depth."""
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
    """Return the name of the schema of a field, or of its items or values."""
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
    assert compared > 25


def with_defaults(spec: Any) -> Any:
    """Return the fields with the API server's defaults, and without empty fields."""
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


def facts(value: Any) -> Any:
    """Return the data of an object, without counters and creation times."""
    if is_dataclass(value):
        names = {field.name for field in fields(value)} - COUNTED
        return {name: facts(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [facts(each) for each in value]
    if isinstance(value, Mapping):
        return {name: facts(each) for name, each in value.items()}
    return value


@pytest.mark.parametrize("body", OBJECTS["minimal"], ids=lambda body: body["kind"])
def test_an_object_has_the_defaults_of_the_server(client: Client, body: Raw) -> None:
    resource = STORED[body["kind"]]
    kind = KINDS[resource.group, resource.kind]
    namespace = "default" if resource.namespaced else None
    raw = {"metadata": {"name": "minimal"}, **body}
    stored = client.post(f"{resource.path(namespace)}?dryRun=All", raw)
    ours = parse_object(kind, as_stored(kind, raw))
    assert facts(ours) == facts(parse_object(kind, stored))


@pytest.mark.parametrize("spec", OBJECTS["pods"].values(), ids=OBJECTS["pods"])
def test_a_pod_has_the_defaults_of_the_server(client: Client, spec: Raw) -> None:
    raw = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}
    stored = client.post("/api/v1/namespaces/default/pods?dryRun=All", raw)
    assert facts(parse_pod(Admission((), (), kubernetes=RULES).pod(raw))) == facts(
        parse_pod(stored)
    )


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
        ours = Admission((), (), kubernetes=RULES).pod(raw)["spec"]
        answer = {name: ours[name] for name in ("priority", "preemptionPolicy")}
    except Forbidden as error:
        answer = {"forbidden": f"403: {error}"}
    try:
        stored = client.post("/api/v1/namespaces/default/pods?dryRun=All", raw)["spec"]
        theirs = {name: stored[name] for name in ("priority", "preemptionPolicy")}
    except ApiError as error:
        theirs = {"forbidden": str(error)}
    assert answer == theirs
