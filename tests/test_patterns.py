"""No regular expression of the program takes more than linear time."""

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from backtracking import Backtracking, TooManyStepsError, inputs

SOURCE = Path(__file__).parents[1] / "operator" / "mooring"
FEW, MANY = (12, 300), 4
"""Repetitions of a part, and how much longer the text becomes. A pattern whose repeats are bounded,
such as `{0,61}`, may take more steps up to this bound; with 300 repetitions it is beyond."""
MOST_GROWTH = 1.5 * MANY
EVERY = ("fullmatch", "search")
"""The methods that a pattern is held to whose use is not seen."""
_SAME = dict.fromkeys(("sub", "subn", "split", "findall"), "finditer")
"""They look for all matches."""


@dataclass(frozen=True)
class Use:
    """A pattern, and how the program uses it."""

    where: str
    pattern: str | bytes
    flags: int
    methods: tuple[str, ...] = field(default=EVERY)

    @property
    def counted(self) -> Backtracking:
        """The pattern with counted steps; a bytes pattern is read as a text pattern."""
        if isinstance(self.pattern, bytes):
            return Backtracking(self.pattern.decode("latin-1"), self.flags | re.ASCII)
        return Backtracking(self.pattern, self.flags)


class _Finder(ast.NodeVisitor):
    """Finds the patterns of a module: every call of a function of `re`."""

    def __init__(self, module: ModuleType, tree: ast.Module) -> None:
        self.module = module
        self.found = list[Use]()
        self.parents = {child: one for one in ast.walk(tree) for child in ast.iter_child_nodes(one)}
        self.visit(tree)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.module != "re", f"{self.module.__name__}: write import re"

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Attribute(value=ast.Name(id="re"), attr=method) if method != "escape":
                at = f"{self.module.__name__}:{node.lineno}"
                flags = [each.value for each in node.keywords if each.arg == "flags"]
                others = {"sub": 3, "subn": 3, "compile": 1}.get(method, 2)
                flags += [each for each in node.args[others:] if method not in {"split", "sub"}]
                pattern, flag = self._value(node.args[0], at), [self._value(f, at) for f in flags]
                methods = (
                    self._methods(node) if method == "compile" else (_SAME.get(method, method),)
                )
                assert not isinstance(pattern, int)
                self.found.append(Use(at, pattern, int(flag[0]) if flag else 0, methods))
        self.generic_visit(node)

    def _value(self, node: ast.expr, where: str) -> str | bytes | int:
        try:
            value = eval(ast.unparse(node), vars(self.module))  # noqa: S307 - it is our own source
        except NameError as error:
            error.add_note(f"{where}: make this pattern of constants of its module")
            raise
        assert isinstance(value, str | bytes | int)
        return value

    def _methods(self, call: ast.Call) -> tuple[str, ...]:
        """Return the methods of a compiled pattern that the module calls."""
        match self.parents[call]:
            case ast.Attribute(attr=method):
                return (method,)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                uses = [
                    self.parents[each]
                    for each in self.parents
                    if isinstance(each, ast.Name) and each.id == name
                    if isinstance(each.ctx, ast.Load)
                ]
                known = {self._method(each) for each in uses} - {"pattern"}
                return (*sorted(known),) if known and "" not in known else EVERY
        return EVERY

    def _method(self, use: ast.AST) -> str:
        if not isinstance(use, ast.Attribute):
            return ""
        call = self.parents[use]
        at_position = isinstance(call, ast.Call) and len(call.args) > 1 and use.attr == "match"
        return "scan" if at_position else _SAME.get(use.attr, use.attr)


def _modules() -> Iterator[tuple[ModuleType, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if "re" in text and path.name != "__main__.py":
            parts = path.relative_to(SOURCE.parent).with_suffix("").parts
            yield (
                importlib.import_module(".".join(parts).removesuffix(".__init__")),
                ast.parse(text),
            )


@cache
def _uses() -> tuple[Use, ...]:
    return tuple(use for module, tree in _modules() for use in _Finder(module, tree).found)


def _grows(counted: Backtracking, method: str, parts: tuple[str, str, str], times: int) -> bool:
    """Return whether the number of steps grows faster than the text."""
    begin, part, end = parts
    counted.steps, counted.most = 0, 10**5
    try:
        counted.ends(method, begin + part * times + end)
        counted.steps, counted.most = 0, int(counted.steps * MOST_GROWTH) + 100
        counted.ends(method, begin + part * (times * MANY) + end)
    except TooManyStepsError:
        return True
    return False


def _superlinear(use: Use, method: str) -> str | None:
    """Return an input for which the method's steps grow faster than its length, or None."""
    counted = use.counted
    for begin, part, end in inputs(counted.tree):
        if all(_grows(counted, method, (begin, part, end), times) for times in FEW):
            return f"{use.where} {method} {use.pattern!r}: {begin!r} + {part!r} * n + {end!r}"
    return None


@pytest.mark.deep
def test_no_pattern_takes_more_than_linear_time() -> None:
    found = [_superlinear(use, method) for use in _uses() for method in use.methods]
    assert [each for each in found if each is not None] == []


def test_patterns_are_found_wherever_they_stand() -> None:
    """A plain text search finds the same number of calls of `re` in the source."""
    calls = re.compile(r"\bre\.(compile|match|fullmatch|search|sub|split|findall|finditer)\(")
    texts = [path.read_text() for path in sorted(SOURCE.rglob("*.py"))]
    assert len(_uses()) == sum(len(calls.findall(text)) for text in texts) > 50
    assert not [text for text in texts if "python-re" in text]  # pydantic's own patterns are linear


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        ("[0-9]*[0-9]*x", "match"),
        ("[0-9]+x", "search"),
        (r"\{.*\}", "findall"),
        ("(a|aa)*b", "match"),
        ("(a*)*b", "fullmatch"),
        ("x(a+)+y", "match"),
        (r"\s*(\w+)\s*(,|$)", "search"),
        ("((ab)*c?)*d", "match"),
        ('(?:"[^"]*"|[^,])*;', "match"),
        ("a(?=[ab]*c)|b", "finditer"),
    ],
)
def test_a_pattern_that_goes_back_is_noticed(pattern: str, method: str) -> None:
    assert _superlinear(Use("here", pattern, 0), method) is not None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        ("[0-9]*+[0-9]*x", "match"),
        ("(?<![0-9])[0-9]++x", "search"),
        ("(?>a|b)*c", "match"),
        ("[a-z]([-a-z]*[a-z])?", "fullmatch"),
        ("[a-z]{0,20}[a-z]x", "search"),
        ("(?:a|b)*c", "match"),
    ],
)
def test_a_pattern_that_does_not_is_not_blamed(pattern: str, method: str) -> None:
    assert _superlinear(Use("here", pattern, 0), method) is None


def test_steps_are_counted_of_the_matches_that_python_finds() -> None:
    """Otherwise the steps of other matches would be counted."""
    for use in _uses():
        counted = use.counted
        real = re.compile(counted.pattern, counted.flags)
        for begin, part, end in inputs(counted.tree):
            text = begin + part * 3 + end
            found = real.match(text), real.fullmatch(text), real.search(text)
            assert [counted.ends(method, text) for method in ("match", "fullmatch", "search")] == [
                [one.end()] if one is not None else [] for one in found
            ], (use, text)
