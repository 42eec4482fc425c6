"""Says why the result of a selector is not a bool, in cel-go's words."""

from typing import Any

from mooring.cel.values import (
    Duration,
    MapValue,
    Opaque,
    Optional,
    Timestamp,
    UInt,
    is_list,
    type_name,
)

__all__ = ["not_a_bool"]


def not_a_bool(value: Any) -> str | None:
    """Return why a value cannot be a selector's result; None if an optional value holds a bool."""
    match value:
        case Optional(present=False):
            return "optional.none() dereference"
        case Optional():
            return None if type(value.value) is bool else not_a_bool(value.value)
        case UInt() | int():
            return f"unsupported type conversion from '{type_name(value)}' to bool"
        case str():
            return "unsupported native conversion from string to 'bool'"
        case bytes():
            return "type conversion error from Bytes to 'bool'"
        case float():
            return "type conversion error from Double to 'bool'"
        case MapValue():
            return "type conversion error from map to 'bool'"
        case Opaque() | Duration() | Timestamp():
            name = getattr(value, "short_name", type(value).__name__)
            return f"type conversion error from '{name}' to 'bool'"
    if is_list(value):
        return "type conversion error from list to 'bool'"
    return f"type conversion error from '{type_name(value)}' to 'bool'"
