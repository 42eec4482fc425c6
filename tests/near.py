"""Finds the tests nearest to the changes since main, for `make near`.

    python -m near [FOLDER...]    prints test files; of these folders only changed test files

Nearest are changed test files and the mirrors of changed sources; then tests that import a changed
file; then tests that import such an importer, and so on. Of equally near tests, those with the
fewest imports come first, because they test little else. A file that is not Python is tested by the
tests in its folder and the tests of documents; modules below tests/ that name it count as
importers.
"""

import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
MOST: Final = 15
"""So many test files are chosen; if more have changed, all of these."""
DOCUMENTS: Final = Path("tests/test_documents.py")

_IMPORT: Final = re.compile(
    r"^[ \t]*(?:from ([\w.]+) import (\([^)]*\)|.*)|import ([\w., ]+))", re.MULTILINE
)


def mirror(source: Path) -> Path:
    """Return the test file of a source file; both paths are relative to the repository."""
    return Path("tests", *source.parts[2:-1], f"test_{source.stem.strip('_')}.py")


def changed(root: Path) -> set[Path]:
    """Return the files that differ from the merge base with main, and untracked files."""

    def git(*words: str) -> list[str]:
        command = ["git", *words]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.splitlines()

    base = git("merge-base", "HEAD", "main") or ["HEAD"]
    names = git("diff", "--name-only", *base) + git("ls-files", "--others", "--exclude-standard")
    return {Path(name) for name in names}


def nearest(root: Path, touched: Collection[Path], left_out: Collection[str] = ()) -> list[Path]:
    """Return the test files near the touched files, the nearest first."""
    imports = _imports(root, touched)
    near = {*touched, *(path for file in touched for path in _mirrors(file, imports))}
    found = _tests(near, imports)
    most = max(MOST, len(found))
    seen = near
    while near and len(found) < most:
        near = {path for path, imported in imports.items() if imported & near} - seen
        seen = seen | near
        may = {path for path in near if not any(map(path.is_relative_to, left_out))}
        found += _tests(may, imports)
    return found[:most]


def _imports(root: Path, touched: Collection[Path]) -> dict[Path, set[Path]]:
    """Return by Python file the modules that it imports and the touched files that it names."""
    files = [path for top in ("operator", "tests") for path in (root / top).rglob("*.py")]
    texts = {path.relative_to(root): path.read_text() for path in files}
    modules = {_module(path): path for path in {*texts, *touched} if path.suffix == ".py"}
    others = [path for path in touched if path.suffix != ".py"]
    return {
        path: {modules[name] for name in _names(text) if name in modules}
        | {other for other in others if path.parts[0] == "tests" and other.name in text}
        | {folder / "conftest.py" for folder in path.parents}.intersection(texts)
        for path, text in texts.items()
    }


def _module(path: Path) -> str:
    """Return the import name of a file; operator/, tests/ and tests/tools/ are source roots."""
    return ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__").removeprefix("tools.")


def _names(text: str) -> Iterator[str]:
    """Yield the modules that a text may import; `from a import b` may import `a` and `a.b`."""
    for package, names, modules in _IMPORT.findall(text):
        if package:
            yield package
            yield from (f"{package}.{name}" for name in re.findall(r"\w+", names))
        else:
            yield from re.findall(r"[\w.]+", modules)


def _mirrors(file: Path, paths: Collection[Path]) -> set[Path]:
    if file.suffix == ".py":
        return {mirror(file)}.intersection(paths)
    return {DOCUMENTS, *(path for path in paths if path.parent == file.parent)}.intersection(paths)


def _tests(near: set[Path], imports: dict[Path, set[Path]]) -> list[Path]:
    tests = (path for path in near & imports.keys() if path.name.startswith("test_"))
    return sorted(tests, key=lambda path: (len(imports[path]), path))


if __name__ == "__main__":
    for found in nearest(ROOT, changed(ROOT), sys.argv[1:]):
        sys.stdout.write(f"{found}\n")
