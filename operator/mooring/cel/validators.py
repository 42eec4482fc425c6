"""Finds mistakes in constants that the type check does not find."""

from collections.abc import Iterator, Sequence
from typing import Final

from mooring.cel.cel_errors import ExpressionMistake
from mooring.cel.formatting import FormatError, formatted, wrong_type
from mooring.cel.regular_expressions import PatternError, compile_pattern
from mooring.cel.times import parse_duration, parse_timestamp, timestamp_of_seconds
from mooring.cel.tree import Expression, FunctionCall, ListOf, Literal, MapOf
from mooring.cel.types import DYN, Type, unwrapped
from mooring.cel.values import Failure

_CHECKED: Final = frozenset(("duration", "timestamp", "matches"))
_ACCEPTED: Final = {
    verb: frozenset(("dyn", *kinds.split()))
    for verb, kinds in (
        ("s", "list map int uint double bool string timestamp bytes duration type null"),
        ("d", "int uint"),
        ("o", "int uint"),
        ("f", "double string"),
        ("e", "double string"),
        ("b", "int uint bool"),
        ("x", "int uint string bytes"),
        ("X", "int uint string bytes"),
    )
}
"""The types that each clause of a format accepts, by the clause's letter, such as `s`."""


def validate(root: Expression) -> Sequence[ExpressionMistake]:
    """Return the mistakes in the constants of a checked tree."""
    return [*_mistakes(root, mixed_allowed=False)]


def _mistakes(node: Expression, mixed_allowed: bool) -> Iterator[ExpressionMistake]:
    match node:
        case FunctionCall():
            if node.function in _CHECKED and node.args and isinstance(node.args[0], Literal):
                yield from _of_literal(node.function, node.args[0])
            if node.function == "format":
                yield from _of_format(node)
            # The arguments of a format may be of several types.
            mixed_allowed = mixed_allowed or node.function == "format"
        case ListOf() if not mixed_allowed:
            yield from _of_list(node)
        case MapOf() if not mixed_allowed:
            yield from _of_map(node)
    for part in node.parts():
        yield from _mistakes(part, mixed_allowed)


def _of_literal(function: str, literal: Literal) -> Iterator[ExpressionMistake]:
    value, wrong = literal.value, False
    if function == "matches":
        try:
            compile_pattern(value)
        except PatternError:
            wrong = True
    elif isinstance(value, str):
        parsed = parse_duration(value) if function == "duration" else parse_timestamp(value)
        wrong = parsed is None or isinstance(parsed, Failure)
    elif type(value) is int:
        wrong = isinstance(timestamp_of_seconds(value), Failure)
    if wrong:
        yield ExpressionMistake(literal.at, f"invalid {function} argument")


def _of_format(node: FunctionCall) -> Iterator[ExpressionMistake]:
    text, args = node.target, node.args[0]
    if not (isinstance(text, Literal) and isinstance(args, ListOf) and type(text.value) is str):
        return
    wrong: list[Expression] = []

    def clause(verb: str, index: int, _precision: int) -> str:
        found = _not_accepted(args.elements[index], _ACCEPTED[verb], nested=verb == "s")
        if found is not None:
            wrong.append(found)
            raise wrong_type(verb, (found.type or DYN).name)
        return ""

    try:
        formatted(text.value, len(args.elements), clause, checks=True)
    except FormatError as error:
        yield ExpressionMistake(wrong[0].at if wrong else node.at, str(error))


def _not_accepted(node: Expression, kinds: frozenset[str], nested: bool) -> Expression | None:
    if (node.type or DYN).kind not in kinds:
        return node
    if not nested or not isinstance(node, ListOf | MapOf):
        return None
    found = (_not_accepted(part, kinds, nested) for part in node.parts())
    return next((part for part in found if part is not None), None)


def _type(node: Expression, optional: bool) -> Type:
    found = node.type or DYN
    return unwrapped(found)[0] if optional else found


def _mixed(node: Expression, expected: Type, found: Type) -> ExpressionMistake:
    return ExpressionMistake(node.at, f"expected type '{expected.shown}' but found '{found.shown}'")


def _of_list(node: ListOf) -> Iterator[ExpressionMistake]:
    types = [_type(each, index in node.optional) for index, each in enumerate(node.elements)]
    for each, found in zip(node.elements, types, strict=True):
        if found != types[0]:
            yield _mixed(each, types[0], found)
            return


def _of_map(node: MapOf) -> Iterator[ExpressionMistake]:
    types = [(_type(key, False), _type(value, opt)) for key, value, opt in node.entries]
    for (key, value, _opt), (key_type, value_type) in zip(node.entries, types, strict=True):
        if key_type != types[0][0]:
            yield _mixed(key, types[0][0], key_type)
        if value_type != types[0][1]:
            yield _mixed(value, types[0][1], value_type)
