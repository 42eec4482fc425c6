from pathlib import Path

import pytest

from conformance.record import main
from conformance.scenes.suites import SUITES


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (["--suite", "colours"], "invalid choice: 'colours'"),
        (["--cases", "0"], "must be a number from 1 on, is '0'"),
        (["--seed", "x"], "invalid int value: 'x'"),
        ([], "the following arguments are required: --out"),
    ],
)
def test_wrong_use_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], complaint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*wrong, "--out", str(tmp_path)] if wrong else [])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["--out", str(tmp_path / "file" / "fresh")]) == 1
    assert "file/fresh" in capsys.readouterr().err


def test_help_names_the_suites_and_gives_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert all(suite in told for suite in SUITES)
    assert "python -m conformance.record --cases 42 --seed 8" in told
