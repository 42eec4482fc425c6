"""Helpers of all commands: exit codes, the `-o` option, notes, error lines and tables."""

import json
import os
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, TypeVar

import click
import orjson
import yaml
from rich.cells import cell_len

from mooring.model.kubernetes_rules import KUBERNETES_RULES
from mooring.observe.printable import printable as printable_text
from mooring.simulate.manifests import VALUES_FOR_KUBECTL, InputError

DONE: Final = 0
NO: Final = 1
BAD_INPUT: Final = 2

_GAP: Final = "   "
_INDENT: Final = "    "
_USUAL_WIDTH: Final = 80
_LEAST_PROSE: Final = 24
"""The smallest width, in characters, of a column with sentences."""
_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_option(*formats: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the option `-o`; the first of `formats` is the default."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="How to print the answer.",
    )


def kubernetes_option(default: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the option `--kubernetes`.

    `default` says in the help which version is used without the option.
    """
    return click.option(
        "--kubernetes",
        type=click.Choice([*KUBERNETES_RULES]),
        metavar="VERSION",
        help="The version of the API server, whose rules hold for profiles without "
        f"kubernetesVersion: {', '.join(KUBERNETES_RULES)}. Without it: {default}.",
    )


def connection_options(command: _Command) -> _Command:
    """Add the options --kubeconfig and --context, which say where the API server is."""
    for option in (
        click.option(
            "--context",
            shell_complete=_complete_contexts,
            help="Context in the kubeconfig. Without it: the current one.",
        ),
        click.option(
            "--kubeconfig",
            type=click.Path(),
            help="Path of the kubeconfig. Without it: as kubectl.",
        ),
    ):
        command = option(command)
    return command


def _complete_contexts(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    given = context.params.get("kubeconfig") or os.environ.get("KUBECONFIG")
    paths = given.split(os.pathsep) if given else [str(Path.home() / ".kube" / "config")]
    found = list[str]()
    for path in filter(None, paths):
        try:
            content = yaml.safe_load(Path(path).expanduser().read_text())
            found += [str(entry["name"]) for entry in content["contexts"]]
        except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
            continue
    return sorted({name for name in found if name.startswith(incomplete)})


@contextmanager
def mistakes_reported() -> Iterator[None]:
    """Print a user's mistakes as lines without a traceback, and exit with 2."""
    try:
        yield
    except InputError as error:
        for line in str(error).splitlines():
            click.echo(f"error: {printable(line)}", err=True)
        sys.exit(BAD_INPUT)


def note(text: str) -> None:
    """Print a note on standard error."""
    click.echo(f"note: {printable(text)}", err=True)


def note_ignored(kinds: Mapping[str, int], source: str = "", notes: Iterable[str] = ()) -> None:
    """Print the number of ignored objects of each kind, and then the notes."""
    where = f"{source}: " if source else ""
    if kinds:
        counts = ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))
        note(f"{where}ignored objects of kinds that no decision reads: {counts}")
    for each in dict.fromkeys(notes):
        note(f"{where}{each}")


def print_notes(source: str, notes: Iterable[object]) -> None:
    """Print the notes about an imported file; equal notes of several profiles are printed once."""
    for line in dict.fromkeys(map(str, notes)):
        note(f"{source}: {line}")


def print_json(value: Any) -> None:
    """Print the value as indented JSON, with unprintable characters escaped."""
    click.echo(with_escapes(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))


def with_escapes(document: str) -> str:
    """Return the JSON or YAML document with its control characters escaped.

    A parser reads the same values from both documents. Control characters outside ASCII must be
    within double quotes.
    """
    if document.isascii() and "\x7f" not in document:
        return document
    return "\n".join(
        line
        if line.isprintable()
        else "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)
        for line in document.split("\n")
    )


