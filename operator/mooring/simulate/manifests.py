"""Kubernetes objects from files: YAML of any number of documents, JSON, lists, standard input.

What comes out is JSON's values only: YAML's dates stay text, and keys are strings.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

__all__ = ["STDIN", "InputError", "Manifest", "read_manifests"]

STDIN: Final = "-"
"""The file name that stands for standard input."""


class InputError(Exception):
    """Something a user gave cannot be used; one line says where, what, and what would be right."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as somebody wrote it, and where: `pods.yaml, document 2, item 5`."""

    source: str
    raw: dict[str, Any]

    @property
    def kind(self) -> str:
        """What the object says it is."""
        return str(self.raw.get("kind") or "")

    @property
    def group(self) -> str:
        """The API group, "" for the core one."""
        version = str(self.raw.get("apiVersion") or "")
        return version.rpartition("/")[0]

    def error(self, problem: object) -> InputError:
        """The error of saying `problem` about this object."""
        return InputError(f"{self.source}: {problem}")


def read_manifests(paths: Iterable[str]) -> Iterator[Manifest]:
    """Every object of the files, in order; the items of lists one by one.

    Raises:
        InputError: for a file that cannot be read, and for what is no object.
    """
    for path in paths:
        name = "standard input" if path == STDIN else path
        for number, document in enumerate(_documents(_text(path), name), start=1):
            if document is not None:
                yield from _objects(document, f"{name}, document {number}")


def _text(path: str) -> str:
    try:
        if path == STDIN:
            return sys.stdin.read()
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text ({error.reason})") from None
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _documents(text: str, name: str) -> Iterator[Any]:
    if text.lstrip().startswith("{"):
        try:
            yield orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # YAML's flow style, or an error that YAML's reader places better
        else:
            return
    try:
        for number, document in enumerate(yaml.load_all(text, Loader=_Loader), start=1):
            yield _as_json(document, f"{name}, document {number}")
    except yaml.YAMLError as error:
        raise InputError(f"{name}: {_problem(error)}") from None


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # C is optional
    """Leaves dates and times alone: in Kubernetes they are strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def _as_json(document: Any, where: str) -> Any:
    try:
        return orjson.loads(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, orjson.JSONEncodeError) as error:
        raise InputError(f"{where}: has no meaning in JSON: {error}") from None


def _problem(error: yaml.YAMLError) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}is neither YAML nor JSON: {problem or ' '.join(str(error).split())}"


def _objects(document: Any, source: str) -> Iterator[Manifest]:
    if not isinstance(document, dict):
        shown = type(document).__name__
        raise InputError(f"{source}: must be an object with apiVersion and kind, is a {shown}")
    manifest = Manifest(source, document)
    if not manifest.kind:
        raise manifest.error('kind: is required, as in "kind: Pod"')
    if not manifest.kind.endswith("List") or not isinstance(document.get("items"), list):
        yield manifest
        return
    inherited = {"apiVersion": document.get("apiVersion"), "kind": manifest.kind[: -len("List")]}
    for number, item in enumerate(document["items"]):
        where = f"{source}, items[{number}]"
        # The API's own lists, unlike kubectl's, leave out what is the same for every item.
        complete = {**inherited, **item} if isinstance(item, dict) else item
        yield from _objects(complete, where)
