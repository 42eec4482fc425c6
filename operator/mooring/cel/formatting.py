"""The method `format` of texts.

Source: cel-go's `ext/formatting.go`.
"""

import math
from typing import Any, Final

from mooring.cel.times import duration_text, timestamp_text
from mooring.cel.types import Type
from mooring.cel.values import (
    Duration,
    Failure,
    MapValue,
    Timestamp,
    UInt,
    at_once,
    go_float,
    is_list,
    size_of,
    type_name,
)

__all__ = ["format_text", "go_quoted", "quoted"]

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
_STRING_CLAUSE: Final = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types,"
    " durations, and timestamps, was given "
)


class _FormatError(Exception):
    """A text cannot be formatted."""


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
    """Return the text with the arguments in place of its clauses, such as %s."""
    try:
        return "".join(_formatted(text, tuple(at_once(args))))
    except _FormatError as error:
        return Failure(str(error))


def _formatted(text: str, args: tuple[Value, ...]) -> list[str]:
    made, at, used = list[str](), 0, 0
    while at < len(text):
        if text[at] != "%":
            made.append(text[at])
            at += 1
            continue
        at += 1
        if at == len(text):
            raise _FormatError("unexpected end of string")
        if text[at] == "%":
            made.append("%")
            at += 1
            continue
        precision, verb_at = _precision(text, at)
        if used >= len(args):
            raise _FormatError(f"index {used} out of range")
        clause = _clause(text[verb_at], args[used], precision)
        made.append(clause)
        used, at = used + 1, verb_at + 1
    return made


def _precision(text: str, at: int) -> tuple[int | None, int]:
    """Return the precision of a clause, and where its letter stands."""
    if text[at] != ".":
        return None, at
    end = at + 1
    while end < len(text) and text[end].isascii() and text[end].isdigit():
        end += 1
    if end == len(text):
        raise _FormatError("could not find end of precision specifier")
    if end == at + 1:
        raise _FormatError('error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax')
    return min(int(text[at + 1 : end][:9]), _MOST_PRECISION), end


def _clause(verb: str, value: Value, precision: int | None) -> str:
    kind = type_name(value)
    failed = "could not parse formatting clause: " if verb not in "sdfebxXo" else ""
    match verb:
        case "s":
            return _as_text(value)
        case "d":
            return _as_integer(value)
        case "f" | "e":
            return _as_float(verb, value, 6 if precision is None else precision)
        case "b":
            if type(value) in {int, UInt, bool}:
                return f"{value:b}"
            raise _FormatError(
                f"error during formatting: only integers and bools can be formatted as binary, was given {kind}"
            )
        case "x" | "X":
            if type(value) in {str, bytes}:
                made = (value.encode() if isinstance(value, str) else value).hex()
                return made.upper() if verb == "X" else made
            if type(value) in {int, UInt}:
                return format(value, verb)
            raise _FormatError(
                "error during formatting: only integers, byte buffers, and strings can be"
                f" formatted as hex, was given {kind}"
            )
        case "o":
            if type(value) in {int, UInt}:
                return f"{value:o}"
            raise _FormatError(
                f"error during formatting: octal clause can only be used on integers, was given {kind}"
            )
    raise _FormatError(f'{failed}unrecognized formatting clause "{verb}"')


def _as_integer(value: Value) -> str:
    if type(value) in {int, UInt}:
        return str(int(value))
    raise _FormatError(
        "error during formatting: decimal clause can only be used on integers, was given"
        f" {type_name(value)}"
    )


def _as_float(verb: str, value: Value, precision: int) -> str:
    if value in ("NaN", "Infinity", "-Infinity"):
        value = float(value)
    if type(value) is not float:
        name = "fixed-point" if verb == "f" else "scientific"
        raise _FormatError(
            f"error during formatting: {name} clause can only be used on doubles, was given"
            f" {type_name(value)}"
        )
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if verb == "f":
        return f"{value:,.{precision}f}"
    mantissa, _, power = f"{value:.{precision}e}".partition("e")
    raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(each)] for each in power[1:])
    return f"{mantissa}\u202f×\u202f10{'⁻' if power[0] == '-' else ''}{raised}"  # noqa: RUF001 # as cel-go prints it


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
            raise _FormatError("error during formatting: could not convert argument") from None
    if value is None:
        return "null"
    simple = {
        str: str,
        int: str,
        UInt: lambda each: str(int(each)),
        float: go_float,
        Timestamp: timestamp_text,
        Duration: duration_text,
        Type: lambda each: each.name,
    }.get(kind)
    if simple is None:
        raise _FormatError(f"error during formatting: {_STRING_CLAUSE}{type_name(value)}")
    return str(simple(value))


def _inner(value: Value, key: bool = False) -> str:
    """Return an element of a list or a map."""
    kind = type(value)
    if key and kind not in {str, bool, int, UInt}:
        raise _FormatError(
            "error during formatting: no formatting function for map key of type"
            f" {type_name(value)}"
        )
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
    raise _FormatError(
        f"error during formatting: no formatting function for {type_name(value)}"
    )
