"""Tests small workloads beside either scheduler on the real control plane."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.scheduler_perf.reading import Workload, read_workloads
from bench.scheduler_perf.stage import perf_server, run_once
from bench.schedulers import KubeScheduler, Mooring, Scheduler
from controlplane import ControlPlane
from device_builders import device_claim, device_class, request, resource_slice
from policies import kube_configuration

pytestmark = pytest.mark.server

Raw = dict[str, Any]

ROOT = Path(__file__).parents[4]
DEVICES = "resource.k8s.io/v1"
NODES = {"opcode": "createNodes", "count": 3}
POD = """
apiVersion: v1
kind: Pod
metadata: {name: 'pod-{{.Index}}', labels: {kind: named}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: pause, resources: {requests: {cpu: "{{.cpu}}"}}}]
"""
CHURNED = """
apiVersion: v1
kind: Pod
metadata: {generateName: churned-}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: pause}]}
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: 'late-{{.Index}}', labels: {late: "yes"}}
status: {capacity: {cpu: "4", memory: 1Gi, pods: "110"}}
"""
CLAIM = "metadata: {annotations: {pv.kubernetes.io/bind-completed: 'true'}}\nspec: {accessModes: [ReadOnlyMany], resources: {requests: {storage: 1Gi}}}"  # noqa: E501 - YAML of one object
VOLUME = "spec: {accessModes: [ReadOnlyMany], capacity: {storage: 1Gi}, csi: {driver: example.com}}"


@pytest.fixture(scope="module")
def server() -> Iterator[ControlPlane]:
    with perf_server({}) as control_plane:
        yield control_plane


@pytest.fixture(params=["mooring", "kube-scheduler"])
def scheduler(request: pytest.FixtureRequest, server: ControlPlane, tmp_path: Path) -> Scheduler:
    if request.param == "mooring":
        return Mooring(server, tmp_path / "mooring.log")
    return KubeScheduler(server)


def described(folder: Path, *steps: Raw, **files: str) -> Workload:
    """Return a workload of these steps, with `files` as its templates."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    case = {"name": "Case", "workloadTemplate": [*steps], "workloads": [{"name": "small"}]}
    (folder / "performance-config.yaml").write_text(yaml.safe_dump([case]))
    (workload,) = read_workloads(folder)
    assert workload.obstacles == ()
    return workload


def pods(count: int, **fields: Any) -> Raw:
    return {"opcode": "createPods", "count": count, **fields}


def left(server: ControlPlane) -> Sequence[str]:
    """Return the names of the nodes, pods and volumes on the server."""
    with server.access.client() as client:
        return [
            item["metadata"]["name"]
            for resource in ("nodes", "pods", "persistentvolumes")
            for item in client.get(f"/api/v1/{resource}")["items"]
        ]


def test_pods_are_measured_beside_others_and_nothing_is_left(
    server: ControlPlane, scheduler: Scheduler, tmp_path: Path
) -> None:
    workload = described(
        tmp_path,
        NODES,
        pods(5),
        {"opcode": "churn", "mode": "recreate", "number": 1, "templatePaths": ["churned.yaml"]},
        pods(20, collectMetrics=True),
        churned=CHURNED,
    )
    run = run_once(server, workload, scheduler)
    assert run.fault == ""
    (measured,) = run.measured
    assert measured.pods == 20
    assert measured.whole > 0
    assert left(server) == []


def test_pods_that_wait_are_attempted_and_are_bound_when_there_are_nodes(
    server: ControlPlane, scheduler: Scheduler, tmp_path: Path
) -> None:
    of_template = {"podTemplatePath": "pod.yaml", "templateParams": {"cpu": "3"}}
    workload = described(
        tmp_path,
        {"opcode": "createNamespaces", "prefix": "space", "count": 1},
        pods(2, namespace="space-0", skipWaitToCompletion=True, **of_template),
        {"opcode": "barrier", "stageRequirement": "Attempted"},
        {
            "opcode": "startCollectingMetrics",
            "namespaces": ["space-0"],
            "labelSelector": {"kind": "named"},
        },
        {"opcode": "createAny", "count": 2, "templatePath": "node.yaml"},
        {"opcode": "barrier"},
        {"opcode": "stopCollectingMetrics"},
        {"opcode": "updateAny", "count": 2, "templatePath": "node.yaml", "updatePerSecond": 100},
        pod=POD,
        node=NODE,
    )
    run = run_once(server, workload, scheduler)
    assert run.fault == ""
    assert [measured.pods for measured in run.measured] == [2]


