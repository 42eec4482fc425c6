"""Shows the progress of long work on standard error."""

from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Final, Self, TypeVar

from rich.console import Console
from rich.live import Live
from rich.text import Text

_QUIET_SECONDS: Final = 1.0
_ON_A_TERMINAL: Final = 0.1
_IN_A_LOG: Final = 10.0

_Item = TypeVar("_Item")


class Progress:
    """Shows the progress of long work in one line, after the first second.

    On a terminal it overwrites the line. Elsewhere it prints a new line every ten seconds. As a
    context manager it removes the line at the end.
    """

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._console = console or Console(stderr=True)
        # Other output is not for this console, and nothing is said in a thread.
        self._live = Live(
            console=self._console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._clock = clock
        self._next = clock() + _QUIET_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def say(self, text: str) -> None:
        """Show the text, unless another text was shown a moment ago."""
        now = self._clock()
        if now < self._next:
            return
        if self._console.is_terminal:
            self._next = now + _ON_A_TERMINAL
            self._live.start()
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
        else:
            self._next = now + _IN_A_LOG
            self._console.out(text, highlight=False)

    def clear(self) -> None:
        """Remove the line from a terminal, before something else is printed."""
        self._live.stop()

    def counting(
        self, items: Iterable[_Item], text: str, total: int | None = None
    ) -> Iterator[_Item]:
        """Yield the items; show how many there were so far, and `total` if it is known."""
        of = "" if total is None else f" of {total:,}"
        for count, item in enumerate(items, start=1):
            yield item
            self.say(f"{text}: {count:,}{of}")
        self.clear()
