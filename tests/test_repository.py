"""Rules for the repository as a whole."""

import ast
import re
from collections.abc import Iterator
from configparser import ConfigParser
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from conftest import LONGEST
from near import mirror

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "operator" / "mooring"
TESTS = ROOT / "tests"
LOCKS = ("requirements.lock", "tests/tools/controlplane/go.lock")

NOT_COMMITTED = {".git", ".venv", "__pycache__", "build", "dist"}

REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("registry", "npmjs", "org"),
        ("crates", "io"),
    )
]
"""Written in parts, for this file is searched too."""


def _sources() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.name != "__init__.py"]


def _committed_files() -> Iterator[Path]:
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        ignored = any(part in NOT_COMMITTED or part.endswith("_cache") for part in parts)
        if path.is_file() and not ignored and ".hypothesis" not in parts:
            yield path


def _requirements(lock: Path) -> list[str]:
    """Return each requirement of a lock file with its options, as one line."""
    joined = re.sub(r"\\\n\s*", "", lock.read_text())
    return [line for line in joined.splitlines() if line and not line.lstrip().startswith("#")]


def test_every_source_file_has_a_test_file_of_its_name() -> None:
    mirrors = [mirror(path.relative_to(ROOT)) for path in _sources()]
    assert [str(path) for path in mirrors if not (ROOT / path).exists()] == []


def test_every_module_lies_on_a_floor_of_importlinter() -> None:
    config = ConfigParser()
    config.read(ROOT / ".importlinter")
    layers = config["importlinter:contract:floors"]["layers"]
    floors = tuple(f"{name}." for name in re.findall(r"mooring[\w.]*", layers))
    paths = [path.relative_to(SOURCE.parent).with_suffix("") for path in _sources()]
    modules = [".".join(path.parts) for path in paths]
    assert [name for name in modules if not f"{name}.".startswith(floors)] == []


def test_no_test_imports_another_test_or_wires_an_engine_by_hand() -> None:
    """Only `mooring.run.build` wires engines, in the program and in tests; helpers are no tests."""
    forbidden = re.compile(
        r"^ *(from|import) (\w+\.)*test_|\b(SchedulingLoop|SchedulerState)\(", re.MULTILINE
    )
    found = [str(path) for path in TESTS.rglob("*.py") if forbidden.search(path.read_text())]
    assert found == []


MOST_LINES = 40
"""Of a function, without its signature and docstring."""
NO_VERB = re.compile(
    "(A|All|An|Each|Every|Everything|How|If|Its|No|None|Nothing|One|Perhaps|So|The|This|What|When|"
    "Where|Whether|Which|Who|Why)\\b|[^A-Z]"
)
UNREASONED = re.compile(r"# (?:noqa: [A-Z0-9, ]+|type: ignore\[[^]]*\])\s*$")


def _python() -> list[Path]:
    return [path for root in (SOURCE, TESTS) for path in sorted(root.rglob("*.py"))]


@dataclass(frozen=True, slots=True)
class _Function:
    """The checked properties of a function; keeping its tree would slow down all later tests."""

    place: str
    lines: int
    """Of its body, without the docstring."""
    docstring: str
    says_what_is: bool
    """As a test and a property do."""


@cache
def _functions() -> list[_Function]:
    return [
        _read(node, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
        for path in _python()
        for node in _statements(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _read(node: ast.FunctionDef | ast.AsyncFunctionDef, place: str) -> _Function:
    docstring = ast.get_docstring(node)
    body = node.body[docstring is not None and len(node.body) > 1 :]
    return _Function(
        place,
        lines=(node.end_lineno or 0) - body[0].lineno + 1,
        docstring=docstring or "",
        says_what_is=node.name.startswith("test_")
        or any("property" in ast.unparse(decorator) for decorator in node.decorator_list),
    )


def _statements(parent: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement below `parent`; expressions, most of a tree, contain no statements."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(parent, name, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from _statements(child)


def test_no_function_has_a_body_of_more_than_forty_lines() -> None:
    assert [each.place for each in _functions() if each.lines > MOST_LINES] == []


def test_no_docstring_of_a_function_begins_with_a_noun_or_a_question_word() -> None:
    """Ruff's D401 does not report these words; docstrings of tests and properties may use them."""
    assert [
        each.place
        for each in _functions()
        if not each.says_what_is and NO_VERB.match(each.docstring)
    ] == []


def test_every_noqa_and_type_ignore_has_its_reason_beside_it() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _python()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNREASONED.search(line)
    ] == []


def test_the_source_root_is_no_package_for_it_would_hide_the_standard_module_operator() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_the_test_files_that_begin_first_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []


def test_no_file_names_a_package_registry() -> None:
    naming = {
        f"{path.relative_to(ROOT)}: {host}"
        for path in _committed_files()
        for host in REGISTRIES
        if host.encode() in path.read_bytes()
    }
    assert naming == set()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_requirement_has_one_version_and_hashes(lock: str) -> None:
    requirements = _requirements(ROOT / lock)
    pinned = re.compile(r"[\w.\-\[\]]+==\S+( ; [^-]+?)?( ?--hash=sha256:[0-9a-f]{64})+")
    assert requirements
    assert [line for line in requirements if not pinned.fullmatch(line.strip())] == []