def test_volumes_are_bound_and_pods_give_way_to_others_and_are_deleted(
    server: ControlPlane, scheduler: Scheduler, tmp_path: Path
) -> None:
    with_volumes = {
        "persistentVolumeClaimTemplatePath": "claim.yaml",
        "persistentVolumeTemplatePath": "volume.yaml",
    }
    steady = {"steadyState": True, "duration": "2s", "podTemplatePath": "churned.yaml"}
    workload = described(
        tmp_path,
        NODES,
        pods(3, namespace="space", **with_volumes),
        pods(2, namespace="busy", collectMetrics=True, **steady),
        {"opcode": "deletePods", "namespace": "busy"},
        {"opcode": "sleep", "duration": "10ms"},
        churned=CHURNED,
        claim=CLAIM,
        volume=VOLUME,
    )
    run = run_once(server, workload, scheduler)
    assert run.fault == ""
    (measured,) = run.measured
    assert measured.pods > 2, "those that were bound gave way"
    assert left(server) == []


def test_both_schedulers_run_under_the_configuration_of_the_case(
    server: ControlPlane, tmp_path: Path
) -> None:
    """With the configuration, pods fit although no node has their resource."""
    fit = {"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": ["example.com"]}}
    tested = {"schedulerName": "default-scheduler", "pluginConfig": [fit]}
    configuration = kube_configuration(profiles=[tested])
    text = POD.replace('cpu: "{{.cpu}}"', 'cpu: "1", example.com/card: "1"').replace(
        "requests:", "limits: {example.com/card: 1}, requests:"
    )
    step = pods(2, collectMetrics=True, podTemplatePath="pod.yaml")
    workload = replace(described(tmp_path, NODES, step, pod=text), configuration=configuration)
    mooring = Mooring(server, tmp_path / "mooring.log")
    for scheduler in (mooring, KubeScheduler(server, configuration)):
        run = run_once(server, workload, scheduler)
        assert (run.fault, [measured.pods for measured in run.measured]) == ("", [2])
    assert left(server) == []


def test_claims_are_allocated_as_long_as_there_are_devices(
    server: ControlPlane, tmp_path: Path
) -> None:
    templates = {
        "node": {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}},
        "slice": {**resource_slice("s1", ["card"], node="n1"), "apiVersion": DEVICES},
        "kind": {**device_class("gpu"), "apiVersion": DEVICES},
    }
    claim = device_claim("", request())
    for count, fault in ((1, ""), (2, "no node has devices for the claim ")):
        workload = described(
            tmp_path,
            *({"opcode": "createAny", "templatePath": f"{name}.yaml"} for name in templates),
            {
                "opcode": "createResourceClaims",
                "count": count,
                "namespace": "space",
                "templatePath": "claim.yaml",
            },
            {"opcode": "allocResourceClaims", "namespace": "space"},
            pods(0),
            claim=yaml.safe_dump(
                {
                    "apiVersion": DEVICES,
                    "kind": "ResourceClaim",
                    "metadata": {"generateName": "claim-"},
                    "spec": claim["spec"],
                }
            ),
            **{name: yaml.safe_dump(_given(raw)) for name, raw in templates.items()},
        )
        run = run_once(server, workload, KubeScheduler(server))
        assert run.fault.startswith(fault)
        assert bool(run.fault) == bool(fault)


def _given(raw: Raw) -> Raw:
    """Return the object without the fields that the server adds."""
    return {**raw, "metadata": {"name": raw["metadata"]["name"]}}


def test_pods_that_fit_nowhere_are_given_up_and_told(
    server: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.scheduler_perf.operations.STALL_SECONDS", 1.0)
    too_big = {"podTemplatePath": "pod.yaml", "templateParams": {"cpu": "9"}}
    workload = described(tmp_path, NODES, pods(2, namespace="space", **too_big), pod=POD)
    run = run_once(server, workload, KubeScheduler(server))
    assert run.fault == "0 of 2 pods in space are scheduled, and no more"
    assert left(server) == []


def test_an_object_that_the_server_refuses_is_told(server: ControlPlane, tmp_path: Path) -> None:
    wrong = POD.replace("pod-", "Not A Name ")
    refused = {"podTemplatePath": "pod.yaml", "templateParams": {"cpu": "1"}}
    workload = described(tmp_path, pods(1, **refused), pod=wrong)
    run = run_once(server, workload, KubeScheduler(server))
    assert "422" in run.fault
    assert left(server) == []


def test_the_command_runs_upstreams_workload_in_the_order_a_b_b_a(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench.scheduler_perf"),
            *("SchedulingBasic/5Nodes", f"--output={tmp_path}"),
        ],
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'tests'}:{ROOT / 'tests/tools'}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SchedulingBasic/5Nodes" in done.stdout
    (one,) = json.loads((tmp_path / "scheduler_perf.json").read_text())["workloads"]
    order = ["mooring", "kube-scheduler", "kube-scheduler", "mooring"]
    assert [run["scheduler"] for run in one["runs"]] == order
    assert all(measured["pods"] == 10 for run in one["runs"] for measured in run["measured"])


def test_a_name_that_no_workload_has_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.scheduler_perf", "SchedulingBasic", "SchedulingBasik"],
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'tests'}:{ROOT / 'tests/tools'}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr == "Error: no workload has the name SchedulingBasik\n"
