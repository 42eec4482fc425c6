"""Regular expressions with the syntax and the meaning of Go's, by RE2.

Python's `re` may take for ever, because it backtracks. The time of `google-re2` grows only with the
length of the text and the size of the pattern, and is subtracted from the `WorkBudget` of the
evaluation. It releases Python's lock.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from mooring.cel.values import work
from mooring.model.bounded_cache import cached
from mooring.model.linear_patterns import LinearPatternError, compile_linear

_PER_ITEM: Final = 8
"""How many steps of RE2 are one unit of work; a step is one character times one instruction."""
_PER_MATCH: Final = 8
"""The units of work for one match, in addition to the work for the searched text."""
_MOST_MEMORY: Final = 2**20
"""The most bytes of a compiled pattern with its cache of states; a larger pattern is an error.

Compiling the largest pattern takes 50 ms, in one step of the event loop.
"""
_LONGEST: Final = 4_096
"""The most characters of a pattern. A longer pattern is an error at once, because RE2 may take 35
ms to reject a long pattern."""
_PER_CHARACTER: Final = 40
"""The units of work for each character of a rejected pattern."""
_MOST_KEPT: Final = 32
_OF_GO: Final = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
}
"""Maps RE2's messages about mistakes in patterns to Go's messages."""
_ESCAPE: Final = re.compile(r"\\Q(?:[^\\]|\\(?!E))*+|(\\C)|\\.", re.DOTALL)


class PatternError(ValueError):
    """Raised if a pattern is malformed; the text is Go's."""


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A compiled regular expression; each search takes work from the evaluation's budget."""

    memory: ClassVar[int] = _MOST_MEMORY
    _compiled: Any

    @property
    def size(self) -> int:
        """The number of instructions of the compiled pattern."""
        return int(self._compiled.programsize)

    def matches(self, text: str) -> bool:
        """Return whether a part of the text matches the pattern."""
        self._spend(text)
        return self._compiled.search(text) is not None

    def find(self, text: str) -> str:
        """Return the first part of the text that matches; "" if there is none."""
        self._spend(text)
        found = self._compiled.search(text)
        return "" if found is None else str(found[0])

    def find_all(self, text: str, most: int) -> Iterator[str]:
        """Yield the parts of the text that match; at most `most`, or all if `most` is negative."""
        self._spend(text)
        last_end = -1
        for found in self._compiled.finditer(text):
            if not most:
                return
            start, end = found.span()
            # The next search may read all that is left before it takes a shorter alternative.
            work.spend(_PER_MATCH + (len(text) - end) * self.size // _PER_ITEM)
            if end > start or end != last_end:  # nothing empty right behind a match
                yield text[start:end]
                most -= 1
            last_end = end

    def _spend(self, text: str) -> None:
        work.spend(len(text) * self.size // _PER_ITEM)


@cached(_MOST_KEPT * _MOST_MEMORY)
def _compiled(pattern: str) -> Pattern | str:
    if any(escape[1] for escape in _ESCAPE.finditer(pattern)):
        return "invalid escape sequence: `\\C`"  # one byte, which Go does not take
    try:
        return Pattern(compile_linear(pattern, _MOST_MEMORY))
    except LinearPatternError as error:
        what, where = error.what, error.where
    if what.startswith("pattern too large"):
        return "expression too large"
    if what.startswith("trailing"):
        return "trailing backslash at end of expression: ``"
    return f"{_OF_GO.get(what, what)}: `{where}`"


def compile_pattern(pattern: str) -> Pattern:
    """Return the compiled pattern; raise PatternError if it is malformed or too large.

    Each call takes work from the evaluation's budget, also if the pattern was compiled before.
    """
    found = _compiled(pattern) if len(pattern) <= _LONGEST else "expression too large"
    if isinstance(found, str):
        work.spend(_PER_CHARACTER * min(len(pattern), _LONGEST))  # `||` may go on with the next one
        raise PatternError(f"error parsing regexp: {found}")
    work.spend(found.size)
    return found
