"""Parses CEL expressions, and replaces macros by loops.

The grammar and the limits are those of cel-go (`parser/gen/CEL.g4`). MOST_LEVELS and MOST_NODES are
lower limits, because functions walk the tree recursively.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn, cast

from mooring.cel.cel_errors import ExpressionMistake, compile_error
from mooring.cel.literals import LiteralError, unquoted
from mooring.cel.macros import MACROS, MacroError, Macros
from mooring.cel.tree import (
    AND,
    CONDITIONAL,
    INDEX,
    NEGATE,
    NOT,
    OPTIONAL_INDEX,
    OPTIONAL_SELECT,
    OR,
    Expression,
    FunctionCall,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Select,
    UInt,
)

MOST_LEVELS: Final = 80
"""The most levels of brackets and of the syntax tree (cel-go: 250); a deeper expression is an
error."""
MOST_NODES: Final = 20_000
"""The most nodes of the syntax tree, copies by macros included; a larger expression is an error."""

_TOKEN: Final = re.compile(
    r"""(?P<space>[\t \r\n\f]+|//[^\n]*)
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<bytes>[bB](?:[rR](?:\"{3}(?s:.)*?\"{3}|'{3}(?s:.)*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')
        |\"{3}(?:\\(?s:.)|[^\\])*?\"{3}|'{3}(?:\\(?s:.)|[^\\])*?'{3}
        |"(?:\\.|[^\\"\n\r])*"|'(?:\\.|[^\\'\n\r])*'))
    |(?P<string>[rR](?:\"{3}(?s:.)*?\"{3}|'{3}(?s:.)*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')
        |\"{3}(?:\\(?s:.)|[^\\])*?\"{3}|'{3}(?:\\(?s:.)|[^\\])*?'{3}
        |"(?:\\.|[^\\"\n\r])*"|'(?:\\.|[^\\'\n\r])*')
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<escaped>`[A-Za-z0-9_./\x20-]+`)
    |(?P<operator>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])""",
    re.VERBOSE,
)
_RESERVED: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_KEYWORDS: Final = frozenset(("in", "true", "false", "null"))
_RELATIONS: Final = frozenset(("<", "<=", ">=", ">", "==", "!=", "in"))
_LEFT_TO_RIGHT: Final = (frozenset("*/%"), frozenset("+-"), _RELATIONS)
_BINARY: Final = frozenset(("&&", "||")).union(*_LEFT_TO_RIGHT)
_FUNCTIONS: Final = {
    "in": "@in",
    **{op: f"_{op}_" for op in ("<", "<=", ">=", ">", "==", "!=", "+", "-", "*", "/", "%")},
}
_MOST_DIGITS: Final = 24
"""The most digits of a number that the parser reads; a longer number is too large in any case."""
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def parse(source: str, macros: Macros = MACROS) -> Expression:
    """Return the tree, with macros replaced by loops; raise CompileError with all mistakes."""
    parser = _Parser(source, macros)
    try:
        root = parser.whole()
    except _SyntaxError as mistake:
        parser.mistakes.append(ExpressionMistake(mistake.at, mistake.text))
        root = None
    if parser.mistakes or root is None:
        raise compile_error(source, parser.mistakes)
    return root


class _SyntaxError(Exception):
    """Raised at a mistake after which the parser cannot continue."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at, self.text = at, text


