"""Reads Kubernetes objects from YAML and JSON files or from standard input.

The objects contain values of JSON only: dates in YAML stay strings, and all keys are strings.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain, count
from math import isfinite, isinf
from pathlib import Path
from typing import Any, Final, TextIO

import orjson
import yaml

from mooring.model.manifest_error import ManifestError

STDIN: Final = "-"
"""The file name that stands for standard input."""
_ENCODING: Final = "utf-8-sig"
"""The encoding of input files: UTF-8, with or without the byte order mark of Windows programs."""
_MERGE: Final = "tag:yaml.org,2002:merge"
"""The tag of the YAML key `<<`, which merges the keys of another mapping."""
_MOST_SHOWN: Final = 40
"""The most characters of a value in a message; the rest is cut off."""


class InputError(Exception):
    """Raised for a mistake in the user's input; the text says where, and how to correct it.

    `line` is the line of the file, counted from 1, if the mistake makes the whole file unreadable.
    """

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for a text; None means no limit.

    Attributes:
        depth: The most levels of nested YAML. The YAML library calls itself for each level, and
            too many levels end the process.
        values: The most scalars, lists and mappings.
        objects: The most Kubernetes objects.
        aliases: Whether YAML aliases are allowed; they turn a short text into a large value.
    """

    depth: int = 250
    values: int | None = None
    objects: int | None = None
    aliases: bool = True


_OWN_FILES: Final = Limits()


class NoObjectError(InputError):
    """Raised if a document is not a Kubernetes object."""


@dataclass(frozen=True, slots=True)
class RepeatedKey:
    """A repeated key of a YAML mapping; `line` and `column` of the repetition count from 1."""

    key: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A raw object, and its place.

    `source` is the place for messages: `pods.yaml, document 2, items[5]`. `document` is the index
    of the YAML document in the file, from 0. `path` is the object's path in the document.
    """

    source: str
    raw: dict[str, Any]
    document: int = 0
    path: str = ""

    @property
    def kind(self) -> str:
        """The object's `kind`; "" if the object has none."""
        return str(self.raw.get("kind") or "")

    @property
    def group(self) -> str:
        """The object's API group; "" for the core group."""
        version = str(self.raw.get("apiVersion") or "")
        return version.rpartition("/")[0]

    def error(self, problem: object) -> InputError:
        """Return an error that names this object's place and the problem."""
        return InputError(f"{self.source}: {problem}")

    @contextmanager
    def locating_errors(self) -> Iterator[None]:
        """Turn a ManifestError into an InputError that names this object's place."""
        try:
            yield
        except ManifestError as error:
            raise self.error(error) from None


def read_manifests(paths: Iterable[str]) -> Iterator[Manifest]:
    """Yield every object of the files in order; the items of a list object replace the list.

    Raises InputError for a file that cannot be read, and for a document that is not an object.
    """
    for path in paths:
        with _opened(path) as file:
            first, second = file.readline(), file.readline()
            if second.startswith("{") and _json_object(first) is not None:
                yield from _json_lines(chain((first, second), file), display_name(path))
            else:
                yield from manifests_in(first + second + file.read(), display_name(path))


def display_name(path: str) -> str:
    """Return the name of a file for messages; "standard input" for -."""
    return "standard input" if path == STDIN else path


def manifests_in(
    text: str,
    name: str,
    repeated: list[RepeatedKey] | None = None,
    limits: Limits = _OWN_FILES,
) -> Iterator[Manifest]:
    """Yield every object of a text in order; the items of a list object replace the list.

    Args:
        text: YAML or JSON.
        name: The file's name in messages.
        repeated: Gets each key that a YAML mapping has twice; the last value is used. If `repeated`
            is None, such a key raises InputError.
        limits: The limits for the text.

    Raises:
        InputError: The text is neither YAML nor JSON, exceeds a limit, or has a document that is
            not an object.
    """
    found = 0
    for number, document in enumerate(_documents(text, name, repeated, limits)):
        if document is not None:
            source = f"{name}, document {number + 1}"
            for manifest in objects_in(Manifest(source, document, number)):
                found += 1
                if limits.objects is not None and found > limits.objects:
                    raise InputError(f"{name}: has more than {limits.objects} objects")
                yield manifest


