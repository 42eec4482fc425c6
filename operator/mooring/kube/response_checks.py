"""Checks the shape of the API server's answers before other code relies on it.

Without these checks, an answer that is not a list, or an object without a name, would cause a
TypeError far away from here.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import orjson

from mooring.kube import nesting
from mooring.model.fields import integer, mapping, mappings, name_of, required, text
from mooring.model.manifest_error import ManifestError

WatchEvent = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]

_EVENTS: Final[Mapping[str, WatchEvent]] = {name: name for name in get_args(WatchEvent)}
_VERSION: Final = "resourceVersion"


def items_of(page: Any) -> list[Any]:
    """Return the objects of a page of a list, [] for null; raise ManifestError if malformed."""
    _check_mapping(page)
    for field in ("kind", "apiVersion"):
        text(page, field)
    metadata = required(page, "metadata")
    _needed(metadata, _VERSION, "metadata")
    text(metadata, "continue", "metadata")
    items: list[Any] = mappings(page, "items")
    for index, item in enumerate(items):
        try:
            _check_object(item)
        except ManifestError as error:
            raise error.under(f"items[{index}]") from None
    return items


def event_of(line: bytes) -> tuple[WatchEvent, dict[str, Any]]:
    """Return type and object of a watch event; raise ManifestError if it is malformed."""
    event = parsed(line)
    _check_mapping(event)
    kind = _EVENTS.get(_needed(event, "type"))
    if kind is None:
        raise ManifestError("type", f"is no type of event: {str(event['type'])[:40]}")
    required(event, "object")
    obj: dict[str, Any] = event["object"]
    try:
        if kind == "ERROR":
            _check_status(obj)
            return kind, obj
        metadata = required(obj, "metadata")
        _needed(metadata, _VERSION, "metadata")
        if kind == "BOOKMARK":
            mapping(metadata, "annotations", "metadata")
        else:
            _check_object(obj)
    except ManifestError as error:
        raise error.under(f"{kind} object") from None
    return kind, obj


def parsed(text: bytes) -> Any:
    """Return `nesting.parsed(text)`; raise ManifestError if the text is not JSON."""
    try:
        return nesting.parsed(text)
    except orjson.JSONDecodeError as error:
        raise ManifestError("", f"not JSON: {text[:100]!r} ({error})") from None


def _check_object(raw: Mapping[str, Any]) -> None:
    name_of(raw)
    _needed(raw["metadata"], "uid", "metadata")


def _check_status(raw: Mapping[str, Any]) -> None:
    if integer(raw, "code") is None:
        raise ManifestError("code", "is missing; it must be a whole number")


def _check_mapping(value: object) -> None:
    if not isinstance(value, dict):
        raise ManifestError("", f"it must be an object, not {str(value)[:40]}")


def _needed(raw: Mapping[str, Any], field: str, where: str = "") -> str:
    if not (value := text(raw, field, where)):
        path = f"{where}.{field}" if where else field
        raise ManifestError(path, "is missing; it must be a string")
    return value
