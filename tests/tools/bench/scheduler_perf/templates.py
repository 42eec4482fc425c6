"""Renders the part of Go's text/template, with upstream's functions, that the workloads use.

Reading a template raises an error for an unknown construct; rendering does not.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Values = Mapping[str, Any]


class UnknownConstructError(Exception):
    """A template has a construct that is not known here."""


@dataclass(frozen=True)
class _Scope:
    dot: Any
    variables: dict[str, Any]


_Expression = Callable[[_Scope], Any]
_Node = Callable[[_Scope], str]
_Function = Callable[..., Any]

_ACTION: Final = re.compile(r"(\s*)\{\{-\s|\{\{")
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d+(?:\.\d+)?)|(?P<path>\$?\w*(?:\.\w+)+)"""
    r"""|(?P<variable>\$\w*)|(?P<word>[A-Za-z_]\w*)|(?P<mark>:=|[().|]))"""
)
_WORDS: Final[Mapping[str, object]] = {"true": True, "false": False, "nil": None}


class Template:
    def __init__(self, text: str) -> None:
        """Read the template.

        Raises:
            UnknownConstructError: the template has a construct that is not known here.
        """
        parser = _Parser(text)
        self._nodes = parser.nodes()
        self.depends_on_index = ".Index" in text
        """Whether two objects of one operation may differ."""

    def render(self, values: Values) -> str:
        """Return the text with these values; UnknownConstructError if a value is missing."""
        return _joined(self._nodes, _Scope(values, {"$": values}))


class _Parser:
    """Reads a template from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._pieces = [*_pieces(text)]
        self._at = 0
        self._tokens: list[tuple[str, str]] = []

    def nodes(self) -> Sequence[_Node]:
        nodes, closed_by = self._block()
        if closed_by:
            raise UnknownConstructError(f"{{{{{closed_by}}}}} without a beginning")
        return nodes

    def _block(self) -> tuple[Sequence[_Node], str]:
        """Return the nodes up to an `else` or `end`, and this action; "" at the template's end."""
        nodes: list[_Node] = []
        while self._at < len(self._pieces):
            is_action, text = self._pieces[self._at]
            self._at += 1
            if not is_action:
                nodes.append(lambda _scope, text=text: text)  # type: ignore[misc]  # mypy infers no lambda with a default
                continue
            word = text.split(maxsplit=1)[0] if text else ""
            if word in {"else", "end"}:
                return nodes, text
            nodes.append(self._node(text, word))
        return nodes, ""

    def _node(self, text: str, word: str) -> _Node:
        self._tokens = [*_tokens(text)]
        if word in {"if", "range"}:
            self._tokens.pop(0)
            return self._choice() if word == "if" else self._loop()
        variable = self._declared()
        expression = self._pipeline()
        self._expect_end(text)
        return _assignment(variable, expression) if variable else _output(expression, text)

    def _choice(self) -> _Node:
        condition = self._pipeline()
        self._expect_end("if")
        chosen, closed_by = self._block()
        otherwise: Sequence[_Node] = ()
        if closed_by.startswith("else if "):
            text = closed_by.removeprefix("else ")
            return _choice(condition, chosen, [self._node(text, "if")])
        if closed_by == "else":
            otherwise, closed_by = self._block()
        _require_end("if", closed_by)
        return _choice(condition, chosen, otherwise)

    def _loop(self) -> _Node:
        variable = self._declared()
        items = self._pipeline()
        self._expect_end("range")
        body, closed_by = self._block()
        _require_end("range", closed_by)
        return _loop(variable, items, body)

    def _declared(self) -> str:
        """Take `$name :=` from the tokens and return the name; "" if the tokens do not begin so."""
        if len(self._tokens) > 1 and self._tokens[1] == ("mark", ":="):
            (_, variable), _ = self._tokens.pop(0), self._tokens.pop(0)
            return variable
        return ""

    def _pipeline(self) -> _Expression:
        expression = self._command(None)
        while self._tokens and self._tokens[0] == ("mark", "|"):
            self._tokens.pop(0)
            expression = self._command(expression)
        return expression

    def _command(self, last: _Expression | None) -> _Expression:
        """Return a value, or a function call with `last` as its last argument."""
        if not self._tokens:
            raise UnknownConstructError("an action without a value")
        kind, word = self._tokens[0]
        if kind != "word" or word in _WORDS:
            if last:
                raise UnknownConstructError(f"a pipe into {word}")
            return self._operand()
        self._tokens.pop(0)
        if word not in _FUNCTIONS:
            raise UnknownConstructError(f"the function {word}")
        arguments: list[_Expression] = []
        while self._tokens and self._tokens[0] not in {("mark", "|"), ("mark", ")")}:
            arguments.append(self._operand())
        return _call(word, [*arguments, *([last] if last else [])])

    def _operand(self) -> _Expression:
        kind, word = self._tokens.pop(0)
        match kind, word:
            case "text", _:
                return _constant(json.loads(word))
            case "number", _:
                return _constant(float(word) if "." in word else int(word))
            case ("path" | "variable", _) | ("mark", "."):
                return _path(word)
            case "mark", "(":
                expression = self._pipeline()
                if not self._tokens or self._tokens.pop(0) != ("mark", ")"):
                    raise UnknownConstructError("a parenthesis that is not closed")
                return expression
        if word in _WORDS:
            return _constant(_WORDS[word])
        raise UnknownConstructError(f"{word} where a value should be")

    def _expect_end(self, text: str) -> None:
        if self._tokens:
            raise UnknownConstructError(f"{self._tokens[0][1]} in {{{{{text}}}}}")


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """Yield texts and actions in turn, and for each whether it is an action."""
    at = 0
    while begin := _ACTION.search(text, at):
        yield False, text[at : begin.start()]
        end = text.find("}}", begin.end())
        if end < 0:
            raise UnknownConstructError("an action that is not closed")
        action, at = text[begin.end() : end], end + 2
        if action.endswith(" -"):
            action = action[:-2]
            at += len(text[at:]) - len(text[at:].lstrip())
        action = action.strip()
        if not action.startswith("/*"):
            yield True, action
    yield False, text[at:]


