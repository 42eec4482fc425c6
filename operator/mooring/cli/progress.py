"""Say on standard error how far a long piece of work is."""

import sys
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Final, Self, TextIO, TypeVar

__all__ = ["Progress"]

_QUIET_SECONDS: Final = 1.0
_ON_A_TERMINAL: Final = 0.1
_IN_A_LOG: Final = 10.0

_Item = TypeVar("_Item")


class Progress:
    """One line about the work, from its second second on.

    On a terminal the line is written over again and removed at the end; elsewhere there is a new
    line every ten seconds. As a context manager it removes the line at the end.
    """

    def __init__(
        self, out: TextIO | None = None, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._out = sys.stderr if out is None else out
        self._clock = clock
        self._terminal = self._out.isatty()
        self._next = clock() + _QUIET_SECONDS
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def say(self, text: str) -> None:
        """The work is as far as this."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (_ON_A_TERMINAL if self._terminal else _IN_A_LOG)
        self._out.write(f"\r\x1b[K{text}" if self._terminal else f"{text}\n")
        self._out.flush()
        self._shown = True

    def clear(self) -> None:
        """Remove the line from a terminal, before something else is printed."""
        if self._shown and self._terminal:
            self._out.write("\r\x1b[K")
            self._out.flush()
        self._shown = False

    def counting(
        self, items: Iterable[_Item], text: str, total: int | None = None
    ) -> Iterator[_Item]:
        """The items; the line has their number so far, and `total` if it is known."""
        of = "" if total is None else f" of {total:,}"
        for count, item in enumerate(items, start=1):
            yield item
            self.say(f"{text}: {count:,}{of}")
        self.clear()
