import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from pydantic import BaseModel

from mooring.cli.convert import convert
from mooring.cli.run import run
from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.policy.imports.configuration import Configuration
from mooring.quota.model.queue import Quota, parse_queue
from mooring.simulate.load_profiles import load_profiles
from mooring.simulate.manifests import Manifest
from policies import kube_configuration


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
        f"note: {configuration}: run it with: mooring run "
        "--initial-backoff=1 --max-backoff=10 --qps=200 --burst=100 --no-leader-elect"
    )
    assert len(lines) == 2


def test_json_is_a_list_for_kubectl(configuration: str) -> None:
    printed = json.loads(invoke(configuration, "-o", "json").stdout)
    assert (printed["kind"], len(printed["items"])) == ("List", 2)


def test_a_policy_becomes_the_profile_of_the_scheduler_name_given() -> None:
    policy = {"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "PodFitsResources"}]}
    result = invoke("-", "--scheduler-name", "packed", stdin=json.dumps(policy))
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "packed"


@pytest.mark.parametrize("name", ["", "a" * 254])
def test_a_scheduler_name_that_no_profile_can_be_for_is_wrong_usage(name: str) -> None:
    result = invoke("DefaultProvider", "--scheduler-name", name)
    assert (result.stdout, result.exit_code) == ("", 2)
    assert "Error: Invalid value for '-s' / '--scheduler-name': must have " in result.stderr


def test_an_algorithm_provider_is_given_by_its_name() -> None:
    document = yaml.safe_load(invoke("ClusterAutoscalerProvider").stdout)
    (config,) = document["spec"]["pluginConfig"]
    assert config["args"]["scoringStrategy"]["type"] == "MostAllocated"


def profiles_of(result: Result) -> dict[str, str]:
    """Return the mode of each printed profile by name; "" if the profile has no mode."""
    documents = yaml.safe_load_all(result.stdout)
    return {d["metadata"]["name"]: d["spec"].get("mode", "") for d in documents}


def test_a_profile_for_the_default_scheduler_only_compares_until_it_is_to_be_active(
    tmp_path: Path,
) -> None:
    """In mode Active, Mooring would bind the pods of a running kube-scheduler."""
    fields = {"profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": "batch"}]}
    result = converted(tmp_path, **fields)
    assert profiles_of(result) == {"default-scheduler": "Shadow", "batch": ""}
    note = next(line for line in result.stderr.splitlines() if "Shadow" in line)
    assert note.endswith(
        "config.json: default-scheduler: is in mode Shadow, and binds nothing, because pods must "
        "have one scheduler; once kube-scheduler has another name, convert with --active, or "
        "remove mode (docs/installing.md)"
    )
    active = converted(tmp_path, "--active", **fields)
    assert profiles_of(active) == {"default-scheduler": "", "batch": ""}
    assert "Shadow" not in active.stderr


def test_a_policy_and_a_provider_are_for_the_default_scheduler_too() -> None:
    for words in (["ClusterAutoscalerProvider"], ["-"]):
        policy = json.dumps({"kind": "Policy", "apiVersion": "v1"})
        assert profiles_of(invoke(*words, stdin=policy)) == {"default-scheduler": "Shadow"}
        assert profiles_of(invoke(*words, "--active", stdin=policy)) == {"default-scheduler": ""}
        assert profiles_of(invoke(*words, "-s", "packed", stdin=policy)) == {"packed": ""}


def test_what_is_printed_is_valid_with_extenders_too(tmp_path: Path) -> None:
    """A profile in mode Shadow must not have extenders."""
    extenders = EVERY_FIELD["extenders"]
    for words in ([], ["--active"]):
        result = converted(tmp_path, *words, extenders=extenders)
        (document,) = yaml.safe_load_all(result.stdout)
        (loaded,) = load_profiles([Manifest("stdout", document)], Registry(SHIPPED, {}))
        assert bool(loaded.profile.spec.extenders) is bool(words)
        assert ("spec.extenders" in result.stderr) is not bool(words)


