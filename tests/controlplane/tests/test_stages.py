"""What kwok and kube-controller-manager make of nodes and pods."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane import Access, Client, ControlPlane
from controlplane.nodes import create_nodes
from controlplane.tests.waiting import wait_for

pytestmark = pytest.mark.server

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Access]:
    with ControlPlane({"kube-controller-manager", "kwok"}) as control_plane:
        create_nodes(control_plane.access, 3, zones=2)
        yield control_plane.access


@pytest.fixture
def client(cluster: Access) -> Iterator[Client]:
    with cluster.client() as connected:
        yield connected


def _conditions(item: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in item["status"].get("conditions", [])}


def _poll(client: Client, path: str, condition: Callable[[dict[str, Any]], object]) -> None:
    wait_for(lambda: condition(client.get(path)), f"{path} changes")


def test_nodes_become_ready_and_lose_the_taint_they_are_born_with(client: Client) -> None:
    for name in ("node-1", "node-2", "node-3"):
        path = f"/api/v1/nodes/{name}"
        _poll(client, path, lambda node: _conditions(node).get("Ready") == "True")
        _poll(client, path, lambda node: not node["spec"].get("taints"))


def test_nodes_are_dealt_out_to_the_zones(client: Client) -> None:
    nodes = client.get("/api/v1/nodes")["items"]
    zones = [node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes]
    assert zones == ["zone-1", "zone-2", "zone-1"]


def test_a_bound_pod_runs_and_a_deleted_one_leaves_within_its_grace(client: Client) -> None:
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "pause"}]}
    client.post(PODS, {"metadata": {"name": "short"}, "spec": spec})
    _poll(client, f"{PODS}/short", lambda pod: _conditions(pod).get("Ready") == "True")
    pod = client.get(f"{PODS}/short")
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["podIP"].startswith("10.")
    client.delete(f"{PODS}/short")
    wait_for(lambda: not client.get(PODS)["items"], "the pod is gone")


def test_a_pod_without_a_node_stays_pending(client: Client) -> None:
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "pause"}]}
    client.post(PODS, {"metadata": {"name": "waiting"}, "spec": spec})
    assert client.get(f"{PODS}/waiting")["status"]["phase"] == "Pending"
    client.delete(f"{PODS}/waiting")
