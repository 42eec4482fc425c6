"""kube-scheduler and Mooring decide alike with the same extenders, which run as one process."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from random import Random
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner

import replica
from conformance.recording.log import SchedulerLog
from controlplane import Access, ControlPlane
from controlplane.client import Client
from controlplane.health import wait_until_healthy
from controlplane.namespaces import create_namespace, delete_namespace
from controlplane.nodes import node_object
from controlplane.processes import ProcessGroup, free_ports
from controlplane.releases import chosen_release
from deterministic_extender import SEED
from e2e.replicas import PROFILES, Replica, Replicas, delete_now, eventually, pods
from faults.cache import read_dump
from mooring.cli.convert import convert
from policies import kube_configuration

PODS: Final = 120
NODES: Final = 8
PRIORITIES: Final = (1, 2, 3, 4, 5, 6)
CARD: Final = "example.com/card"
SCHEDULER: Final = "extended"

Raw = dict[str, Any]
Outcome = tuple[str, str, tuple[str, ...]]
"""A pod's name, its node or "", and the pods that were evicted for it."""


def extenders(port: int) -> list[Raw]:
    """Return an extender for pods with a card, and one for all pods, with unique scores."""
    url = f"http://127.0.0.1:{port}"
    return [
        {
            "urlPrefix": f"{url}/cards",
            "prioritizeVerb": "prioritize",
            "weight": 2,
            "managedResources": [{"name": CARD, "ignoredByScheduler": True}],
        },
        {
            "urlPrefix": f"{url}/unique",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "weight": 1,
            "nodeCacheCapable": True,
        },
    ]


@pytest.fixture(scope="module")
def extender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Start the deterministic extender as a process; yield its port."""
    (port,) = free_ports(1)
    log = tmp_path_factory.mktemp("extender") / "extender.log"
    command = [sys.executable, "-m", "deterministic_extender", f"--port={port}"]
    environment = {**replica.environment(), "PYTHONPATH": str(replica.ROOT / "tests")}
    with ProcessGroup() as group:
        program = group.spawn("extender", command, log=log, env=environment)
        wait_until_healthy(program, f"http://127.0.0.1:{port}/healthz", 30.0)
        yield port


@pytest.fixture(scope="module")
def plane(extender: int) -> Iterator[ControlPlane]:
    """Yield a control plane with nodes, priorities, and a kube-scheduler with the extenders."""
    configuration = {"extenders": extenders(extender), "percentageOfNodesToScore": 100}
    racing = chosen_release().racing_preemption_gate
    off = [f"--feature-gates={racing}=false"] if racing else []
    flags = {"kube-scheduler": ["--vmodule=eventhandlers=4", *off]}
    with (
        ControlPlane({"kube-scheduler"}, scheduler_config=configuration, flags=flags) as plane,
        plane.access.client() as client,
    ):
        replica.apply_manifests(plane.access)
        for number in range(NODES):
            capacity = {"cpu": "4", "memory": "32Gi", "pods": "110"}
            client.post("/api/v1/nodes", node_object(f"n{number}", "z", capacity, {}))
        for value in PRIORITIES:
            named = {"metadata": {"name": f"p{value}"}, "value": value}
            client.post("/apis/scheduling.k8s.io/v1/priorityclasses", named)
        yield plane


@pytest.fixture(scope="module")
def mooring(
    plane: ControlPlane, extender: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replica]:
    """Yield a replica for the pods of SCHEDULER; `mooring convert` has made its extenders."""
    folder = tmp_path_factory.mktemp("mooring")
    configuration = folder / "configuration.yaml"
    configuration.write_text(
        yaml.safe_dump(
            kube_configuration(
                percentageOfNodesToScore=100,
                profiles=[{"schedulerName": SCHEDULER}],
                extenders=extenders(extender),
            )
        )
    )
    converted = CliRunner().invoke(convert, [str(configuration)], catch_exceptions=False)
    plane.access.kubectl("apply", "-f", "-", stdin=converted.stdout)
    with Replicas.of(plane.access, folder) as replicas:
        scheduler = replicas.start()
        scheduler.wait_until_leads()
        yield scheduler
        assert scheduler.terminate() == 0


@contextmanager
def namespace(access: Access) -> Iterator[str]:
    name = create_namespace(access, "extended")
    yield name
    delete_namespace(access, name)


def pod(dice: Random, number: int, scheduler: str) -> Raw:
    """Return a random pod that differs between the two schedulers only in its schedulerName."""
    requests = {"cpu": dice.choice(("500m", "1", "1500m", "2"))}
    card = {CARD: "1"} if dice.random() < 0.3 else {}
    container = {
        "name": "c",
        "image": "registry.example/c:1",
        "resources": {"requests": {**requests, **card}, "limits": card},
    }
    return {
        "metadata": {"name": f"pod-{number:03}", "annotations": {SEED: str(number)}},
        "spec": {
            "schedulerName": scheduler,
            "priorityClassName": f"p{dice.choice(PRIORITIES)}",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


class TheirLog:
    """Waits until kube-scheduler's log shows that it has seen changes of pods on nodes.

    Up to 1.34 kube-scheduler sees new pods and pods on nodes by two paths; one may be late.
    """

    def __init__(self, log: SchedulerLog) -> None:
        self._log = log

    def wait_until_gone(self, raw: Raw) -> None:
        self._wait_for("Delete", raw)

    def wait_until_started(self, raw: Raw) -> None:
        self._wait_for("Update", raw)

    def _wait_for(self, change: str, raw: Raw) -> None:
        metadata = raw["metadata"]
        subject = f"{metadata['namespace']}/{metadata['name']}"
        self._log.wait_for([(f"{change} event for scheduled pod", subject)])


class OurCache:
    """Waits until Mooring's cache shows changes of pods on nodes; Mooring has two watches."""

    def __init__(self, scheduler: Replica) -> None:
        self._scheduler = scheduler

    def wait_until_gone(self, raw: Raw) -> None:
        uid = raw["metadata"]["uid"]
        eventually(self._started, lambda started: uid not in started, f"the end of {uid}")

    def wait_until_started(self, raw: Raw) -> None:
        uid = raw["metadata"]["uid"]
        eventually(self._started, lambda started: started.get(uid), f"the start of {uid}")

    def _started(self) -> dict[str, float | None]:
        """Return the start time of each pod on a node, by uid."""
        dump = read_dump(self._scheduler.get("/debug/cache")[1])
        return {record["uid"]: record["started"] for record in dump if record["kind"] == "pod"}


