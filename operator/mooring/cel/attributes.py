"""Evaluates fields of objects and elements of lists (cel-go's `interpreter/attributes.go`)."""

from collections.abc import Callable
from typing import Any

from mooring.cel.tree import UInt
from mooring.cel.values import (
    ABSENT,
    Failure,
    MapValue,
    Opaque,
    Optional,
    index_of,
    is_list,
    size_of,
    text_of,
)

Value = Any
Frame = list[Value]
"""The values of all variables in one evaluation; a variable's index is its position in the list."""
Evaluate = Callable[[Frame], Value]
_GO_TYPES = {
    bool: "types.Bool",
    int: "types.Int",
    UInt: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    type(None): "types.Null",
    tuple: "*types.baseList",
    list: "*types.mutableList",
    MapValue: "*types.baseMap",
    Optional: "*types.Optional",
    Failure: "*types.Err",
}
_KEYS = frozenset((bool, int, UInt, float, str))


def go_type(value: Value) -> str:
    """Return the name of the value's type in Go, for messages."""
    if isinstance(value, Opaque):
        return value.go_type
    names = {"Joined": "*types.concatList", "Type": "*types.Type"}
    kind = type(value)
    return _GO_TYPES.get(kind) or names.get(kind.__name__) or f"types.{kind.__name__}"


def step(operand: Evaluate, key: Evaluate, *, optional: bool, tests: bool) -> Evaluate:
    """Return a function that evaluates the field or element `key` of `operand`.

    `optional` allows an absent field. If `tests` is True, the function returns whether the field
    exists.
    """

    def evaluate(frame: Frame) -> Value:
        value, wraps = operand(frame), optional
        if isinstance(value, Failure):
            return value
        if type(value) is Optional:
            if not value.present:
                return not tests and value
            value, wraps = value.value, True
        name = key(frame)
        if isinstance(name, Failure):
            return name
        if type(name) not in _KEYS:
            return Failure(f"invalid qualifier type: {go_type(name)}")
        found, inner = element(value, name, may_be_absent=wraps or tests)
        if tests or not wraps or isinstance(inner, Failure):
            return found if tests and not isinstance(inner, Failure) else inner
        return Optional(True, inner) if found else ABSENT

    return evaluate


def element(value: Value, key: Value, may_be_absent: bool) -> tuple[bool, Value]:
    """Return whether the map or list `value` has `key`, and the element.

    A missing element is a Failure, or None if `may_be_absent` is True. The element for an invalid
    list index is always a Failure.
    """
    if type(value) is MapValue:
        found, inner = value.find(key)
        if found:
            return True, inner
        return False, None if may_be_absent else Failure(f"no such key: {text_of(key)}")
    if is_list(value):
        index = index_of(key)
        if isinstance(index, Failure):
            return False, index
        if 0 <= index < size_of(value):
            return True, _at(value, index)
        return False, None if may_be_absent else Failure(f"index out of bounds: {text_of(key)}")
    return False, None if may_be_absent else Failure(f"no such key: {text_of(key)}")


def _at(value: Value, index: int) -> Value:
    while not isinstance(value, tuple | list):
        before = size_of(value.first)
        value, index = (value.first, index) if index < before else (value.second, index - before)
    return value[index]
