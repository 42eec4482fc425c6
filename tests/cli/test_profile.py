import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mooring.cli.profile import profile


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
    result = invoke("check", written(tmp_path / "p.yaml"))
    assert result.stdout == "mine: valid; for pods of schedulerName mine\n"
    assert result.exit_code == 0


def test_every_mistake_of_an_invalid_profile_is_a_line(tmp_path: Path) -> None:
    file = written(
        tmp_path / "p.yaml",
        spec="{percentageOfNodesToScore: 200, plugins: {score: {enabled: [{name: NodeName}]}}}",
    )
    result = invoke("check", file)
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2
    assert "spec.plugins.score.enabled[0].name: NodeName does not implement score" in result.stdout


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
    assert error["path"] == "spec.percentageOfNodesToScore"


@pytest.mark.parametrize("text", ["kind: Pod\n", "", "kind: [\n"])
def test_a_file_without_a_profile_is_bad_input(tmp_path: Path, text: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    result = invoke("check", str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {file}")


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
