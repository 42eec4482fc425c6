"""Append to tests/test_repository.py (with `import ast`), once everything is merged: the limits that CONTRIBUTING states."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES = 50
"""Of a function, without its signature and docstring."""
LONGER = {  # to be emptied, not extended
    "operator/mooring/app.py: __init__",
    "operator/mooring/cli/simulate.py: simulate",
    "operator/mooring/engine/result_cache.py: __init__",
    "operator/mooring/framework/pipeline.py: build_pipeline",
    "operator/mooring/observe/collector.py: collect",
    "tests/e2e/test_shadow.py: test_a_shadow_profile_agrees_with_kube_scheduler_and_reports_where_it_would_not",
    "tests/model/test_objects.py: a_pod_with_everything",
    "tests/plugins/rules/test_evaluation.py: _trees",
}
UNREASONED = re.compile(r"# (?:noqa: [A-Z0-9, ]+|type: ignore\[[^]]*\])\s*$")


def _python() -> list[Path]:
    return [p for part in ("operator", "tests") for p in sorted((ROOT / part).rglob("*.py"))]


def _long_functions(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) is not None and len(node.body) > 1
            first = node.body[1 if documented else 0].lineno
            if (node.end_lineno or first) - first >= MOST_LINES:
                found.add(f"{path.relative_to(ROOT)}: {node.name}")
    return found


def test_no_function_is_longer_than_a_reader_can_hold() -> None:
    assert {long for path in _python() for long in _long_functions(path)} == LONGER


def test_every_noqa_and_type_ignore_has_its_reason_beside_it() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _python()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNREASONED.search(line)
    ] == []
