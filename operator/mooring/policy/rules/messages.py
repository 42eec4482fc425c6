"""Says in plain words what the CEL library says about an expression that it refuses."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

__all__ = ["USES", "in_plain_words"]

_SHOWN: Final = 300
"""Characters of a message of the library; its syntax errors list every token it expected."""
_OVERLOAD: Final = re.compile(r"found no matching overload for '([^']*)' applied to '\((.*)\)'")
_SYNTAX: Final = "Syntax error: "
_TOKEN: Final = re.compile(r"token recognition error at: '(.*)'", re.DOTALL)
_INPUT: Final = re.compile(r"\w+ input '(.*?)'(?: expecting (.*))?$", re.DOTALL)
_NO_VIABLE: Final = re.compile(r"no viable alternative at input '(.*)'", re.DOTALL)
_MISSING: Final = re.compile(r"missing '(.*)' at '.*'")
_TOO_EARLY: Final = "the expression ends here, but something is missing"
_OPERATORS: Final[Mapping[str, str]] = {
    "=": "= is no operator: write == to compare",
    "&": "& is no operator: write && for and",
    "|": "| is no operator: write || for or",
}
_WORDS: Final[Mapping[str, str]] = {"and": "&&", "or": "||", "not": "!", "<>": "!="}
_OTHER_QUOTES: Final = "\u2018\u2019\u201c\u201d"
"""What word processors make of quotation marks."""
_NUMBERS: Final = ("int", "double", "uint")
USES: Final[Mapping[str, str]] = {
    "domain": 'write a node label: domain("topology.kubernetes.io/zone")',
    "pods": 'write the labels of the pods that count: pods({"app": "db"})',
    "node.pods": 'write the labels of the pods that count: node.pods({"app": "db"})',
}
"""How to write the functions that count pods."""


def in_plain_words(message: str) -> str:
    """Return one line of a message of the library in plain words, with what to write instead."""
    if message.startswith(_SYNTAX):
        return _syntax(message.removeprefix(_SYNTAX))[:_SHOWN]
    found = _OVERLOAD.match(message)
    if found is None:
        return " ".join(message.split())[:_SHOWN]
    return _wrong_types(found[1], _divided(found[2]))[:_SHOWN]


def _syntax(message: str) -> str:
    if token := _TOKEN.match(message):
        return _unknown_token(token[1])
    if missing := _MISSING.match(message):
        return f"{missing[1]} is missing"
    found = _INPUT.match(message) or _NO_VIABLE.match(message)
    if found is None:
        return " ".join(message.split())
    return _misplaced(" ".join(found[1].split()), ends=found.groups()[1:] == ("<EOF>",))


def _misplaced(text: str, *, ends: bool) -> str:
    """Return what is wrong with a part; `ends` says that the expression could have ended there."""
    if text == "<EOF>":
        return _TOO_EARLY
    if (meant := _WORDS.get(text)) is not None:
        return f'"{text}" is no operator: write {meant}'
    if ends:
        return f'"{text}" is too much: an operator such as && or == is missing before it'
    return f'"{text}" cannot stand here'


def _unknown_token(text: str) -> str:
    first = text[:1]
    if first in ("'", '"'):
        wrong = " with a backslash that means nothing" if "\\" in text else ""
        return f"a text begins here{wrong}, and its end {first} is not found"
    if first in _OTHER_QUOTES:
        return f"{first} is no quotation mark of CEL: write \" or '"
    return _OPERATORS.get(first, f'the character "{first}" means nothing here')


def _wrong_types(function: str, types: Sequence[str]) -> str:
    """Return why a function or an operator does not take values of these types."""
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
    """Return what to write so that two types fit together."""
    both = {*types}
    if both == {"int", "double"}:
        return ": CEL does not mix these, write double(...) around the int"
    if "string" in both and both & {*_NUMBERS}:
        number = next(kind for kind in types if kind != "string")
        return f": write {number}(...) around the string, or the number in quotes"
    if both == {"int", "uint"}:
        return ": write the number without u"
    return ""


def _of_bools(operator: str, types: Sequence[str]) -> str:
    wrong = next((kind for kind in types if kind != "bool"), "other types")
    return f"{operator} needs conditions that are true or false, not {_named(wrong)}"


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
    **dict.fromkeys(("_&&_", "_||_", "!_"), _of_bools),
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
    """Return the types of a list such as `string, map(string, int)`."""
    parts, depth = [""], 0
    for character in types:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
