"""Read typed fields of raw API objects; a wrong type raises ManifestError, which names the field.

An absent field and a null field give the empty value of the type. Only the type and our own limits
(`at_most`) are checked, because the API server has checked everything else.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any, Final, TypeVar

from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import Quantity, parse_quantity

_Value = TypeVar("_Value")
_Parser = Callable[[Mapping[str, Any]], _Value]

_OBJECT: Final = (dict, Mapping)
"""The types of JSON objects; a check for dict takes an eighth of the time of one for Mapping."""
MAX_INT32: Final = 2**31 - 1


def naming_the_object(kind: str) -> Callable[[_Parser[_Value]], _Parser[_Value]]:
    """Return a decorator that adds the object (`Service team-a/web`) to a parser's errors."""

    def decorate(parse: _Parser[_Value]) -> _Parser[_Value]:
        @wraps(parse)
        def parse_named(raw: Mapping[str, Any]) -> _Value:
            try:
                return parse(raw)
            except ManifestError as error:
                raise error.under(f"{kind} {called(raw)}") from None

        return parse_named

    return decorate


def namespace_of(raw: Mapping[str, Any]) -> str:
    """Return the namespace of a namespaced object, "default" if it names none."""
    return text(mapping(raw, "metadata"), "namespace", "metadata") or "default"


def name_of(raw: Mapping[str, Any]) -> str:
    """Return the name of an object; raise ManifestError if it has none."""
    name = text(required(raw, "metadata"), "name", "metadata")
    if not name:
        raise ManifestError("metadata.name", "is missing; every object needs a name")
    return name


def required(raw: Mapping[str, Any], field: str, where: str = "") -> Mapping[str, Any]:
    """Return the object in `field`, which may be empty; raise ManifestError if it is absent."""
    if raw.get(field) is None:
        raise ManifestError(_path(field, where), "is missing; it must be an object")
    return mapping(raw, field, where)


def optional_mapping(
    raw: Mapping[str, Any], field: str, where: str = ""
) -> Mapping[str, Any] | None:
    """Return the object in `field`, which may be {}; return None if the field is absent."""
    return None if raw.get(field) is None else mapping(raw, field, where)


def mapping(raw: Mapping[str, Any], field: str, where: str = "") -> Mapping[str, Any]:
    """Return the object in `field`, {} if it is absent."""
    value = raw.get(field)
    if value is None:
        return {}
    if not isinstance(value, _OBJECT):
        raise _mistyped(value, "an object", field, where)
    return value


def mappings(raw: Mapping[str, Any], field: str, where: str = "") -> list[Mapping[str, Any]]:
    """Return the list of objects in `field`, [] if it is absent."""
    values = _items(raw, field, where)
    for index, value in enumerate(values):
        if not isinstance(value, _OBJECT):
            raise _mistyped(value, "an object", f"{field}[{index}]", where)
    return values


def texts(raw: Mapping[str, Any], field: str, where: str = "") -> tuple[str, ...]:
    """Return the list of strings in `field`, () if it is absent."""
    values = _items(raw, field, where)
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise _mistyped(value, "a string", f"{field}[{index}]", where)
    return tuple(values)


def strings(raw: Mapping[str, Any], field: str, where: str = "") -> Mapping[str, str]:
    """Return the map of strings in `field` (labels, annotations), {} if it is absent."""
    values = mapping(raw, field, where)
    for key, value in values.items():
        if not isinstance(value, str):
            raise _mistyped(value, "a string", f"{field}.{key}", where)
    return values


def text(raw: Mapping[str, Any], field: str, where: str = "") -> str:
    """Return the string in `field`, "" if it is absent."""
    value = raw.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _mistyped(value, "a string", field, where)
    return value


def integer(raw: Mapping[str, Any], field: str, where: str = "") -> int | None:
    """Return the integer in `field`, None if it is absent."""
    value = raw.get(field)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _mistyped(value, "a whole number", field, where)


def boolean(raw: Mapping[str, Any], field: str, where: str = "") -> bool:
    """Return the boolean in `field`, False if it is absent."""
    value = raw.get(field)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _mistyped(value, "true or false", field, where)
    return value


def controller_uid(metadata: Mapping[str, Any]) -> str:
    """Return the uid of the owner that is the object's controller, "" if it has none."""
    for index, owner in enumerate(mappings(metadata, "ownerReferences", "metadata")):
        where = f"metadata.ownerReferences[{index}]"
        if boolean(owner, "controller", where):
            return text(owner, "uid", where)
    return ""


def quantity(raw: Mapping[str, Any], field: str, where: str = "") -> Quantity | None:
    """Return the quantity in `field`, None if it is absent."""
    value = raw.get(field)
    return None if value is None else parse_quantity(value, _path(field, where))


def timestamp(raw: Mapping[str, Any], field: str, where: str = "") -> float | None:
    """Return the RFC 3339 time in `field` in seconds since the epoch, None if it is absent."""
    value = text(raw, field, where)
    try:
        if not value:
            return None
        return _short_time(value) if len(value) <= _SHORT else _time(value)
    except ValueError:
        raise ManifestError(
            _path(field, where),
            f"{value!r} is not a time; write one such as 2026-01-31T12:00:00Z",
        ) from None


def _time(value: str) -> float:
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise ValueError(value)
    return time.timestamp()


_SHORT: Final = 64
_short_time: Final = lru_cache(maxsize=4096)(_time)


def called(raw: Mapping[str, Any]) -> str:
    """Return an object's name for messages: namespace/name, or `(no name)`."""
    metadata = raw.get("metadata")
    if not isinstance(metadata, _OBJECT):
        return "(no name)"
    parts = (metadata.get("namespace"), metadata.get("name"))
    return "/".join(str(part) for part in parts if part) or "(no name)"


def at_most(number: int, most: int, where: str, what: str) -> None:
    """Raise ManifestError if `number` exceeds `most`; `what` names the counted things."""
    if number > most:
        raise ManifestError(where, f"has {number} {what}; Mooring reads at most {most}")


def _items(raw: Mapping[str, Any], field: str, where: str) -> list[Any]:
    value = raw.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _mistyped(value, "a list", field, where)
    return value


def _mistyped(value: object, wanted: str, field: str, where: str) -> ManifestError:
    shown = repr(value)
    return ManifestError(
        _path(field, where),
        f"must be {wanted}, not {shown if len(shown) <= 40 else f'{shown[:40]}...'}",
    )


def _path(field: str, where: str) -> str:
    return f"{where}.{field}" if where else field
