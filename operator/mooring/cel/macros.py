"""The macros of CEL: calls that the parser replaces by loops or by tests for presence."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from mooring.cel.tree import (
    ADD,
    AND,
    CONDITIONAL,
    EQUALS,
    MAP_INSERT,
    NOT,
    NOT_STRICTLY_FALSE,
    OR,
    RESULT,
    Comprehension,
    Expression,
    FunctionCall,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Select,
    copied,
)

Macro = Callable[[int, Expression, Sequence[Expression]], Expression | None]
"""Gets a call's offset, target and arguments; returns its replacement, or None to keep the call."""
Macros = Mapping[tuple[str, int, bool], Macro]
"""Macros by name, number of arguments, and whether the call is a method."""

_UNUSED: Final = "#unused"
_SORTED: Final = "@__sortBy_input__"


class MacroError(Exception):
    """Raised if the arguments of a macro are wrong.

    `at` is the position of the mistake in the source.
    """

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at, self.text = at, text


def _has(at: int, _target: Expression, args: Sequence[Expression]) -> Expression:
    field = args[0]
    if not isinstance(field, Select) or field.tests:
        raise MacroError(field.at, "invalid argument to has() macro")
    return Select(at, field.operand, field.field, tests=True)


def _variable(node: Expression, message: str) -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.at, message)
    return node.name


def _variables(args: Sequence[Expression], count: int, message: str) -> tuple[str, ...]:
    names = tuple(_variable(each, message) for each in args[:count])
    if len(set(names)) < count:
        raise MacroError(args[1].at, f"duplicate variable name: {names[0]}")
    for name, each in zip(names, args, strict=False):
        if name in {RESULT, "__result__"}:
            raise MacroError(each.at, "iteration variable overwrites accumulator variable")
    return names


def _loop(
    at: int,
    target: Expression,
    names: tuple[str, ...],
    start: Expression,
    condition: Expression,
    step: Expression,
) -> Comprehension:
    return Comprehension(
        at,
        items=target,
        variables=names,
        collects=RESULT,
        start=start,
        condition=condition,
        step=step,
        result=Ident(at, RESULT),
    )


def _quantifier(
    kind: str, count: int, at: int, target: Expression, args: Sequence[Expression]
) -> Expression | None:
    names = _variables(args, count, "argument must be a simple name")
    predicate, result = args[count], partial(Ident, at, RESULT)
    if kind == "all":
        return _loop(
            at,
            target,
            names,
            Literal(at, True),
            FunctionCall(at, NOT_STRICTLY_FALSE, [result()]),
            FunctionCall(at, AND, [result(), predicate]),
        )
    if kind == "exists":
        return _loop(
            at,
            target,
            names,
            Literal(at, False),
            FunctionCall(at, NOT_STRICTLY_FALSE, [FunctionCall(at, NOT, [result()])]),
            FunctionCall(at, OR, [result(), predicate]),
        )
    one_more = FunctionCall(at, ADD, [result(), Literal(at, 1)])
    return Comprehension(
        at,
        items=target,
        variables=names,
        collects=RESULT,
        start=Literal(at, 0),
        condition=Literal(at, True),
        step=FunctionCall(at, CONDITIONAL, [predicate, one_more, result()]),
        result=FunctionCall(at, EQUALS, [result(), Literal(at, 1)]),
    )


def _collected(
    at: int,
    target: Expression,
    names: tuple[str, ...],
    start: Expression,
    step: Expression,
    predicate: Expression | None,
) -> Expression:
    if predicate is not None:
        step = FunctionCall(at, CONDITIONAL, [predicate, step, Ident(at, RESULT)])
    return _loop(at, target, names, start, Literal(at, True), step)


def _map(at: int, target: Expression, args: Sequence[Expression]) -> Expression:
    names = _variables(args, 1, "argument is not an identifier")
    step = FunctionCall(at, ADD, [Ident(at, RESULT), ListOf(at, [args[-1]])])
    return _collected(at, target, names, ListOf(at, []), step, args[1] if len(args) == 3 else None)


