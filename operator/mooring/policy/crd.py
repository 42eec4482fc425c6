"""Generates the SchedulingProfile CRD from the pydantic models, so that both always agree.

The schema has no defaults: an absent field means the default of the Mooring version that reads it.
"""

from typing import Any, Final

import yaml
from pydantic import BaseModel

from mooring.policy.profile import API_VERSION, KIND, SchedulingProfileSpec
from mooring.policy.profile_status import SchedulingProfileStatus

_HEADER: Final = "# Generated from mooring.policy.profile by `mooring crds`. Do not edit.\n"
_KEPT: Final = (
    "description",
    "type",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
)
_READY: Final = '.status.conditions[?(@.type=="Ready")]'
_COLUMNS: Final = (
    ("Ready", "string", f"{_READY}.status", 0),
    ("Reason", "string", f"{_READY}.reason", 0),
    ("In Force", "integer", ".status.inForceGeneration", 0),
    ("Scheduler Names", "string", ".status.effective.schedulerNames", 0),
    ("Conflict", "string", ".status.conflict", 0),
    ("Precedence", "integer", ".spec.match.precedence", 1),
    ("Over Budget", "string", '.status.conditions[?(@.type=="OverBudget")].status', 1),
    ("Warning", "string", '.status.conditions[?(@.type=="Warning")].message', 1),
    ("Message", "string", f"{_READY}.message", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)
_DESCRIPTION: Final = (
    "Plugins and arguments as in KubeSchedulerConfiguration, and the pods they apply to. Without "
    "schedulerNames, a profile applies to pods whose schedulerName is the profile's own name."
)


def render() -> str:
    """Return the CRD as the text of `crds/schedulingprofiles.yaml`."""
    text = yaml.dump(
        custom_resource_definition(), Dumper=_Plain, sort_keys=False, width=100, allow_unicode=True
    )
    return _HEADER + text


class _Plain(yaml.SafeDumper):
    """Writes a repeated object in full each time, without YAML anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def custom_resource_definition() -> dict[str, Any]:
    """Return the CRD as an object of `apiextensions.k8s.io/v1`."""
    group, version = API_VERSION.split("/")
    singular = KIND.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{singular}s.{group}"},
        "spec": {
            "group": group,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": f"{singular}s",
                "singular": singular,
                "shortNames": ["sprof"],
                "categories": ["mooring"],
            },
            "scope": "Cluster",
            "versions": [_version(version)],
        },
    }


def _version(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": column, "type": kind, "jsonPath": path, "priority": priority}
            for column, kind, path, priority in _COLUMNS
        ],
        "schema": {
            "openAPIV3Schema": {
                "description": _DESCRIPTION,
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": _schema(SchedulingProfileSpec),
                    "status": _schema(SchedulingProfileStatus),
                },
            }
        },
    }


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def _structural(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema with only what the API server accepts, without references."""
    node = _inlined(node, definitions)
    kept: dict[str, Any] = {name: node[name] for name in _KEPT if name in node}
    if "description" in kept:
        kept["description"] = " ".join(kept["description"].split())
    if kept["type"] == "integer":
        kept["format"] = "int32" if "maximum" in kept else "int64"
    if "properties" in node:
        kept["properties"] = {
            name: _structural(schema, definitions) for name, schema in node["properties"].items()
        }
    if "items" in node:
        kept["items"] = _structural(node["items"], definitions)
    values = _map_values(node)
    if values:
        kept["additionalProperties"] = _structural(values, definitions)
    return kept


def _map_values(node: dict[str, Any]) -> dict[str, Any] | None:
    by_pattern = list(node.get("patternProperties", {}).values())
    values = by_pattern[0] if by_pattern else node.get("additionalProperties")
    return values if isinstance(values, dict) else None


def _inlined(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            target = definitions[node["$ref"].rpartition("/")[2]]
        else:
            (target,) = (option for option in node["anyOf"] if option != {"type": "null"})
        node = {**target, **{k: v for k, v in node.items() if k not in ("$ref", "anyOf")}}
    return node
