"""Parses and type-checks CEL expressions over a pod and a node.

Rules may call only the functions of CEL's standard library, and two functions that count pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from mooring.cel.cel_errors import CompileError, ExpressionMistake
from mooring.cel.checker import Checker
from mooring.cel.declarations import Overload, standard_functions
from mooring.cel.interpreter import Program, plan
from mooring.cel.macros import STANDARD_MACROS
from mooring.cel.parser import parse
from mooring.cel.tree import Expression, Ident, Select, walk
from mooring.cel.types import BOOL, INT, STRING, Type, list_of, map_of
from mooring.policy.profile_errors import FieldError, ProfileInvalid, did_you_mean
from mooring.policy.rules.messages import UNDECLARED, USES, in_plain_words

_STRINGS: Final = map_of(STRING, STRING)
_AMOUNTS: Final = map_of(STRING, INT)

VARIABLES: Final[Mapping[str, Type]] = {
    "node.name": STRING,
    "node.labels": _STRINGS,
    "node.zone": STRING,
    "node.region": STRING,
    "node.unschedulable": BOOL,
    "node.allocatable": _AMOUNTS,
    "node.requested": _AMOUNTS,
    "node.taints": list_of(_STRINGS),
    "node.conditions": _STRINGS,
    "pod.namespace": STRING,
    "pod.labels": _STRINGS,
    "pod.requests": _AMOUNTS,
    "pod.priority": INT,
    "pod.qosClass": STRING,
    "pod.ownerKind": STRING,
    "pod.namespaceLabels": _STRINGS,
}
"""The variables that an expression can read, with their types."""

_DOMAIN: Final = Type("opaque", "domain")
_SELECTED_BY: Final[Sequence[tuple[Type, ...]]] = ((_STRINGS,), (STRING,))
_IN_NAMESPACES: Final[Sequence[tuple[Type, ...]]] = ((), (list_of(STRING),), (_STRINGS,))


def _counting(name: str, *of: Type) -> tuple[Overload, ...]:
    # `of` is the type before the dot.
    return tuple(
        Overload(f"{name}_{number}", (*of, *pods, *namespaces), INT, bool(of), is_generic=False)
        for number, (pods, namespaces) in enumerate(product(_SELECTED_BY, _IN_NAMESPACES))
    )


_FUNCTIONS: Final[Mapping[str, tuple[Overload, ...]]] = {
    **standard_functions(),
    "domain": (Overload("domain", (STRING,), _DOMAIN, is_method=False, is_generic=False),),
    "pods": _counting("pods", _DOMAIN),
    "node.pods": _counting("node.pods"),
}
"""The functions that rules may call. Functions that count pods are never called; `rule_plan` turns
them into counts."""


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """An expression that has passed the type check, with its source text."""

    source: str
    root: Expression

    def mistake(self, part: Expression, message: str) -> FieldError:
        """Return a mistake at the position of this part; its path is empty."""
        return _mistake_at(self.source, part.at, message)

    def program(self, part: Expression, variables: Sequence[str]) -> Program:
        """Return the program of a part; raise ProfileInvalid if an operation on constants fails."""
        try:
            return plan(part, variables, newer=True, lenient=True)
        except CompileError as error:
            raise ProfileInvalid([self.mistake(part, str(error))]) from None


def check(source: str) -> Checked:
    """Parse and check the expression; raise ProfileInvalid with lines and columns of mistakes."""
    try:
        root = parse(source, STANDARD_MACROS)
    except CompileError as error:
        raise ProfileInvalid(_mistakes(source, error.mistakes, {})) from None
    checker = Checker(VARIABLES, {}, _FUNCTIONS)
    checker.check(root)
    if checker.mistakes:
        raise ProfileInvalid(_mistakes(source, checker.mistakes, _names(root)))
    return Checked(source, root)


def _names(root: Expression) -> Mapping[int, str]:
    """Return each name with dots (`node.labels`) by its offset in the text."""
    names = dict[int, str]()
    for part in walk(root):
        inner, fields = part, list[str]()
        while isinstance(inner, Select):
            fields.insert(0, inner.field)
            inner = inner.operand
        if isinstance(inner, Ident):
            names.setdefault(inner.at, ".".join((inner.name, *fields)))
    return names


def _mistake_at(source: str, at: int, message: str) -> FieldError:
    before = source[: max(at, 0)]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return FieldError("", f"line {line}, column {column}: {message}")


def _mistakes(
    source: str, mistakes: Sequence[ExpressionMistake], names: Mapping[int, str]
) -> Iterator[FieldError]:
    for mistake in sorted(mistakes, key=lambda mistake: mistake.at):
        undeclared = UNDECLARED.match(mistake.text)
        if undeclared:
            name = names.get(mistake.at, undeclared[1])
            message = f'unknown name "{name}"{_hint(name)}'
        else:
            message = in_plain_words(mistake.text)
        yield _mistake_at(source, mistake.at, message)


def _hint(name: str) -> str:
    if name in USES:
        return f": {USES[name]}"
    likely = did_you_mean(".".join(name.split(".")[:2]), (*VARIABLES, *USES))
    siblings = [v for v in VARIABLES if v.split(".")[0] == name.split(".", maxsplit=1)[0]]
    return likely or f"; known are {', '.join(siblings or VARIABLES)}"
