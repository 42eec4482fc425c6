"""Reads literals: texts and bytes in quotes."""

import re
from typing import Final

_SIMPLE: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
_ESCAPE: Final = re.compile(
    r"\\(?:[xX](?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<octal>[0-3][0-7]{2})|(?P<simple>[abfnrtv\\'\"`?])|(?P<wrong>(?s:.)?))"
)


class LiteralError(ValueError):
    """Raised if a literal has an unknown escape, or an escape that stands for no character."""


def unquoted(token: str, is_bytes: bool) -> str | bytes:
    """Return the text or bytes of a literal in quotes; raise LiteralError if an escape is wrong."""
    text = token.replace("\r\n", "\n").replace("\r", "\n")
    text = text[1:] if is_bytes else text
    raw = text[0] in "rR"
    text = text[1:] if raw else text
    length = 3 if len(text) >= 6 and text[:3] in {'"""', "'''"} else 1
    text = text[length:-length]
    if is_bytes:
        return _bytes(text) if not raw else text.encode()
    return text if raw else _ESCAPE.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    if escape["simple"] is not None:
        return _SIMPLE[escape["simple"]]
    if escape["octal"] is not None:
        return chr(int(escape["octal"], 8))
    digits = escape["x"] or escape["u"] or escape["U"]
    if digits is None:
        raise LiteralError("unable to unescape string")
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise LiteralError("invalid unicode code point")
    return chr(code)


def _bytes(text: str) -> bytes:
    made, last = bytearray(), 0
    for escape in _ESCAPE.finditer(text):
        made += text[last : escape.start()].encode()
        if escape["u"] or escape["U"]:
            raise LiteralError("unable to unescape string")
        code = ord(_character(escape))
        made.append(code)
        last = escape.end()
    return bytes(made + text[last:].encode())