def read_text(path: str) -> str:
    """Return the text of a file, or of standard input; raise InputError if it cannot be read."""
    with _opened(path) as file:
        return file.read()


@contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    try:
        if path == STDIN:
            if sys.stdin is None:  # a shell can close it
                raise InputError("standard input: is closed")
            if isinstance(sys.stdin, TextIOWrapper):  # the locale may have another encoding
                sys.stdin.reconfigure(encoding=_ENCODING, errors="strict")
            yield sys.stdin
        else:
            with Path(path).open(encoding=_ENCODING) as file:
                yield file
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text ({error.reason})"
        raise InputError(f"{display_name(path)}: {problem}") from None
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _json_object(text: str) -> Any:
    if text.lstrip().startswith("{"):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    return None


def _json_lines(lines: Iterable[str], name: str) -> Iterator[Manifest]:
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise InputError(
                f"{name}: line {number + 1}: is not JSON ({error.msg}), although line 1 is an "
                "object; write one object per line, or YAML with --- between the objects",
                number + 1,
            ) from None
        yield from objects_in(Manifest(f"{name}, line {number + 1}", document, number))


def composed(text: str) -> Iterator[yaml.Node]:
    """Yield the nodes of YAML or JSON documents, with line numbers; may raise YAMLError."""
    return yaml.compose_all(text, Loader=_Loader)


def _documents(
    text: str, name: str, repeated: list[RepeatedKey] | None, limits: Limits
) -> Iterator[Any]:
    document = _json_object(text)  # None for YAML's flow style too, whose errors name the line
    if document is not None:
        if limits.values is not None:
            _check_json(document, name, limits)
        if repeated is not None:
            with suppress(yaml.YAMLError):
                repeated += (key for node in composed(text) for key in _repeated_keys(node))
        yield document
        return
    loader = _Loader(text)
    try:
        _check_yaml(text, name, limits)
        for number in count(1):
            if not loader.check_node():
                return
            node = loader.get_node()
            for found in _repeated_keys(node):
                if repeated is None:
                    where = f"line {found.line}, column {found.column}"
                    raise InputError(f'{name}: {where}: the key "{found.key}" is there twice')
                repeated.append(found)
            yield _as_json(loader.construct_document(node), f"{name}, document {number}")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise InputError(f"{name}: {_problem(error)}", line) from None
    finally:
        loader.dispose()


def _check_yaml(text: str, name: str, limits: Limits) -> None:
    depth, values = 0, 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.ScalarEvent):
            values += 1
        elif isinstance(event, yaml.CollectionStartEvent):
            depth, values = depth + 1, values + 1
            _check_size(depth, values, name, limits)
        elif isinstance(event, yaml.CollectionEndEvent):
            _check_size(depth, values, name, limits)
            depth -= 1
        elif isinstance(event, yaml.AliasEvent) and not limits.aliases:
            raise InputError(f"{name}: YAML aliases are not read here; write the values out")


def _check_json(document: Any, name: str, limits: Limits) -> None:
    depth, values, level = 0, 0, [document]
    while level:
        nested = [value for value in level if isinstance(value, dict | list)]
        depth += bool(nested)
        # Keys are values, too, as in YAML.
        values += len(level) + sum(len(value) for value in nested if isinstance(value, dict))
        _check_size(depth, values, name, limits)
        level = [*chain.from_iterable(v.values() if isinstance(v, dict) else v for v in nested)]


def _check_size(depth: int, values: int, name: str, limits: Limits) -> None:
    if depth > limits.depth:
        raise InputError(f"{name}: is nested deeper than {limits.depth} levels")
    if limits.values is not None and values > limits.values:
        raise InputError(f"{name}: is too long; it has more than {limits.values} values")


