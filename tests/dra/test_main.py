import pytest

from dra.__main__ import main


def test_a_family_that_does_not_exist_is_an_error_with_those_that_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["counts", "colours"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: colours: choose from counts, backtracking, ")
