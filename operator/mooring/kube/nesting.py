"""Cuts JSON that is nested deeper than a parser can follow.

The API server keeps what a user writes into the `args` of a SchedulingProfile and into the managed
fields of any object, up to 10,000 levels. Python's parser raises RecursionError at about 1,000, so
that kopf would end its watch again and again, for every profile or pod.
"""

import re
from typing import Any, Final

import orjson

__all__ = ["DEEPEST", "cut_nesting", "parsed"]

DEEPEST: Final = 100
"""Levels that are kept; a Deployment has 15."""

_TOO_DEEP: Final = b'"(nested too deeply)"'
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_NO_MARKS: Final = bytes(set(range(256)) - set(b'{}[]"'))


def cut_nesting(text: bytes) -> bytes:
    """The JSON text with a string in place of every value nested deeper than `DEEPEST` levels."""
    # An empty object or list adds one level at most, inside all others. Most of a pod's braces are
    # such, in its managed fields: without them few pods need the slow way.
    empty = text.count(b"{}") + text.count(b"[]")
    if text.count(b"{") + text.count(b"[") - empty < DEEPEST or _is_shallow(text):
        return text
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        match token.group():
            case b"{" | b"[":
                depth += 1
                if depth == DEEPEST + 1:
                    kept += (text[start : token.start()], _TOO_DEEP)
            case b"}" | b"]":
                if depth == DEEPEST + 1:
                    start = token.end()
                depth -= 1
    return b"".join((*kept, text[start:])) if kept else text


def parsed(text: bytes) -> Any:
    """Return the value of a JSON text, with what orjson cannot follow (1,024 levels) cut.

    Raises:
        orjson.JSONDecodeError: if the text is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        cut = cut_nesting(text)
        if cut is text:
            raise
        return orjson.loads(cut)


def _is_shallow(text: bytes) -> bool:
    """True only if it is certain that no value is nested deeper than `DEEPEST`.

    A page of a list has thousands of braces and few levels. The braces outside of strings are taken
    away in matching pairs, which is several times as fast as looking at each one.
    """
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side change nothing of what is inside of strings and what is not.
    marks = text.translate(None, _NO_MARKS).replace(b'""', b"")
    braces = b"".join(marks.split(b'"')[::2]) if b'"' in marks else marks
    for _ in range(DEEPEST // 2):  # each time takes two levels away at most, one of each kind
        braces = braces.replace(b"{}", b"").replace(b"[]", b"")
        if not braces:
            return True
    return False