class _Dumper(yaml.SafeDumper):
    """Writes YAML; quotes texts that kubectl would read as another type (y, 12e45)."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = None if text.replace("\n", "").isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _Dumper.represent_text)

for _kind, _pattern, _first in VALUES_FOR_KUBECTL:
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", _pattern, [*_first])


def print_yaml(*documents: Any) -> None:
    """Print the documents as YAML that kubectl reads unchanged."""
    text = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    click.echo(with_escapes(text), nl=False)


def print_annotation(level: str, file: str, line: int | None, title: str, text: str) -> None:
    """Print a workflow command of GitHub that shows the text at the line of the file."""
    place = f"file={_escaped(file, ',:')}" + (f",line={line}" if line is not None else "")
    click.echo(f"::{level} {place},title={_escaped(title, ',:')}::{_escaped(text)}")


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{more}" else char for char in text)


def printable(value: Any) -> Any:
    """Return the JSON value with the control characters in its texts escaped."""
    # Users can write any character into some fields, for example the name of a claim.
    if isinstance(value, str):
        return printable_text(value)
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    return [printable(item) for item in value] if isinstance(value, list) else value


def and_others(first: str, count: int) -> str:
    """Return the first of `count` names, and the number of the others, for example `web-1 (+2)`."""
    return f"{first} (+{count - 1})" if count > 1 else first


def print_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Container[str] = (),
    prose: Container[str] = (),
    failed: Container[int] = (),
) -> None:
    """Print a table as wide as the terminal; the rows whose indices are in `failed` are red.

    For the other arguments see `table_lines`.
    """
    # rich's Table cuts names, and is 40 times slower: 20 seconds for 10,000 rows.
    table = _table(head, [*rows], numbers, prose, terminal_width())
    for number, lines in enumerate(table):
        text = "\n".join(lines)
        red = number > 0 and number - 1 in failed and coloured()
        click.echo(click.style(text, fg="red") if red else text)


def table_lines(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Container[str] = (),
    prose: Container[str] = (),
    width: int | None = None,
) -> list[str]:
    """Return the lines of a table; if `width` is given, no line has more characters.

    `numbers` and `prose` contain column heads. Columns in `numbers` are aligned to the right.
    Columns in `prose` must come last; their text is folded.
    """
    return [line for lines in _table(head, [*rows], numbers, prose, width) for line in lines]


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Container[str],
    prose: Container[str],
    width: int | None,
) -> Iterator[list[str]]:
    """Yield a list of lines for the head, and then for each row."""
    rows = [[printable(cell) for cell in row] for row in rows]
    names = sum(column not in prose for column in head)
    widths = [max(cell_len(row[i]) for row in (head, *rows)) for i in range(names)]
    beside = None if width is None else _prose_width(width, widths, len(head) - names)
    for row in (head, *rows):
        if width is not None and beside is None:
            lines = _stacked(row, head, names, width)
        else:
            cells = [
                _aligned(cell, widths[i], right=head[i] in numbers)
                for i, cell in enumerate(row[:names])
            ]
            lines = _beside(_GAP.join(cells), row[names:], beside)
        yield [line.rstrip() for line in lines]


def print_prose(line: str) -> None:
    """Print a line, folded to the terminal's width."""
    width = terminal_width()
    for part in folded(line, width) if width is not None else (line,):
        click.echo(part)


def folded(text: str, width: int) -> list[str]:
    """Return the text as lines of at most `width` characters; a longer word stays whole."""
    if cell_len(text) <= width:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()))
    return wrap(
        text.lstrip(),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def coloured() -> bool:
    """Return whether standard output is a terminal and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def terminal_width() -> int | None:
    """Return the width of the terminal; None if standard output is not a terminal."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL_WIDTH
    except (OSError, ValueError):
        return _USUAL_WIDTH


def _prose_width(width: int, names: Sequence[int], columns: int) -> int | None:
    """Return the width in characters of each prose column; None if too little space is left."""
    left = width - sum(names) - len(_GAP) * (len(names) + columns - 1)
    if not columns:
        return 0 if left >= 0 else None
    return left // columns if left // columns >= _LEAST_PROSE else None


def _aligned(cell: str, width: int, *, right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if right else cell + space


def _beside(names: str, prose: Sequence[str], width: int | None) -> Iterator[str]:
    """Yield the lines of a table row: prose, folded to `width`, stands beside the other cells."""
    if width is None:
        yield _GAP.join((names, *prose))
        return
    alone = len(prose) == 1  # then a long word, which may be a name, may go over the edge whole
    folded = [
        wrap(cell, width, break_on_hyphens=False, break_long_words=not alone) or [""]
        for cell in prose
    ]
    for number in range(max(map(len, folded), default=1)):
        parts = [lines[number] if number < len(lines) else "" for lines in folded]
        first = names if number == 0 else " " * cell_len(names)
        yield _GAP.join((first, *(part.ljust(width) for part in parts)))


def _stacked(row: Sequence[str], head: Sequence[str], names: int, width: int) -> Iterator[str]:
    """Yield the lines of a table row that is too wide: the other cells stand below the first."""
    yield row[0]
    is_head, width = row is head, max(width, _LEAST_PROSE)
    between, prose = row[1:names], row[names:]
    if cell_len(_INDENT + _GAP.join(head[1:names])) > width:
        cells = [f"{title} {cell}" for title, cell in zip(head[1:names], between, strict=True)]
        yield from () if is_head else _filled(cells, width)
        between = ()
    parts = [_GAP.join((*between, *prose))]
    if not is_head and len(prose) > 1:
        titled = (f"{title}: {cell}" for title, cell in zip(head[names:], prose, strict=True))
        parts = [_GAP.join(between), *titled]
    for part in parts:
        yield from wrap(
            part,
            width,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_on_hyphens=False,
            break_long_words=False,
        )


def _filled(cells: Iterable[str], width: int) -> Iterator[str]:
    """Yield the cells on indented lines of at most `width` characters."""
    line = ""
    for cell in cells:
        if line and cell_len(line + _GAP + cell) > width:
            yield line
            line = ""
        line = f"{line}{_GAP if line else _INDENT}{cell}"
    yield line
