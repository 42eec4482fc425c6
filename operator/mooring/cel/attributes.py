"""Variables with fields and indexes behind them, which cel-go resolves and counts as one step.

Source: cel-go's `interpreter/attributes.go` and the cost observers in `interpretable.go`.
"""

from collections.abc import Callable
from typing import Any, Final

from mooring.cel.values import (
    ABSENT,
    LIMIT_EXCEEDED,
    NO_OVERLOAD,
    EvaluationCrash,
    Failure,
    MapValue,
    Opaque,
    Optional,
    UInt,
    index_of,
    is_list,
    size_of,
    text_of,
    work,
)

__all__ = ["Attribute", "Evaluate", "Frame", "element", "go_type"]

Value = Any
_COST_PER_STEP: Final = 2_000
"""What an evaluation costs before it may pause: a few milliseconds."""


class Frame:
    """One evaluation: the values of variables by number, and the costs so far.

    Raises EvaluationCrash as soon as the costs are above the limit.
    """

    __slots__ = ("_until", "cost", "limit", "values")

    def __init__(self, values: list[Value], limit: int) -> None:
        self.values, self.limit, self.cost = values, limit, 0
        self._until = limit if work.pause is None else min(limit, _COST_PER_STEP)

    def charge(self, cost: int) -> None:
        """Add costs; pause at times if the evaluation may."""
        self.cost += cost
        if self.cost > self._until:
            if self.cost > self.limit:
                raise EvaluationCrash(LIMIT_EXCEEDED)
            work.step()
            self._until = min(self.limit, self.cost + _COST_PER_STEP)


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
    """Return the name of the type in Go, which some messages have."""
    if isinstance(value, Opaque):
        return value.go_type
    names = {"Joined": "*types.concatList", "Type": "*types.Type"}
    kind = type(value)
    return _GO_TYPES.get(kind) or names.get(kind.__name__) or f"types.{kind.__name__}"


def element(value: Value, key: Value, may_be_absent: bool) -> tuple[bool, Value]:
    """Return whether a field or an element is there, and its value, which may be a Failure."""
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
    if isinstance(value, Failure):
        return False, value
    return False, None if may_be_absent else Failure(f"no such key: {text_of(key)}")


def _at(value: Value, index: int) -> Value:
    """Return an element of a list, which may be joined of many."""
    while not isinstance(value, tuple | list):
        before = size_of(value.first)
        value, index = (value.first, index) if index < before else (value.second, index - before)
    return value[index]


class _Qualifier:
    """A step from a value to one of its fields or elements.

    `key` computes what to look for; `tests` and `optional` say what absence means.
    """

    __slots__ = ("constant", "key", "optional", "tests")

    def __init__(self, key: Evaluate, constant: bool, optional: bool, tests: bool) -> None:
        self.key, self.constant, self.optional, self.tests = key, constant, optional, tests


class Attribute:
    """A value with a path behind it. The conditional operator has one for each of its branches."""

    __slots__ = ("_base", "_branches", "_qualifiers", "is_conditional")

    def __init__(
        self, base: Evaluate, branches: "tuple[Attribute, Attribute] | None" = None
    ) -> None:
        self._base = base
        self._branches = branches
        self.is_conditional = branches is not None
        self._qualifiers = list[_Qualifier]()

    def add(
        self, key: Evaluate, *, constant: bool, optional: bool = False, tests: bool = False
    ) -> None:
        """Add a step to the path; to those of both branches, if there are branches."""
        if self._branches is None:
            self._qualifiers.append(_Qualifier(key, constant, optional, tests))
            return
        for branch in self._branches:
            branch.add(key, constant=constant, optional=optional, tests=tests)

    def resolve(self, frame: Frame) -> Value:
        """Return the value at the end of the path, or a Failure; count each step."""
        value = self._base(frame)
        if self._branches is not None:
            if value is True:
                return self._branches[0].resolve(frame)
            if value is False:
                return self._branches[1].resolve(frame)
            return value if isinstance(value, Failure) else NO_OVERLOAD
        if isinstance(value, Failure) or not self._qualifiers:
            return value
        optional = isinstance(value, Optional)
        if optional:
            if not value.present:
                return value
            value = value.value
        for qualifier in self._qualifiers:
            optional = optional or qualifier.optional
            found, value = self._step(frame, value, qualifier, optional)
            if isinstance(value, Failure):
                return value
            if optional and not found:
                return ABSENT
        return Optional(True, value) if optional else value

    @staticmethod
    def _step(
        frame: Frame, value: Value, qualifier: _Qualifier, optional: bool
    ) -> tuple[bool, Value]:
        key = qualifier.key(frame)
        if isinstance(key, Failure):
            found, inner = False, key
        elif type(key) not in _KEYS:
            found, inner = False, Failure(f"invalid qualifier type: {go_type(key)}")
        else:
            found, inner = element(value, key, may_be_absent=optional or qualifier.tests)
        if qualifier.tests and not optional:
            frame.charge(1)
            return True, inner if isinstance(inner, Failure) else found
        if found or not optional:
            frame.charge(1)
        return found, inner
