import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from mooring.cli.convert import convert
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.simulate.manifests import Manifest
from mooring.simulate.profiles import load_profiles


def invoke(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(convert, list(words), input=stdin)


@pytest.fixture
def configuration(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "parallelism: 4\n"
        "clientConnection: {qps: 200}\n"
        "leaderElection: {leaderElect: false}\n"
        "profiles: [{schedulerName: a}, {schedulerName: b}]\n"
    )
    return str(path)


def test_every_profile_of_a_configuration_becomes_a_document_that_can_be_applied(
    configuration: str,
) -> None:
    result = invoke(configuration)
    documents = list(yaml.safe_load_all(result.stdout))
    assert [d["metadata"]["name"] for d in documents] == ["a", "b"]
    manifests = [Manifest("stdout", document) for document in documents]
    assert len(load_profiles(manifests, Registry(SHIPPED, {}))) == 2


def test_fields_without_counterpart_and_flags_of_run_are_noted_once(configuration: str) -> None:
    lines = invoke(configuration).stderr.splitlines()
    assert lines[0].startswith(f"note: {configuration}: parallelism: is left out")
    assert lines[1] == (
        f"note: {configuration}: its other settings are flags of: mooring run "
        "--qps=200 --burst=100 --initial-backoff=1 --max-backoff=10 --no-leader-elect"
    )
    assert len(lines) == 2


def test_json_is_a_list_for_kubectl(configuration: str) -> None:
    printed = json.loads(invoke(configuration, "-o", "json").stdout)
    assert (printed["kind"], len(printed["items"])) == ("List", 2)


def test_a_policy_becomes_the_profile_of_the_scheduler_name_given() -> None:
    policy = {"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "PodFitsResources"}]}
    result = invoke("-", "--scheduler-name", "packed", stdin=json.dumps(policy))
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "packed"


def test_an_algorithm_provider_is_given_by_its_name() -> None:
    document = yaml.safe_load(invoke("ClusterAutoscalerProvider").stdout)
    (config,) = document["spec"]["pluginConfig"]
    assert config["args"]["scoringStrategy"]["type"] == "MostAllocated"


def test_mistakes_are_printed_as_lines_and_the_exit_code_is_2(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1\nx: 1\n"
    )
    result = invoke(str(path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {path}, document 1: x: ")
