"""The command `mooring gpus`."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from devices.objects import gpu_node, share_pod, whole_pod
from mooring.__main__ import main
from mooring.testing.builders import pod

HELD = share_pod("held", 12, node="a", card=0)
OTHER = share_pod("other", 4, node="b", card=0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cluster.json"


def shown(file: Path, *words: str, objects: tuple[dict[str, Any], ...]) -> Result:
    file.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return CliRunner().invoke(main, ["gpus", str(file), *words])


def test_the_table_has_a_line_for_each_card_and_one_for_what_would_fit(file: Path) -> None:
    result = shown(file, objects=(gpu_node("a", 2, 16), HELD, share_pod("b", 2, node="a")))
    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert lines[1] == ["a", "0", "-", "16", "2", "100%", "default/b?,", "default/held"]
    assert lines[2] == ["a", "1", "-", "16", "16", "100%", "-"]
    assert result.stdout.splitlines()[3].endswith("largest share 16, 1 free cards")


def test_json_and_a_picture_say_the_same(file: Path) -> None:
    objects = (gpu_node("a", 1, 16), HELD)
    document = orjson.loads(shown(file, "-o", "json", objects=objects).stdout)
    assert document["nodes"][0]["cards"][0]["owners"] == ["default/held"]
    assert shown(file, "-o", "svg", objects=objects).stdout.startswith("<svg")


def test_a_plan_names_the_pods_to_move(file: Path) -> None:
    objects = (gpu_node("a", 1, 16), gpu_node("b", 1, 16), HELD, OTHER, whole_pod("new", 1))
    result = shown(file, "--plan", objects=objects)
    assert result.exit_code == 0
    assert "move default/" in result.stdout
    plans = orjson.loads(shown(file, "--plan", "-o", "json", objects=objects).stdout)["plans"]
    assert len(plans[0]["moves"]) == 1


def test_without_a_plan_the_answer_is_no(file: Path) -> None:
    result = shown(file, "--plan", objects=(gpu_node("a", 1, 16), HELD, whole_pod("new", 1)))
    assert result.exit_code == 1
    assert "no few pods would do" in result.stdout


def test_a_cluster_without_gpus_is_told_so(file: Path) -> None:
    assert "no node has GPUs" in shown(file, objects=(pod("p"),)).stderr
    assert "no pending pod requests GPUs" in shown(file, "--plan", objects=(pod("p"),)).stderr


def test_a_plan_is_no_picture(file: Path) -> None:
    assert shown(file, "--plan", "-o", "svg", objects=()).exit_code == 2
