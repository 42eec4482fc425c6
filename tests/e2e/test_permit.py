"""Pods that wait at Permit on a real control plane, for a plugin of an installed package."""

from pathlib import Path
from typing import Any

import pytest

from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.nodes import create_nodes
from e2e.replicas import (
    PROFILES,
    Replica,
    Replicas,
    bound,
    create_pods,
    delete_now,
    eventually,
    pod,
    pods,
    profile,
)
from faults.books import read_metrics

NAMESPACE = "default"
HELD = ("held-0", "held-1", "held-2")
PLUGIN = """
from pydantic import BaseModel, ConfigDict
from mooring.framework.verdicts import Wait

class Holding(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    hold: bool

class Hold:
    name = "Hold"
    depends_on_node_only = True
    Args = Holding

    def __init__(self, args, handle):
        self._hold = args.hold

    def permit(self, pod, node):
        return Wait(600.0) if self._hold else None
"""


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    """Return one node, of which the held pods take all cores."""
    create_nodes(plane.access, 1, capacity={"cpu": "3", "memory": "8Gi", "pods": "110"})
    return plane


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a folder with an installed package that announces the plugin Hold."""
    folder = tmp_path / "packages"
    info = folder / "acme_hold-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "acme_hold.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-hold\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mooring.plugins]\nHold = acme_hold:Hold\n")
    return folder


def holding(*, hold: bool) -> dict[str, Any]:
    """Return a profile whose pods wait at Permit for ten minutes, or not at all."""
    return profile(
        "held",
        plugins={"permit": {"enabled": [{"name": "Hold"}]}},
        pluginConfig=[{"name": "Hold", "args": {"hold": hold}}],
    )


def under_way(scheduler: Replica) -> tuple[float, float]:
    """Return how many pods are assumed, and how many bindings have begun and not ended."""
    samples = read_metrics(scheduler.get("/metrics")[1])
    assumed = samples['scheduler_cache_size{type="assumed_pods"}']
    return assumed, samples["mooring_bindings_in_flight"]


def conditions(client: Client) -> dict[str, tuple[str, str]]:
    """Return reason and message of PodScheduled=False, by pod."""
    return {
        name: (condition["reason"], condition["message"])
        for name, raw in pods(client, NAMESPACE).items()
        for condition in raw["status"].get("conditions", ())
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    }


def test_pods_at_permit_are_called_off_when_their_profile_goes_and_run_when_it_returns(
    client: Client, replicas: Replicas, package: Path
) -> None:
    scheduler = replicas.start(packages=package)
    scheduler.wait_until_leads()
    client.post(PROFILES, holding(hold=True))
    create_pods(client, NAMESPACE, *(pod(name, cpu="1", scheduler="held") for name in HELD))
    eventually(lambda: under_way(scheduler), lambda n: n == (3, 3), "three pods at Permit")
    client.delete(f"{PROFILES}/held")

    create_pods(client, NAMESPACE, pod("other", cpu="3"))
    eventually(lambda: bound(client, NAMESPACE), lambda nodes: "other" in nodes, "other bound")
    eventually(lambda: under_way(scheduler), lambda n: n == (0, 0), "nothing assumed")
    told = eventually(lambda: conditions(client), lambda c: len(c) == len(HELD), "all told why")
    reasons, messages = zip(*told.values(), strict=True)
    assert {*reasons} == {"NoProfile"}
    assert all("SchedulingProfile held was deleted" in message for message in messages)
    assert bound(client, NAMESPACE).keys() == {"other"}

    delete_now(client, NAMESPACE, "other")
    client.post(PROFILES, holding(hold=False))
    eventually(lambda: bound(client, NAMESPACE), lambda nodes: len(nodes) == 3, "all three bound")
    assert scheduler.terminate() == 0
