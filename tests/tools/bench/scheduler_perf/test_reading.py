import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.scheduler_perf.__main__ import QUICK, listed
from bench.scheduler_perf.configuration import profiles_of
from bench.scheduler_perf.reading import Operation, Workload, chosen, read_workloads
from bench.scheduler_perf.source import workloads_folder
from controlplane.releases import NEWEST, chosen_release
from policies import kube_configuration

Raw = dict[str, Any]

CONFIGURATION = kube_configuration()
PODS = {"opcode": "createPods", "countParam": "$pods"}


def read(folder: Path, *steps: Raw, case: Raw | None = None, **workload: Any) -> Workload:
    """Return the only workload of a test case with these steps."""
    described = {"name": "small", "params": {"pods": 3, "groups": 2, "on": True}, **workload}
    written = {"name": "Case", "workloadTemplate": [*steps], "workloads": [described]}
    (folder / "performance-config.yaml").write_text(yaml.safe_dump([{**written, **(case or {})}]))
    (one,) = read_workloads(folder)
    return one


def test_parameters_are_replaced_by_their_values(tmp_path: Path) -> None:
    step = {**PODS, "countMultiplierParam": "$groups", "steadyStateParam": "$on"}
    (pods,) = read(tmp_path, {**step, "durationParam": "$for|1m1.5s"}).operations
    assert pods == Operation("createPods", {"count": 6, "steadyState": True, "duration": 61.5})


def test_template_parameters_have_values_defaults_or_nothing(tmp_path: Path) -> None:
    params = {"size": "$pods", "kind": "$kind|plain", "none": "$none|", "fixed": 7}
    (pods,) = read(tmp_path, {**PODS, "templateParams": params}).operations
    expected = {"size": 3, "kind": "plain", "none": None, "fixed": 7}
    assert pods.fields["templateParams"] == expected


def test_a_set_of_pods_is_an_operation_for_each_namespace(tmp_path: Path) -> None:
    sets = {"opcode": "createPodSets", "countParam": "$groups", "namespacePrefix": "set"}
    workload = read(tmp_path, {**sets, "createPodsOp": PODS})
    found = [(step.opcode, step.fields) for step in workload.operations]
    assert found == [("createPods", {"count": 3, "namespace": f"set-{n}"}) for n in (0, 1)]
    assert workload.objects == 6


def test_workloads_in_the_folder_of_devices_have_claims(tmp_path: Path) -> None:
    devices, pods = tmp_path / "dra" / "taints", tmp_path / "misc"
    devices.mkdir(parents=True)
    pods.mkdir()
    assert read(devices, PODS).has_claims
    assert not read(pods, PODS).has_claims


@pytest.mark.parametrize(
    ("step", "obstacle"),
    [
        ({"opcode": "meltNodes"}, "meltNodes: unknown operation"),
        ({**PODS, "colour": 1}, "createPods: unknown fields colour"),
        ({"opcode": "createPods", "countParam": "$x"}, "createPods: the parameter x has no value"),
        ({"opcode": "sleep", "duration": "soon"}, "sleep: the duration soon"),
        ({**PODS, "podTemplatePath": "pod.yaml"}, "pod.yaml: the function printf"),
        ({**PODS, "podTemplatePath": "gone.yaml"}, "gone.yaml: .*No such file"),
    ],
)
def test_a_step_that_is_not_known_is_named_and_its_workload_left_out(
    tmp_path: Path, step: Raw, obstacle: str
) -> None:
    (tmp_path / "pod.yaml").write_text("a: {{printf .b}}")
    workload = read(tmp_path, PODS, step)
    (told,) = workload.obstacles
    assert re.match(obstacle, told)
    assert workload.operations == ()
    assert f"left out: {told.split()[0]}" in "\n".join(listed([workload]))


def test_a_setting_of_the_case_that_is_not_known_is_named(tmp_path: Path) -> None:
    gates = {"NodeDeclaredFeatures": False, "DRAListTypeAttributes": True, "Other": True}
    workload = read(tmp_path, PODS, case={"colour": "red", "featureGates": gates})
    assert {*workload.obstacles} == {
        "colour",
        "NodeDeclaredFeatures=false in this release",
        "DRAListTypeAttributes: Mooring does not have this feature, or not all of it",
    }