class _Parser:
    """Parses from left to right, and goes on after some mistakes."""

    def __init__(self, source: str, macros: Macros) -> None:
        self.mistakes: list[ExpressionMistake] = []
        self._macros = macros
        self._tokens: list[tuple[str, str, int]] = []
        self._next = 0
        self._levels = 0
        at = 0
        while at < len(source):
            found = _TOKEN.match(source, at)
            if found is None:
                raise compile_error(
                    source,
                    [
                        ExpressionMistake(
                            at, f"Syntax error: token recognition error at: '{source[at]}'"
                        )
                    ],
                )
            kind = found.lastgroup or ""
            if kind == "name" and found[0] in _KEYWORDS:
                kind = "keyword"
            if kind != "space":
                self._tokens.append((kind, found[0], at))
            at = found.end()
        self._tokens.append(("end", "<EOF>", len(source)))

    def whole(self) -> Expression:
        root = self._expression()
        if self._kind() != "end":
            self._unexpected(" expecting <EOF>")
        return root

    # --- tokens

    def _kind(self) -> str:
        return self._tokens[self._next][0]

    def _at(self) -> int:
        return self._tokens[self._next][2]

    def _is(self, text: str) -> bool:
        kind, found, _at = self._tokens[self._next]
        return found == text and kind in {"operator", "keyword"}

    def _take(self) -> tuple[str, int]:
        _kind, text, at = self._tokens[self._next]
        self._next += 1
        return text, at

    def _take_if(self, text: str) -> bool:
        if self._is(text):
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> int:
        if not self._is(text):
            self._unexpected(f" expecting '{text}'")
        return self._take()[1]

    def _unexpected(self, expected: str) -> NoReturn:
        _kind, text, at = self._tokens[self._next]
        raise _SyntaxError(at, f"Syntax error: mismatched input '{text}'{expected}")

    def _made(self, node: Expression) -> Expression:
        if node.depth > MOST_LEVELS:
            raise _SyntaxError(node.at, f"expression is nested more than {MOST_LEVELS} levels")
        if node.size > MOST_NODES:
            raise _SyntaxError(node.at, f"expression has more than {MOST_NODES} parts")
        return node

    def _call(
        self, at: int, function: str, *args: Expression, target: Expression | None = None
    ) -> Expression:
        macro = self._macros.get((function, len(args), target is not None))
        if macro is not None:
            try:
                made = macro(at, target or Ident(at, function), args)
            except MacroError as error:
                self.mistakes.append(ExpressionMistake(error.at, error.text))
                return Literal(at, None)
            if made is not None:
                return self._made(made)
        return self._made(FunctionCall(at, function, args, target))

    # --- grammar

    def _expression(self) -> Expression:
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise _SyntaxError(self._at(), f"expression is nested more than {MOST_LEVELS} levels")
        condition = self._operators()
        if self._is("?"):
            at = self._take()[1]
            then = self._operators()
            self._expect(":")
            condition = self._call(at, CONDITIONAL, condition, then, self._expression())
        self._levels -= 1
        return condition

    def _operators(self) -> Expression:
        """Parse operands and the binary operators between them; return the tree."""
        operands, operators = [self._unary()], list[tuple[str, int]]()
        while self._kind() in {"operator", "keyword"} and self._tokens[self._next][1] in _BINARY:
            operators.append(self._take())
            operands.append(self._unary())
        for level in _LEFT_TO_RIGHT:
            operands, operators = self._joined(level, operands, operators)
        return self._balanced(operands, operators)

    def _joined(
        self, level: frozenset[str], operands: list[Expression], operators: list[tuple[str, int]]
    ) -> tuple[list[Expression], list[tuple[str, int]]]:
        """Join operands by the operators in `level`; return the operands and operators left."""
        left, rest = [operands[0]], list[tuple[str, int]]()
        for (operator, at), operand in zip(operators, operands[1:], strict=True):
            if operator in level:
                left[-1] = self._call(at, _FUNCTIONS[operator], left[-1], operand)
            else:
                rest.append((operator, at))
                left.append(operand)
        return left, rest

    def _balanced(self, operands: list[Expression], operators: list[tuple[str, int]]) -> Expression:
        """Return the tree of calls of && and ||, balanced as in cel-go."""
        groups, disjunctions = [list[tuple[Expression, int]]()], list[int]()
        for operand, (operator, at) in zip(operands, [*operators, ("||", -1)], strict=True):
            groups[-1].append((operand, at))
            if operator == "||":
                disjunctions.append(at)
                groups.append([])
        terms = [self._tree(AND, [*zip(*group, strict=True)]) for group in groups[:-1]]
        return self._tree(OR, [terms, disjunctions])

    def _tree(self, function: str, parts: Sequence[Sequence[Any]]) -> Expression:
        terms, offsets = parts

        def balanced(low: int, high: int) -> Expression:
            if low > high:
                return cast("Expression", terms[low])
            middle = (low + high + 1) // 2
            left = balanced(low, middle - 1)
            return self._call(offsets[middle], function, left, balanced(middle + 1, high))

        return balanced(0, len(terms) - 2)

    def _unary(self) -> Expression:
        sign = next((sign for sign in "!-" if self._is(sign)), None)
        if sign is None:
            return self._member()
        at, count = self._at(), 0
        while self._take_if(sign):
            count += 1
        if sign == "-" and count == 1 and self._kind() in {"int", "float"}:
            return self._member(at)
        inner = self._member()
        if count % 2 == 0:
            return inner
        return self._call(at, NOT if sign == "!" else NEGATE, inner)

    def _member(self, minus: int | None = None) -> Expression:
        # `minus` is the offset of a minus sign before a number.
        node = self._primary() if minus is None else self._number(minus)
        while True:
            if self._is("."):
                node = self._selected(node)
            elif self._is("["):
                at = self._take()[1]
                function = OPTIONAL_INDEX if self._take_if("?") else INDEX
                index = self._expression()
                self._expect("]")
                node = self._call(at, function, node, index)
            else:
                return node

    def _selected(self, node: Expression) -> Expression:
        at = self._take()[1]
        optional = self._take_if("?")
        kind = self._kind()
        if kind not in {"name", "escaped"}:
            self._unexpected(" expecting IDENTIFIER")
        name, named_at = self._take()
        if kind == "name" and not optional and self._is("("):
            opened = self._take()[1]
            return self._call(opened, name, *self._arguments(), target=node)
        field = name.strip("`")
        if optional:
            return self._made(FunctionCall(at, OPTIONAL_SELECT, [node, Literal(named_at, field)]))
        return self._made(Select(at, node, field))

    def _arguments(self) -> list[Expression]:
        found = list[Expression]()
        if not self._is(")"):
            found.append(self._expression())
            while self._take_if(","):
                found.append(self._expression())
        self._expect(")")
        return found

    def _primary(self) -> Expression:
        kind = self._kind()
        if kind in {"int", "uint", "float"}:
            return self._number(None)
        if kind in {"string", "bytes"}:
            return self._text(kind == "bytes")
        if kind == "keyword" and not self._is("in"):
            text, at = self._take()
            return Literal(at, {"true": True, "false": False, "null": None}[text])
        if self._take_if("("):
            inner = self._expression()
            self._expect(")")
            return inner
        if self._is("["):
            return self._list()
        if self._is("{"):
            return self._map()
        return self._name()

    def _name(self) -> Expression:
        leading = "." if self._take_if(".") else ""
        if self._kind() != "name":
            self._unexpected(" expecting an expression")
        name, at = self._take()
        if name in _RESERVED:
            self.mistakes.append(ExpressionMistake(at, f"reserved identifier: {name}"))
        if self._is("("):
            opened = self._take()[1]
            return self._call(opened, leading + name, *self._arguments())
        return Ident(at, leading + name)

    def _list(self) -> Expression:
        at, elements, optional = self._take()[1], list[Expression](), set[int]()
        while not self._is("]"):
            if self._take_if("?"):
                optional.add(len(elements))
            elements.append(self._expression())
            if not self._take_if(","):
                break
        self._expect("]")
        return self._made(ListOf(at, elements, frozenset(optional)))

    def _map(self) -> Expression:
        at, entries = self._take()[1], list[tuple[Expression, Expression, bool]]()
        while not self._is("}"):
            optional = self._take_if("?")
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), optional))
            if not self._take_if(","):
                break
        self._expect("}")
        return self._made(MapOf(at, entries))

    # --- literals

    def _number(self, minus: int | None) -> Expression:
        kind = self._kind()
        text, at = self._take()
        at = at if minus is None else minus
        value: Any
        if kind == "float":
            value = float(text)
            value = value if minus is None else -value
            if value in (float("inf"), float("-inf")):
                self.mistakes.append(ExpressionMistake(at, "invalid double literal"))
            return Literal(at, value)
        digits = text.rstrip("uU")
        hexadecimal = digits.startswith("0x")
        significant = digits.removeprefix("0x").lstrip("0")[:_MOST_DIGITS] or "0"
        value = int(significant, 16 if hexadecimal else 10)
        if kind == "uint":
            if value > 2**64 - 1:
                self.mistakes.append(ExpressionMistake(at, "invalid uint literal"))
            return Literal(at, UInt(value))
        value = value if minus is None else -value
        if not _LOWEST <= value <= _HIGHEST:
            self.mistakes.append(ExpressionMistake(at, "invalid int literal"))
        return Literal(at, value)

    def _text(self, is_bytes: bool) -> Expression:
        text, at = self._take()
        try:
            return Literal(at, unquoted(text, is_bytes))
        except LiteralError as error:
            self.mistakes.append(ExpressionMistake(at, str(error)))
            return Literal(at, "")