def _filter(at: int, target: Expression, args: Sequence[Expression]) -> Expression:
    names = _variables(args, 1, "argument is not an identifier")
    step = FunctionCall(at, ADD, [Ident(at, RESULT), ListOf(at, [args[0]])])
    return _collected(at, target, names, ListOf(at, []), step, args[1])


def _transform_list(at: int, target: Expression, args: Sequence[Expression]) -> Expression:
    names = _variables(args, 2, "argument must be a simple name")
    step = FunctionCall(at, ADD, [Ident(at, RESULT), ListOf(at, [args[-1]])])
    return _collected(at, target, names, ListOf(at, []), step, args[2] if len(args) == 4 else None)


def _transform_map(
    entry: bool, at: int, target: Expression, args: Sequence[Expression]
) -> Expression:
    # `entry` is True for transformMapEntry.
    names = _variables(args, 2, "argument must be a simple name")
    inserted = [args[-1]] if entry else [Ident(at, names[0]), args[-1]]
    step = FunctionCall(at, MAP_INSERT, [Ident(at, RESULT), *inserted])
    return _collected(at, target, names, MapOf(at, []), step, args[2] if len(args) == 4 else None)


def _bound(at: int, name: str, value: Expression, result: Expression) -> Comprehension:
    """Return an expression that computes `result` with the variable `name` set to `value`."""
    # A loop over an empty list: its start value is the variable, and no step runs.
    return Comprehension(
        at,
        items=ListOf(at, []),
        variables=(_UNUSED,),
        collects=name,
        start=value,
        condition=Literal(at, False),
        step=Ident(at, name),
        result=result,
    )


def _bind(at: int, target: Expression, args: Sequence[Expression]) -> Expression | None:
    if not (isinstance(target, Ident) and target.name == "cel"):
        return None
    name = _variable(args[0], "cel.bind() variable names must be simple identifiers")
    return _bound(at, name, args[1], args[2])


def _opt_map(flat: bool, at: int, target: Expression, args: Sequence[Expression]) -> Expression:
    macro = "optFlatMap" if flat else "optMap"
    name = _variable(args[0], f"{macro}() variable name must be a simple identifier")
    made: Expression = _bound(at, name, FunctionCall(at, "value", [], copied(target)), args[1])
    if not flat:
        made = FunctionCall(at, "optional.of", [made])
    present = FunctionCall(at, "hasValue", [], target)
    return FunctionCall(at, CONDITIONAL, [present, made, FunctionCall(at, "optional.none", [])])


def _sort_by(at: int, target: Expression, args: Sequence[Expression]) -> Expression:
    if isinstance(target, Literal | MapOf):
        raise MacroError(
            target.at,
            "sortBy can only be applied to a list, identifier, comprehension, call or select"
            " expression",
        )
    keys = _map(at, Ident(at, _SORTED), args)
    result = FunctionCall(at, "@sortByAssociatedKeys", [keys], Ident(at, _SORTED))
    return _bound(at, _SORTED, target, result)


STANDARD_MACROS: Final[Macros] = {
    ("has", 1, False): _has,
    **{(name, 2, True): partial(_quantifier, name, 1) for name in ("all", "exists", "exists_one")},
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
}
"""The macros of CEL's standard library."""
MACROS: Final[Macros] = {
    **STANDARD_MACROS,
    **{
        (name, 3, True): partial(_quantifier, name, 2)
        for name in ("all", "exists", "exists_one", "existsOne")
    },
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): partial(_transform_map, False),
    ("transformMap", 4, True): partial(_transform_map, False),
    ("transformMapEntry", 3, True): partial(_transform_map, True),
    ("transformMapEntry", 4, True): partial(_transform_map, True),
    ("bind", 3, True): _bind,
    ("optMap", 2, True): partial(_opt_map, False),
    ("optFlatMap", 2, True): partial(_opt_map, True),
    ("sortBy", 2, True): _sort_by,
}
"""The macros for selectors of devices; the standard macros are included."""
