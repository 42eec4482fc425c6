from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from mooring.policy.crd import custom_resource_definition
from mooring.policy.profile import SchedulingProfileSpec
from mooring.policy.profile_status import SchedulingProfileStatus


def version() -> dict[str, Any]:
    (only,) = custom_resource_definition()["spec"]["versions"]
    return dict(only)


def schema() -> dict[str, Any]:
    return dict(version()["schema"]["openAPIV3Schema"])


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schema and all schemas inside it, each with its path."""
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in node:
            yield from nodes(node[name], f"{path}[]")


NAMED_BY_US = ("properties", "$defs", "patternProperties")


def keywords(value: object) -> set[str]:
    """Return the keywords in a JSON schema, without property names and default values."""
    if isinstance(value, list):
        return {word for item in value for word in keywords(item)}
    if not isinstance(value, dict):
        return set()
    inner = [
        [*item.values()] if name in NAMED_BY_US else item
        for name, item in value.items()
        if name != "default"
    ]
    return {*value} | keywords(inner)


def test_every_keyword_of_the_models_is_kept_or_known_to_be_dropped() -> None:
    """The CRD drops titles, defaults, unions, rules, and restrictions of map keys."""

    def used(model: type[BaseModel]) -> set[str]:
        return keywords(model.model_json_schema(by_alias=True))

    understood = {word for _, node in nodes(schema()) for word in node}
    lost = (used(SchedulingProfileSpec) | used(SchedulingProfileStatus)) - understood
    unions = {"$defs", "$ref", "anyOf"}
    keys = {"patternProperties", "propertyNames"}
    rules = {"rule", "message", "fieldPath"}
    assert lost == {"title", "default", *unions, *keys, *rules}


def test_every_schema_is_structural() -> None:
    """The API server requires a type everywhere, and either named properties or free keys."""
    for path, node in nodes(schema()):
        assert node["type"], path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_only_plugin_arguments_and_the_spec_in_force_have_no_schema() -> None:
    keeps = "x-kubernetes-preserve-unknown-fields"
    assert [path for path, node in nodes(schema()) if keeps in node] == [
        ".spec.pluginConfig[].args",
        ".status.inForceSpec",
    ]


def test_the_schema_has_no_defaults() -> None:
    assert not [path for path, node in nodes(schema()) if "default" in node]


def test_every_field_of_the_spec_is_described() -> None:
    assert not [
        path
        for path, node in nodes(schema()["properties"]["spec"])
        if "description" not in node and not path.endswith("[]")
    ]


def test_every_list_in_the_spec_is_bounded() -> None:
    """The API server rejects rules about a list without a maximum length."""
    assert not [
        path
        for path, node in nodes(schema()["properties"]["spec"])
        if node["type"] == "array" and "maxItems" not in node
    ]


def test_kubectl_shows_what_matters() -> None:
    shown = [c["name"] for c in version()["additionalPrinterColumns"] if c["priority"] == 0]
    assert shown == ["Ready", "Reason", "In Force", "Scheduler Names", "Conflict", "Age"]


def test_it_is_cluster_scoped_with_a_short_name_and_a_status() -> None:
    spec = custom_resource_definition()["spec"]
    assert spec["scope"] == "Cluster"
    assert spec["names"]["shortNames"] == ["sprof"]
    assert version()["subresources"] == {"status": {}}
