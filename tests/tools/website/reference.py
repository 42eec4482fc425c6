"""Makes the reference pages: the command line and the custom resources."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click
import yaml

from mooring.__main__ import main
from mooring.run.settings import RunSettings


def command_line() -> str:
    """Return a page with every command, its options and its examples, from `--help`'s texts."""
    lines = ["# Command line", "", "Every command has `-h` and `--help`.", ""]
    context = click.Context(main, info_name="mooring")
    lines += _command(main, context, depth=1)
    return "\n".join(lines) + "\n"


def _command(command: click.Command, context: click.Context, depth: int) -> Iterator[str]:
    if depth > 1:
        yield from ("#" * depth + f" {context.command_path}", "")
        yield from ("```", command.get_help(context).rstrip(), "```", "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                inner = click.Context(found, info_name=name, parent=context)
                yield from _command(found, inner, depth + 1)


def custom_resources(folder: Path) -> dict[str, str]:
    """Return a page for each CRD in the folder, by plural name and group."""
    definitions = [
        document
        for path in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]
    return {
        definition["metadata"]["name"]: custom_resource(definition) for definition in definitions
    }


def custom_resource(definition: Mapping[str, Any]) -> str:
    """Return a page with all fields of a CRD."""
    spec = definition["spec"]
    lines = [f"# {spec['names']['kind']}", ""]
    for version in spec["versions"]:
        scope = spec["scope"].lower()
        lines += [f"## {spec['group']}/{version['name']}", "", f"A {scope} resource.", ""]
        schema = version["schema"]["openAPIV3Schema"]
        if "description" in schema:
            lines += [_text(schema), ""]
        lines += ["| field | type | |", "| --- | --- | --- |"]
        for name in ("spec", "status"):
            lines += _fields(schema["properties"].get(name, {}), name)
        lines.append("")
    return "\n".join(lines)


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield a row for the field at the path, and for each field below it."""
    yield f"| `{path}` | {_type(schema)} | {_text(schema)} |"
    inner = schema.get("items", schema) if schema.get("type") == "array" else schema
    prefix = f"{path}[]" if schema.get("type") == "array" else path
    for name, field in inner.get("properties", {}).items():
        yield from _fields(field, f"{prefix}.{name}")


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "integer or string" if "x-kubernetes-int-or-string" in schema else "")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if "enum" in schema:
        return _choice(schema["enum"])
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"map of {_type(schema['additionalProperties'])}"
    return str(kind)


def _choice(values: Sequence[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _text(schema: Mapping[str, Any]) -> str:
    words = str(schema.get("description", "")).split()
    if "default" in schema:
        words += ["Default:", f"`{schema['default']}`."]
    # Angle brackets and bars are Markdown's; the text is the CRD's.
    escaped = " ".join(words).replace("|", "&#124;").replace("<", "&lt;")
    return escaped.replace("[", "&#91;").replace("*", "&#42;")


def with_settings(page: str) -> str:
    """Return docs/settings.md with new tables from the settings in the source.

    Each table begins with its former first setting, and ends before the next table's first one.
    """
    rows = {f"--{f.name.replace('_', '-')}": _row(f) for f in fields(RunSettings)}
    flags = [*rows]
    tables = [*re.finditer(r"(?m)(^\| `(--[a-z-]+)`.*\n)+", page)]
    firsts = [flags.index(re.findall(r"`(--[a-z-]+)`", table[0])[0]) for table in tables]
    for table, begin, end in reversed([*zip(tables, firsts, [*firsts[1:], None], strict=True)]):
        made = "".join(rows[flag] for flag in flags[begin:end])
        page = page[: table.start()] + made + page[table.end() :]
    return page


def _row(setting: "Field[Any]") -> str:
    """Return the row of a setting: its flag, its default and its description."""
    name, default = setting.name.replace("_", "-"), setting.default
    flag = f"`--{name}` / `--no-{name}`" if isinstance(default, bool) else f"`--{name}`"
    written = f"`{default}`" if isinstance(default, str) else "none"
    if isinstance(default, int | float):
        written = str(default).lower() if isinstance(default, int) else f"{default:g}"
    text = setting.metadata["text"]
    return f"| {flag} | {written} | {text} |\n"
