import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from mooring.cli.console import (
    mistakes_reported,
    note,
    print_json,
    print_table,
    print_yaml,
    printable,
)
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


def test_yaml_keeps_the_order_of_fields(capsys: pytest.CaptureFixture[str]) -> None:
    print_yaml({"b": [1], "a": None})
    assert capsys.readouterr().out == "b:\n- 1\na: null\n"


def test_yaml_quotes_what_kubectl_would_take_for_a_value_of_another_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_yaml(["y", "N", "12e45", "1e3", "0o17", "yes", "22:00", "v1"], {"a": 1, "b": 1.5})
    assert capsys.readouterr().out == (
        "- 'y'\n- 'N'\n- '12e45'\n- '1e3'\n- '0o17'\n- 'yes'\n- '22:00'\n- v1\n---\na: 1\nb: 1.5\n"
    )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the width of the terminal to 40 columns."""
    monkeypatch.setattr("mooring.cli.console.terminal_width", lambda: 40)


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_prose_is_folded_beside_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("POD", "WHY"), [("web", "best of all the many nodes that fit")], prose=("WHY",))
    assert capsys.readouterr().out.splitlines() == [
        "POD   WHY",
        "web   best of all the many nodes that",
        "      fit",
    ]


@pytest.mark.usefixtures("terminal")
def test_without_space_the_first_cell_is_on_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "a-name-that-is-longer-than-the-terminal-is-wide"
    print_table(
        ("POD", "NODE", "WHY"), [(name, "n1", "best of all the nodes that fit")], prose=("WHY",)
    )
    assert capsys.readouterr().out.splitlines() == [
        "POD",
        "    NODE   WHY",
        name,
        "    n1   best of all the nodes that fit",
    ]


@pytest.mark.usefixtures("terminal")
def test_without_space_several_columns_of_prose_are_titled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("FIELD", "A", "B"), [("match", "some words", "-")], prose=("A", "B"))
    assert capsys.readouterr().out.splitlines()[2:] == [
        "match",
        "    A: some words",
        "    B: -",
    ]


@pytest.mark.usefixtures("terminal")
def test_titles_that_are_too_long_for_one_line_are_beside_their_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = ("TOTAL", "InterPodAffinity", "PodTopologySpread")
    print_table(("NODE", *numbers), [("n1", "628", "12", "200")], numbers)
    assert capsys.readouterr().out.splitlines() == [
        "NODE",
        "n1",
        "    TOTAL 628   InterPodAffinity 12",
        "    PodTopologySpread 200",
    ]


@pytest.mark.usefixtures("terminal")
def test_a_name_in_the_only_prose_goes_over_the_edge_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = "first", "b" * 50
    print_table(("A", "B"), [("a", ", ".join(names))], prose=("B",))
    assert capsys.readouterr().out.splitlines()[1:] == ["a   first,", f"    {names[1]}"]


@pytest.mark.usefixtures("terminal")
def test_a_name_is_never_cut_or_folded(capsys: pytest.CaptureFixture[str]) -> None:
    names = "a" * 50, "b" * 50
    print_table(("A", "B"), [names])
    assert capsys.readouterr().out.splitlines()[2:] == [names[0], f"    {names[1]}"]


def test_texts_of_a_document_cannot_control_a_terminal() -> None:
    found = {"a": ["x\x1b]0;title\x07", 1, None, {"\u202eb": "two\nlines, ü"}]}
    assert printable(found) == {"a": ["x\\x1b]0;title\\x07", 1, None, {"\\u202eb": "two lines, ü"}]}


@pytest.mark.parametrize(
    ("print_document", "read"), [(print_json, json.loads), (print_yaml, yaml.safe_load)]
)
def test_no_text_of_a_printed_document_can_control_a_terminal_and_all_are_read_as_they_are(
    print_document: Callable[[Any], None],
    read: Callable[[str], Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Control characters, and characters that change the direction of text, are escaped."""
    texts = [
        "a\x9b31mb",
        "a\x7fb",
        "\u202eb",
        "\u2066b\U000e0001 😀",
        "two\nlines, ü",
        "\x1b\x85\u2028",
    ]
    document = {"texts": texts, **dict.fromkeys(texts, 1)}
    print_document(document)
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.split("\n"))
    assert read(printed) == document


def test_nothing_that_is_told_to_people_can_control_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The API server lets tenants write any character into a schedulerName or a claimName."""
    text = "a\x1b]0;title\x07\x9b"
    print_table(("POD", "WHY"), [(text, text)], prose=("WHY",))
    note(text)
    with pytest.raises(SystemExit), mistakes_reported():
        raise InputError(f"{text}\n{text}")
    captured = capsys.readouterr()
    lines = [*captured.out.splitlines(), *captured.err.splitlines()]
    assert len(lines) == 5
    assert all(line.isprintable() for line in lines)