def test_a_workload_that_measures_something_else_than_pods_is_left_out(tmp_path: Path) -> None:
    workload = read(tmp_path, {"opcode": "createNodes", "count": 1})
    assert workload.obstacles == ("no pods are created",)


def test_the_configuration_of_the_scheduler_becomes_a_profile_of_mooring(tmp_path: Path) -> None:
    fit = {"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/a"]}}
    profile = {"schedulerName": "default-scheduler", "pluginConfig": [fit]}
    written = {**CONFIGURATION, "profiles": [profile]}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(written))
    workload = read(tmp_path, PODS, case={"schedulerConfigPath": "config.yaml"})
    assert (workload.obstacles, workload.configuration) == ((), written)
    (found,), notes = profiles_of(written, "mooring")
    assert (found["metadata"]["name"], notes) == ("mooring", [])
    assert found["spec"]["pluginConfig"] == [fit]


@pytest.mark.parametrize(
    ("fields", "obstacle"),
    [
        ({"extenders": [{"urlPrefix": 7}]}, "configuration: extenders"),
        ({"parallelism": 8}, "configuration: parallelism"),
        ({"podMaxBackoffSeconds": 20}, "configuration: podMaxBackoffSeconds"),
    ],
)
def test_what_mooring_cannot_be_configured_with_is_named(
    tmp_path: Path, fields: Raw, obstacle: str
) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**CONFIGURATION, **fields}))
    workload = read(tmp_path, PODS, case={"schedulerConfigPath": "config.yaml"})
    assert workload.obstacles[0].startswith(obstacle)


def test_gates_and_labels_of_the_workload_stand_beside_those_of_its_case(tmp_path: Path) -> None:
    case = {"featureGates": {"A": True, "B": True}, "labels": ["performance"]}
    workload = read(tmp_path, PODS, case=case, featureGates={"B": False}, labels=["short"])
    assert workload.gates == {"A": True, "B": False}
    assert workload.labels == {"performance", "short"}


@pytest.mark.parametrize(
    ("threshold", "value"), [(280, 280.0), ({"other": 5}, 0.0), ({"topic": 7, "other": 5}, 7.0)]
)
def test_a_threshold_may_be_that_of_the_folder(
    tmp_path: Path, threshold: object, value: float
) -> None:
    folder = tmp_path / "topic"
    folder.mkdir()
    assert read(folder, PODS, threshold=threshold).threshold == value


def test_workloads_are_chosen_by_name_by_their_case_and_by_label(tmp_path: Path) -> None:
    one = read(tmp_path, PODS, labels=["performance", "short"])
    other = read(tmp_path, PODS, case={"name": "Other"}, labels=["performance"])
    both = [one, other]
    assert chosen(both, ()) == both
    assert chosen(both, ["Case/small"]) == chosen(both, ["Case"]) == [one]
    assert chosen(both, (), "performance,-short") == [other]
    assert chosen(both, (), "performance, +short") == [one]
    assert chosen(both, ["Other"], "short") == []


@pytest.mark.server
def test_the_workloads_of_the_release_are_read_and_what_is_left_out_says_why() -> None:
    """Needs the Go module, which the build of the control plane downloads."""
    workloads = {item.name: item for item in read_workloads(workloads_folder(chosen_release()))}
    basic = workloads["SchedulingBasic/5000Nodes_10000Pods"]
    assert "performance" in basic.labels
    assert basic.threshold > 0
    assert [(step.opcode, step.count) for step in basic.operations] == [
        ("createNodes", 5000),
        ("createPods", 1000),
        ("createPods", 10_000),
    ]
    assert all(bool(item.operations) != bool(item.obstacles) for item in workloads.values())
    assert len([item for item in workloads.values() if not item.obstacles]) > len(workloads) / 2


@pytest.mark.server
def test_the_quick_workloads_can_be_run() -> None:
    workloads = {item.name: item for item in read_workloads(workloads_folder(NEWEST))}
    assert all(workloads[name].operations for name in QUICK)