def _repeated_keys(document: yaml.Node) -> Iterator[RepeatedKey]:
    seen = set[int]()
    nodes = [document]
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue  # an alias
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += reversed(node.value)
        elif isinstance(node, yaml.MappingNode):
            keys = set[str]()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                    if key.value in keys:
                        mark = key.start_mark
                        yield RepeatedKey(key.value, mark.line + 1, mark.column + 1)
                    keys.add(key.value)
            nodes += (value for _, value in reversed(node.value))


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # C is optional
    """A YAML loader that reads scalars as kubectl does: 22:00 is a text, y is not."""


VALUES_FOR_KUBECTL: Final = (
    ("bool", re.compile(r"^[yYnN]$"), "yYnN"),
    (
        "float",
        re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
        "-+.0123456789",
    ),
    ("int", re.compile(r"^[-+]?0o[0-7_]+$"), "-+0"),
)
"""Values that PyYAML reads as text and kubectl does not: kind, pattern and first characters.

See resolve.go of go.yaml.in/yaml/v2.
"""
_BASE_60: Final = re.compile(r"^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$")
_LONG_IN_GO: Final = 1e21
"""Go writes floats of this size and more with an exponent in JSON.

Smaller floats without a fraction look like integers, and are read as integers.
"""
_TEXT: Final = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")

_Loader.bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXT]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
for _kind, _pattern, _begins in VALUES_FOR_KUBECTL:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", _pattern, [*_begins])
for _first in "-+0123456789":  # before those of numbers, because the first that matches counts
    _Loader.yaml_implicit_resolvers[_first].insert(0, ("tag:yaml.org,2002:str", _BASE_60))


def _constructor_of(kind: str) -> Callable[[Any, yaml.ScalarNode], Any]:
    """Return a function that converts YAML scalars of `kind` to JSON, or raises YAMLError."""
    construct = _Loader.yaml_constructors[f"tag:yaml.org,2002:{kind}"]

    def checked(loader: Any, node: yaml.ScalarNode) -> Any:
        try:
            value = construct(loader, node)
        except (ValueError, LookupError, AttributeError):  # whatever PyYAML stumbles over
            value = None
        if isinstance(value, float) and isinf(value) and node.value[-1].isdigit():
            return node.value  # too large a number is text in Go
        if isinstance(value, float) and value.is_integer() and abs(value) < _LONG_IN_GO:
            return int(value)
        if value is None or (isinstance(value, float) and not isfinite(value)):
            problem = f"{node.value[:_MOST_SHOWN]} has no meaning in JSON as {kind}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return value

    return checked


for _kind in ("bool", "int", "float", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _constructor_of(_kind))


def _as_json(document: Any, where: str) -> Any:
    try:
        return orjson.loads(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, orjson.JSONEncodeError) as error:
        raise InputError(f"{where}: has no meaning in JSON: {error}") from None


def _problem(error: yaml.YAMLError) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}is neither YAML nor JSON: {problem or ' '.join(str(error).split())}"


def objects_in(manifest: Manifest) -> Iterator[Manifest]:
    """Yield the object of a document, or the items of a list object; else raise NoObjectError."""
    document: Any = manifest.raw
    if not isinstance(document, dict):
        shown = type(document).__name__
        problem = f"must be an object with apiVersion and kind, is a {shown}"
        raise NoObjectError(f"{manifest.source}: {problem}")
    if not manifest.kind:
        raise NoObjectError(f'{manifest.source}: kind: is required, as in "kind: Pod"')
    if not manifest.kind.endswith("List") or not isinstance(document.get("items"), list):
        yield manifest
        return
    inherited = {"apiVersion": document.get("apiVersion"), "kind": manifest.kind[: -len("List")]}
    for number, item in enumerate(document["items"]):
        # Items of a typed list such as PodList have no apiVersion and kind of their own.
        complete = {**inherited, **item} if isinstance(item, dict) else item
        source, path = f"{manifest.source}, items[{number}]", f"{manifest.path}.items[{number}]"
        yield from objects_in(Manifest(source, complete, manifest.document, path))
