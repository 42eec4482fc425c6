"""Five hundred pods for exactly as much room, whatever happens while they are placed.

Every node has room for five of these pods, so that all of them are bound only if not one place is
lost, and no node is overcommitted only if not one is given away twice.
"""

from collections.abc import Iterator

import pytest

from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace, delete_namespace
from controlplane.nodes import create_nodes
from e2e.replicas import (
    QUICK_LEASE,
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
SOME = 50
"""So many are bound when the misfortune comes."""
SLOWLY = ("--qps=100", "--burst=20")
"""Events count too: the storm lasts for seconds, so that a misfortune comes in the middle of it."""
CAPACITY = {"cpu": f"{PER_NODE * 100}m", "memory": "4Gi", "pods": "110"}


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    create_nodes(plane.access, NODES, zones=3, capacity=CAPACITY)
    return plane


@pytest.fixture
def client(plane: ControlPlane) -> Iterator[Client]:
    with plane.access.client() as client:
        yield client


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    name = create_namespace(plane.access)
    yield name
    delete_namespace(plane.access, name)


def storm(client: Client, namespace: str, first: int = 0, last: int = PODS) -> None:
    create_pods(client, namespace, *(pod(f"p{number}") for number in range(first, last)))


def wait_for_bound(client: Client, namespace: str, number: int) -> None:
    eventually(lambda: len(bound(client, namespace)), lambda n: n >= number, f"{number} bound pods")


def assert_every_place_is_taken_once(client: Client, namespace: str) -> None:
    wait_for_bound(client, namespace, PODS)
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


def test_what_a_killed_scheduler_leaves_its_successor_completes(
    client: Client, replicas: Replicas, namespace: str
) -> None:
    storm(client, namespace)
    killed = replicas.start(*QUICK_LEASE, *SLOWLY)
    wait_for_bound(client, namespace, SOME)
    killed.kill()
    assert len(bound(client, namespace)) < PODS, "the storm was over before the end came"
    successor = replicas.start(*QUICK_LEASE)
    assert_every_place_is_taken_once(client, namespace)
    assert successor.terminate() == 0


def test_a_scheduler_told_to_stop_in_the_middle_leaves_nothing_half_done(
    client: Client, replicas: Replicas, namespace: str
) -> None:
    storm(client, namespace)
    stopped = replicas.start(*SLOWLY)
    wait_for_bound(client, namespace, SOME)
    assert stopped.terminate() == 0
    left = bound(client, namespace)
    assert len(left) < PODS, "the storm was over before the end came"
    successor = replicas.start()
    assert_every_place_is_taken_once(client, namespace)
    assert left.items() <= bound(client, namespace).items()
    assert successor.terminate() == 0


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


def test_the_work_goes_on_after_the_api_server_was_away(
    plane: ControlPlane, client: Client, replicas: Replicas, namespace: str
) -> None:
    storm(client, namespace)
    scheduler = replicas.start("--lease-duration=60", "--renew-deadline=50", *SLOWLY)
    wait_for_bound(client, namespace, SOME)
    assert len(bound(client, namespace)) < PODS, "the storm was over before the end came"
    plane.stop_component("kube-apiserver")
    plane.start_component("kube-apiserver")
    with plane.access.client() as reconnected:
        assert_every_place_is_taken_once(reconnected, namespace)
        storm(reconnected, namespace, PODS, PODS + 1)
        scheduler.wait_until_says("the watch works again")
        delete_now(reconnected, namespace, "p0")
        eventually(
            lambda: bound(reconnected, namespace),
            lambda nodes: f"p{PODS}" in nodes,
            "the place of the deleted pod taken",
        )
    assert scheduler.terminate() == 0
