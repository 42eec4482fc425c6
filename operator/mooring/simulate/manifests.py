"""Read Kubernetes objects from YAML and JSON files or from standard input.

The objects contain values of JSON only: dates in YAML stay strings, and all keys are strings.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, TextIO

import orjson
import yaml

__all__ = ["STDIN", "InputError", "Manifest", "read_manifests"]

STDIN: Final = "-"
"""The file name that stands for standard input."""


class InputError(Exception):
    """A mistake in the user's input; the text says where it is and what would be right."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A raw object, and the place it comes from, such as `pods.yaml, document 2, items[5]`."""

    source: str
    raw: dict[str, Any]

    @property
    def kind(self) -> str:
        """The object's `kind`, "" if it has none."""
        return str(self.raw.get("kind") or "")

    @property
    def group(self) -> str:
        """The object's API group, "" for the core group."""
        version = str(self.raw.get("apiVersion") or "")
        return version.rpartition("/")[0]

    def error(self, problem: object) -> InputError:
        """An error that names this object's place and the problem."""
        return InputError(f"{self.source}: {problem}")


def read_manifests(paths: Iterable[str]) -> Iterator[Manifest]:
    """Yield every object of the files in order; a list object is replaced by its items.

    Raises:
        InputError: for a file that cannot be read, and for a document that is not an object.
    """
    for path in paths:
        name = "standard input" if path == STDIN else path
        with _opened(path) as file:
            first, second = file.readline(), file.readline()
            if _is_json_object(first) and (not second.strip() or second.startswith("{")):
                documents = _json_lines(chain((first, second), file), name)
            else:
                documents = _documents(first + second + file.read(), name)
            for number, document in enumerate(documents, start=1):
                if document is not None:
                    yield from _objects(document, f"{name}, document {number}")


@contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    try:
        if path == STDIN:
            yield sys.stdin
        else:
            with Path(path).open(encoding="utf-8") as file:
                yield file
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text ({error.reason})") from None
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _is_json_object(line: str) -> bool:
    """Whether a line holds a whole object in JSON."""
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def _json_lines(lines: Iterable[str], name: str) -> Iterator[Any]:
    """The objects of a file with one object per line, read line by line."""
    for number, line in enumerate(lines, start=1):
        try:
            yield orjson.loads(line) if line.strip() else None
        except orjson.JSONDecodeError as error:
            raise InputError(
                f"{name}: line {number}: is not JSON ({error.msg}), although line 1 is an object; "
                "write one object per line, or YAML with --- between the objects"
            ) from None


def _documents(text: str, name: str) -> Iterator[Any]:
    if text.lstrip().startswith("{"):
        try:
            yield orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # It may be YAML's flow style; if not, YAML's error names the line.
        else:
            return
    try:
        for number, document in enumerate(yaml.load_all(text, Loader=_Loader), start=1):
            yield _as_json(document, f"{name}, document {number}")
    except yaml.YAMLError as error:
        raise InputError(f"{name}: {_problem(error)}") from None


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # C is optional
    """A YAML loader that leaves dates and times as strings, as Kubernetes does."""


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
        # Items of a typed list such as PodList have no apiVersion and kind of their own.
        complete = {**inherited, **item} if isinstance(item, dict) else item
        yield from _objects(complete, where)
