"""The functions of lists and sets.

Source: cel-go's `ext/lists.go`, `ext/sets.go`; kube-apiserver's `pkg/cel/library/lists.go`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cmp_to_key
from typing import Any, Final

from mooring.cel.declarations import functions
from mooring.cel.operators import OPERATORS as STANDARD
from mooring.cel.operators import Operator
from mooring.cel.tree import UInt
from mooring.cel.values import (
    ABSENT,
    LIMIT_EXCEEDED,
    LISTS,
    NO_OVERLOAD,
    Duration,
    EvaluationCrash,
    Failure,
    Optional,
    Timestamp,
    at_once,
    compare,
    equal,
    is_list,
    iterate,
    paced,
    size_of,
    type_of_value,
    work,
)

Value = Any
_PER_PAIR: Final = 4
"""The units of work for comparing two elements. Comparing all pairs of more than 707 elements
exceeds MOST_WORK and fails, as in Kubernetes."""
_MOST_RANGE: Final = 1_000_000
_MADE_AT_ONCE: Final = 50_000
_MOST_INCLUDED: Final = 48
_COMPARABLE: Final = frozenset((bool, int, UInt, float, str, bytes, Duration, Timestamp))


def _slice(items: Value, start: int, end: int) -> Value:
    if start < 0 or end < 0:
        return Failure(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        return Failure(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if size_of(items) < end:
        return Failure(f"cannot slice({start}, {end}), list is length {size_of(items)}")
    return tuple(at_once(items))[start:end]


def _flatten(items: Value, *depths: Value) -> Value:
    depth = depths[0] if depths else 1
    if not is_list(items) or type(depth) is not int:
        shown = ", ".join(type_of_value(each).name for each in depths)
        return Failure(f"no such overload: {type_of_value(items).name}.flatten({shown})")
    if depth < 0:
        return Failure("level must be non-negative")
    return tuple(_flattened(items, depth))  # each list in it is taken from the work


def _flattened(items: Value, depth: int) -> Iterator[Value]:
    for item in at_once(items):
        if depth and is_list(item):
            yield from _flattened(item, depth - 1)
        else:
            yield item


def _range(count: int) -> Value:
    if count < 0:
        return Failure(f"lists.range: size must be non-negative, got {count}")
    if count > _MOST_RANGE:
        return Failure(f"lists.range: size {count} exceeds maximum allowed ({_MOST_RANGE})")
    return _numbers(count)


def _range_1_36(count: int) -> Value:
    if count > _MOST_RANGE:
        raise EvaluationCrash(LIMIT_EXCEEDED)
    return _numbers(count)


def _numbers(count: int) -> Value:
    numbers = list[int]()
    for first in range(0, count, _MADE_AT_ONCE):
        end = min(first + _MADE_AT_ONCE, count)
        work.spend(end - first)
        numbers += range(first, end)
    return tuple(numbers)


def _compared_each(items: Value) -> tuple[Value, ...]:
    work.spend(_PER_PAIR * size_of(items) ** 2)
    return tuple(iterate(items))


def _distinct(items: Value) -> Value:
    found = list[Value]()
    for item in _compared_each(items):
        if not any(equal(item, other) is True for other in paced(found)):
            found.append(item)
    return tuple(found)


def _sorted(items: Value, keys: Value) -> Value:
    elements, by = tuple(iterate(items)), _compared_each(keys)
    if not elements:
        return items
    kind = type_of_value(by[0])
    if type(by[0]) not in _COMPARABLE:
        return Failure("list elements must be comparable")
    if any(type_of_value(key) != kind for key in by):
        return Failure("list elements must have the same type")

    def order(first: int, second: int) -> int:
        found = compare(by[first], by[second])
        return found if isinstance(found, int) else 0

    return tuple(elements[index] for index in sorted(range(len(by)), key=cmp_to_key(order)))


def _sets_contains(items: Value, part: Value) -> bool:
    mine = tuple(at_once(items))
    return all(any(equal(item, other) is True for other in paced(mine)) for item in at_once(part))


def _sets_intersects(items: Value, others: Value) -> bool:
    mine = tuple(at_once(others))
    return any(equal(item, other) is True for item in at_once(items) for other in paced(mine))


def _affordable(function: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool]:
    def compute(first: Value, second: Value) -> bool:
        work.spend(size_of(first) * size_of(second))
        return function(first, second)

    return compute


def _is_sorted(items: Value) -> Value:
    before: Value = None
    for index, item in enumerate(at_once(items)):
        if type(item) not in _COMPARABLE:
            return NO_OVERLOAD
        if index and compare(before, item) == 1:
            return False
        before = item
    return True


def _sum(zero: Value) -> Callable[[Value], Value]:
    def compute(items: Value) -> Value:
        total = zero
        for item in at_once(items):
            total = STANDARD["_+_"].implementation(total, item)
            if isinstance(total, Failure):
                return total if total != NO_OVERLOAD else NO_OVERLOAD
        return total

    return compute


def _extreme(name: str, worse: int) -> Callable[[Value], Value]:
    def compute(items: Value) -> Value:
        best: Value = None
        for index, item in enumerate(at_once(items)):
            if type(item) not in _COMPARABLE:
                return NO_OVERLOAD
            # `worse` is -1 for max and 1 for min.
            if not index or compare(best, item) == worse:
                best = item
        return best if size_of(items) else Failure(f"{name} called on empty list")

    return compute


def _index(items: Value, wanted: Value) -> int:
    return next((i for i, item in enumerate(at_once(items)) if equal(item, wanted) is True), -1)


def _last_index(items: Value, wanted: Value) -> int:
    found = [i for i, item in enumerate(at_once(items)) if equal(item, wanted) is True]
    return found[-1] if found else -1


def _includes(items: Value, wanted: Value) -> bool:
    if is_list(items):
        return any(equal(item, wanted) is True for item in at_once(items))
    return equal(items, wanted) is True


def _includes_1_36(items: Value, wanted: Value) -> Value:
    if is_list(items) and size_of(items) > _MOST_INCLUDED:
        first = tuple(iterate(items))[:_MOST_INCLUDED]
        return _includes(first, wanted) or Failure(
            f"'includes' function cannot be applied to lists longer than {_MOST_INCLUDED} values"
        )
    return _includes(items, wanted)


def _end(index: int) -> Callable[[Value], Value]:
    def compute(items: Value) -> Value:
        found = tuple(at_once(items))
        return Optional(True, found[index]) if found else ABSENT

    return compute


_ZEROS: Final = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": Duration(0)}
OPERATORS: Final[Mapping[str, Operator]] = {
    "sort": Operator(lambda items: _sorted(items, items), LISTS),
    "@sortByAssociatedKeys": Operator(_sorted, LISTS),
}
OVERLOADS: Final[Mapping[str, Callable[..., Value]]] = {
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": lambda items: tuple(at_once(items))[::-1],
    "list_distinct": _distinct,
    "list_sets_contains_list": _affordable(_sets_contains),
    "list_sets_equivalent_list": _affordable(
        lambda a, b: _sets_contains(a, b) and _sets_contains(b, a)
    ),
    "list_sets_intersects_list": _affordable(_sets_intersects),
    "list_a_index_of_int": _index,
    "list_a_last_index_of_int": _last_index,
    "list_includes_dyn_dyn": _includes,
    "list_last": _end(-1),
    "list_first": _end(0),
    **{each.name: _is_sorted for each in functions()["isSorted"]},
    **{each.name: _extreme("max", -1) for each in functions()["max"]},
    **{each.name: _extreme("min", 1) for each in functions()["min"]},
    **{f"list_{kind}_sum_{kind}": _sum(zero) for kind, zero in _ZEROS.items()},
}
OVERLOADS_1_36: Final[Mapping[str, Callable[..., Value]]] = {
    "lists_range": _range_1_36,
    "list_includes_dyn_dyn": _includes_1_36,
}
"""The implementations before Kubernetes 1.37, by the id of the overload."""
