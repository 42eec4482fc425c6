"""Pod groups on a real API server: which kinds it serves is found out, also later.

This control plane serves Kubernetes' own PodGroups, which kube-apiserver 1.36 does behind gates.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import replica
from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.commands import POD_GROUPS
from controlplane.namespaces import create_namespace
from e2e.replicas import Replica, Replicas, eventually
from mooring.testing.builders import coscheduling_pod_group, pod_group

ROOT: Final = Path(__file__).parents[2]
CRD: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.scheduling.x-k8s.io"
KUBERNETES: Final = "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups"
COSCHEDULING: Final = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups"

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(flags=POD_GROUPS) as plane:
        replica.apply_manifests(plane.access)
        yield plane


@pytest.fixture
def client(plane: ControlPlane) -> Iterator[Client]:
    with plane.access.client() as client:
        yield client


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    return create_namespace(plane.access)


def known_groups(scheduler: Replica) -> int:
    """How many pod groups the replica knows, as its metrics say."""
    _, page = scheduler.get("/metrics")
    line = 'scheduler_cache_size{type="pod_groups"}'
    counts = [float(text.split()[-1]) for text in page.splitlines() if text.startswith(line)]
    return int(counts[0]) if counts else 0


def has_groups(scheduler: Replica, number: int) -> None:
    eventually(lambda: known_groups(scheduler), lambda known: known == number, f"{number} groups")


def test_pod_groups_of_both_kinds_are_known_also_if_a_kind_is_installed_later(
    plane: ControlPlane, client: Client, replicas: Replicas, namespace: str
) -> None:
    client.post(KUBERNETES.format(namespace), pod_group("train", 3, namespace=namespace))
    client.delete(CRD)
    scheduler = replicas.start()
    scheduler.wait_until_leads()
    has_groups(scheduler, 1)
    scheduler.wait_until_says("podgroups.scheduling.k8s.io (v1alpha2) is served")
    plane.access.kubectl("apply", "-f", str(ROOT / "crds" / "podgroups.yaml"))
    plane.access.kubectl(
        "wait", "--for=condition=Established", "-f", str(ROOT / "crds" / "podgroups.yaml")
    )
    raw = coscheduling_pod_group("train", 3, namespace=namespace, timeout=60)
    client.post(COSCHEDULING.format(namespace), raw)
    scheduler.wait_until_says("podgroups.scheduling.x-k8s.io (v1alpha1) is served")
    has_groups(scheduler, 2)
    client.delete(CRD)
    scheduler.wait_until_says("podgroups.scheduling.x-k8s.io (v1alpha1) is not served any more")
    has_groups(scheduler, 1)
    assert scheduler.get("/readyz")[0] == 200
    assert scheduler.terminate() == 0
    plane.access.kubectl("apply", "-f", str(ROOT / "crds" / "podgroups.yaml"))
