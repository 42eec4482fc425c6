"""Tests every workload in small, with either scheduler on the real control plane."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import objects, reclaim
from bench.live import live_runs
from bench.loader import create
from bench.runs import bench_server, delete_stage, load_nodes, on_cores_of_its_own, run_once
from bench.sampling import read_samples
from bench.schedulers import Baseline, KubeScheduler, Mooring, Scheduler
from bench.shares import parts
from bench.workloads import WORKLOADS, EquivalentPods, Workload
from controlplane import ControlPlane, ControlPlaneError
from controlplane.releases import chosen_release

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[3]
SCALE = 50
ALIKE = {"claims-empty", "claims-full"}
"""Workloads that differ from claims-half only in the number of claims allocated before."""
ALONE = {
    *("plain-5000", "rules", "gpu-mem", "anti-host", "pref-host", "spread-zone", "hopeless"),
    *("claims-drain", "claims-match", "queues", "queues-none"),
}
"""Workloads that need no feature of kube-scheduler that basic or claims-half do not test."""
VICTIMS_PER_PREEMPTOR = 3
"""A preemptor with 3 cores evicts three of four pods of 900m on a node of 4 cores."""


@pytest.fixture(scope="module")
def server() -> Iterator[ControlPlane]:
    """Yield one server for all workloads, also for groups and claims."""
    with bench_server(pod_groups=True, claims=True) as control_plane:
        yield control_plane


@contextmanager
def nodes_of(server: ControlPlane, workload: Workload) -> Iterator[None]:
    """Create the workload's nodes for the duration of the context."""
    load_nodes(server.access, workload)
    try:
        yield
    finally:
        delete_stage(server.access)


def known(name: str) -> bool:
    """Return whether the chosen release supports the workload."""
    devices = WORKLOADS[name].devices
    backed = devices is not None and devices.resources > 0
    return not backed or chosen_release().backs_resources_by_devices


@pytest.mark.parametrize(
    ("name", "which"),
    [
        pytest.param(name, which, marks=[pytest.mark.pod_groups] if workload.groups else [])
        for name, workload in WORKLOADS.items()
        for which in ("mooring", "kube-scheduler")
        if name not in ALIKE and known(name) and (which == "mooring" or name not in ALONE)
    ],
)
def test_a_scheduler_drains_a_small_workload_and_its_figures_are_valid(
    server: ControlPlane, name: str, which: str, tmp_path: Path
) -> None:
    workload = WORKLOADS[name].scaled(SCALE)
    scheduler: Scheduler = KubeScheduler(server)
    if which == "mooring":
        scheduler = Mooring(server, tmp_path / "mooring.log")
    with nodes_of(server, workload):
        run = run_once(server, workload, scheduler)
        if which != "mooring" and run.bound < workload.pods:
            # Now and then kube-scheduler tries a preemptor again only after its five minutes.
            run = run_once(server, workload, scheduler)
    assert run.faults == ()
    assert (run.scheduler, run.pods, run.bound) == (which, workload.pods, workload.pods)
    assert run.writes["POST pods/binding"] == workload.pods
    needed = VICTIMS_PER_PREEMPTOR * workload.pods if workload.evicts else 0
    assert run.evicted >= needed
    if which == "mooring":
        assert run.evicted == needed, "kube-scheduler may evict more than it needs, Mooring not"
    assert run.pods_per_second > 0
    assert 0 <= run.drain_cpu_seconds < run.cpu_seconds
    assert run.first_bind_seconds > 0
    assert min(run.peak_mib, run.apiserver_cpu_seconds, run.etcd_cpu_seconds) > 0


@pytest.mark.parametrize("which", ["mooring", "kube-scheduler"])
def test_pods_that_come_one_by_one_are_bound_and_timed(
    server: ControlPlane, which: str, tmp_path: Path
) -> None:
    scheduler: Scheduler = KubeScheduler(server)
    if which == "mooring":
        scheduler = Mooring(server, tmp_path / "mooring.log")
    with nodes_of(server, WORKLOADS["basic"].scaled(SCALE)):
        steady, churn = live_runs(server, scheduler, (20.0, 0.0), seconds=1.0, most_cpus=3)
    for run in (steady, churn):
        assert run.attempts >= run.bound
        assert len(run.latencies) == run.bound
        assert run.scheduler == which
        assert 0 < run.bound <= run.created
        assert run.events >= run.bound
        assert run.cpu_ms_per_pod > 0
    assert steady.created == steady.bound == len(steady.latencies) == 20
    assert 0 < steady.latency_ms(50) <= steady.latency_ms(99) <= 1e3 * steady.latencies[-1]


