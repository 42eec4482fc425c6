"""Replaces JSON that is nested deeper than a parser can follow.

The API server accepts up to 10,000 levels in the `args` of a SchedulingProfile and in the managed
fields of any object. Python's parser raises RecursionError at about 1,000 levels, which would end
kopf's watch again and again.
"""

from typing import Any, Final

import orjson

DEEPEST: Final = 100
"""The most nested levels of JSON; deeper levels are replaced. A Deployment has 15 levels."""

_TOO_DEEP: Final = b'"(nested too deeply)"'
_MARK: Final = 0xFF
"""Marks the places of replaced JSON; this byte never occurs in UTF-8."""
_QUOTE: Final = ord('"')
_LOWER: Final = 0x20
"""Setting this bit turns a bracket into a brace, so that a search finds both as braces."""
_OPENS: Final = ord("{")
_CLOSES: Final = ord("}")


def cut_nesting(text: bytes) -> bytes:
    """Return the JSON text with a string instead of each value nested deeper than `DEEPEST`."""
    # An empty object or list adds one level at most, inside all others. Most of a pod's braces are
    # such empty ones, in its managed fields: without them few pods need the slow way.
    empty = text.count(b"{}") + text.count(b"[]")
    if text.count(b"{") + text.count(b"[") - empty < DEEPEST:
        return text
    return _cut(text)


def _cut(text: bytes) -> bytes:
    import numpy as np  # noqa: PLC0415 - slow, and few answers need it

    unescaped = text.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in text else text
    data = np.frombuffer(unescaped, np.uint8)
    in_string = np.cumsum(data == _QUOTE, dtype=np.uint8) & 1  # an overflow leaves it even or odd
    folded = data | _LOWER
    at = np.flatnonzero(((folded == _OPENS) | (folded == _CLOSES)) & (in_string == 0))
    change = np.where(folded[at] == _OPENS, 1, -1).astype(np.int32)
    depth = np.cumsum(change)
    if depth.max(initial=0) <= DEEPEST:
        return text
    ends = at[(change < 0) & (depth == DEEPEST)]
    begins = at[(change > 0) & (depth == DEEPEST + 1)][: len(ends)]  # half a text may lack an end
    kept = np.frombuffer(text, np.uint8).copy()
    kept[begins] = _MARK
    change_of_cut = np.zeros(len(kept) + 1, np.int8)
    change_of_cut[begins + 1] += 1
    change_of_cut[ends + 1] -= 1
    cut: bytes = kept[np.cumsum(change_of_cut[:-1], dtype=np.int8) == 0].tobytes()
    return cut.replace(bytes((_MARK,)), _TOO_DEEP)


def parsed(text: bytes) -> Any:
    """Return the value of a JSON text; cut the text with `cut_nesting` if orjson cannot parse it.

    Raises orjson.JSONDecodeError if the text is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        cut = cut_nesting(text)
        if cut is text:
            raise
        return orjson.loads(cut)
