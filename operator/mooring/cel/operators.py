"""The operators and type conversions of CEL.

Source: cel-go's `common/stdlib/standard.go` and `common/types`. Operators check the types of
operands, because the type of a device's attribute is known only at the evaluation.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.cel.times import (
    add_times,
    duration_text,
    parse_duration,
    parse_integer,
    parse_timestamp,
    subtract_times,
    timestamp_of_seconds,
    timestamp_text,
)
from mooring.cel.tree import UInt
from mooring.cel.values import (
    ABSENT,
    LISTS,
    NO_OVERLOAD,
    NOT_A_NUMBER,
    Duration,
    Failure,
    Joined,
    MapValue,
    Optional,
    Timestamp,
    at_once,
    compare,
    equal,
    go_float,
    is_list,
    joined,
    size_of,
    text_of,
    type_of_value,
    work,
)

Value = Any
_LOWEST, _HIGHEST, _HIGHEST_UNSIGNED = -(2**63), 2**63 - 1, 2**64 - 1
_INT_OVERFLOW: Final = Failure("integer overflow")
_UINT_OVERFLOW: Final = Failure("unsigned integer overflow")


@dataclass(frozen=True, slots=True)
class Operator:
    """A function with one implementation; `kinds` limits the types of the first operand."""

    implementation: Callable[..., Value]
    kinds: frozenset[type] | None = None


def _whole(value: int, unsigned: bool) -> Value:
    if unsigned:
        return UInt(value) if 0 <= value <= _HIGHEST_UNSIGNED else _UINT_OVERFLOW
    return value if _LOWEST <= value <= _HIGHEST else _INT_OVERFLOW


def _arithmetic(
    whole: Callable[[int, int], int], fractional: Callable[[float, float], float] | None
) -> Callable[[Value, Value], Value]:
    def compute(first: Value, second: Value) -> Value:
        kind = type(first)
        if kind is not type(second):
            return NO_OVERLOAD
        if kind is float:
            return NO_OVERLOAD if fractional is None else fractional(first, second)
        return _whole(whole(int(first), int(second)), kind is UInt)

    return compute


_add_numbers: Final = _arithmetic(operator.add, operator.add)
_subtract_numbers: Final = _arithmetic(operator.sub, operator.sub)


def _add(first: Value, second: Value) -> Value:
    kind = type(first)
    if kind in LISTS:
        return joined(first, second) if is_list(second) else NO_OVERLOAD
    if kind in {Duration, Timestamp}:
        return add_times(first, second)
    if kind in {str, bytes}:
        return first + second if type(second) is kind else NO_OVERLOAD
    return _add_numbers(first, second)


def _subtract(first: Value, second: Value) -> Value:
    if type(first) in {Duration, Timestamp}:
        return subtract_times(first, second)
    return _subtract_numbers(first, second)


def _float_quotient(first: float, second: float) -> float:
    if second == 0:
        if first == 0 or math.isnan(first):
            return math.nan
        return math.copysign(math.inf, first) * math.copysign(1.0, second)
    return first / second


def _quotient(first: int, second: int) -> int:
    # Rounded towards zero, as in Go.
    result = abs(first) // abs(second)
    return result if (first < 0) == (second < 0) else -result


def _divide(first: Value, second: Value) -> Value:
    if type(first) is not float and type(first) is type(second) and second == 0:
        return Failure("division by zero")
    return _arithmetic(_quotient, _float_quotient)(first, second)


def _modulo(first: Value, second: Value) -> Value:
    if type(first) is type(second) and second == 0:
        return Failure("modulus by zero")
    if type(first) is type(second) is int and first == _LOWEST and second == -1:
        return _INT_OVERFLOW
    return _arithmetic(lambda a, b: a - b * _quotient(a, b), None)(first, second)


def _negate(value: Value) -> Value:
    if type(value) is bool:
        return NO_OVERLOAD
    if type(value) is Duration:
        return Duration(-value.nanoseconds)
    return -value if type(value) is float else _whole(-value, False)


def _not(value: Value) -> Value:
    return not value if type(value) is bool else NO_OVERLOAD


def _ordered(accepted: frozenset[int]) -> Callable[[Value, Value], Value]:
    def compute(first: Value, second: Value) -> Value:
        found = compare(first, second)
        return found if isinstance(found, Failure) else found in accepted

    return compute


def _lenient(base: Operator) -> Operator:
    def compute(first: Value, second: Value) -> Value:
        found = base.implementation(first, second)
        return False if found is NOT_A_NUMBER else found

    return Operator(compute, base.kinds)


def _contains(value: Value, items: Value) -> Value:
    if type(items) is MapValue:
        return items.has(value)
    if not is_list(items):
        return NO_OVERLOAD
    return any(equal(value, item) is True for item in at_once(items))


def insert(target: Value, *entry: Value) -> Value:
    """Return the map `target` with more entries; `entry` is a key and a value, or a map.

    Returns a Failure if `target` has a key already.
    """
    added = [entry] if len(entry) == 2 else [*entry[0].items()]
    for key, value in added:
        if target.find(key)[0]:
            return Failure(f"insert failed: key {text_of(key)} already exists")
        # Only the map that a loop builds is changed itself.
        if not target.is_building:
            copied = MapValue()
            for known, kept in target.items():
                copied.put(known, kept)
            target = copied
        target.put(key, value)
    return target


_COMPARABLE: Final = frozenset((bool, int, UInt, float, str, bytes, Duration, Timestamp))
_ADDABLE: Final = (_COMPARABLE - {bool}) | LISTS
_NUMBERS: Final = frozenset((int, UInt, float))
OPERATORS: Final[Mapping[str, Operator]] = {
    "_+_": Operator(_add, _ADDABLE),
    "_-_": Operator(_subtract, _NUMBERS | {Duration, Timestamp}),
    "_*_": Operator(_arithmetic(operator.mul, operator.mul), _NUMBERS),
    "_/_": Operator(_divide, _NUMBERS),
    "_%_": Operator(_modulo, frozenset((int, UInt))),
    "-_": Operator(_negate, frozenset((bool, int, float, Duration))),
    "!_": Operator(_not),
    "_<_": Operator(_ordered(frozenset((-1,))), _COMPARABLE),
    "_<=_": Operator(_ordered(frozenset((-1, 0))), _COMPARABLE),
    "_>_": Operator(_ordered(frozenset((1,))), _COMPARABLE),
    "_>=_": Operator(_ordered(frozenset((1, 0))), _COMPARABLE),
    "@in": Operator(_contains),
    "size": Operator(size_of, frozenset((str, bytes, MapValue)) | LISTS),
    "type": Operator(type_of_value),
    "dyn": Operator(lambda value: value),
}
"""Maps the name of an operator or function to its one implementation for all types."""
LENIENT: Final = {each: _lenient(OPERATORS[each]) for each in ("_<_", "_<=_", "_>_", "_>=_")}


# --- conversions

_FLOAT: Final = re.compile(
    r"[+-]?(?:[0-9]*+\.?[0-9]*+(?:e[+-]?[0-9]+)?|inf(?:inity)?"
    r"|(?P<hex>0x[0-9a-f]*+\.?[0-9a-f]*+p[+-]?[0-9]+))"
    r"|nan",
    re.IGNORECASE,
)
_UNDERSCORE: Final = re.compile(r"(?<=[0-9])_(?=[0-9])")
_HEX_UNDERSCORE: Final = re.compile(r"(?<=[0-9A-Fa-fxX])_(?=[0-9A-Fa-f])")
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def _unconvertible(target: str) -> Failure:
    return Failure(f"type conversion error from 'string' to '{target}'")


def _text_to_int(text: str) -> Value:
    try:
        value = parse_integer(text)
    except ValueError:
        return _unconvertible("int")
    return value if _LOWEST <= value <= _HIGHEST else _unconvertible("int")


def _text_to_uint(text: str) -> Value:
    try:
        value = parse_integer(text)
    except ValueError:
        return _unconvertible("uint")
    signed = text.startswith(("+", "-"))
    return _unconvertible("uint") if signed or value > _HIGHEST_UNSIGNED else UInt(value)


def _text_to_double(text: str) -> Value:
    work.spend_on_text(len(text))
    underscore = _HEX_UNDERSCORE if "x" in text[:3].lower() else _UNDERSCORE
    text = underscore.sub("", text)
    found = _FLOAT.fullmatch(text)
    if found is None:
        return _unconvertible("double")
    try:
        value = float.fromhex(text) if found["hex"] else float(text)
    except (ValueError, OverflowError):
        return _unconvertible("double")
    named = "n" in text.lower()
    return _unconvertible("double") if math.isinf(value) and not named else value


def _text_to_bool(text: str) -> Value:
    return text in _TRUE if text in _TRUE | _FALSE else _unconvertible("bool")


def _float_to_int(value: float) -> Value:
    if math.isnan(value) or not float(_LOWEST) < value < float(_HIGHEST):
        return _INT_OVERFLOW
    return int(value)


def _float_to_uint(value: float) -> Value:
    if math.isnan(value) or not 0 <= value < 2.0**64:
        return _UINT_OVERFLOW
    return UInt(int(value))


def _bytes_to_text(value: bytes) -> Value:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Failure("invalid UTF-8 in bytes, cannot convert to string")


def _of_optional(value: Value) -> Value:
    empty = value is None or (
        type(value) in {Joined, tuple, list, MapValue, str, bytes, bool, int, UInt, float}
        and not (size_of(value) if hasattr(value, "__len__") else value)
    )
    empty = empty or (type(value) is Duration and not value.nanoseconds)
    return ABSENT if empty else Optional(True, value)


def _value_of(value: Optional) -> Value:
    return value.value if value.present else Failure("optional.none() dereference")


def _unwrapped(items: Value) -> Value:
    for item in at_once(items):
        if not isinstance(item, Optional):
            return Failure(f"value {text_of(item)} is not optional")
    return tuple(item.value for item in at_once(items) if item.present)


OVERLOADS: Final[Mapping[str, Callable[..., Value]]] = {
    **dict.fromkeys(
        [
            "bool_to_bool",
            "bytes_to_bytes",
            "double_to_double",
            "duration_to_duration",
            "int64_to_int64",
            "string_to_string",
            "timestamp_to_timestamp",
            "uint64_to_uint64",
        ],
        lambda value: value,
    ),
    "string_to_bool": _text_to_bool,
    "string_to_bytes": str.encode,
    "int64_to_double": float,
    "uint64_to_double": float,
    "string_to_double": _text_to_double,
    "string_to_duration": lambda text: parse_duration(text) or _unconvertible(_DURATION),
    "double_to_int64": _float_to_int,
    "duration_to_int64": lambda value: value.nanoseconds,
    "string_to_int64": _text_to_int,
    "timestamp_to_int64": lambda value: value.nanoseconds // 10**9,
    "uint64_to_int64": lambda value: _whole(int(value), False),
    "bool_to_string": text_of,
    "bytes_to_string": _bytes_to_text,
    "double_to_string": go_float,
    "duration_to_string": duration_text,
    "int64_to_string": str,
    "uint64_to_string": str,
    "timestamp_to_string": timestamp_text,
    "int64_to_timestamp": timestamp_of_seconds,
    "string_to_timestamp": lambda text: parse_timestamp(text) or _unconvertible(_TIMESTAMP),
    "double_to_uint64": _float_to_uint,
    "int64_to_uint64": lambda value: _whole(value, True),
    "string_to_uint64": _text_to_uint,
    "@mapInsert_map_key_value": insert,
    "@mapInsert_map_map": insert,
    "optional_of": lambda value: Optional(True, value),
    "optional_ofNonZeroValue": _of_optional,
    "optional_none": lambda: ABSENT,
    "optional_value": _value_of,
    "optional_hasValue": lambda value: value.present,
    "optional_unwrap": _unwrapped,
    "optional_unwrapOpt": _unwrapped,
}
"""Maps the id of an overload to its implementation."""
_DURATION: Final = "google.protobuf.Duration"
_TIMESTAMP: Final = "google.protobuf.Timestamp"
