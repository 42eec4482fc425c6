"""Chooses the implementation of a call: by the checker's overload, or by the arguments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mooring.cel import (
    functions_of_kubernetes,
    functions_of_lists,
    functions_of_text,
    operators,
    times,
)
from mooring.cel.declarations import Overload, functions
from mooring.cel.regular_expressions import PatternError, compile_pattern
from mooring.cel.types import Type
from mooring.cel.values import (
    NO_OVERLOAD,
    Duration,
    EvaluationCrash,
    Failure,
    MapValue,
    Timestamp,
    is_list,
    iterate,
    size_of,
    type_name,
)

Value = Any
Implementation = Callable[..., Value]


@dataclass(frozen=True, slots=True)
class Binding:
    """The implementation of a call.

    If `is_strict`, an error in an argument is the result of the call. If `stops_early`, no
    argument after the error is evaluated.
    """

    call: Implementation
    stops_early: bool
    is_strict: bool = True


_OVERLOADS: Final[dict[str, Implementation]] = {
    **operators.OVERLOADS,
    **functions_of_text.OVERLOADS,
    **times.OVERLOADS,
    **functions_of_lists.OVERLOADS,
    **functions_of_kubernetes.OVERLOADS,
}
_OVERLOADS_1_36: Final[dict[str, Implementation]] = {
    **functions_of_text.OVERLOADS_1_36,
    **functions_of_lists.OVERLOADS_1_36,
    **functions_of_kubernetes.OVERLOADS_1_36,
}
_BY_FUNCTION: Final[Mapping[str, operators.Operator]] = {
    **operators.OPERATORS,
    **functions_of_lists.OPERATORS,
    "matches": operators.Operator(functions_of_text.matches, frozenset((str,))),
}
_UNGUARDED: Final = frozenset(("contains", "endsWith", "startsWith", "flatten"))
_VARIADIC: Final = frozenset(("optional_none",))
_RECEIVERS: Final = frozenset((str, Duration, Timestamp))
_PATTERNS: Final = frozenset(("matches", "find", "findAll"))
_CONVERSIONS: Final = frozenset(
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"]
)


def is_conversion(function: str) -> bool:
    """Return whether the function converts a value; conversions of constants are computed once."""
    return function in _CONVERSIONS


def binding_of(
    function: str, overload: str, constants: Sequence[Value], newer: bool, lenient: bool
) -> Binding:
    """Return a call's implementation; `constants` has None for an argument that is no constant.

    `newer` and `lenient` are as in `interpreter.plan`. Raises EvaluationCrash if a regular
    expression is constant and malformed.
    """
    count = len(constants)
    if function in _PATTERNS and type(constants[1]) is str:
        try:
            compile_pattern(constants[1])
        except PatternError as error:
            raise EvaluationCrash(str(error)) from None
        return Binding(_of_pattern(function, count), stops_early=True)
    if lenient and function in operators.LENIENT:
        return Binding(_of_operator(function, operators.LENIENT[function]), stops_early=False)
    return _selected(function, overload, count, newer)


def _of_pattern(function: str, count: int) -> Implementation:
    wanted = (str, str, int)[:count]
    implementation = functions_of_text.OF_PATTERNS[function]

    def call(*values: Value) -> Value:
        return implementation(*values) if tuple(map(type, values)) == wanted else NO_OVERLOAD

    return call


def _selected(function: str, overload: str, count: int, newer: bool) -> Binding:
    if function == "@not_strictly_false":
        return Binding(lambda value: value if type(value) is bool else True, False, False)
    operator = _BY_FUNCTION.get(function)
    if operator is not None:
        return Binding(_of_operator(function, operator), stops_early=count > 2)
    known = functions()[function]
    if overload:
        chosen = next(each for each in known if each.name == overload)
        return Binding(
            _guarded(function, [chosen], newer), stops_early=count > 2 or overload in _VARIADIC
        )
    return Binding(_guarded(function, known, newer), stops_early=True)


def _of_operator(function: str, operator: operators.Operator) -> Implementation:
    implementation, kinds = operator.implementation, operator.kinds

    def call(*values: Value) -> Value:
        kind = type(values[0])
        if kinds is not None and kind not in kinds:
            return NO_OVERLOAD if kind in _RECEIVERS else Failure(f"no such overload: {function}")
        return implementation(*values)

    return call


def _guarded(function: str, overloads: Sequence[Overload], newer: bool) -> Implementation:
    unguarded = function in _UNGUARDED
    known = _OVERLOADS if newer else _OVERLOADS | _OVERLOADS_1_36
    choices = [(known[each.name], each.parameters) for each in overloads]

    def call(*values: Value) -> Value:
        for implementation, wanted in choices:
            if len(wanted) == len(values) and (unguarded or all(map(_fits, wanted, values))):
                return implementation(*values)
        types = ", ".join(type_name(value) for value in values)
        return Failure(f"no such overload: {function}({types})")

    return call


def _fits(wanted: Type, value: Value) -> bool:
    if wanted.kind in {"dyn", "any", "param"}:
        return True
    if wanted.name != type_name(value):
        return False
    # Of a list or map, only the first element is checked.
    if wanted.kind == "list" and is_list(value):
        return not size_of(value) or _fits(wanted.parameters[0], next(iterate(value)))
    if wanted.kind == "map" and type(value) is MapValue and len(value):
        key, item = next(value.items())
        return _fits(wanted.parameters[0], key) and _fits(wanted.parameters[1], item)
    return True
