"""kopf against the real API server: what it watches, and where each object goes."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import replica
from controlplane import ControlPlane
from controlplane.client import Client
from mooring.engine.intake import Intake
from mooring.engine.scheduler_state import SchedulerState
from mooring.handlers.operator import KopfOperator
from mooring.handlers.profiles import ProfileHandler
from mooring.kube.client import ApiClient
from mooring.kube.config import load_connection
from mooring.model.events import Kind
from scheduler_states import SHIPPED_ONLY, scheduler_state

SECONDS = 60.0
PROFILES = "/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

Raw = dict[str, Any]


@pytest.fixture
def client(control_plane: ControlPlane) -> Iterator[Client]:
    """A client of a server that knows SchedulingProfiles; what the tests made is gone after."""
    control_plane.access.kubectl("apply", "-f", str(Path(replica.ROOT) / "crds"))
    control_plane.access.kubectl(
        "wait", "--for=condition=Established", "-f", str(Path(replica.ROOT) / "crds")
    )
    with control_plane.access.client() as connected:
        yield connected
        for path in (f"{PROFILES}/kopf-test", f"{CLASSES}/kopf-test"):
            connected.delete(path)


@asynccontextmanager
async def kopf_serving(
    shared: SchedulerState, plane: ControlPlane, listed: Callable[[], None] = lambda: None
) -> AsyncIterator[None]:
    intake = Intake(
        shared,
        clock=lambda: 0.0,
        wake=lambda: None,
        left=lambda _: None,
        failed=lambda _pod, _message: None,
    )
    profile_handler = ProfileHandler(shared.profiles, SHIPPED_ONLY, intake)
    connection = await load_connection(
        kubeconfig=str(plane.access.admin_kubeconfig), user_agent="mooring-test"
    )
    before = open_sockets()
    async with ApiClient(connection) as client:
        operator = KopfOperator(
            intake, profile_handler, shared.state, connection, client, listed=listed
        )
        task = asyncio.create_task(operator.run(lambda: None))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    # Connections that kopf itself ended wait for the server's farewell.
    await until(lambda: open_sockets() <= before)


def open_sockets() -> int:
    with os.scandir("/dev/fd") as entries:
        numbers = [int(entry.name) for entry in entries]
    return sum(is_socket(number) for number in numbers)


def is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:  # the one that listed the others
        return False


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - kopf has no event for it
            await asyncio.sleep(0.02)


def named(kind: str, version: str, name: str, **fields: Any) -> Raw:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def pending_pod(name: str) -> Raw:
    containers = [{"name": "c", "image": "registry.example/c:1"}]
    return named("Pod", "v1", name, spec={"schedulerName": "kopf-test", "containers": containers})


async def test_each_object_reaches_its_room_and_only_statuses_are_written(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    shared, pods = scheduler_state(), f"/api/v1/namespaces/{namespace}/pods"
    client.post(pods, pending_pod("early"))
    api = "scheduling.mooring.dev/v1alpha1"
    client.post(PROFILES, named("SchedulingProfile", api, "kopf-test", spec={}))
    client.post(CLASSES, named("PriorityClass", "scheduling.k8s.io/v1", "kopf-test", value=7))
    async with kopf_serving(shared, control_plane):
        await until(lambda: shared.queue.get(f"{namespace}/early"))
        await until(lambda: "kopf-test" in shared.state.objects.of(Kind.PRIORITY_CLASS))
        await until(lambda: client.get(f"{PROFILES}/kopf-test").get("status"))
        client.post(pods, pending_pod("late"))
        await until(lambda: shared.queue.get(f"{namespace}/late"))
        client.delete(f"{pods}/early")
        await until(lambda: shared.queue.get(f"{namespace}/early") is None)
    profile, late = client.get(f"{PROFILES}/kopf-test"), client.get(f"{pods}/late")
    assert profile["status"]["conditions"][0]["reason"] == "InForce"
    for written in (profile, late):
        assert "annotations" not in written["metadata"]
        assert "finalizers" not in written["metadata"]


async def test_a_pod_that_is_bound_leaves_the_queue(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    shared, pods = scheduler_state(), f"/api/v1/namespaces/{namespace}/pods"
    api = "scheduling.mooring.dev/v1alpha1"
    client.post(PROFILES, named("SchedulingProfile", api, "kopf-test", spec={}))
    client.post(CLASSES, named("PriorityClass", "scheduling.k8s.io/v1", "kopf-test", value=7))
    client.post(pods, pending_pod("web"))
    async with kopf_serving(shared, control_plane):
        await until(lambda: shared.queue.get(f"{namespace}/web"))
        target = {"apiVersion": "v1", "kind": "Node", "name": "elsewhere"}
        client.post(f"{pods}/web/binding", named("Binding", "v1", "web", target=target))
        await until(lambda: shared.queue.get(f"{namespace}/web") is None)


async def test_kopf_is_started_again_when_a_part_of_it_ends(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    shared, pods, listings = scheduler_state(), f"/api/v1/namespaces/{namespace}/pods", 0

    def listed() -> None:
        nonlocal listings
        listings += 1

    api = "scheduling.mooring.dev/v1alpha1"
    client.post(PROFILES, named("SchedulingProfile", api, "kopf-test", spec={}))
    client.post(CLASSES, named("PriorityClass", "scheduling.k8s.io/v1", "kopf-test", value=7))
    async with kopf_serving(shared, control_plane, listed):
        await until(lambda: listings)
        [part] = [t for t in asyncio.all_tasks() if t.get_name() == "resource observer"]
        part.cancel()
        before = listings
        await until(lambda: listings > before)
        client.post(pods, pending_pod("late"))
        await until(lambda: shared.queue.get(f"{namespace}/late"))
    assert [t for t in asyncio.all_tasks() if "watcher" in t.get_name()] == []
