import json
from pathlib import Path

import pytest
import yaml

from mooring.cli.comparison_table import print_comparison
from mooring.simulate.compare import ChangedNode, Comparison, PoolUse

OLD = PoolUse(nodes=4, empty=0, cpu=0.25, memory=0.5, fragmentation=0.41)
NEW = PoolUse(nodes=4, empty=3, cpu=0.25, memory=0.5, fragmentation=0.0)


def comparison(*moves: ChangedNode) -> Comparison:
    return Comparison(9, moves, {"general": (OLD, NEW)}, ((0,) * 10, (0,) * 10))


def moved(
    pod: str, old: str | None, new: str | None, owner: str = "", reason: str = ""
) -> ChangedNode:
    return ChangedNode(pod, owner, old, new, reason)


def printed(
    capsys: pytest.CaptureFixture[str],
    compared: Comparison,
    output: str = "table",
    most: int | None = None,
) -> list[str]:
    print_comparison(compared, output, None, most)
    return capsys.readouterr().out.splitlines()


def test_a_pool_shows_what_changes_once_and_what_does_not_as_one_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    head, row, *_, total = printed(capsys, comparison())
    assert head.split() == ["POOL", "NODES", "EMPTY", "CPU", "MEMORY", "FRAGMENTATION"]
    assert [cell.strip() for cell in row.split("   ") if cell.strip()] == [
        "general",
        "4",
        "0 -> 3",
        "25%",
        "50%",
        "41% -> 0%",
    ]
    assert total == (
        "9 pods: 0 would move, 0 would lose their place, 0 would gain one; empty nodes 0 -> 3"
    )


def test_lost_places_come_first_and_pods_of_a_controller_are_one_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    owner = "ReplicaSet a/web"
    lines = printed(
        capsys,
        comparison(
            moved("a/web-1", "n1", "n2", owner),
            moved("a/web-2", "n3", "n2", owner),
            moved("a/new", None, "n2"),
            moved("a/db", "n1", None, reason="Insufficient cpu"),
        ),
    )
    rows = [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in lines[3:7]]
    assert rows == [
        ["POD", "OLD", "NEW"],
        ["a/db", "n1", "none: Insufficient cpu"],
        ["a/new", "-", "n2"],
        ["a/web-1 (+1)", "2 nodes", "1 nodes"],
    ]


def test_a_table_has_few_rows_and_a_wide_one_all(capsys: pytest.CaptureFixture[str]) -> None:
    many = comparison(*(moved(f"a/p{i}", "n1", "n2") for i in range(30)))
    assert "and 28 more; all of them: -o wide" in printed(capsys, many, most=2)
    assert "and 10 more; all of them: -o wide" in printed(capsys, many)
    assert len(printed(capsys, many, "wide")) > 30


def test_json_and_yaml_are_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    one = comparison(moved("a/db", "n1", None, reason="full"))
    assert json.loads("".join(printed(capsys, one, "json"))) == one.document()
    assert yaml.safe_load("\n".join(printed(capsys, one, "yaml"))) == one.document()


def test_the_exit_code_is_1_if_a_pod_loses_its_place(tmp_path: Path) -> None:
    plot = tmp_path / "p.svg"
    assert print_comparison(comparison(moved("a/b", "n1", "n2")), "json", str(plot), None) == 0
    assert plot.read_text().startswith("<svg")
    assert print_comparison(comparison(moved("a/b", "n1", None)), "json", None, None) == 1
