"""Writes the table of fields of pods and controllers: `python -m object_fields`.

It is made from the models of kubernetes_asyncio, whose import takes too long for a command, and
from what newer versions of Kubernetes have added.
"""

import json
import re
from pathlib import Path

from kubernetes_asyncio.client import models

from mooring.simulate.object_fields import ROOTS

TABLE = Path(__file__).parents[1] / "operator" / "mooring" / "simulate" / "object_fields.json"
_QUANTITIES = frozenset(
    {
        "allocatedResources",
        "capacity",
        "default",
        "defaultRequest",
        "divisor",
        "limits",
        "max",
        "maxLimitRequestRatio",
        "min",
        "overhead",
        "podFixed",
        "requests",
        "sizeLimit",
    }
)
"""Fields of quantities: the models call them text, but a number is right too."""
_ADDED = {
    "ClusterTrustBundleProjection": {"user": "int"},
    "ConfigMapVolumeSource": {"defaultUser": "int"},
    "DownwardAPIVolumeFile": {"user": "int"},
    "DownwardAPIVolumeSource": {"defaultUser": "int"},
    "EmptyDirVolumeSource": {"mode": "int"},
    "EvictionResponder": {"name": "str", "priority": "int"},
    "GRPCAction": {"mode": "str"},
    "HTTPGetAction": {"protocol": "str"},
    "JobSchedulingConfiguration": {
        "disruptionMode": "*",
        "resourceClaims": "[*]",
        "schedulingConstraints": "*",
        "schedulingPolicy": "*",
    },
    "JobSpec": {"scheduling": "JobSchedulingConfiguration"},
    "KeyToPath": {"user": "int"},
    "PodCertificateProjection": {"user": "int"},
    "PodSpec": {"evictionResponders": "[EvictionResponder]"},
    "ProjectedVolumeSource": {"defaultUser": "int"},
    "SecretVolumeSource": {"defaultUser": "int"},
    "ServiceAccountTokenProjection": {"user": "int"},
    "VolumeMount": {"bindMountOptions": "[str]"},
}
"""Fields of Kubernetes 1.37 that the models, those of 1.36, do not have (k8s.io/api)."""
_LIST = re.compile(r"list\[(.*)\]")
_MAP = re.compile(r"dict[\[(]str, (.*)[\])]")


def table() -> str:
    """Return the table as JSON, a line per type."""
    types: dict[str, dict[str, str]] = {}
    for root in sorted(ROOTS):
        _walk(f"V1{root}", types)
    for name, fields in _ADDED.items():
        known = types.setdefault(name, {})
        if repeated := known.keys() & fields.keys():
            raise ValueError(f"the models have {name} {sorted(repeated)}: remove it from _ADDED")
        known |= dict(fields)
    lines = (f"{json.dumps(name)}: {json.dumps(types[name])}" for name in sorted(types))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _walk(model: str, types: dict[str, dict[str, str]]) -> str:
    """Put the model's type and its fields into the table; return the type's name."""
    name = model.removeprefix("V1")
    if name not in types:
        types[name] = {}
        found = getattr(models, model)
        types[name] |= {
            (field := found.attribute_map[attribute]): _field_type(field, kind, types)
            for attribute, kind in found.openapi_types.items()
        }
    return name


def _field_type(field: str, kind: str, types: dict[str, dict[str, str]]) -> str:
    written = _type(kind, types)
    return written.replace("str", "*") if field in _QUANTITIES else written


def _type(kind: str, types: dict[str, dict[str, str]]) -> str:
    if items := _LIST.fullmatch(kind):
        return f"[{_type(items[1], types)}]"
    if values := _MAP.fullmatch(kind):
        return f"{{{_type(values[1], types)}}}"
    if hasattr(models, kind):
        return _walk(kind, types)
    return {"object": "*", "datetime": "str"}.get(kind, kind)


if __name__ == "__main__":
    TABLE.write_text(table())
