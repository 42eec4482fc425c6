"""Parses and type-checks CEL expressions over a pod and a node; gives their syntax trees.

The library cel-expr-python (CEL's own C++ implementation) parses, checks and evaluates. It hands a
checked expression out only in its protobuf encoding (cel/expr/checked.proto and syntax.proto of
the CEL specification), of which this module decodes the fields that a plan needs
(docs/adr/0017-rules-in-cel.md).
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from cel_expr_python import cel  # type: ignore[import-untyped] # the wheel has no py.typed

from mooring.model.bounded_cache import cached
from mooring.policy.errors import FieldError, ProfileInvalid, did_you_mean
from mooring.policy.rules.messages import USES, in_plain_words

__all__ = [
    "VARIABLES",
    "Call",
    "Checked",
    "Comprehension",
    "Constant",
    "Expression",
    "Failed",
    "ListOf",
    "MapOf",
    "Program",
    "Select",
    "Type",
    "Variable",
    "check",
    "mistake_at",
]

_STRINGS: Final = cel.Type.Map(cel.Type.STRING, cel.Type.STRING)
_AMOUNTS: Final = cel.Type.Map(cel.Type.STRING, cel.Type.INT)

VARIABLES: Final[Mapping[str, Any]] = {
    "node.name": cel.Type.STRING,
    "node.labels": _STRINGS,
    "node.zone": cel.Type.STRING,
    "node.region": cel.Type.STRING,
    "node.unschedulable": cel.Type.BOOL,
    "node.allocatable": _AMOUNTS,
    "node.requested": _AMOUNTS,
    "node.taints": cel.Type.List(_STRINGS),
    "node.conditions": _STRINGS,
    "pod.namespace": cel.Type.STRING,
    "pod.labels": _STRINGS,
    "pod.requests": _AMOUNTS,
    "pod.priority": cel.Type.INT,
    "pod.qosClass": cel.Type.STRING,
    "pod.ownerKind": cel.Type.STRING,
    "pod.namespaceLabels": _STRINGS,
}
"""Everything that an expression can read, with its type."""

_DOMAIN: Final = cel.Type.AbstractType("domain")
_NAMES: Final = cel.Type.List(cel.Type.STRING)
_SELECTED_BY: Final = ([_STRINGS], [cel.Type.STRING])
_IN_NAMESPACES: Final[tuple[list[Any], ...]] = ([], [_NAMES], [_STRINGS])
_FUNCTIONS: Final = (
    cel.FunctionDecl("domain", [cel.Overload("domain", _DOMAIN, [cel.Type.STRING])]),
    *(
        cel.FunctionDecl(
            name,
            [
                cel.Overload(f"{name}_{number}", cel.Type.INT, [*of, *pods, *namespaces], bool(of))
                for number, (pods, namespaces) in enumerate(product(_SELECTED_BY, _IN_NAMESPACES))
            ],
        )
        for name, of in (("pods", [_DOMAIN]), ("node.pods", []))
    ),
)
"""Functions that count pods. The library checks their types only; `plan` makes counts of them."""

_ENVIRONMENT: Final = cel.NewEnv(variables=dict(VARIABLES), functions=_FUNCTIONS)
_MISTAKE: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_SYNTAX: Final = "Syntax error"
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']*)'")


class Type:
    """The types that an operation on columns can have; OTHER stands for all further ones."""

    BOOL: Final = "bool"
    INT: Final = "int"
    DOUBLE: Final = "double"
    STRING: Final = "string"
    OTHER: Final = "other"


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A node of a syntax tree; `encoded` is its own encoding, of which a `Program` can be made.

    An expression that is of none of the other classes makes an object: only its parts are known.
    """

    number: int
    type: str
    encoded: bytes
    parts: tuple["Expression", ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expression):
    """A bool, int, float or string; None for any other constant."""

    value: bool | int | float | str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Variable(Expression):
    """One of VARIABLES, or a variable that a comprehension binds."""

    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Select(Expression):
    """A field of `parts[0]`; with `tests_presence` whether it exists, as `has()` says."""

    field: str = ""
    tests_presence: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expression):
    """A function or an operator; `parts` are its arguments, the target of a method first."""

    function: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ListOf(Expression):
    """A list of `parts`."""


