import io

from mooring.cli.progress import Progress


class Stream(io.StringIO):
    """Standard error, perhaps as a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_said_about_what_takes_less_than_a_second() -> None:
    out, clock = Stream(terminal=True), Clock()
    with Progress(out, clock=clock) as progress:
        clock.now = 0.9
        progress.say("reading")
    assert out.getvalue() == ""


def test_on_a_terminal_one_line_is_written_over_and_removed_at_the_end() -> None:
    out, clock = Stream(terminal=True), Clock()
    with Progress(out, clock=clock) as progress:
        for clock.now in (1.0, 1.05, 1.2):
            progress.say(f"at {clock.now}")
    assert out.getvalue() == "\r\x1b[Kat 1.0\r\x1b[Kat 1.2\r\x1b[K"


def test_in_a_log_there_is_a_line_every_ten_seconds() -> None:
    out, clock = Stream(terminal=False), Clock()
    with Progress(out, clock=clock) as progress:
        for clock.now in (1.0, 5.0, 11.0):
            progress.say(f"at {clock.now}")
    assert out.getvalue() == "at 1.0\nat 11.0\n"


def test_items_are_counted() -> None:
    out, clock = Stream(terminal=False), Clock()
    progress = Progress(out, clock=clock)
    clock.now = 2.0
    assert [*progress.counting("abc", "letters", 1000)] == ["a", "b", "c"]
    assert out.getvalue() == "letters: 1 of 1,000\n"
