import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from live_cluster import LiveCluster
from mooring.cli.profile import profile
from mooring.testing.builders import node, pod


def written(path: Path, name: str = "mine", spec: str = "{}") -> str:
    path.write_text(
        "apiVersion: scheduling.mooring.dev/v1alpha1\n"
        "kind: SchedulingProfile\n"
        f"metadata: {{name: {name}}}\n"
        f"spec: {spec}\n"
    )
    return str(path)


def invoke(*words: str) -> Result:
    return CliRunner().invoke(profile, list(words))


def test_check_reports_a_valid_profile(tmp_path: Path) -> None:
    file = written(tmp_path / "p.yaml")
    result = invoke("check", file)
    assert result.stdout == f"{file}: mine: valid; for pods of schedulerName mine\n"
    assert result.exit_code == 0


def test_every_mistake_of_an_invalid_profile_is_a_line_with_its_place(tmp_path: Path) -> None:
    file = written(
        tmp_path / "p.yaml",
        spec="\n  percentageOfNodesToScore: 200\n  plugins: {score: {enabled: [{name: NodeName}]}}",
    )
    result = invoke("check", file)
    assert result.exit_code == 1
    not_a_score = "NodeName does not implement score, only preFilter, filter"
    assert result.stdout.splitlines() == [
        f"{file}:5: spec.percentageOfNodesToScore: must be between 0 and 100, got 200",
        f"{file}:6: spec.plugins.score.enabled[0].name: {not_a_score}",
    ]


def test_what_is_said_of_a_file_cannot_control_a_terminal(tmp_path: Path) -> None:
    """A user may check a profile that somebody else has written."""
    result = invoke("check", written(tmp_path / "p.yaml", spec='{mode: "a\\u009b2Jb\\u202e"}'))
    assert r'got "a\x9b2Jb\u202e"' in result.stdout


def test_json_output_contains_the_effective_plugins_or_the_errors(tmp_path: Path) -> None:
    good = json.loads(invoke("check", written(tmp_path / "p.yaml"), "-o", "json").stdout)
    assert good["valid"]
    assert {"name": "ImageLocality", "weight": 1} in good["profiles"][0]["effective"]["plugins"][
        "score"
    ]
    bad = written(tmp_path / "q.yaml", spec="{percentageOfNodesToScore: 200}")
    result = invoke("check", bad, "-o", "json")
    assert result.exit_code == 1
    (error,) = json.loads(result.stdout)["errors"]
    assert error == {
        "file": bad,
        "line": 4,
        "path": "spec.percentageOfNodesToScore",
        "message": "must be between 0 and 100, got 200",
    }


def test_githubs_output_puts_each_mistake_at_its_line(tmp_path: Path) -> None:
    bad = written(tmp_path / "a,b.yaml", spec="{percentageOfNodesToScore: 200, x: 1}")
    first, second = invoke("check", bad, "-o", "github").stdout.splitlines()
    where = f"file={tmp_path}/a%2Cb.yaml,line=4,title=mooring profile check"
    assert first == (
        f"::error {where}::spec.percentageOfNodesToScore: must be between 0 and 100, got 200"
    )
    assert second.startswith(f"::error {where}::spec.x: unknown field")


def test_a_label_that_none_of_the_given_nodes_has_is_a_warning(tmp_path: Path) -> None:
    source = 'domain("rack").pods({}) == 0 && node.requested.cpu < 4000 && node.requested.pods < 9'
    rules = json.dumps([{"name": "a", "filter": source}])
    file = written(tmp_path / "p.yaml", spec=f"{{rules: {rules}}}")
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps({"kind": "List", "items": [node("n1"), node("n2")]}))
    result = invoke("check", file, str(nodes))
    assert result.exit_code == 0
    assert result.stderr == f'warning: {file}: spec.rules[0].filter: no node has the label "rack"\n'
    as_json = json.loads(invoke("check", file, str(nodes), "-o", "json").stdout)
    assert as_json["valid"] is True
    assert as_json["profiles"][0]["warnings"] == [
        {"path": "spec.rules[0].filter", "message": 'no node has the label "rack"'}
    ]
    in_workflow = invoke("check", file, str(nodes), "-o", "github").stdout
    assert in_workflow.startswith(
        f"::warning file={file},line=1,title=mooring profile check::spec."
    )
    assert invoke("check", file).stderr == "", "without nodes nothing is known"


