"""Five hundred pods for exactly as much room.

Every node has room for five of these pods, so that all of them are bound only if not one place is
lost, and no node is overcommitted only if not one is given away twice. What happens to replicas and
servers meanwhile is in `test_faults.py`.
"""

import pytest

from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.nodes import create_nodes
from e2e.replicas import (
    Replicas,
    bound,
    create_pods,
    delete_now,
    eventually,
    pod,
    pods,
    pods_per_node,
)

NODES = 100
PER_NODE = 5
PODS = NODES * PER_NODE
CAPACITY = {"cpu": f"{PER_NODE * 100}m", "memory": "4Gi", "pods": "110"}


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    create_nodes(plane.access, NODES, zones=3, capacity=CAPACITY)
    return plane


def storm(client: Client, namespace: str, first: int = 0, last: int = PODS) -> None:
    create_pods(client, namespace, *(pod(f"p{number}") for number in range(first, last)))


def assert_every_place_is_taken_once(client: Client, namespace: str) -> None:
    eventually(lambda: len(bound(client, namespace)), lambda n: n >= PODS, f"{PODS} bound pods")
    assert set(pods_per_node(client, namespace).values()) == {PER_NODE}
    events = client.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    scheduled = {
        (event["regarding"]["uid"], event["note"])
        for event in events
        if event["reason"] == "Scheduled"
    }
    assert len({uid for uid, _ in scheduled}) == len(scheduled), "a pod was told two nodes"


def test_all_pods_are_bound_and_no_node_is_overcommitted(
    client: Client, replicas: Replicas, namespace: str
) -> None:
    scheduler = replicas.start()
    scheduler.wait_until_leads()
    storm(client, namespace)
    assert_every_place_is_taken_once(client, namespace)
    assert scheduler.terminate() == 0


def test_pods_deleted_while_they_are_bound_leave_no_ghosts(
    client: Client, replicas: Replicas, namespace: str
) -> None:
    scheduler = replicas.start()
    scheduler.wait_until_leads()
    for number in range(PODS):
        storm(client, namespace, number, number + 1)
        if number % 2:
            delete_now(client, namespace, f"p{number}")
    storm(client, namespace, PODS, PODS + PODS // 2)
    assert_every_place_is_taken_once(client, namespace)
    assert len(pods(client, namespace)) == PODS
    assert scheduler.terminate() == 0
