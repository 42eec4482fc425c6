"""Jobs as gangs: kube-controller-manager makes the pods and, with its gates on, the groups."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

import replica
from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
from e2e.replicas import PROFILES, Replicas, bound, eventually, pods

Raw = dict[str, Any]

RELEASE: Final = chosen_release()
GROUP, MINIMUM = "example.com/group", "example.com/minimum"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    gates = ("WorkloadWithJob",) if RELEASE.has_pod_groups else ()
    flags = RELEASE.pod_group_flags(*gates)
    with ControlPlane({"kube-controller-manager"}, flags=flags) as plane:
        replica.apply_manifests(plane.access)
        with plane.access.client() as client:
            labels = [{"name": GROUP, "minimum": MINIMUM}]
            config = [{"name": "GangScheduling", "args": {"podGroupLabels": labels}}]
            client.patch(f"{PROFILES}/mooring", {"spec": {"pluginConfig": config}})
        yield plane


@pytest.fixture
def namespace(plane: ControlPlane, client: Client) -> Iterator[str]:
    """Yield a namespace; before and after the test the cluster has no nodes."""
    yield create_namespace(plane.access)
    for node in client.get("/api/v1/nodes")["items"]:
        client.delete(f"/api/v1/nodes/{node['metadata']['name']}")


def add_node(plane: ControlPlane, prefix: str) -> None:
    capacity = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    create_nodes(plane.access, 1, prefix=prefix, capacity=capacity)


def job(name: str, size: int, metadata: Raw, **spec: Any) -> Raw:
    container = {"name": "c", "image": "registry.example/c:1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": size,
            "parallelism": size,
            "template": {
                "metadata": metadata,
                "spec": {
                    "schedulerName": "mooring",
                    "restartPolicy": "Never",
                    "containers": [{**container, "resources": {"requests": {"cpu": "1"}}}],
                },
            },
            **spec,
        },
    }


def an_owner(client: Client, namespace: str) -> Raw:
    """Create an object of a kind that may own Jobs; return a reference to the object."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = client.post(path, {"metadata": {"name": "set-of-jobs"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
    return {**reference, "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}


def is_placed_whole(
    plane: ControlPlane, client: Client, namespace: str, replicas: Replicas, created: Raw
) -> None:
    """Check that the Job's four pods wait with a node for two, and are bound with a second node."""
    leader = replicas.start()
    leader.wait_until_leads()
    add_node(plane, f"{namespace}-a")
    client.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", created)

    def messages() -> list[str]:
        return [
            condition["message"]
            for raw in pods(client, namespace).values()
            for condition in raw["status"].get("conditions", ())
            if "the group of 4 does not fit" in condition.get("message", "")
        ]

    eventually(messages, lambda found: len(found) == 4, "four members that wait")
    assert not bound(client, namespace)
    add_node(plane, f"{namespace}-b")
    eventually(lambda: len(bound(client, namespace)), lambda n: n == 4, "the Job bound")
    assert leader.terminate() == 0


def test_a_job_whose_pods_name_a_group_is_a_gang(
    plane: ControlPlane, client: Client, namespace: str, replicas: Replicas
) -> None:
    """Since 1.37 Kubernetes makes a group (perhaps `basic`) for each Job without an owner."""
    metadata = {"labels": {GROUP: "train"}, "annotations": {MINIMUM: "4"}}
    created = job("train", 4, metadata)
    created["metadata"]["ownerReferences"] = [an_owner(client, namespace)]
    is_placed_whole(plane, client, namespace, replicas, created)


@pytest.mark.pod_groups
def test_a_job_for_which_the_job_controller_makes_a_pod_group_is_a_gang(
    plane: ControlPlane, client: Client, namespace: str, replicas: Replicas
) -> None:
    created = job("train", 4, {}, **RELEASE.gang_job)
    is_placed_whole(plane, client, namespace, replicas, created)
    [group] = client.get(RELEASE.pod_groups(namespace))["items"]
    assert group["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4