@dataclass(frozen=True, slots=True, eq=False)
class MapOf(Expression):
    """A map that is written out; `parts` are its keys, each with its value behind it."""


@dataclass(frozen=True, slots=True, eq=False)
class Comprehension(Expression):
    """A macro such as `exists`; `parts[0]` is what it goes through."""


@dataclass(frozen=True, slots=True, eq=False)
class Failed:
    """The evaluation of an expression failed; the text says why, in one line."""

    why: str


class Program:
    """An expression that the library evaluates."""

    __slots__ = ("_expression",)

    def __init__(self, expression: Any) -> None:
        self._expression = expression

    def __call__(self, data: Mapping[str, Any]) -> Any:
        """Return the program's value or Failed; `data` are values of VARIABLES by name."""
        try:
            value = self._expression.eval(data=data)
        except RuntimeError as error:  # the limit of iterations, a text that is not valid Unicode
            return Failed(_reason(str(error)))
        if value.type() == cel.Type.ERROR:
            return Failed(_reason(value.plain_value()))
        return value.plain_value()


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """A checked expression with its source."""

    source: str
    root: Expression
    offsets: Mapping[int, int]
    """By an expression's number, where it stands in the source, in characters."""
    surroundings: tuple[bytes, bytes]
    """The type URL and the encoding of everything but the expression itself."""

    def program(self, part: Expression) -> Program:
        """Return the program of the whole expression or of a part without bound variables."""
        url, rest = self.surroundings
        whole = _field(1, url) + _field(2, rest + _field(4, part.encoded))
        return Program(_ENVIRONMENT.deserialize(whole))

    def mistake(self, part: Expression, message: str) -> FieldError:
        """Return a mistake at the position of a part; its path is empty."""
        before = self.source[: self.offsets.get(part.number, 0)]
        line = before.count("\n") + 1
        return mistake_at(line, len(before) - (before.rfind("\n") + 1) + 1, message)


@cached(16 * 2**20)
def check(source: str) -> Checked:
    """Parse and check the expression.

    Raises:
        ProfileInvalid: with every mistake, its line and its column; the paths are empty.
    """
    try:
        encoded: bytes = _ENVIRONMENT.compile(source).serialize()
    except RuntimeError as error:
        raise ProfileInvalid(_mistakes(str(error))) from None
    (_, url), (_, checked) = _fields(encoded)
    root, rest, types, offsets = b"", b"", dict[int, str](), dict[int, int]()
    for number, value in _fields(checked):
        if number == _EXPRESSION:
            root = value
            continue
        rest += _field(number, value) if isinstance(value, bytes) else b""
        if number == _TYPES:
            entry = dict(_fields(value))
            types[entry[1]] = _type(entry[2])
        elif number == _SOURCE_INFO:
            positions = (dict(_fields(pair)) for field, pair in _fields(value) if field == 4)
            offsets = {entry[1]: entry.get(2, 0) for entry in positions}
    return Checked(source, _decoded(root, types), offsets, (url, rest))


def mistake_at(line: int, column: int, message: str) -> FieldError:
    """Return a mistake at a position; its path is empty."""
    return FieldError("", f"line {line}, column {column}: {message}")


def _mistakes(text: str) -> Iterator[FieldError]:
    found = [*dict.fromkeys(_MISTAKE.findall(_without_code(text)))]
    if any(message.startswith(_SYNTAX) for _, _, message in found):
        found = found[:1]  # the others only follow from it
    for line, column, message in found:
        short = message.removesuffix(" (in container '')")
        undeclared = _UNDECLARED.match(short)
        if undeclared:
            short = f'unknown name "{undeclared[1]}"{_known(undeclared[1])}'
        elif short.startswith("has() argument"):
            short += ': for a key in brackets write "key" in node.labels'
        short = in_plain_words(short)
        yield mistake_at(int(line), int(column), short) if int(line) > 0 else FieldError("", short)
    if not found:
        yield FieldError("", in_plain_words(_without_code(text)))