def test_plugins_that_mooring_does_not_have_are_left_out_with_a_note(tmp_path: Path) -> None:
    plugins = {
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        "permit": {"enabled": [{"name": "Coscheduling"}]},
        "score": {"enabled": [{"name": "NodeResourceTopologyMatch", "weight": 5}]},
    }
    config = [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}]
    profile = {"schedulerName": "batch", "plugins": plugins, "pluginConfig": config}
    result = converted(tmp_path, profiles=[profile])
    assert result.exit_code == 0
    assert "Coscheduling is left out of queueSort, permit, pluginConfig: " in result.stderr
    assert "NodeResourceTopologyMatch is left out of score: " in result.stderr
    (document,) = yaml.safe_load_all(result.stdout)
    load_profiles([Manifest("stdout", document)], Registry(SHIPPED, {}))


def test_mistakes_are_printed_as_lines_and_the_exit_code_is_2(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1\nx: 1\n"
    )
    result = invoke(str(path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {path}, document 1: x: ")


def test_a_file_from_which_nothing_can_be_converted_is_a_mistake() -> None:
    result = invoke("-", stdin="")
    assert (result.stdout, result.exit_code) == ("", 2)
    assert result.stderr == "error: standard input: contains no scheduling profile\n"


def converted(tmp_path: Path, *words: str, **fields: object) -> Result:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(kube_configuration(**fields)))
    return invoke(str(path), *words)


EVERY_FIELD = {
    "parallelism": 4,
    "leaderElection.leaderElect": False,
    "leaderElection.leaseDuration": "30s",
    "leaderElection.renewDeadline": "9s",
    "leaderElection.retryPeriod": "3s",
    "leaderElection.resourceName": "mine",
    "leaderElection.resourceNamespace": "my-system",
    "clientConnection.kubeconfig": "/etc/kubernetes/my scheduler.conf",
    "clientConnection.acceptContentTypes": "application/json",
    "clientConnection.contentType": "application/json",
    "clientConnection.qps": 77,
    "clientConnection.burst": 177,
    "healthzBindAddress": "0.0.0.0:0",
    "metricsBindAddress": "0.0.0.0:0",
    "enableProfiling": False,
    "enableContentionProfiling": False,
    "percentageOfNodesToScore": 7,
    "percentageOfPlacementsToScore": 30,
    "podInitialBackoffSeconds": 2,
    "podMaxBackoffSeconds": 20,
    "profiles": [{"schedulerName": "a"}],
    "extenders": [{"urlPrefix": "http://a", "filterVerb": "filter"}],
    "delayCacheUntilActive": True,
}


def test_the_table_of_fields_is_complete() -> None:
    def fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
        for name, field in model.model_fields.items():
            path = f"{prefix}{field.alias or name}"
            inner = field.annotation
            if name in ("leader_election", "client_connection") and isinstance(inner, type):
                yield from fields(inner, f"{path}.")
            else:
                yield path

    without_a_choice = {"apiVersion", "kind", "leaderElection.resourceLock"}
    assert {*fields(Configuration)} - without_a_choice == {*EVERY_FIELD}


@pytest.mark.parametrize("field", EVERY_FIELD)
def test_every_field_ends_in_a_profile_a_flag_or_a_note(tmp_path: Path, field: str) -> None:
    outer, _, inner = field.partition(".")
    value = {inner: EVERY_FIELD[field]} if inner else EVERY_FIELD[field]
    without, result = converted(tmp_path), converted(tmp_path, **{outer: value})
    assert result.exit_code == 0
    assert result.output != without.output


def test_the_lease_and_the_kubeconfig_become_flags(tmp_path: Path) -> None:
    result = converted(
        tmp_path,
        "--active",
        leaderElection={"resourceName": "mine", "resourceNamespace": "my-system"},
        clientConnection={"kubeconfig": "/etc/my scheduler.conf"},
    )
    flags, lease = result.stderr.splitlines()
    _, _, words = flags.partition("run it with: ")
    assert shlex.split(words)[:3] == ["mooring", "run", "--kubeconfig=/etc/my scheduler.conf"]
    assert "--lease-namespace=my-system --lease-name=mine" in words
    assert "the shipped RBAC allows the Lease mooring-system/mooring only" in lease


def test_what_convert_says_mooring_run_accepts(tmp_path: Path) -> None:
    for fields in (
        {},
        {"clientConnection": {"qps": -1}},
        {"leaderElection": {"leaseDuration": "1m"}},
    ):
        _, _, words = converted(tmp_path, "--active", **fields).stderr.partition(
            "run it with: mooring run "
        )
        parsed = run.make_context("run", shlex.split(words))
        assert ("qps" in words) == (parsed.params["qps"] is not None)


def test_profiles_with_extenders_are_converted_with_them(tmp_path: Path) -> None:
    result = converted(tmp_path, "--active", extenders=EVERY_FIELD["extenders"])
    (extender,) = yaml.safe_load(result.stdout)["spec"]["extenders"]
    assert extender["urlPrefix"] == "http://a"


def test_a_version_of_kubernetes_is_pinned_in_every_profile(configuration: str) -> None:
    plain = [*yaml.safe_load_all(invoke(configuration).stdout)]
    pinned = [*yaml.safe_load_all(invoke(configuration, "--kubernetes", "1.36").stdout)]
    assert [document["spec"].pop("kubernetesVersion") for document in pinned] == ["1.36", "1.36"]
    assert pinned == plain


VOLCANO = (
    "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus: {allocatable: {cpu: 8}}\n---\n"
    "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: a}\n"
    "spec: {reclaimable: false, deserved: {cpu: 6}}\n"
)


def test_queues_of_another_scheduler_become_queues_with_notes() -> None:
    result = invoke("-", stdin=VOLCANO)
    root, team = map(parse_queue, yaml.safe_load_all(result.stdout))
    assert (root.name, root.quotas) == ("root", {"cpu": Quota(2000)})
    assert (team.parent, team.quotas) == ("root", {"cpu": Quota(6000)})
    assert "note: -: Queue a: spec.reclaimable is left out: " in result.stderr
    printed = json.loads(invoke("-", "-o", "json", stdin=VOLCANO).stdout)
    assert [item["kind"] for item in printed["items"]] == ["Queue", "Queue"]


def test_a_file_may_have_queues_and_profiles_and_others_are_ignored_with_a_note() -> None:
    others = [kube_configuration(), {"apiVersion": "v1", "kind": "Secret", "metadata": {}}]
    result = invoke("-", stdin=VOLCANO + "---\n" + yaml.safe_dump_all(others))
    kinds = [document["kind"] for document in yaml.safe_load_all(result.stdout)]
    assert kinds == ["Queue", "Queue", "SchedulingProfile"]
    assert "ignored objects of kinds that no decision reads: Secret (1)" in result.stderr


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "cpu: 6",
            "cpu: six",
            ", document 2: Queue a spec.deserved.cpu: 'six' is not a quantity; ",
        ),
        (
            "cpu: 8",
            "cpu: []",
            ", document 1: Node node-1 status.allocatable.cpu: must be a quantity",
        ),
        ("deserved", "parent: a, deserved", ": the parents form a circle: a -> a"),
        ("cpu: 6", "gpus: 6", ": the Queue of Queue a: spec.resources[0].name.gpus: is not a res"),
    ],
)
def test_malformed_queues_are_one_line_with_their_place(
    before: str, after: str, message: str
) -> None:
    result = invoke("-", stdin=VOLCANO.replace(before, after))
    assert (result.stdout, result.exit_code) == ("", 2)
    assert result.stderr.startswith(f"error: standard input{message}")
    assert result.stderr.count("\n") == 1


def test_nodes_alone_are_nothing_to_convert() -> None:
    node, _, _ = VOLCANO.partition("---")
    result = invoke("-", stdin=node)
    assert (result.stdout, result.exit_code) == ("", 2)
    assert "Node is no scheduling profile" in result.stderr
