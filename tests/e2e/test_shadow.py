"""A profile in mode Shadow beside the real kube-scheduler."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import replica
from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.nodes import create_nodes
from e2e.replicas import PROFILES, Replica, Replicas, bound, create_pods, eventually, pod, pods
from policies import profile

ONE_BY_ONE = 300
AT_ONCE = 700
PACKED = 40
THEIRS = {"schedulerNames": ["default-scheduler"]}
MOST_ALLOCATED = [
    {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
]

Raw = dict[str, Any]


def _has_node(raw: Raw) -> bool:
    return "nodeName" in raw["spec"]


class Beside:
    """A cluster whose pods kube-scheduler binds, with Mooring's shadow profile `candidate`."""

    def __init__(self, client: Client, scheduler: Replica) -> None:
        self.client = client
        self.scheduler = scheduler
        self._dice = Random(20261122)  # noqa: S311 - reproducible, not secret
        self._names = (f"p{number}" for number in range(10_000))

    def pod(self) -> Raw:
        """Return a pod of random size; some pods tolerate the taint of some nodes."""
        tolerations = [{"key": "spot", "operator": "Exists"}] if self._dice.random() < 0.3 else []
        return pod(
            next(self._names),
            scheduler="default-scheduler",
            cpu=f"{self._dice.randint(1, 12) * 50}m",
            requests={"memory": f"{self._dice.randint(1, 12) * 64}Mi"},
            tolerations=tolerations,
        )

    def bind_one_by_one(self, count: int) -> None:
        """Create `count` pods; wait until each has a node before the next one is created."""
        for _ in range(count):
            raw = self.pod()
            create_pods(self.client, "default", raw)
            path = f"/api/v1/namespaces/default/pods/{raw['metadata']['name']}"
            eventually(partial(self.client.get, path), _has_node, f"{path} bound")

    def wait_until_pods_are_watched(self) -> None:
        """Wait until Mooring has seen a pod without a node.

        A pod that is bound earlier would count as a pod whose node no scheduler chose.
        """
        create_pods(self.client, "default", pod("first", scheduler="nobody"))
        eventually(
            lambda: json.loads(self.scheduler.get("/debug/pending")[1]),
            lambda pending: pending["states"]["without a profile"] == 1,
            "a pod that is seen without a node",
        )
        self.client.delete("/api/v1/namespaces/default/pods/first")

    def report(self) -> Raw:
        status, text = self.scheduler.get("/debug/shadow")
        assert status == 200, text
        found: Raw = json.loads(text)
        return found

    def status(self) -> Raw:
        """Return the profile's comparisons; {} while the profile is not in force."""
        found: Raw = self.report()["profiles"].get("candidate", {})
        return found

    def status_of(self, reached: int) -> Raw:
        """Return the comparisons when there are at least `reached`."""
        return eventually(
            self.status,
            lambda status: status and status["compared"] + status["notCompared"] >= reached,
            f"{reached} comparisons",
        )


@pytest.fixture
def beside(fresh_control_plane: Callable[..., ControlPlane], tmp_path: Path) -> Iterator[Beside]:
    plane = fresh_control_plane(components={"kube-scheduler"})
    replica.apply_manifests(plane.access)
    for prefix, cpu, count in (("small", "4", 20), ("large", "16", 20), ("spot", "32", 10)):
        capacity = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
        create_nodes(plane.access, count, zones=3, prefix=prefix, capacity=capacity)
    with Replicas.of(plane.access, tmp_path) as replicas, plane.access.client() as client:
        for node in client.get("/api/v1/nodes")["items"]:
            name = node["metadata"]["name"]
            spot = [{"key": "spot", "effect": "NoSchedule"}] if name.startswith("spot") else []
            client.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": spot}})
        client.post(PROFILES, profile("candidate", mode="Shadow", match=THEIRS))
        scheduler = replicas.start()
        scheduler.wait_until_leads()
        found = Beside(client, scheduler)
        found.status_of(0)
        found.wait_until_pods_are_watched()
        yield found
        assert scheduler.terminate() == 0


def test_a_shadow_profile_agrees_with_kube_scheduler_and_reports_where_it_would_not(
    beside: Beside,
) -> None:
    # The same policy: the node is the same, or one of equal score, of which both choose any.
    beside.bind_one_by_one(ONE_BY_ONE)
    status = beside.status_of(ONE_BY_ONE)
    assert status["same"] + status["tied"] == status["compared"] == ONE_BY_ONE
    assert status["same"]

    # At once: kube-scheduler binds in parallel, so that the order of its decisions is not known.
    create_pods(beside.client, "default", *(beside.pod() for _ in range(AT_ONCE)))
    total = ONE_BY_ONE + AT_ONCE
    eventually(lambda: len(bound(beside.client, "default")), lambda n: n == total, "all bound")
    status = beside.status_of(total)
    assert status["compared"] + status["notCompared"] == total
    assert status["rejected"] == status["unschedulable"] == 0
    assert status["same"] + status["tied"] > status["different"]

    # Another policy: the counts begin anew, and the pods whose node would be another are reported.
    changed = {"spec": {"pluginConfig": MOST_ALLOCATED}}
    beside.client.patch(f"{PROFILES}/candidate", changed)
    eventually(beside.status, lambda s: s["compared"] == 0, "a new beginning")
    beside.bind_one_by_one(PACKED)
    status = beside.status_of(PACKED)
    assert status["compared"] == PACKED
    assert status["different"]
    assert status["shadowUtilizationPercent"] > status["boundUtilizationPercent"]
    _report_agrees_with(status, beside)

    # The status and the metrics say the same, and nothing was written to a pod.
    shown = eventually(
        lambda: beside.client.get(f"{PROFILES}/candidate")["status"].get("shadow", {}),
        lambda shadow: shadow.get("compared") == PACKED,
        "the status",
    )
    assert shown == status
    metrics = beside.scheduler.get("/metrics")[1]
    assert 'mooring_shadow_pods_total{profile="candidate",result="different"}' in metrics
    assert "scheduler_schedule_attempts_total{" not in metrics
    _nothing_was_written(beside)


def _report_agrees_with(status: Raw, beside: Beside) -> None:
    nodes = bound(beside.client, "default")
    newest = beside.report()["pods"][:PACKED]
    assert Counter(record["result"] for record in newest)["different"] == status["different"]
    for record in newest:
        assert record["boundNode"] == nodes[record["pod"].removeprefix("default/")]
        scores = {name: score["total"] for name, score in record["scores"].items()}
        if record["result"] == "different":
            assert scores[record["node"]] > scores[record["boundNode"]]


def _nothing_was_written(beside: Beside) -> None:
    for raw in pods(beside.client, "default").values():
        managers = {field["manager"] for field in raw["metadata"]["managedFields"]}
        assert not any("mooring" in manager for manager in managers), managers
        assert "nominatedNodeName" not in raw["status"]
    # The API server's own controllers write events too, so only these two are asked for.
    events = beside.client.get("/apis/events.k8s.io/v1/events")["items"]
    reporting = {event.get("reportingController") for event in events}
    assert "default-scheduler" in reporting
    assert "mooring" not in reporting
