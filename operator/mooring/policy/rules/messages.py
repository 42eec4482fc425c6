"""Explains the mistakes in an expression in plain words, and how to correct them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

_SHOWN: Final = 300
"""The maximum number of characters of a message, because it may quote a long text; the rest is cut
off."""
UNDECLARED: Final = re.compile(r"undeclared reference to '([^']*)'")
_OVERLOAD: Final = re.compile(
    r"found no matching overload for '([^']*)' applied to '(?:(.*)\.)?\((.*)\)'"
)
_TYPE: Final = re.compile(r"expected type '(.*)' but found '(.*)'")
_SYNTAX: Final = "Syntax error: "
_TOKEN: Final = re.compile(r"token recognition error at: '(.*)'", re.DOTALL)
_INPUT: Final = re.compile(r"mismatched input '(.*)' expecting (.*)$", re.DOTALL)
_SAID: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("argument must be a simple name", "argument is not an identifier"),
        "the first argument of a macro (all, exists, ...) must be a name",
    ),
    "unable to unescape string": "this text has a backslash that means nothing: write two of them",
    "invalid argument to has() macro": (
        'has() takes a key after a dot: for a key in brackets write "key" in node.labels'
    ),
}
_OPERATORS: Final[Mapping[str, str]] = {
    "=": "= is no operator: write == to compare",
    "&": "& is no operator: write && for and",
    "|": "| is no operator: write || for or",
}
_WORDS: Final[Mapping[str, str]] = {"and": "&&", "or": "||", "not": "!"}
_OTHER_QUOTES: Final = "\u2018\u2019\u201c\u201d"
"""The quotation marks that word processors insert."""
_NUMBERS: Final = ("int", "double", "uint")
USES: Final[Mapping[str, str]] = {
    "domain": 'write a node label: domain("topology.kubernetes.io/zone")',
    "pods": 'write the labels of the pods that count: pods({"app": "db"})',
    "node.pods": 'write the labels of the pods that count: node.pods({"app": "db"})',
}
"""The correct forms of the functions that count pods."""


def in_plain_words(message: str) -> str:
    """Return a message of the parser or the checker in plain words and one line."""
    if message.startswith(_SYNTAX):
        found = _syntax(message.removeprefix(_SYNTAX))
    elif overload := _OVERLOAD.match(message):
        target, given = overload[2], _divided(overload[3])
        found = _wrong_types(overload[1], [target, *given] if target else given)
    elif kind := _TYPE.match(message):
        found = f"must be {_named(kind[1])}, is {_named(kind[2])}"
    else:
        found = _SAID.get(message, message)
    return " ".join(found.split())[:_SHOWN]


def _syntax(message: str) -> str:
    if token := _TOKEN.match(message):
        return _unknown_token(token[1])
    found = _INPUT.match(message)
    return message if found is None else _misplaced(found[1], found[2])


def _misplaced(text: str, expected: str) -> str:
    if (meant := _WORDS.get(text)) is not None:
        return f'"{text}" is no operator: write {meant}'
    if expected == "<EOF>":
        return f'"{text}" is too much: an operator such as && or == is missing before it'
    symbol, at_end = expected.strip("'"), text == "<EOF>"
    if symbol != expected:
        return f"{symbol} is missing" + ("" if at_end else f' before "{text}"')
    if at_end:
        return "the expression ends here, but something is missing"
    return f'"{text}" cannot stand here'


def _unknown_token(text: str) -> str:
    first = text[:1]
    if first in ("'", '"'):
        return f"a text begins here, and its end {first} is not found"
    if first in _OTHER_QUOTES:
        return f"{first} is no quotation mark of CEL: write \" or '"
    return _OPERATORS.get(first, f'the character "{first}" means nothing here')


def _wrong_types(function: str, types: Sequence[str]) -> str:
    operator = function.strip("_").removeprefix("@")
    explain = _BY_FUNCTION.get(function)
    if explain is not None:
        return explain(operator, types)
    given = f"{function} does not take {_joined(types)}"
    return f"{given}: {USES[function]}" if function in USES else given


def _of_two(operator: str, types: Sequence[str]) -> str:
    if len(types) == 1:
        return f"{operator} does not take {_joined(types)}: it needs a number"
    return f"{operator} does not work with {_joined(types)}{_conversion(types)}"


def _conversion(types: Sequence[str]) -> str:
    both = {*types}
    if both == {"int", "double"}:
        return ": CEL does not mix these, write double(...) around the int"
    if "string" in both and both & {*_NUMBERS}:
        number = next(kind for kind in types if kind != "string")
        return f": write {number}(...) around the string, or the number in quotes"
    if both == {"int", "uint"}:
        return ": write the number without u"
    return ""


def _negation(_: str, types: Sequence[str]) -> str:
    return f"! needs a condition that is true or false, not {_joined(types)}"


def _choice(_: str, types: Sequence[str]) -> str:
    condition, *results = types
    if condition != "bool":
        return f"what stands before ? must be true or false, not {_named(condition)}"
    return f"what stands on both sides of : must be of one type, not {_joined(results)}"


def _brackets(_: str, types: Sequence[str]) -> str:
    return f"[...] does not work with {_joined(types)}: it takes a key of a map or a position"


def _membership(_: str, types: Sequence[str]) -> str:
    return (
        f"in needs a list or a map of the same type on its right, not {_joined(types)}: "
        "for a part of a text write text.contains(...)"
    )


_BY_FUNCTION: Final[Mapping[str, Callable[[str, Sequence[str]], str]]] = {
    **dict.fromkeys(
        ("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_+_", "_-_", "_*_", "_/_", "_%_", "-_"),
        _of_two,
    ),
    "!_": _negation,
    "_?_:_": _choice,
    "_[_]": _brackets,
    "@in": _membership,
}


def _joined(types: Sequence[str]) -> str:
    return " and ".join(map(_named, types)) or "nothing"


def _named(kind: str) -> str:
    article = "an" if kind.startswith(("a", "i")) else "a"
    return f"{article} {kind}"


def _divided(types: str) -> list[str]:
    # As in `string, map(string, int)`: a comma in parentheses divides nothing.
    parts, depth = [""], 0
    for character in types:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
