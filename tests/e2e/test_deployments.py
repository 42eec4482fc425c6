"""One Deployment in two namespaces with two policies; kube-controller-manager makes the pods."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import replica
from controlplane import Access, ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
from e2e.replicas import PROFILES, Replicas, bound, eventually, pod
from policies import profile

ROOT = Path(__file__).parents[2]
REPLICAS: Final = 6
STRATEGIES: Final = {"spread": "LeastAllocated", "pack": "MostAllocated"}
RESOURCES: Final = [{"name": "cpu", "weight": 1}]
Raw = dict[str, Any]


def scored_by(strategy: str) -> Raw:
    """Return a profile that scores nodes only by this strategy of NodeResourcesFit."""
    args = {"scoringStrategy": {"type": strategy, "resources": RESOURCES}}
    score = {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 1}]}
    return {
        "pluginConfig": [{"name": "NodeResourcesFit", "args": args}],
        "plugins": {"score": score},
    }


def deployment() -> Raw:
    """Return a Deployment whose template names no scheduler."""
    labels = {"app": "web"}
    template = pod("web", labels=labels)
    del template["spec"]["schedulerName"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template},
    }


def labelled_namespace(access: Access, client: Client, scheduler: str) -> str:
    """Create a namespace for this scheduler; return its name when its pods get the scheduler."""
    namespace = create_namespace(access, scheduler)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    eventually(lambda: client.get(accounts)["items"], bool, "the account that pods need")
    label = {"scheduling.mooring.dev/default-scheduler": scheduler}
    client.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": label}})
    probe = pod("probe")
    del probe["spec"]["schedulerName"]
    eventually(
        lambda: client.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", probe),
        lambda raw: raw["spec"]["schedulerName"] == scheduler,
        "the admission policy in force",
    )
    return namespace


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Yield a cluster with controllers, the admission policy, and a profile for each strategy."""
    flags = chosen_release().admission_flags
    with (
        ControlPlane({"kube-controller-manager"}, flags=flags) as plane,
        plane.access.client() as client,
    ):
        replica.apply_manifests(plane.access)
        plane.access.kubectl("apply", "-k", str(ROOT / "manifests" / replica.admission()))
        create_nodes(plane.access, 3)
        for name, strategy in STRATEGIES.items():
            client.post(PROFILES, profile(name, **scored_by(strategy)))
        yield plane


def test_the_same_deployment_is_placed_by_the_policy_of_its_namespace(
    plane: ControlPlane, replicas: Replicas
) -> None:
    """The shipped admission policy sets the scheduler from the namespace's label."""
    scheduler = replicas.start()
    scheduler.wait_until_leads()
    placed: dict[str, list[int]] = {}
    with plane.access.client() as client:
        for name in STRATEGIES:
            namespace = labelled_namespace(plane.access, client, name)
            client.post(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment())
            found = eventually(
                partial(bound, client, namespace),
                lambda nodes: len(nodes) == REPLICAS,
                "nodes for all replicas",
            )
            placed[name] = sorted(Counter(found.values()).values())
    assert placed == {"spread": [2, 2, 2], "pack": [6]}
    assert scheduler.terminate() == 0