def _tokens(action: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each token of an action."""
    at = 0
    while at < len(action):
        match = _TOKEN.match(action, at)
        if not match:
            if action[at:].isspace():
                return
            raise UnknownConstructError(f"{action[at:].strip()} in {{{{{action}}}}}")
        yield str(match.lastgroup), match[str(match.lastgroup)]
        at = match.end()


def _require_end(word: str, closed_by: str) -> None:
    if closed_by != "end":
        raise UnknownConstructError(f"{word} that ends with {closed_by or 'the template'}")


def _constant(value: object) -> _Expression:
    return lambda _scope: value


def _path(path: str) -> _Expression:
    """Return a function for the value of a path such as .name, $variable.name or . (or None)."""
    first, *names = path.split(".")
    names = [name for name in names if name]

    def found(scope: _Scope) -> Any:
        if first and first not in scope.variables:
            raise UnknownConstructError(f"the variable {first}")
        value = scope.variables[first] if first else scope.dot
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    return found


def _call(name: str, arguments: Sequence[_Expression]) -> _Expression:
    function = _FUNCTIONS[name]

    def result(scope: _Scope) -> Any:
        try:
            return function(*(argument(scope) for argument in arguments))
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise UnknownConstructError(f"{name}: {error}") from error

    return result


def _assignment(variable: str, expression: _Expression) -> _Node:
    def node(scope: _Scope) -> str:
        scope.variables[variable] = expression(scope)
        return ""

    return node


def _output(expression: _Expression, text: str) -> _Node:
    def node(scope: _Scope) -> str:
        value = expression(scope)
        if value is None:
            raise UnknownConstructError(f"no value for {{{{{text}}}}}")
        if isinstance(value, bool):
            return str(value).lower()
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)

    return node


def _choice(condition: _Expression, chosen: Sequence[_Node], otherwise: Sequence[_Node]) -> _Node:
    return lambda scope: _joined(chosen if condition(scope) else otherwise, scope)


def _loop(variable: str, items: _Expression, body: Sequence[_Node]) -> _Node:
    def node(scope: _Scope) -> str:
        found = items(scope)
        if isinstance(found, int):
            found = range(found)
        if not isinstance(found, Sequence):
            raise UnknownConstructError(f"range over {found}")
        named = ({variable: item} if variable else {} for item in found)
        return "".join(
            _joined(body, _Scope(item, {**scope.variables, **name}))
            for item, name in zip(found, named, strict=True)
        )

    return node


def _joined(nodes: Sequence[_Node], scope: _Scope) -> str:
    inner = _Scope(scope.dot, {**scope.variables})
    return "".join(node(inner) for node in nodes)


def _or(*values: Any) -> Any:
    return next((value for value in values if value), values[-1])


def _and(*values: Any) -> Any:
    return next((value for value in values if not value), values[-1])


def _equals_any(first: Any, *others: Any) -> bool:
    return first in others


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _sum(*values: Any) -> float:
    return math.fsum(float(value) for value in values)


def _product(*values: Any) -> float:
    return math.prod(float(value) for value in values)


def _difference(first: Any, second: Any) -> float:
    return float(first) - float(second)


def _quotient(first: Any, second: Any) -> float:
    return float(first) / float(second)


def _remainder(first: Any, second: Any) -> int:
    """Return the remainder with the sign of the first, as in Go."""
    return int(math.fmod(int(float(first)), int(float(second))))


def _whole(function: Callable[..., float]) -> Callable[..., int]:
    """Return the function with its result cut to a whole number."""
    return lambda *values: int(function(*values))


_FUNCTIONS: Final[Mapping[str, _Function]] = {
    "and": _and,
    "or": _or,
    "not": operator.not_,
    "eq": _equals_any,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "AddFloat": _sum,
    "AddInt": _whole(_sum),
    "DivideFloat": _quotient,
    "DivideInt": _whole(_quotient),
    "Int": _whole(float),
    "JSON": _json,
    "Mod": _remainder,
    "MultiplyFloat": _product,
    "MultiplyInt": _whole(_product),
    "SubtractFloat": _difference,
    "SubtractInt": _whole(_difference),
}
