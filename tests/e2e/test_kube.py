"""The package `kube` against a real API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from controlplane import ControlPlane
from mooring.kube import reflector as reflector_module
from mooring.kube.api_resources import (
    EVENT,
    LEASE,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    SCHEDULING_PROFILE,
    Resource,
)
from mooring.kube.client import ApiClient
from mooring.kube.config import load_connection
from mooring.kube.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    TooManyRequestsError,
    UnreachableError,
    explain,
)
from mooring.kube.lease import LeaderElector
from mooring.kube.recorder import EventRecorder, ObjectRef
from mooring.kube.reflector import EventType, Reflector
from mooring.kube.writes import PodWriter
from mooring.pausing import pause

WAIT_SECONDS: Final = 30.0


def pod(name: str, namespace: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


class Mirror:
    """The nodes of one namespace's pods by name, filled by a reflector."""

    def __init__(self, namespace: str) -> None:
        self.nodes: dict[str, str | None] = {}
        self.sets = 0
        self.troubles: list[Exception | None] = []
        self._namespace = namespace
        self._changed = asyncio.Event()

    def relist(self, _resource: Resource) -> "Listed":
        return Listed(self)

    def apply(self, _resource: Resource, event: EventType, obj: dict[str, Any]) -> None:
        self.tell(event, obj)
        pause()

    def tell(self, event: EventType, obj: dict[str, Any]) -> None:
        metadata = obj["metadata"]
        if metadata["namespace"] != self._namespace:
            return
        if event == "DELETED":
            del self.nodes[metadata["name"]]
        else:
            self.nodes[metadata["name"]] = obj["spec"].get("nodeName")
        self._changed.set()

    def on_trouble(self, _resource: Resource, error: Exception | None) -> None:
        self.troubles.append(error)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Listed:
    """The pods of one list, by name, before the mirror takes them over."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._pods: dict[tuple[str, str], dict[str, Any]] = {}

    def add(self, obj: dict[str, Any]) -> None:
        self._pods[obj["metadata"]["namespace"], obj["metadata"]["name"]] = obj
        pause()

    def remove(self, obj: dict[str, Any]) -> None:
        del self._pods[obj["metadata"]["namespace"], obj["metadata"]["name"]]

    def apply(self) -> None:
        pause()
        self._mirror.sets += 1
        self._mirror.nodes.clear()
        for obj in self._pods.values():
            self._mirror.tell("ADDED", obj)


@asynccontextmanager
async def running(*tasks: Any) -> AsyncIterator[list[asyncio.Task[Any]]]:
    started = [asyncio.create_task(task) for task in tasks]
    try:
        yield started
    finally:
        for task in started:
            task.cancel()
        await asyncio.wait(started)


@pytest.fixture(scope="module")
def own() -> Iterator[ControlPlane]:
    """Yield a server that a test may restart, without Mooring's CRDs and roles."""
    with ControlPlane(users={"dora": []}) as started:
        yield started


@asynccontextmanager
async def connected(control_plane: ControlPlane, user: str = "admin") -> AsyncIterator[ApiClient]:
    path = str(control_plane.access.kubeconfig_for(user))
    async with ApiClient(await load_connection(path, environ={})) as session:
        yield session


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """Return the shared server without Mooring's manifests."""
    return control_plane


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[ApiClient]:
    async with connected(control_plane) as session:
        yield session


@pytest.fixture
async def node(client: ApiClient, namespace: str) -> AsyncIterator[str]:
    """Yield the name of a new node, which is the namespace's; delete the node after the test."""
    await client.create(NODE, {"metadata": {"name": namespace}})
    yield namespace
    await client.delete(NODE, namespace)


async def test_a_mirror_follows_real_pods(client: ApiClient, namespace: str, node: str) -> None:
    before = await client.create(POD, pod("before", namespace))
    mirror = Mirror(namespace)
    reflector = Reflector(client, POD, mirror, on_trouble=mirror.on_trouble)
    async with running(reflector.run()):
        await mirror.until(lambda: mirror.nodes == {"before": None})
        await client.create(POD, pod("after", namespace))
        await PodWriter(client).bind(namespace, "before", before["metadata"]["uid"], node)
        await mirror.until(lambda: mirror.nodes == {"before": node, "after": None})
        await client.delete(POD, "after", namespace)
        await mirror.until(lambda: mirror.nodes == {"before": node})
    assert reflector._watch_list
    assert (mirror.sets, mirror.troubles) == (1, [])


async def test_a_mirror_by_pages_follows_them_too(
    client: ApiClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector_module, "SMALL_PAGE_SIZE", 2)
    for number in range(5):
        await client.create(POD, pod(f"p{number}", namespace))
    mirror = Mirror(namespace)
    reflector = Reflector(client, POD, mirror)
    reflector._watch_list = False
    async with running(reflector.run()):
        await mirror.until(lambda: len(mirror.nodes) == 5)
        await client.delete(POD, "p0", namespace)
        await mirror.until(lambda: len(mirror.nodes) == 4)
    assert mirror.sets == 1


async def test_a_mirror_outlives_the_server(own: ControlPlane) -> None:
    async with connected(own) as client:
        mirror = Mirror("default")
        reflector = Reflector(client, POD, mirror, on_trouble=mirror.on_trouble)
        async with running(reflector.run()):
            await reflector.synced.wait()
            await asyncio.to_thread(own.stop_component, "kube-apiserver")
            await mirror.until(lambda: bool(mirror.troubles))
            with pytest.raises(UnreachableError) as raised:
                await client.create(POD, pod("lost", "default"))
            await asyncio.to_thread(own.start_component, "kube-apiserver")
            await client.create(POD, pod("later", "default"))
            await mirror.until(lambda: mirror.nodes == {"later": None})
        assert own.access.url in explain(raised.value)

        # The restarted server no longer knows what was before it.
        late = Mirror("default")
        reflector = Reflector(client, POD, late, on_trouble=late.on_trouble)
        reflector._version = "1"
        async with running(reflector.run()):
            await late.until(lambda: late.nodes == {"later": None})
        assert isinstance(late.troubles[0], GoneError)


