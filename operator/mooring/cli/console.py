"""What all commands use: exit codes, the `-o` option, notes, error lines and tables."""

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click
import orjson
from rich.console import Console
from rich.table import Table

from mooring.simulate.manifests import InputError
from mooring.simulate.profiles import LoadedProfile

__all__ = [
    "BAD_INPUT",
    "DONE",
    "NO",
    "mistakes_reported",
    "note",
    "output_option",
    "print_json",
    "print_notes",
    "print_table",
    "table_lines",
]

DONE: Final = 0
NO: Final = 1
BAD_INPUT: Final = 2

_UNFOLDED: Final = 100_000
_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_option(*formats: str) -> Callable[[_Command], _Command]:
    """The option `-o`; the first of `formats` is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="How to print the answer.",
    )


@contextmanager
def mistakes_reported() -> Iterator[None]:
    """Print a mistake in the user's input, one line each without traceback, and exit with 2."""
    try:
        yield
    except InputError as error:
        for line in str(error).splitlines():
            click.echo(f"error: {line}", err=True)
        sys.exit(BAD_INPUT)


def note(text: str) -> None:
    """Print a note on standard error."""
    click.echo(f"note: {text}", err=True)


def print_notes(source: str, profiles: Iterable[LoadedProfile]) -> None:
    """Print the notes of an imported file, each line once, also if several profiles have it."""
    for line in dict.fromkeys(str(said) for loaded in profiles for said in loaded.notes):
        note(f"{source}: {line}")


def print_json(value: Any) -> None:
    """Print the value as indented JSON."""
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[str] = ()
) -> None:
    """Print a table; the columns named in `numbers` are aligned to the right.

    Cells are folded to the width of a terminal. In a pipe every row is one line.
    """
    width = None if sys.stdout.isatty() else _UNFOLDED
    click.echo("\n".join(table_lines(head, rows, numbers, width)))


def table_lines(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Container[str] = (),
    width: int | None = _UNFOLDED,
) -> list[str]:
    """The lines of a table of this width, as `print_table` prints it; None: the terminal's."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for name in head:
        table.add_column(name, justify="right" if name in numbers else "left")
    for row in rows:
        table.add_row(*row)
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as printed:
        console.print(table)
    return [line.rstrip() for line in printed.get().splitlines()]
