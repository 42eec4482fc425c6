"""The method `format` of strings (cel-go's `ext/formatting.go`)."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.cel.times import duration_text, timestamp_text
from mooring.cel.tree import UInt
from mooring.cel.types import Type
from mooring.cel.values import (
    Duration,
    Failure,
    MapValue,
    Timestamp,
    at_once,
    go_float,
    is_list,
    size_of,
    type_name,
    work,
)

Value = Any
_ESCAPED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_MOST_PRECISION: Final = 1_000
_HEXADECIMAL: Final = "only integers, byte buffers, and strings can be formatted as hex"
_WRONG: Final = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists,"
    " types, durations, and timestamps",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": _HEXADECIMAL,
    "X": _HEXADECIMAL,
    "o": "octal clause can only be used on integers",
}


class FormatError(Exception):
    """Raised if a text cannot be formatted.

    `index` is the position of the wrong argument, or None.
    """

    def __init__(self, text: str, index: int | None = None) -> None:
        super().__init__(text)
        self.index = index


def quoted(text: str) -> str:
    """Return the text with quotes and escapes, as CEL's `strings.quote` does."""
    return f'"{"".join(_ESCAPED.get(each, each) for each in text)}"'


def go_quoted(text: str) -> str:
    """Return the text as Go's %q prints it."""
    made = list[str]()
    for each in text:
        code = ord(each)
        if each in _ESCAPED:
            made.append(_ESCAPED[each])
        elif each.isprintable():
            made.append(each)
        elif code < 0x80:
            made.append(f"\\x{code:02x}")
        else:
            made.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return f'"{"".join(made)}"'


def format_text(text: str, args: Value) -> Value:
    """Replace the text's clauses, such as %s, by the arguments; return the text or a Failure."""
    values = tuple(at_once(args))

    def clause(verb: str, index: int, precision: int) -> str:
        return _CLAUSES[verb](verb, values[index], precision)

    try:
        return "".join(formatted(text, len(values), clause))
    except FormatError as error:
        return Failure(str(error))


def formatted(
    text: str, count: int, clause: Callable[[str, int, int], str], checks: bool = False
) -> list[str]:
    """Return the text in pieces; results of `clause` replace the clauses, for example %s.

    `clause` gets a clause's letter, argument index and precision. Raises FormatError for a
    malformed clause and for more than `count` clauses; with `checks`, also for fewer.
    """
    made, at, used = list[str](), 0, 0
    while at < len(text):
        following = text[at + 1 : at + 2]
        if text[at] != "%" or following == "%":
            made.append(text[at])
            at += 2 if text[at] == "%" else 1
            continue
        if not following and (checks or used < count):
            raise FormatError("unexpected end of string")
        if used >= count:
            raise FormatError(f"index {used} out of range")
        precision, verb_at = _precision(text, at + 1)
        verb = text[verb_at]
        if verb not in _CLAUSES:
            raise FormatError(f'{_UNPARSED}unrecognized formatting clause "{verb}"')
        try:
            made.append(clause(verb, used, 6 if precision is None else precision))
            work.spend_on_text(len(made[-1]))
        except FormatError as error:
            raise FormatError(f"error during formatting: {error}", used) from None
        used, at = used + 1, verb_at + 1
    if checks and count > used:
        raise FormatError(
            f"too many arguments supplied to string.format (expected {used}, got {count})"
        )
    return made


_UNPARSED: Final = "could not parse formatting clause: "


def _precision(text: str, at: int) -> tuple[int | None, int]:
    """Return the precision at position `at` (None if absent), and the next letter's position."""
    if text[at] != ".":
        return None, at
    end = at + 1
    while end < len(text) and text[end].isascii() and text[end].isdigit():
        end += 1
    wrong = f"{_UNPARSED}error while parsing precision: "
    if end == len(text):
        raise FormatError(f"{wrong}could not find end of precision specifier")
    if end == at + 1:
        raise FormatError(
            f'{wrong}error while converting precision to integer: strconv.Atoi: parsing "":'
            " invalid syntax"
        )
    return min(int(text[at + 1 : end][:9]), _MOST_PRECISION), end


