"""Compiles regular expressions of users by RE2, whose searches take linear time, as Go's do."""

from typing import Any


class LinearPatternError(ValueError):
    """RE2 does not take the pattern: `what` is wrong, and `where` in it."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what, where)
        self.what, self.where = what, where


def compile_linear(pattern: str, most_memory: int) -> Any:
    """Return RE2's object for the pattern, whose groups are not kept.

    `most_memory` are the bytes that it may take, with the states that its searches keep. Raises
    LinearPatternError, and UnicodeEncodeError for a text that UTF-8 cannot encode.
    """
    import re2  # type: ignore[import-untyped] # noqa: PLC0415 - few clusters have patterns

    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, most_memory
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        what, _, where = error.args[0].decode(errors="replace").partition(": ")
        raise LinearPatternError(what, where) from None
