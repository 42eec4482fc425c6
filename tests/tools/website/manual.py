"""Makes a manual page for each command, from the texts of `--help`."""

import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from sphinx.cmd.build import build_main

from mooring.__main__ import main

_SECTION: Final = 1


def manual_pages() -> dict[str, tuple[str, str]]:
    """Return, by page name, the title in one line and the page in Markdown, for each command."""
    root = click.Context(main, info_name="mooring", **main.context_settings)
    return {
        name: (
            command.get_short_help_str(limit=200).rstrip("."),
            "\n".join(_page(command, context)),
        )
        for name, command, context in _commands(main, root)
    }


def build_manual(folder: Path) -> int:
    """Write the pages to `man` in the folder; return 0 if none has an error."""
    source, pages = folder / "manual", manual_pages()
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    listed: list[tuple[str, str, str, list[str], int]] = [
        (name, name, title, [], _SECTION) for name, (title, _) in pages.items()
    ]
    (source / "conf.py").write_text(
        f"project = 'mooring'\nextensions = ['myst_parser']\nmyst_enable_extensions = ['deflist']\n"
        f"root_doc = 'mooring'\nman_pages = {listed!r}\nsuppress_warnings = ['toc.not_included']\n"
    )
    for name, (_, text) in pages.items():
        (source / f"{name}.md").write_text(text)
    strict = ["--quiet", "--fail-on-warning", "--fresh-env"]
    return build_main([*strict, "-b", "man", str(source), str(folder / "man")])


def _commands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    yield context.command_path.replace(" ", "-"), command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                inner = click.Context(found, info_name=name, parent=context)
                yield from _commands(found, inner)


def _title(command: click.Command) -> str:
    return command.get_short_help_str(limit=200).rstrip(".")


def _page(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the page's lines: usage, description, options and examples."""
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    yield from (f"# {context.command_path}", "", "## SYNOPSIS", "", "```", usage, "```", "")
    yield from ("## DESCRIPTION", "", _escaped(inspect.cleandoc(command.help or "")), "")
    yield from _options(command, context)
    if command.epilog:
        heading, _, examples = inspect.cleandoc(command.epilog.replace("\b\n", "")).partition("\n")
        yield from (f"## {heading.rstrip(':').upper()}", "", "```", examples, "```", "")
    yield from ("## SEE ALSO", "", ", ".join(_related(command, context)), "")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    yield from ("## OPTIONS", "")
    for parameter in command.get_params(context):
        names, text = parameter.get_help_record(context) or ("", "")
        if text:  # arguments have none, and stand in the synopsis
            yield from (f"`{names}`", f": {_escaped(' '.join(text.split()))}", "")


def _related(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield links to the pages of the parent command and the subcommands."""
    if context.parent is not None:
        yield f"{context.parent.command_path.replace(' ', '-')}({_SECTION})"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield f"{context.command_path.replace(' ', '-')}-{name}({_SECTION})"


def _escaped(text: str) -> str:
    """Return the text with escapes for the characters that Markdown would interpret."""
    for char in "\\`*_<>[]":
        text = text.replace(char, f"\\{char}")
    return text
