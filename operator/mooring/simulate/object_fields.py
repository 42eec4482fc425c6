"""Finds unknown, missing and mistyped fields in objects of users, as the API server does."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import orjson

from mooring.policy.profile_errors import FieldError, did_you_mean, join_path

_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "Container": ("name", "image"),
    "batch/v1 CronJob": ("spec",),
    "CronJobSpec": ("schedule", "jobTemplate"),
    "apps/v1 DaemonSet": ("spec",),
    "DaemonSetSpec": ("selector", "template"),
    "apps/v1 Deployment": ("spec",),
    "DeploymentSpec": ("selector", "template"),
    "batch/v1 Job": ("spec",),
    "JobSpec": ("template",),
    "JobTemplateSpec": ("spec",),
    "v1 Pod": ("spec",),
    "PodSpec": ("containers",),
    "PodTemplateSpec": ("spec",),
    "apps/v1 ReplicaSet": ("spec",),
    "ReplicaSetSpec": ("selector", "template"),
    "v1 ReplicationController": ("spec",),
    "ReplicationControllerSpec": ("template",),
    "apps/v1 StatefulSet": ("spec",),
    "StatefulSetSpec": ("selector", "template"),
}
"""The fields that the API server requires, by type."""


@cache
def _types() -> Mapping[str, Mapping[str, str]]:
    """Return the type of each field, by object type (`apps/v1 Deployment`) and field name."""
    # A type is a key of this table, `str`, `int`, `bool`, or `*` for any value; `[]` around a
    # type is a list, and `{}` a map.
    text = files("mooring.simulate").joinpath("object_fields.json").read_bytes()
    types: Mapping[str, Mapping[str, str]] = orjson.loads(text)
    return types


def field_mistakes(raw: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield every unknown, missing or mistyped field of an object; none if its kind is unknown."""
    root = f"{raw.get('apiVersion')} {raw.get('kind')}"
    if root in _types():
        yield from _in_object(raw, root, "")


def _in_object(raw: Mapping[str, Any], type_name: str, path: str) -> Iterator[FieldError]:
    fields = _types()[type_name]
    for name, value in raw.items():
        where = join_path(path, name if name.isidentifier() else f"[{name}]")
        if name not in fields:
            yield FieldError(where, f'unknown field "{name}"{did_you_mean(name, fields)}')
        elif value is not None:
            yield from _in_value(value, fields[name], where)
    for name in _REQUIRED.get(type_name, ()):
        if not raw.get(name):
            yield FieldError(join_path(path, name), "is required")


_SCALARS: Final[Mapping[str, tuple[type, str]]] = {
    "bool": (bool, "must be true or false"),
    "int": (int, "must be an integer"),
    "str": (str, "must be text (quote it)"),
}


def _in_value(value: Any, type_name: str, path: str) -> Iterator[FieldError]:
    if type_name[0] in "[{":
        yield from _in_collection(value, type_name, path)
    elif type_name in _types():
        if isinstance(value, dict):
            yield from _in_object(value, type_name, path)
        else:
            yield FieldError(path, "must be an object")
    elif type_name in _SCALARS:
        wanted, problem = _SCALARS[type_name]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            yield FieldError(path, problem)


def _in_collection(value: Any, type_name: str, path: str) -> Iterator[FieldError]:
    inner = type_name[1:-1]
    if type_name[0] == "[":
        if not isinstance(value, list):
            yield FieldError(path, "must be a list")
            return
        for index, item in enumerate(value):
            yield from _in_value(item, inner, f"{path}[{index}]")
    elif not isinstance(value, dict):
        yield FieldError(path, "must be an object")
    else:
        for key, item in value.items():
            yield from _in_value(item, inner, join_path(path, key))