def test_objects_of_other_kinds_are_skipped_with_a_note(tmp_path: Path) -> None:
    written(tmp_path / "p.yaml")
    (tmp_path / "pods.yaml").write_text("kind: Pod\n---\nkind: Pod\n---\nkind: Node\n")
    result = invoke("check", str(tmp_path))
    assert result.exit_code == 0
    assert result.stderr == "note: skipped objects of other kinds: Node (1), Pod (2)\n"


@pytest.mark.parametrize("text", ["kind: Pod\n", "", "kind: [\n"])
def test_a_file_without_a_profile_is_bad_input(tmp_path: Path, text: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    result = invoke("check", str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {file}")


def test_the_file_of_a_document_that_is_no_object_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("- a\n")
    result = invoke("check", str(file))
    problem = "document 1: must be an object with apiVersion and kind, is a list"
    assert result.stderr == f"error: {file}: {problem}\n"


def test_a_file_that_cannot_be_read_hides_no_other_file(tmp_path: Path) -> None:
    good, bad = written(tmp_path / "p.yaml"), written(tmp_path / "q.yaml", "q", "{x: 1}")
    result = invoke("check", str(tmp_path / "none.yaml"), good, bad)
    assert result.exit_code == 2
    assert [line.split(": ")[0] for line in result.output.splitlines()] == [
        good,
        f"{bad}:4",
        "error",
    ]


def test_an_explicit_default_is_no_difference(tmp_path: Path) -> None:
    implicit = written(tmp_path / "a.yaml")
    explicit = written(tmp_path / "b.yaml", spec="{percentageOfNodesToScore: 100}")
    result = invoke("diff", implicit, explicit)
    assert (result.exit_code, result.stdout) == (0, "")


def test_differences_are_printed_as_a_table_and_the_exit_code_is_1(tmp_path: Path) -> None:
    a = written(tmp_path / "a.yaml")
    b = written(tmp_path / "b.yaml", spec="{percentageOfNodesToScore: 5}")
    result = invoke("diff", a, b)
    assert result.exit_code == 1
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["PROFILE", "FIELD", "A", "B"],
        ["mine", "percentageOfNodesToScore", "100", "5"],
    ]


def test_a_missing_value_is_null_in_the_differences(tmp_path: Path) -> None:
    a = written(tmp_path / "a.yaml")
    b = written(tmp_path / "b.yaml", spec="{preemption: {maxVictims: 3}}")
    result = invoke("diff", a, b, "-o", "json")
    assert json.loads(result.stdout) == {
        "differences": [
            {"profile": "mine", "field": "preemption.maxVictims", "a": "null", "b": "3"}
        ]
    }


def test_check_names_the_position_of_a_mistake_in_a_rule(tmp_path: Path) -> None:
    file = written(
        tmp_path / "p.yaml", spec='{rules: [{name: a, score: "node.allocatable.cpu *"}]}'
    )
    result = invoke("check", file)
    assert result.exit_code == 1
    where = f"{file}:4: spec.rules[0].score: line 1, column 23: "
    assert result.stdout.startswith(where)


def test_a_context_without_a_cluster_is_wrong_usage(tmp_path: Path) -> None:
    file = written(tmp_path / "a.yaml")
    result = invoke("diff", file, file, "--context=none")
    assert result.exit_code == 2
    assert "--kubeconfig and --context need --cluster" in result.stderr


async def test_differences_can_be_tried_on_the_live_cluster(tmp_path: Path) -> None:
    live = LiveCluster(node("n1"), pod("web", node="n1"))
    a = written(tmp_path / "a.yaml")
    b = written(tmp_path / "b.yaml", spec="{percentageOfNodesToScore: 5}")
    table = await live.invoke(profile, tmp_path, "diff", a, b, "--cluster")
    assert "percentageOfNodesToScore" in table.stdout
    assert "1 pod: 0 would move" in table.stdout
    assert table.exit_code == 1
    as_json = await live.invoke(profile, tmp_path, "diff", a, b, "--cluster", "-o", "json")
    assert json.loads(as_json.stdout)["cluster"]["pods"] == 1