def outcomes(client: Client, name: str, scheduler: str, seen: TheirLog | OurCache) -> list[Outcome]:
    """Return the outcomes of 120 pods, created one by one; before a third, one pod is deleted.

    The scheduler has seen each change before the next pod is created.
    """
    dice, found = Random(20261122), list[Outcome]()  # noqa: S311 - reproducible, not secret
    for number in range(PODS):
        placed = bound_pods(client, name)
        if placed and dice.random() < 0.35:
            gone = sorted(placed)[dice.randrange(len(placed))]
            delete_now(client, name, gone)
            seen.wait_until_gone(placed.pop(gone))
        raw = pod(dice, number, scheduler)
        client.post(f"/api/v1/namespaces/{name}/pods", raw)
        own = raw["metadata"]["name"]
        path = f"/api/v1/namespaces/{name}/pods/{own}"
        decided = eventually(partial(client.get, path), is_decided, f"a decision about {own}")
        node = decided["spec"].get("nodeName", "")
        if node:
            minute, second = divmod(number, 60)
            started = f"2026-01-01T00:{minute:02}:{second:02}Z"
            client.patch(f"{path}/status", {"status": {"phase": "Running", "startTime": started}})
            seen.wait_until_started(decided)
        else:
            delete_now(client, name, own)
        evicted = placed.keys() - bound_pods(client, name).keys()
        found.append((own, node, tuple(sorted(evicted))))
    return found


def bound_pods(client: Client, name: str) -> dict[str, Raw]:
    return {key: raw for key, raw in pods(client, name).items() if "nodeName" in raw["spec"]}


def is_decided(raw: Raw) -> bool:
    """Return whether the pod is bound, or unschedulable without a nominated node."""
    if raw["spec"].get("nodeName"):
        return True
    conditions = raw["status"].get("conditions", ())
    rejected = any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)
    return rejected and not raw["status"].get("nominatedNodeName")


def test_both_decide_the_same_for_120_pods_preemption_included(
    plane: ControlPlane, mooring: Replica
) -> None:
    with plane.access.client() as client:
        log = SchedulerLog(plane.logs["kube-scheduler"])
        with closing(log), namespace(plane.access) as name:
            theirs = outcomes(client, name, "default-scheduler", TheirLog(log))
        with namespace(plane.access) as name:
            ours = outcomes(client, name, SCHEDULER, OurCache(mooring))
    assert ours == theirs
    assert sum(bool(node) for _, node, _ in ours) > PODS // 2
    assert sum(bool(evicted) for _, _, evicted in ours) > 10


def test_status_and_configz_list_the_extenders(
    plane: ControlPlane, mooring: Replica, extender: int
) -> None:
    with plane.access.client() as client:
        found = eventually(
            partial(client.get, f"{PROFILES}/{SCHEDULER}"),
            lambda raw: "effective" in raw.get("status", {}),
            "a status",
        )
    effective = found["status"]["effective"]
    assert json.loads(mooring.get("/configz")[1])[SCHEDULER] == effective
    cards, unique = effective["extenders"]
    assert cards["urlPrefix"] == f"http://127.0.0.1:{extender}/cards"
    assert cards["managedResources"] == [CARD]
    assert (unique["preemptVerb"], unique["nodeCacheCapable"]) == ("preempt", True)
