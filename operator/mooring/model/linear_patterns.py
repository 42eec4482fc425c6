"""Compiles users' regular expressions with RE2, which searches in linear time, as Go does."""

from typing import Any


class LinearPatternError(ValueError):
    """Raised if RE2 rejects a pattern; `what` is the mistake, `where` the part that contains it."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what, where)
        self.what, self.where = what, where


def compile_linear(pattern: str, most_memory: int) -> Any:
    """Return RE2's compiled pattern; its matches have no groups.

    `most_memory` limits the bytes of the compiled pattern and of the states that searches keep.
    Raises LinearPatternError, or UnicodeEncodeError if UTF-8 cannot encode the pattern.
    """
    import re2  # type: ignore[import-untyped] # noqa: PLC0415 - few clusters have patterns

    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, most_memory
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        what, _, where = error.args[0].decode(errors="replace").partition(": ")
        raise LinearPatternError(what, where) from None
