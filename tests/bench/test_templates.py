"""What the command measures are decisions that place every pod."""

import pytest
from click.testing import CliRunner

from bench.templates import ROWS, main, measure


@pytest.mark.parametrize("templates", ROWS)
def test_each_pod_is_decided_about_once(templates: int) -> None:
    for selective in (False, True):
        assert len(measure(60, 3, templates % 7, selective=selective)) == 3


def test_a_line_is_printed_for_each_number_of_templates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.templates.ROWS", (1, 0))
    lines = CliRunner().invoke(main, ["60", "3"]).output.splitlines()
    assert [" ".join(line.split(":")[0].split()) for line in lines] == [
        "60 nodes, plain 1 templates",
        "60 nodes, plain 3 templates",
        "60 nodes, selective 1 templates",
        "60 nodes, selective 3 templates",
    ]


def test_too_many_pods_for_the_nodes_are_told_in_one_line() -> None:
    told = CliRunner().invoke(main, ["1", "500"])
    assert told.exit_code == 1
    assert told.output.splitlines()[-1].startswith("Error: the 1 nodes are full after ")
