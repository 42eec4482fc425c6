import lzma
from pathlib import Path
from typing import Any

import orjson
import pytest

from conformance.check import cases, main

TAINTS = Path(__file__).parent / "data" / "1.36" / "taints.jsonl.xz"

DISAGREES = "taints-dev-000"


def written(folder: Path, recorded: list[dict[str, Any]]) -> Path:
    """Write cases to a file, and return its path."""
    path = folder / "taints.jsonl.xz"
    path.write_bytes(lzma.compress(b"\n".join(map(orjson.dumps, recorded))))
    return path


@pytest.fixture
def one_wrong(tmp_path: Path) -> Path:
    """Return a file with the first two cases of a suite; the first has a wrong score."""
    recorded = list(cases(TAINTS))[:2]
    oracle = recorded[0]["oracle"]
    oracle["scores"][oracle["node"]]["total"] += 1
    return written(tmp_path, recorded)


def test_where_all_agree_the_answer_is_yes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(written(tmp_path, list(cases(TAINTS))[:2]))]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "v1.36.3  taints            2 of    2 agree",
        "all                        2 of    2 agree",
    ]


def test_a_case_that_differs_is_named_and_explained(
    one_wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(one_wrong)]) == 1
    first, second, *_, last = capsys.readouterr().out.splitlines()
    assert first == DISAGREES
    assert second.startswith("    scores of n")
    assert last == "all                        1 of    2 agree"


def test_explanations_can_be_left_out(one_wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", "0", str(one_wrong)]) == 1
    assert DISAGREES not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read: No such file"),
        (b"{}", "cannot be read: Input format not supported by decoder"),
        (lzma.compress(b"no case\n"), "is not one JSON case a line"),
    ],
)
def test_a_file_without_cases_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    complaint: str,
) -> None:
    path = tmp_path / "fresh.jsonl.xz"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path}: {complaint}")
