import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from mooring.cli.simulate import simulate
from mooring.testing.builders import api_object, node, pod


def dump(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return str(path)


def invoke(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(simulate, list(words), input=stdin)


def test_the_table_aligns_pod_node_score_and_why(tmp_path: Path) -> None:
    cluster = dump(
        tmp_path / "cluster.json", node("n1"), pod("web", cpu="1"), pod("large", cpu="9")
    )
    result = invoke(cluster)
    head, web, large = result.stdout.splitlines()
    assert head.split() == ["POD", "NODE", "SCORE", "WHY"]
    assert web.split(maxsplit=3)[:3] == ["default/web", "n1", "-"]
    assert large.index("0/1 nodes are available") == head.index("WHY")
    assert result.exit_code == 1


def test_the_exit_code_is_0_if_every_pod_is_scheduled(tmp_path: Path) -> None:
    assert invoke(dump(tmp_path / "a.json", node("n1"), pod())).exit_code == 0


def test_json_has_the_form_of_the_decision_record(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", node("n1"), node("n2", cpu="1"), pod("web", cpu="2"))
    result = invoke(cluster, "-o", "json")
    (decision,) = json.loads(result.stdout)["decisions"]
    assert decision == {
        "pod": "default/web",
        "profile": "default-scheduler",
        "node": "n1",
        "nominatedNode": None,
        "victims": [],
        "scores": None,
        "rejections": {
            "n2": {
                "plugin": "NodeResourcesFit",
                "reasons": ["Insufficient cpu"],
                "resolvable": False,
            }
        },
        "message": None,
    }


def test_the_same_input_and_seed_print_the_same_bytes(tmp_path: Path) -> None:
    nodes, pods = [node(f"n{i}") for i in range(9)], [pod(f"p{i}") for i in range(9)]
    cluster = dump(tmp_path / "a.json", *nodes, *pods)
    first = invoke(cluster, "-o", "json", "--seed", "4").stdout
    assert first == invoke(cluster, "-o", "json", "--seed", "4").stdout
    assert first != invoke(cluster, "-o", "json", "--seed", "5").stdout


def test_a_dash_means_standard_input_also_beside_files(tmp_path: Path) -> None:
    nodes = dump(tmp_path / "nodes.json", node("n1"))
    result = invoke(nodes, "-", stdin=json.dumps(pod()))
    assert "default/web" in result.stdout
    assert result.exit_code == 0


def test_profile_option_replaces_the_defaults(tmp_path: Path) -> None:
    profile = tmp_path / "config.yaml"
    profile.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "parallelism: 4\n"
        "profiles: [{schedulerName: mine}]\n"
    )
    cluster = dump(tmp_path / "a.json", node("n1"), pod(spec={"schedulerName": "mine"}))
    result = invoke(cluster, "--profile", str(profile))
    assert result.exit_code == 0
    assert f"note: {profile}: parallelism: is left out" in result.stderr


def test_ignored_kinds_are_named_on_standard_error(tmp_path: Path) -> None:
    result = invoke(dump(tmp_path / "a.json", api_object("ConfigMap", "c")))
    assert "ignored objects of kinds that no decision reads: ConfigMap (1)" in result.stderr
    assert "there is no pod without a node to schedule" in result.stderr
    assert (result.stdout, result.exit_code) == ("", 0)


def test_bad_input_is_one_line_and_the_exit_code_is_2(tmp_path: Path) -> None:
    cluster = dump(tmp_path / "a.json", pod(cpu="1x"))
    result = invoke(cluster)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        f"error: {cluster}, document 1, items[0]: Pod default/web "
        "spec.containers[0].resources.requests.cpu: '1x' is not a quantity"
    )


def test_a_missing_file_argument_is_a_usage_error() -> None:
    assert invoke().exit_code == 2