async def test_every_write_to_a_pod_is_refused_for_another_of_its_name(
    client: ApiClient, namespace: str, node: str
) -> None:
    await client.create(POD, pod("web", namespace))
    writer = PodWriter(client)
    other = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(NotFoundError, match="another one has its name"):
        await writer.bind(namespace, "web", other, node)
    with pytest.raises(ConflictError, match="uid"):
        await writer.patch_pod_status(namespace, "web", other, {"nominatedNodeName": node})
    assert not await writer.delete_pod(namespace, "web", other)
    assert not await writer.evict_pod(namespace, "web", other)
    assert "deletionTimestamp" not in (await client.get(POD, "web", namespace))["metadata"]


async def test_a_pod_is_bound_once(client: ApiClient, namespace: str, node: str) -> None:
    created = await client.create(POD, pod("web", namespace))
    uid = created["metadata"]["uid"]
    writer = PodWriter(client)
    with pytest.raises(NotFoundError):
        await writer.bind(namespace, "missing", uid, node)
    await writer.bind(namespace, "web", uid, node)
    with pytest.raises(ConflictError, match="already assigned"):
        await writer.bind(namespace, "web", uid, "another-node")
    await writer.bind(namespace, "web", uid, node)  # as a try that is repeated


async def test_a_condition_is_merged_by_its_type(client: ApiClient, namespace: str) -> None:
    created = await client.create(POD, pod("web", namespace))
    uid = created["metadata"]["uid"]
    writer = PodWriter(client)
    for condition in ("PodScheduled", "DisruptionTarget"):
        status = {"conditions": [{"type": condition, "status": "False", "reason": "Testing"}]}
        await writer.patch_pod_status(namespace, "web", uid, status)
    conditions = (await client.get(POD, "web", namespace))["status"]["conditions"]
    assert {condition["type"] for condition in conditions} == {"PodScheduled", "DisruptionTarget"}


async def test_an_eviction_keeps_within_the_budget(
    client: ApiClient, namespace: str, node: str
) -> None:
    created = await client.create(POD, pod("web", namespace))
    uid = created["metadata"]["uid"]
    writer = PodWriter(client)
    await writer.bind(namespace, "web", uid, node)
    await writer.patch_pod_status(namespace, "web", uid, {"phase": "Running"})
    budget = {
        "metadata": {"name": "budget", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {}},
    }
    await client.create(POD_DISRUPTION_BUDGET, budget)
    with pytest.raises(TooManyRequestsError):
        await writer.evict_pod(namespace, "web", uid)
    await client.delete(POD_DISRUPTION_BUDGET, "budget", namespace)
    assert await writer.evict_pod(namespace, "web", uid)


async def test_repeated_events_are_one_event_with_a_series(
    client: ApiClient, namespace: str
) -> None:
    recorder = EventRecorder(client, "mooring", "mooring-0")
    web = ObjectRef("Pod", "web", namespace, "u1")
    async with running(recorder.run()):
        for _ in range(3):
            recorder.record(web, "Warning", "FailedScheduling", "Scheduling", "0/1 nodes")
            assert await recorder.drain(WAIT_SECONDS)
    (event,) = (await client.list_all(EVENT, namespace)).items
    assert (event["note"], event["series"]["count"]) == ("0/1 nodes", 3)
    assert recorder.refused == 0


async def test_a_released_lease_goes_to_the_waiting_replica(
    client: ApiClient, namespace: str
) -> None:
    def elector(identity: str) -> LeaderElector:
        return LeaderElector(
            client,
            name="mooring",
            namespace=namespace,
            identity=identity,
        )

    started: asyncio.Queue[str] = asyncio.Queue()
    a, b = elector("a"), elector("b")
    async with (
        asyncio.timeout(WAIT_SECONDS),
        running(
            a.run(lambda: started.put_nowait("a"), lambda: None),
            b.run(lambda: started.put_nowait("b"), lambda: None),
        ) as (task_a, task_b),
    ):
        first = await started.get()
        (task_a if first == "a" else task_b).cancel()
        assert {first, await started.get()} == {"a", "b"}
    spec = (await client.get(LEASE, "mooring", namespace))["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 1)


async def test_refusals_of_the_real_server_are_explained(own: ControlPlane) -> None:
    async with connected(own, "dora") as dora:
        with pytest.raises(ForbiddenError) as forbidden:
            await PodWriter(dora).bind("default", "web", "u1", "n1")
    assert explain(forbidden.value) == (
        'user "dora" may not create pods/binding default/web; '
        "grant it with: kubectl apply -k manifests/"
    )
    async with connected(own) as admin:
        with pytest.raises(NotFoundError) as missing:
            await admin.list_all(SCHEDULING_PROFILE)
    assert explain(missing.value).endswith("create it with: kubectl apply -f crds/")


async def test_a_server_with_a_foreign_certificate_is_not_trusted(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = json.loads(control_plane.access.admin_kubeconfig.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority"]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    async with ApiClient(await load_connection(str(path), environ={})) as stranger:
        with pytest.raises(UnreachableError) as raised:
            await stranger.list_all(NODE)
    assert "its certificate is not trusted" in explain(raised.value)
