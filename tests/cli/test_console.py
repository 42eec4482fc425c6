import pytest

from mooring.cli.console import mistakes_reported, note, print_json, print_table
from mooring.simulate.manifests import InputError


def test_each_mistake_is_a_line_on_standard_error_and_the_exit_code_is_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended, mistakes_reported():
        raise InputError("a: wrong\nb: wrong too")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: a: wrong\nerror: b: wrong too\n"


def test_columns_are_aligned_and_numbers_are_aligned_to_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("POD", "SCORE"), [("a", "7"), ("longer", "100")], numbers=("SCORE",))
    assert capsys.readouterr().out.splitlines() == [
        "POD      SCORE",
        "a            7",
        "longer     100",
    ]


def test_in_a_pipe_a_row_is_one_line_of_any_length(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("WHY",), [("because " * 50,)])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_markup_in_a_cell_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A",), [("[bold]x[/bold] :smile:",)])
    assert "[bold]x[/bold] :smile:" in capsys.readouterr().out


def test_notes_are_written_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    note("by the way")
    print_json({"a": 1})
    captured = capsys.readouterr()
    assert captured.err == "note: by the way\n"
    assert captured.out == '{\n  "a": 1\n}\n'
