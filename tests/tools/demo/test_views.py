import io

from rich.console import Console

from demo.placement import NodeUse
from demo.views import Narrator, placement_table

USES = [
    NodeUse("n1", "z1", earlier=2, new=0, cpu=0.5, memory=0.25),
    NodeUse("n2", "z1", earlier=0, new=3, cpu=1.0, memory=0.75),
    NodeUse("n3", "z2", earlier=1, new=0, cpu=0.0, memory=0.0),
]


def shown(uses: list[NodeUse]) -> list[list[str]]:
    """Return the cells of the table's rows as text."""
    output = io.StringIO()
    Narrator(Console(file=output, width=100)).show(placement_table("title", uses))
    lines = output.getvalue().splitlines()
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if "│" in line]


def test_every_node_has_a_row_and_every_zone_a_sum() -> None:
    assert shown(USES) == [
        ["z1", "n1", "2", "0", "50%", "25%", "■■"],
        ["z1", "n2", "3", "3", "100%", "75%", "□□□"],
        ["z1", "2 nodes", "5", "3", "75%", "50%", ""],
        ["z2", "n3", "1", "0", "0%", "0%", "■"],
        ["z2", "1 nodes", "1", "0", "0%", "0%", ""],
        ["all", "3 nodes", "6", "3", "50%", "33%", ""],
    ]


def test_without_new_pods_there_is_no_column_for_them() -> None:
    assert shown([USES[0]])[0] == ["z1", "n1", "2", "50%", "25%", "■■"]


def test_lines_begin_with_the_seconds_since_the_beginning_and_keep_their_brackets() -> None:
    output = io.StringIO()
    narrator = Narrator(Console(file=output, width=100))
    narrator.say("a [bold] step")
    narrator.note("and more of it")
    assert output.getvalue() == "  0.0 s  a [bold] step\n         and more of it\n"