def _known(name: str) -> str:
    """Return a hint at what may have been meant by an unknown name."""
    if name in USES:
        return f": {USES[name]}"
    likely = did_you_mean(".".join(name.split(".")[:2]), (*VARIABLES, *USES))
    siblings = [v for v in VARIABLES if v.split(".")[0] == name.split(".", maxsplit=1)[0]]
    return likely or f"; known are {', '.join(siblings or VARIABLES)}"


def _reason(text: str) -> str:
    """Return the library's message about an evaluation that failed, in one line."""
    return " ".join(_without_code(text).split()).replace("Key not found in map :", "no such key:")


def _without_code(text: str) -> str:
    """Return the library's message without the code: `NOT_FOUND: ...`, `... [CANCELLED]`."""
    return re.sub(r"^[A-Z_]+: | \[[A-Z_]+\]$", "", text.strip())


_TYPES: Final = 3
_EXPRESSION: Final = 4
_SOURCE_INFO: Final = 5
_PRIMITIVES: Final = {1: Type.BOOL, 2: Type.INT, 4: Type.DOUBLE, 5: Type.STRING}


def _type(encoded: bytes) -> str:
    """Return the primitive type of a `cel.expr.Type`."""
    return _PRIMITIVES.get(dict(_fields(encoded)).get(3, 0), Type.OTHER)


def _decoded(encoded: bytes, types: Mapping[int, str]) -> Expression:
    """Decode the tree of a `cel.expr.Expr`."""
    fields = dict(_fields(encoded))
    number = fields.pop(2, 0)
    kind, body = next(iter(fields.items()))
    own = (number, types.get(number, Type.OTHER), encoded)

    def inner(*wanted: int) -> tuple[Expression, ...]:
        return tuple(_decoded(value, types) for f, value in _fields(body) if f in wanted)

    decoded: Expression
    match kind:
        case 3:
            decoded = Constant(*own, value=_constant(body))
        case 4:
            decoded = Variable(*own, name=_text(dict(_fields(body)), 1))
        case 5:
            select = dict(_fields(body))
            decoded = Select(*own, inner(1), _text(select, 2), bool(select.get(3, 0)))
        case 6:
            call = dict(_fields(body))
            decoded = Call(*own, (*inner(1), *inner(3)), _text(call, 2))
        case 7:
            decoded = ListOf(*own, inner(1))
        case 8 if not any(field == 1 for field, _ in _fields(body)):
            pairs = (dict(_fields(pair)) for field, pair in _fields(body) if field == 2)
            halves = (half for pair in pairs for half in (pair[3], pair[4]))
            decoded = MapOf(*own, tuple(_decoded(half, types) for half in halves))
        case 9:
            decoded = Comprehension(*own, inner(2, 4, 5, 6, 7))
        case _:
            entries = (pair for field, pair in _fields(body) if field == 2)
            values = (v for pair in entries for f, v in _fields(pair) if f in (3, 4))
            decoded = Expression(*own, tuple(_decoded(v, types) for v in values))
    return decoded


def _text(fields: Mapping[int, Any], number: int) -> str:
    value: bytes = fields.get(number, b"")
    return value.decode()


def _constant(encoded: bytes) -> bool | int | float | str | None:
    for number, value in _fields(encoded):
        match number:
            case 2:
                return bool(value)
            case 3:
                return int(value) - (1 << 64) if value >> 63 else int(value)
            case 5:
                return float(struct.unpack("<d", value)[0])
            case 6:
                return str(value, "utf-8")
    return None


def _fields(encoded: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message: number, and an int or the bytes of the value."""
    at = 0
    while at < len(encoded):
        key, at = _varint(encoded, at)
        match key & 7:
            case 0:
                value, at = _varint(encoded, at)
                yield key >> 3, value
            case 1:
                yield key >> 3, encoded[at : at + 8]
                at += 8
            case 2:
                length, at = _varint(encoded, at)
                yield key >> 3, encoded[at : at + length]
                at += length
            case wire:
                raise ValueError(f"cel-expr-python wrote wire type {wire}, which it should not")


def _varint(encoded: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = encoded[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _field(number: int, value: bytes) -> bytes:
    """Encode a field of bytes."""
    return _encoded(number << 3 | 2) + _encoded(len(value)) + value


def _encoded(value: int) -> bytes:
    """Encode a number as a varint."""
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes((*written, value))
