"""What calls cost at run time, in cel-go's units.

Source: cel-go's `interpreter/runtimecost.go` and `ext/lists.go`, `ext/sets.go`; kube-apiserver's
`pkg/cel/library/cost.go`. The order in which these are asked is theirs too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mooring.cel.attributes import go_type
from mooring.cel.declarations import functions
from mooring.cel.values import (
    Duration,
    EvaluationCrash,
    MapValue,
    Opaque,
    Timestamp,
    UInt,
    at_once,
    is_list,
    iterate,
    size_for_cost,
    size_of,
)

__all__ = ["Cost", "cost_of"]

Value = Any
Cost = Callable[[Sequence[Value], Value], int]
"""Gets the arguments and the result."""

_PER_CHARACTER: Final = 0.1
_PER_PATTERN_CHARACTER: Final = 0.25


def cost_of(function: str, overload: str, newer: bool) -> Cost:
    """Return how a call is charged; `overload` is "" if the types leave several.

    `newer` stands for Kubernetes 1.37, where some costs changed.
    """
    older = None if newer else _OF_1_36.get(overload)
    if older is not None:
        return older
    by_overload = _OF_EXTENSIONS.get(overload)
    if by_overload is not None:
        return by_overload
    by_function = _OF_KUBERNETES.get(function)
    if by_function is not None:
        return by_function(overload)
    return _OF_STANDARD.get("equals" if function in {"_==_", "_!=_"} else overload, _one)


def _one(_args: Sequence[Value], _result: Value) -> int:
    return 1


def _scan(size: float) -> int:
    return math.ceil(size * _PER_CHARACTER)


def _scan_of(index: int, times: int = 1) -> Cost:
    return lambda args, _result: _scan(size_for_cost(args[index]) * times)


def _equality(args: Sequence[Value], _result: Value) -> int:
    return _scan(min(size_for_cost(args[0]), size_for_cost(args[1])))


def _pattern(args: Sequence[Value], _result: Value) -> int:
    text = math.ceil((1.0 + size_for_cost(args[0])) * _PER_CHARACTER)
    return text * math.ceil(size_for_cost(args[1]) * _PER_PATTERN_CHARACTER)


_OF_STANDARD: Final[Mapping[str, Cost]] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _scan_of(1)),
    **dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _scan_of(0)
    ),
    "in_list": lambda args, _result: size_for_cost(args[1]),
    **dict.fromkeys(
        [
            "less_string",
            "greater_string",
            "less_equals_string",
            "greater_equals_string",
            "less_bytes",
            "greater_bytes",
            "less_equals_bytes",
            "greater_equals_bytes",
            "equals",
        ],
        _equality,
    ),
    **dict.fromkeys(
        ("add_string", "add_bytes"),
        lambda args, _result: _scan(size_for_cost(args[0]) + size_for_cost(args[1])),
    ),
    **dict.fromkeys(("matches", "matches_string"), _pattern),
    "contains_string": lambda args, _result: (
        _scan(size_for_cost(args[0])) * _scan(size_for_cost(args[1]))
    ),
}


def _traversed(value: Value) -> int:
    """Return the cost of going through everything in a value."""
    if isinstance(value, str):
        return int(len(value.encode()) * _PER_CHARACTER)
    if isinstance(value, bytes):
        return int(len(value) * _PER_CHARACTER)
    if is_list(value):
        return sum(_traversed(each) for each in at_once(value))
    if isinstance(value, MapValue):
        return sum(_traversed(key) + _traversed(each) for key, each in value.items())
    return 1


def _all(cost: Cost) -> Callable[[str], Cost]:
    return lambda _overload: cost


def _contains(is_text: bool, is_cidr: bool) -> Cost:
    def cost(args: Sequence[Value], _result: Value) -> int:
        size = size_for_cost(args[0])
        total = _scan(size + size) + (_scan(size) + 1 if is_cidr else 0)
        return total + (_scan(size_for_cost(args[1])) if is_text else 0)

    return cost


def _validate(args: Sequence[Value], _result: Value) -> int:
    pattern: int | None = getattr(args[0], "pattern_size", None)
    if pattern is None:
        return 1
    text = math.ceil((1.0 + size_for_cost(args[1])) * _PER_CHARACTER)
    return text * math.ceil(pattern * _PER_PATTERN_CHARACTER)


def _equality_of_kubernetes(args: Sequence[Value], result: Value) -> int:
    return 1 if isinstance(args[0], Opaque) else _equality(args, result)


_OF_KUBERNETES: Final[Mapping[str, Callable[[str], Cost]]] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"),
        _all(lambda args, _result: _traversed(args[0])),
    ),
    **dict.fromkeys(
        [
            "url",
            "lowerAscii",
            "upperAscii",
            "substring",
            "trim",
            "cidr",
            "isIP",
            "isCIDR",
            "quantity",
            "isQuantity",
            "semver",
            "isSemver",
        ],
        _all(_scan_of(0)),
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _all(_scan_of(0, 2))),
    "join": _all(lambda _args, result: _scan(size_for_cost(result) * 2)),
    **dict.fromkeys(("find", "findAll"), _all(_pattern)),
    "ip": lambda overload: _one if overload == "cidr_ip" else _scan_of(0),
    "containsIP": lambda overload: _contains(overload == "cidr_contains_ip_string", False),
    "containsCIDR": lambda overload: _contains(overload == "cidr_contains_cidr_string", True),
    "validate": _all(_validate),
    **dict.fromkeys(
        [
            "masked",
            "prefixLength",
            "family",
            "isUnspecified",
            "isLoopback",
            "isLinkLocalMulticast",
            "isLinkLocalUnicast",
            "isGlobalUnicast",
            "format.named",
            "sign",
            "asInteger",
            "isInteger",
            "asApproximateFloat",
            "isGreaterThan",
            "isLessThan",
            "compareTo",
            "add",
            "sub",
            "major",
            "minor",
            "patch",
            "getScheme",
            "getHostname",
            "getHost",
            "getPort",
            "getEscapedPath",
            "getQuery",
        ],
        _all(_one),
    ),
    "_==_": _all(_equality_of_kubernetes),
}


def _allocated(factor: float, size: int) -> int:
    return int(float(size) * factor) + 1 + 10


def _sets(factor: float) -> Cost:
    def cost(args: Sequence[Value], _result: Value) -> int:
        return 1 + int(float(size_for_cost(args[0]) * size_for_cost(args[1])) * factor)

    return cost


def _flattened(args: Sequence[Value], _result: Value) -> int:
    depth = 1.0
    if len(args) == 2:
        if type(args[1]) is not int:
            kind = go_type(args[1])
            raise EvaluationCrash(
                f"internal error: interface conversion: ref.Val is {kind}, not types.Int"
            )
        depth = float(args[1])
    return _allocated(depth if depth >= 0 else 1.0, size_for_cost(args[0]))


def _flattened_1_36(args: Sequence[Value], result: Value) -> int:
    if type(args[1]) is int and args[1] < 0:
        return (args[1] * size_for_cost(args[0]) + 11) % 2**64  # a negative uint64
    return _flattened(args, result)


_WITH_ADD: Final = frozenset((str, bytes, int, UInt, float, Duration, Timestamp))


def _compared(index: int) -> Cost:
    """Return the cost of comparing each element of an argument with each."""

    def cost(args: Sequence[Value], _result: Value) -> int:
        items = args[index]
        if not is_list(items):
            missing = "Contains" if type(items) in _WITH_ADD else "Add"
            raise EvaluationCrash(
                f"internal error: interface conversion: {go_type(items)} is not traits.Lister:"
                f" missing method {missing}"
            )
        size = size_of(items)
        texts = size and isinstance(next(iterate(items)), str | bytes)
        return _allocated(2.0 + (_PER_CHARACTER if texts else 0.0), size * size)

    return cost


def _of_result(_args: Sequence[Value], result: Value) -> int:
    return _allocated(1, size_for_cost(result))


_OF_EXTENSIONS: Final[Mapping[str, Cost]] = {
    "list_slice": _of_result,
    "lists_range": _of_result,
    "list_reverse": _of_result,
    "list_flatten": _flattened,
    "list_flatten_int": _flattened,
    "list_distinct": _compared(0),
    "list_sets_contains_list": _sets(1.0),
    "list_sets_intersects_list": _sets(1.0),
    "list_sets_equivalent_list": _sets(2.0),
    **{overload.name: _compared(0) for overload in functions()["sort"]},
    **{overload.name: _compared(1) for overload in functions()["@sortByAssociatedKeys"]},
}
_OF_1_36: Final[Mapping[str, Cost]] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _scan_of(0)),
    "matches": _one,
    "list_includes_dyn_dyn": _one,
    "list_flatten_int": _flattened_1_36,
}
"""What Kubernetes 1.36 charges for otherwise."""