def wrong_type(verb: str, kind: str) -> FormatError:
    """Return the error for an argument of type `kind`, which the clause `verb` does not accept."""
    return FormatError(f"{_WRONG[verb]}, was given {kind}")


def _as_binary(verb: str, value: Value, _precision: int) -> str:
    if type(value) in {int, UInt, bool}:
        return f"{value:b}"
    raise wrong_type(verb, type_name(value))


def _as_hexadecimal(verb: str, value: Value, _precision: int) -> str:
    if type(value) in {str, bytes}:
        made = (value.encode() if isinstance(value, str) else value).hex()
        return made.upper() if verb == "X" else made
    if type(value) in {int, UInt}:
        return format(int(value), verb)
    raise wrong_type(verb, type_name(value))


def _as_integer(verb: str, value: Value, _precision: int) -> str:
    if type(value) in {int, UInt}:
        return format(int(value), verb)
    raise wrong_type(verb, type_name(value))


def _as_float(verb: str, value: Value, precision: int) -> str:
    if type(value) is str and value in {"NaN", "Infinity", "-Infinity"}:
        value = float(value)
    if type(value) is not float:
        raise wrong_type(verb, type_name(value))
    if math.isnan(value):
        made = "NaN"
    elif math.isinf(value):
        made = "∞" if value > 0 else "-∞"
    elif verb == "f":
        return f"{value:,.{precision}f}"
    else:
        mantissa, _, power = f"{value:e}".partition("e")
        raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(each)] for each in power[1:])
        made = f"{mantissa}×10{'⁻' if power[0] == '-' else ''}{raised}"  # noqa: RUF001 # as cel-go
    # cel-go takes the precision of %e for a width.
    return made if verb == "f" else made.rjust(precision)


def _as_text(value: Value) -> str:
    kind = type(value)
    if is_list(value):
        return f"[{', '.join(_inner(each) for each in at_once(value))}]"
    if kind is MapValue:
        pairs = sorted((_inner(key, key=True), _inner(each)) for key, each in value.items())
        return "{" + ", ".join(f"{key}:{each}" for key, each in pairs) + "}"
    if kind is bool:
        return "true" if value else "false"
    if kind is bytes:
        try:
            return str(value.decode())
        except UnicodeDecodeError:
            raise FormatError(
                'could not convert argument "invalid UTF-8 in bytes, cannot convert to string"'
                " to string"
            ) from None
    if value is None:
        return "null"
    printers: Mapping[type, Callable[[Any], str]] = {
        str: str,
        int: str,
        UInt: lambda each: str(int(each)),
        float: go_float,
        Timestamp: timestamp_text,
        Duration: duration_text,
        Type: lambda each: each.name,
    }
    simple = printers.get(kind)
    if simple is None:
        raise wrong_type("s", type_name(value))
    return simple(value)


def _inner(value: Value, key: bool = False) -> str:
    """Return the text of an element of a list, or of a key or value of a map."""
    kind = type(value)
    if key and kind not in {str, bool, int, UInt}:
        raise FormatError(f"no formatting function for map key of type {type_name(value)}")
    if kind is str:
        return go_quoted(value)
    if kind is bytes:
        return f"b{go_quoted(_as_text(value))}"
    if kind is Timestamp:
        return f"timestamp({go_quoted(timestamp_text(value))})"
    if kind is Duration:
        return f"duration({go_quoted(duration_text(value))})"
    if kind is float:
        return f"{value:.6f}" if math.isfinite(value) else go_quoted(go_float(value))
    if kind in {bool, int, UInt, type(None), Type, MapValue} or is_list(value):
        return _as_text(value) if not is_list(value) or size_of(value) else "[]"
    raise FormatError(f"no formatting function for {type_name(value)}")


_CLAUSES: Final[Mapping[str, Callable[[str, Value, int], str]]] = {
    "s": lambda _verb, value, _precision: _as_text(value),
    "d": _as_integer,
    "o": _as_integer,
    "f": _as_float,
    "e": _as_float,
    "b": _as_binary,
    "x": _as_hexadecimal,
    "X": _as_hexadecimal,
}
