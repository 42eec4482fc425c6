"""`mooring explain` shows why Kueue gates a pod; it reads the Workload with the user's rights."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.running import Running, ask, serving
from kube.api_server import ApiServer, Objects
from mooring.cli.explain import explain
from mooring.observe.records import DecisionLog

GATED = {
    "state": "gated",
    "attempts": 0,
    "pendingSeconds": 9.0,
    "plugins": ["SchedulingGates"],
}
HELD = "waiting for scheduling gates: [kueue.x-k8s.io/admission kueue.x-k8s.io/topology]"
WAITS = {
    "type": "QuotaReserved",
    "status": "False",
    "reason": "Pending",
    "message": "insufficient unused quota for cpu",
}
PODS_READY = {**WAITS, "type": "PodsReady"}
BETA2 = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads"
BETA1 = "/apis/kueue.x-k8s.io/v1beta1/namespaces/team-a/workloads"


async def report(key: str) -> Mapping[str, Any] | None:
    return {
        **GATED,
        "heldBack": "waiting for scheduling gates: [shop/quota]" if "other" in key else HELD,
    }


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    decisions = DecisionLog(nodes=3, clock=lambda: 0.0, wall=lambda: 0.0)
    async with serving(tmp_path, decisions=decisions, pod_report=report) as running:
        yield running


def pod(**metadata: Any) -> dict[str, Any]:
    named = {"name": "train", "namespace": "team-a", "uid": "u1", "resourceVersion": "1"}
    return {"metadata": {**named, **metadata}}


def workload(*conditions: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": "pod-train-1a2b", "uid": "w1", "resourceVersion": "1"}
    return {"metadata": metadata, "status": {"conditions": [*conditions]}}


async def said(running: Running, cluster: Objects, *words: str, pod: str = "train") -> str:
    """Return the output of `mooring explain` for the pod; `cluster` is its API server."""
    async with ApiServer(cluster) as server:
        result = await ask(
            explain,
            f"team-a/{pod}",
            *words,
            f"--server={running.url}",
            f"--certificate-authority={running.ca}",
            f"--kubeconfig={running.kubeconfig(server.url)}",
        )
    assert result.exit_code == 0, result.output
    return result.stdout


async def test_the_conditions_of_the_workload_say_what_kueue_waits_for(running: Running) -> None:
    cluster = Objects({"/pods/train": pod(), BETA2: [workload(PODS_READY, WAITS)]})
    assert (await said(running, cluster)).splitlines()[1:-1] == [
        f"  held back by SchedulingGates: {HELD}",
        "  Kueue's Workload pod-train-1a2b:",
        "    QuotaReserved False, Pending: insufficient unused quota for cpu",
    ]


@pytest.mark.parametrize(
    ("metadata", "selector"),
    [
        ({}, ("labelSelector", "kueue.x-k8s.io/job-uid=u1")),
        (
            {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}},
            ("fieldSelector", "metadata.name=g"),
        ),
        (
            {"annotations": {"kueue.x-k8s.io/workload": "w"}},
            ("fieldSelector", "metadata.name=w"),
        ),
        (
            {"annotations": {"kueue.x-k8s.io/workload": "w,metadata.name=x\\"}},
            ("fieldSelector", "metadata.name=w\\,metadata.name\\=x\\\\"),
        ),
    ],
)
async def test_the_workload_is_that_of_the_pod_of_its_group_or_of_its_job(
    running: Running, metadata: dict[str, Any], selector: tuple[str, str]
) -> None:
    asked = list[dict[str, str]]()
    cluster = Objects({"/pods/train": pod(**metadata), BETA2: [workload(WAITS)]})

    class Noting(Objects):
        def __call__(self, request: Any) -> None:
            if request.path == BETA2:
                asked.append(request.query)
            cluster(request)

    await said(running, Noting())
    assert asked == [{"limit": "1", selector[0]: selector[1]}]


async def test_an_older_kueue_serves_v1beta1(running: Running) -> None:
    cluster = Objects({"/pods/train": pod(), BETA1: [workload(WAITS)]})
    assert "QuotaReserved False" in await said(running, cluster)


async def test_a_workload_without_conditions_is_new(running: Running) -> None:
    cluster = Objects({"/pods/train": pod(), BETA2: [workload()]})
    assert "  Kueue's Workload pod-train-1a2b is new\n" in await said(running, cluster)


async def test_a_pod_for_which_kueue_has_made_no_workload_is_told(running: Running) -> None:
    cluster = Objects({"/pods/train": pod(), BETA2: []})
    assert "  Kueue has no Workload for it: " in await said(running, cluster)


async def test_without_the_right_to_read_workloads_one_line_names_the_role(
    running: Running,
) -> None:
    refusal = 'User "ann" cannot list resource "workloads"'
    cluster = Objects({"/pods/train": pod()}, refused={"/workloads": (403, refusal)})
    [line] = [line for line in (await said(running, cluster)).splitlines() if "Kueue" in line]
    assert line.startswith("  Kueue's Workloads cannot be read: list workloads.kueue.x-k8s.io")
    assert line.endswith("Kueue's ClusterRole kueue-batch-user-role grants it")


async def test_an_api_server_that_is_away_is_told_in_one_line(running: Running) -> None:
    cluster = Objects({"/pods/train": pod()}, refused={"/workloads": (500, "etcd is away")})
    [line] = [line for line in (await said(running, cluster)).splitlines() if "Kueue" in line]
    assert line.startswith("  Kueue's Workloads cannot be read: ")
    assert "etcd is away" in line


async def test_documents_have_the_conditions(running: Running) -> None:
    cluster = Objects({"/pods/train": pod(), BETA2: [workload(WAITS)]})
    found = json.loads(await said(running, cluster, "-o", "json"))
    assert found["pod"]["kueueWorkload"] == {"name": "pod-train-1a2b", "conditions": [WAITS]}


async def test_nothing_is_read_of_a_pod_with_other_gates(running: Running) -> None:
    assert "Kueue" not in await said(running, Objects(), pod="other")
