"""Prints the demo: a line for each result, and tables of pods and nodes."""

import time
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from demo.placement import NodeUse

WIDTH = 100
"""The number of columns if the output is no terminal."""


class Narrator:
    """Prints lines that begin with the seconds since the demo began."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or _console()
        self._began = time.monotonic()

    def say(self, line: str) -> None:
        """Print a line about a result."""
        elapsed = time.monotonic() - self._began
        text = f"[dim]{elapsed:5.1f} s[/]  {escape(line)}"
        self._console.print(text, highlight=False, soft_wrap=True)

    def note(self, line: str) -> None:
        """Print a line below the last one, without a time."""
        self._console.print(f"         {escape(line)}", highlight=False, soft_wrap=True)

    def output(self, command: str, text: str) -> None:
        """Print a command and its output."""
        self._console.print(f"\n[bold]$ {escape(command)}[/]", highlight=False, soft_wrap=True)
        self._console.print(escape(text.rstrip()), highlight=False, soft_wrap=True)
        self._console.print()

    def heading(self, line: str) -> None:
        """Print the heading of a new part."""
        self._console.print(f"\n[bold]{escape(line)}[/]", highlight=False)

    def show(self, table: Table) -> None:
        """Print a table with empty lines around it."""
        self._console.print()
        self._console.print(table)
        self._console.print()


def placement_table(title: str, uses: Sequence[NodeUse]) -> Table:
    """Return a table of pods and utilisation per node, by zone; new pods have a column, if any."""
    some_new = any(use.new for use in uses)
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("zone")
    table.add_column("node")
    table.add_column("pods", justify="right")
    if some_new:
        table.add_column("new", justify="right")
    table.add_column("cpu", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("■ a pod, □ a new one" if some_new else "■ a pod", no_wrap=True)
    for zone, members in groupby(uses, key=lambda use: use.zone):
        in_zone = list(members)
        for use in in_zone:
            table.add_row(use.zone, use.name, *_figures([use], some_new=some_new), _bar(use))
        of_zone = _figures(in_zone, some_new=some_new)
        table.add_row(zone, f"{len(in_zone)} nodes", *of_zone, "", style="bold", end_section=True)
    table.add_row("all", f"{len(uses)} nodes", *_figures(uses, some_new=some_new), "", style="bold")
    return table


def _figures(uses: Sequence[NodeUse], *, some_new: bool) -> list[str]:
    counts = [sum(use.pods for use in uses)]
    if some_new:
        counts.append(sum(use.new for use in uses))
    shares = (_mean(use.cpu for use in uses), _mean(use.memory for use in uses))
    return [*map(str, counts), *(f"{share:.0%}" for share in shares)]


def _mean(values: Iterable[float]) -> float:
    """Return the mean; the demo's nodes are equal, so this is the share of all nodes."""
    found = list(values)
    return sum(found) / len(found)


def _bar(use: NodeUse) -> Text:
    return Text.assemble("■" * use.earlier, ("□" * use.new, "green"))


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)
