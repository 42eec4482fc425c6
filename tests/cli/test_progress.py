import io

from rich.console import Console

from mooring.cli.progress import Progress

_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
"""The cursor."""
_OVER = "\r\x1b[2K"
"""Before a line that is written over another."""


def standard_error(*, terminal: bool) -> tuple[io.StringIO, Console]:
    """Return a console, and the stream to which it writes in place of standard error."""
    out = io.StringIO()
    return out, Console(file=out, force_terminal=terminal, width=40)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_said_about_what_takes_less_than_a_second() -> None:
    (out, console), clock = standard_error(terminal=True), Clock()
    with Progress(console, clock=clock) as progress:
        clock.now = 0.9
        progress.say("reading")
    assert out.getvalue() == ""


def test_on_a_terminal_one_line_is_written_over_and_removed_at_the_end() -> None:
    (out, console), clock = standard_error(terminal=True), Clock()
    with Progress(console, clock=clock) as progress:
        for clock.now in (1.0, 1.05, 1.2):
            progress.say(f"at {clock.now}")
    first, second, last, end = out.getvalue().split("at ")
    assert (first, second, last) == (_HIDE, f"1.0{_OVER}", f"1.2{_OVER}")
    assert end == f"1.2\n{_SHOW}\r\x1b[1A\x1b[2K"


def test_a_line_is_not_longer_than_the_terminal_is_wide() -> None:
    (out, console), clock = standard_error(terminal=True), Clock()
    with Progress(console, clock=clock) as progress:
        clock.now = 1.0
        progress.say("reading " * 10)
        assert out.getvalue() == _HIDE + ("reading " * 10)[:39] + "…"


def test_in_a_log_there_is_a_line_every_ten_seconds() -> None:
    (out, console), clock = standard_error(terminal=False), Clock()
    with Progress(console, clock=clock) as progress:
        for clock.now in (1.0, 5.0, 11.0):
            progress.say(f"at {clock.now}")
    assert out.getvalue() == "at 1.0\nat 11.0\n"


def test_items_are_counted() -> None:
    (out, console), clock = standard_error(terminal=False), Clock()
    progress = Progress(console, clock=clock)
    clock.now = 2.0
    assert [*progress.counting("abc", "letters", 1000)] == ["a", "b", "c"]
    assert out.getvalue() == "letters: 1 of 1,000\n"
