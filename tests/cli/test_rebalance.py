"""The command `mooring rebalance`: its input, its output and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from live_cluster import LiveCluster
from mooring.cli.rebalance import rebalance
from mooring.testing.builders import api_object, node, pod
from planning import placed_pod

NODES = [node("n1", cpu="4"), node("n2", cpu="4", labels={"disk": "ssd"})]
MISPLACED = placed_pod("web", "n1")
MISPLACED["spec"]["nodeSelector"] = {"disk": "ssd"}


def dump(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return dump(tmp_path / "cluster.json", *NODES, MISPLACED, pod("big", namespace="ml", cpu="9"))


def invoke(*words: str) -> Result:
    return CliRunner().invoke(rebalance, list(words))


def test_a_plan_is_printed_and_the_exit_code_is_0(file: str) -> None:
    result = invoke(file)
    assert result.exit_code == 0
    first, _, head, row, *_ = result.stdout.splitlines()
    assert first == "profile default-scheduler (Violations, Spread): 1 move in 1 step"
    assert head.split() == ["STEP", "POD", "FROM", "TO", "GAIN", "WHY"]
    assert row.split()[:4] == ["1", "shop/web", "n1", "n2"]


def test_a_plan_without_moves_exits_with_0_too(tmp_path: Path) -> None:
    result = invoke(
        dump(tmp_path / "a.json", *NODES, placed_pod("web", "n1")), "--goal", "Violations"
    )
    assert result.stdout.startswith("profile default-scheduler (Violations): nothing to move\n")
    assert result.exit_code == 0


def test_ignored_kinds_are_named_on_standard_error(tmp_path: Path) -> None:
    result = invoke(dump(tmp_path / "a.json", *NODES, api_object("ConfigMap", "c")))
    assert "ignored objects of kinds that no decision reads: ConfigMap (1)" in result.stderr


def test_a_context_that_files_make_no_use_of_is_wrong_usage(file: str) -> None:
    result = invoke(file, "--context=none")
    assert result.exit_code == 2
    assert "--kubeconfig and --context need --cluster beside FILEs" in result.stderr


def test_the_same_input_and_seed_print_the_same_bytes(file: str) -> None:
    assert invoke(file, "-o", "json").stdout == invoke(file, "-o", "json").stdout


def test_a_pod_in_another_zone_moves_to_where_the_volume_of_the_pod_is() -> None:
    """The pods db-0 and cache-0 must be in one zone, and only db-0 has a volume."""
    case = Path(__file__).parent.parent / "cases/70-affinity-against-volume-zone.yaml"
    result = invoke(str(case), "--for", "pod/db-0")
    assert result.exit_code == 0
    assert "pod default/db-0 fits after 1 move" in result.stdout
    assert "default/cache-0   b1     c1" in result.stdout


def test_a_pod_for_which_no_plan_is_found_exits_with_1_and_says_why_it_waits(file: str) -> None:
    result = invoke(file, "--for", "pod/big", "-n", "ml")
    assert result.exit_code == 1
    assert result.stdout.startswith("no moves of running pods were found that make pod ml/big fit:")


def test_a_pod_that_runs_exits_with_0(file: str) -> None:
    result = invoke(file, "--for", "pod/web")
    assert (result.stdout, result.exit_code) == ("pod shop/web runs on n1 already.\n", 0)


def test_the_answer_about_a_pod_that_fits_after_moves_comes_before_them(tmp_path: Path) -> None:
    nodes = [node("n1", cpu="4"), node("n2", cpu="4")]
    pods = [placed_pod("a", "n1", cpu="2"), placed_pod("b", "n2", cpu="2"), pod("big", cpu="4")]
    result = invoke(dump(tmp_path / "a.json", *nodes, *pods), "--for", "pod/big")
    first, _, second, *_ = result.stdout.splitlines()
    assert first == "pod default/big fits after 1 move, and nothing is preempted."
    assert second == "profile default-scheduler (MakeRoom): 1 move in 1 step"
    assert result.exit_code == 0


async def test_a_pod_that_waits_in_a_live_cluster_is_answered_with_lists_alone(
    tmp_path: Path,
) -> None:
    nodes = [node("n1", cpu="4"), node("n2", cpu="4")]
    pods = [placed_pod("a", "n1", cpu="2"), placed_pod("b", "n2", cpu="2")]
    live = LiveCluster(*nodes, *pods, pod("big", namespace="ml", cpu="4"))
    result = await live.invoke(rebalance, tmp_path, "--for", "pod/big", "-n", "ml")
    assert result.stdout.startswith("pod ml/big fits after 1 move, and nothing is preempted.\n")
    assert "note: Mooring is not installed in the cluster" in result.stderr
    assert live.methods == {"GET"}


def test_a_cluster_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    result = invoke("--kubeconfig", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: kubeconfig")
    assert len(result.stderr.splitlines()) == 1


def test_json_has_the_answer_beside_the_plans(file: str) -> None:
    result = invoke(file, "--for", "pod/big", "-o", "json")
    document = json.loads(result.stdout)
    assert (document["for"]["pod"], document["for"]["fits"]) == ("ml/big", False)
    assert [each["goals"] for each in document["plans"]] == [["MakeRoom"]]


def test_a_pending_pod_that_fits_is_noted(tmp_path: Path) -> None:
    result = invoke(dump(tmp_path / "a.json", *NODES, pod("new")))
    assert result.stderr == "note: 1 pending pod fits without any move, and is taken to be there\n"


def test_the_picture_is_drawn(file: str, tmp_path: Path) -> None:
    path = tmp_path / "moves.svg"
    assert invoke(file, "--plot", str(path)).exit_code == 0
    assert ">1 move<" in path.read_text()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--for", "pod/none"), "error: there is no pod none among the objects that were read"),
        (("--as", "none"), 'error: there is no profile "none"; there are default-scheduler'),
        (("--plot", "p.pdf"), "error: p.pdf: a picture's name ends with .svg or .png"),
        (("--for", "deploy/web"), "'deploy/web' is neither pod/NAME nor podgroup/NAME"),
        (("-n", "shop"), "--namespace goes with --for"),
        (("--goal", "Spread", "--goal", "Pack"), "undo each other: give one of them"),
    ],
)
def test_a_mistake_is_one_line_and_the_exit_code_is_2(
    file: str, words: tuple[str, ...], line: str
) -> None:
    result = invoke(file, *words)
    assert result.exit_code == 2
    assert line in result.stderr
    assert "Traceback" not in result.stderr