def test_the_owner_of_quota_gets_back_all_that_was_borrowed(
    server: ControlPlane, tmp_path: Path
) -> None:
    workload = reclaim.workload_of(reclaim.PER_NODE, gang=0)
    with nodes_of(server, workload):
        create(server.access, reclaim.queues(workload.pods))
        run = run_once(server, workload, Mooring(server, tmp_path / "mooring.log"))
    assert run.faults == ()
    assert run.bound == run.evicted == workload.pods


@pytest.mark.parametrize("name", [*filter(known, ("claims-half", "claims-extended"))])
def test_a_client_that_decides_nothing_makes_the_writes_of_a_scheduler(
    server: ControlPlane, name: str, tmp_path: Path
) -> None:
    workload = WORKLOADS[name].scaled(SCALE)
    with nodes_of(server, workload):
        run = run_once(server, workload, Baseline(server, tmp_path / "baseline.log", workload))
    assert run.faults == ()
    assert run.bound == workload.pods
    made = {"POST pods/binding", "PATCH resourceclaims/status", "POST events"}
    assert all(run.writes[write] == workload.pods for write in made)


def test_a_client_that_decides_nothing_stands_beside_the_flow_of_plain_pods(
    server: ControlPlane, tmp_path: Path
) -> None:
    workload = WORKLOADS["basic"].scaled(SCALE)
    limit = Baseline(server, tmp_path / "baseline.log", workload)
    with nodes_of(server, workload):
        (run,) = live_runs(server, limit, (20.0,), seconds=1.0)
    assert run.created == run.bound == run.events == len(run.latencies) == 20


def test_a_run_that_leaves_pods_unbound_is_void(
    server: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.runs.STALL_SECONDS", 3.0)
    big = EquivalentPods(cpu="20")
    with_nominated = Workload("crowded", "too many pods", goal=1.0, nodes=2, pods=3, kind=big)
    with nodes_of(server, with_nominated):
        run = run_once(server, with_nominated, KubeScheduler(server))
    assert run.bound == 2
    assert len(run.faults) == 1
    assert run.faults[0].startswith("1 pods are not bound, measured-0000")


def test_samples_say_which_part_of_mooring_was_at_work(
    server: ControlPlane, tmp_path: Path
) -> None:
    workload = WORKLOADS["basic"].scaled(SCALE)
    samples = tmp_path / "samples.json"
    with nodes_of(server, workload):
        run_once(server, workload, Mooring(server, tmp_path / "mooring.log", samples))
    assert {"start-up", "kopf"} <= parts(read_samples(samples)).keys()


def test_an_object_that_the_server_refuses_is_said_with_its_reason(server: ControlPlane) -> None:
    collection, node = next(objects.nodes(WORKLOADS["basic"]))
    node["metadata"]["name"] = "Not A Name"
    with pytest.raises(ControlPlaneError, match=r"loading /api/v1/nodes: 422: .*Not A Name"):
        create(server.access, [(collection, node)])


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        env={
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'tests'}:{ROOT / 'tests/tools'}",
            "HOME": str(Path.home()),
            **{name: text for name, text in os.environ.items() if name.startswith("PYTEST_XDIST")},
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_compares_both_schedulers_and_writes_json(tmp_path: Path) -> None:
    done = bench("basic", f"--scale={SCALE}", f"--output={tmp_path}", "--apart")
    assert done.returncode in {0, 1}, done.stderr  # 60 pods say nothing about who is faster
    assert "mooring / kube-scheduler: " in done.stdout
    written = json.loads((tmp_path / "basic.json").read_text())
    order = ["mooring", "kube-scheduler", "kube-scheduler", "mooring"]
    assert [run["scheduler"] for run in written["runs"]] == order
    assert written["comparison"]["ratio"] > 0
    assert written["machine"]["apart"]


def test_a_server_on_cores_of_its_own_leaves_the_others_to_what_follows() -> None:
    @contextmanager
    def program() -> Iterator[int]:
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as running:
            yield running.pid
            running.communicate()

    cores_of = os.sched_getaffinity
    before = cores_of(0)
    with on_cores_of_its_own(program()) as server, program() as scheduler:
        assert len(cores_of(server)) == len(before) // 2
        assert cores_of(server) | cores_of(scheduler) == before
        assert not cores_of(server) & cores_of(scheduler)
    assert cores_of(0) == before


def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    done = bench("basik")
    assert done.returncode == 2
    assert "'basik' is not one of 'basic', 'plain-5000'" in done.stderr
