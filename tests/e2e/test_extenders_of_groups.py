"""kube-scheduler (with its gates on) and Mooring place gangs with the same extender."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from threading import Event
from typing import Any, Final

import pytest

import replica
from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.nodes import create_nodes
from controlplane.releases import chosen_release
from deterministic_extender import SEED, application, filtered
from e2e.replicas import PROFILES, Replicas, bound, create_pods, eventually, pod, pods, ready
from extending import Answers
from http_servers import served_by_thread
from mooring.testing.builders import pod_group
from policies import profile

pytestmark = pytest.mark.pod_groups

Raw = dict[str, Any]

CARD: Final = "example.com/card"
SLOW_CARD: Final = "example.com/slow-card"
RELEASE: Final = chosen_release()
SCHEDULERS: Final = ("default-scheduler", "extended")
ANSWER_SEED: Final = "seven"


def extender(port: int, resource: str) -> Raw:
    """Return the configuration of the extender on this port for pods that request the resource."""
    return {
        "urlPrefix": f"http://127.0.0.1:{port}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 1,
        "nodeCacheCapable": True,
        "httpTimeout": "60s",
        "managedResources": [{"name": resource, "ignoredByScheduler": True}],
    }


@pytest.fixture(scope="module")
def answering() -> Iterator[Event]:
    """Return an event; the test sets it to let the slow extender answer."""
    answers = Event()
    yield answers
    answers.set()


@pytest.fixture(scope="module")
def called() -> Event:
    """Return an event that is set when the slow extender has been called."""
    return Event()


@pytest.fixture(scope="module")
def plane(
    answering: Event, called: Event, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Yield a control plane with both schedulers, the same extenders, and eight nodes."""

    async def slow(arguments: Raw) -> object:
        called.set()
        while not answering.is_set():  # noqa: ASYNC110 - the event belongs to another thread
            await asyncio.sleep(0.01)
        return {"NodeNames": arguments["NodeNames"]}

    held = Answers(filter=slow, prioritize=[])
    with ExitStack() as stack:
        port = stack.enter_context(served_by_thread(application()))
        slow_port = stack.enter_context(served_by_thread(held.application()))
        extenders = [extender(port, CARD), extender(slow_port, SLOW_CARD)]
        plane = ControlPlane(
            {"kube-scheduler"},
            flags=RELEASE.pod_group_flags(),
            scheduler_config={"extenders": extenders},
        )
        stack.enter_context(plane)
        replica.apply_manifests(plane.access)
        create_nodes(plane.access, 8, capacity={"cpu": "4", "memory": "8Gi", "pods": "110"})
        client = stack.enter_context(plane.access.client())
        client.post(PROFILES, profile("extended", extenders=extenders))
        folder = tmp_path_factory.mktemp("mooring")
        replicas = stack.enter_context(Replicas.of(plane.access, folder))
        replicas.start().wait_until_leads()
        found = partial(client.get, f"{PROFILES}/extended")
        eventually(found, lambda raw: ready(raw)[0] == "True", "a profile in force")
        yield plane


def passed(client: Client) -> set[str]:
    """Return the names of the nodes that the extender passes for every member."""
    names = [raw["metadata"]["name"] for raw in client.get("/api/v1/nodes")["items"]]
    seeded = {"metadata": {"name": "any", "annotations": {SEED: ANSWER_SEED}}}
    return set(filtered({"Pod": seeded, "NodeNames": names})["NodeNames"])


def gang(namespace: str, size: int, scheduler: str, resource: str = CARD) -> list[Raw]:
    """Return members that each need a whole node."""
    cards = {resource: "1"}
    group = {"schedulingGroup": {"podGroupName": "g"}}
    raws = [
        pod(f"g-{i}", cpu="3", scheduler=scheduler, requests=cards, limits=cards, **group)
        for i in range(size)
    ]
    for raw in raws:
        raw["metadata"]["annotations"] = {SEED: ANSWER_SEED}
        raw["metadata"]["namespace"] = namespace
    return raws


def create(client: Client, namespace: str, members: list[Raw]) -> None:
    create_pods(client, namespace, *members)
    group = pod_group("g", len(members), namespace=namespace)
    client.post(RELEASE.pod_groups(namespace), RELEASE.versioned(group))


def message(client: Client, namespace: str, name: str) -> str:
    conditions = pods(client, namespace)[name]["status"].get("conditions", ())
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_both_place_a_gang_whole_on_the_nodes_that_the_extender_passes(
    client: Client, namespace: str, scheduler: str
) -> None:
    nodes = passed(client)
    assert 2 <= len(nodes) < 8
    create(client, namespace, gang(namespace, len(nodes), scheduler))
    found = eventually(
        partial(bound, client, namespace), lambda on: len(on) == len(nodes), "the gang"
    )
    assert set(found.values()) == nodes


def test_no_other_pod_waits_while_an_extender_is_called_for_a_gang(
    client: Client, namespace: str, called: Event, answering: Event
) -> None:
    create(client, namespace, gang(namespace, 2, "extended", SLOW_CARD))
    assert called.wait(60)
    create_pods(client, namespace, pod("single", scheduler="extended"))
    found = eventually(partial(bound, client, namespace), len, "the single pod")
    assert found.keys() == {"single"}
    answering.set()
    eventually(partial(bound, client, namespace), lambda on: len(on) == 3, "the gang")
