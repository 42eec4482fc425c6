"""Runs kopf against a real API server: its watches, and the handling of each object.

Faults of a server are tested with a small server that the test controls.
"""

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import replica
from background import in_background
from controlplane import ControlPlane
from controlplane.client import Client
from handlers.small_api import KOPF, SmallApi, status_writer
from kube.api_server import ApiServer, Request, event, status_object
from kube.virtual_clock import VirtualClock
from mooring.handlers.kopf_objects import ObjectHandlers
from mooring.handlers.runner import (
    ASK_AGAIN_SECONDS,
    GOOD_SECONDS,
    RETRIES,
    UNWATCHED_SECONDS,
    KopfRunner,
)
from mooring.kube.api_resources import POD, PRIORITY_CLASS, SCHEDULING_PROFILE, Resource
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection, load_connection
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing import builders
from mooring.testing.builders import priority_class
from scheduler_states import scheduler_state, silent_pod_enqueuer

SECONDS = 60.0
PROFILES = "/apis/scheduling.mooring.dev/v1alpha1/schedulingprofiles"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

Raw = dict[str, Any]


@pytest.fixture
def client(control_plane: ControlPlane) -> Iterator[Client]:
    """Yield a client of a server with Mooring's CRDs; then delete the objects of the tests."""
    control_plane.access.kubectl("apply", "-f", str(Path(replica.ROOT) / "crds"))
    replica.wait_until_established(control_plane.access)
    with control_plane.access.client() as connected:
        yield connected
        for path in (f"{PROFILES}/kopf-test", f"{CLASSES}/kopf-test"):
            connected.delete(path)


@asynccontextmanager
async def kopf_serving(
    shared: SchedulerState, plane: ControlPlane, listed: Callable[[], None] = lambda: None
) -> AsyncIterator[None]:
    pod_enqueuer = silent_pod_enqueuer(shared)
    connection = await load_connection(
        kubeconfig=str(plane.access.admin_kubeconfig), user_agent="mooring-test"
    )
    before = open_sockets()
    async with ApiClient(connection) as client:
        profiles = status_writer(shared, pod_enqueuer, client)
        handlers = ObjectHandlers(
            pod_enqueuer, profiles, shared.state, turn=shared.turn, listed=listed
        )
        operator = KopfRunner(handlers, connection, client)
        task = asyncio.create_task(operator.run(lambda: None))
        try:
            async with in_background(profiles.run()):
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


async def test_each_object_reaches_its_handler_and_only_statuses_are_written(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    shared, pods = scheduler_state(), f"/api/v1/namespaces/{namespace}/pods"
    client.post(pods, pending_pod("early"))
    api = "scheduling.mooring.dev/v1alpha1"
    client.post(PROFILES, named("SchedulingProfile", api, "kopf-test", spec={}))
    client.post(CLASSES, named("PriorityClass", "scheduling.k8s.io/v1", "kopf-test", value=7))
    async with kopf_serving(shared, control_plane):
        await until(lambda: shared.queue.named(f"{namespace}/early"))
        await until(lambda: "kopf-test" in shared.state.objects.of(Kind.PRIORITY_CLASS))
        await until(lambda: client.get(f"{PROFILES}/kopf-test").get("status"))
        client.post(pods, pending_pod("late"))
        await until(lambda: shared.queue.named(f"{namespace}/late"))
        client.delete(f"{pods}/early")
        await until(lambda: shared.queue.named(f"{namespace}/early") is None)
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
        await until(lambda: shared.queue.named(f"{namespace}/web"))
        target = {"apiVersion": "v1", "kind": "Node", "name": "elsewhere"}
        client.post(f"{pods}/web/binding", named("Binding", "v1", "web", target=target))
        await until(lambda: shared.queue.named(f"{namespace}/web") is None)


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
        await until(lambda: shared.queue.named(f"{namespace}/late"))
    assert [t for t in asyncio.all_tasks() if "watcher" in t.get_name()] == []


@asynccontextmanager
async def small_api() -> AsyncIterator[tuple[SmallApi, ApiServer]]:
    api = SmallApi()
    async with ApiServer(api.respond) as server:
        yield api, server


def handlers_of(
    shared: SchedulerState, client: ApiClient, seen: Callable[[Pod, Mapping[str, Any]], None]
) -> ObjectHandlers:
    pod_enqueuer = silent_pod_enqueuer(shared)
    profiles = status_writer(shared, pod_enqueuer, client)
    return ObjectHandlers(
        pod_enqueuer, profiles, shared.state, turn=shared.turn, listed=lambda: None, seen=seen
    )


@asynccontextmanager
async def kopf_against(
    server: ApiServer,
    shared: SchedulerState,
    *,
    waits: bool = False,
    seen: Callable[[Pod, Mapping[str, Any]], None] = lambda _pod, _raw: None,
    **options: Any,
) -> AsyncIterator[KopfRunner]:
    """Run the real kopf against `server`, whose faults the test controls; yield its runner.

    If `waits` is True, first wait until kopf may watch its resources, as a stand-by replica does.
    """
    connection = Connection(server.url, user_agent=KOPF)
    async with ApiClient(Connection(server.url)) as client:
        operator = KopfRunner(handlers_of(shared, client, seen), connection, client, **options)
        if waits:
            await operator.until_watchable()
        task = asyncio.create_task(operator.run(lambda: None))
        try:
            yield operator
        finally:
            task.cancel()
            await asyncio.wait([task])


class Pauses:
    """A clock, and a `sleep` that takes no time and records the seconds."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_kopf_survives_a_minute_of_server_errors_on_one_of_its_watches() -> None:
    shared = scheduler_state()
    quickly = [0.0] * len(RETRIES)
    assert sum(RETRIES) >= 60
    async with small_api() as (api, server):
        api.refuses[POD] = len(RETRIES)
        async with kopf_against(server, shared, retries=quickly) as operator:
            await until(lambda: api.watches(POD))
            assert api.refuses[POD] == 0
            assert operator.restarts == 0


async def test_a_lone_refusal_of_the_credentials_costs_no_other_request_of_kopf_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise kopf would log in again, and close the session of all its watches."""
    quickly = [0.0] * len(RETRIES)
    async with small_api() as (api, server):
        api.refusal = (401, "Unauthorized")
        async with kopf_against(server, scheduler_state(), retries=quickly) as operator:
            await until(lambda: api.watches(POD) and api.watches(SCHEDULING_PROFILE))
            [pods], [profiles] = api.watches(POD), api.watches(SCHEDULING_PROFILE)
            api.refuses[SCHEDULING_PROFILE] = 2
            profiles.end()
            await until(lambda: api.watches(SCHEDULING_PROFILE) not in ([], [profiles]))
            assert api.refuses[SCHEDULING_PROFILE] == 0
            assert not pods.gone.is_set()
            assert operator.restarts == 0
    assert "Re-authentication" not in caplog.text
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("resource", "items"), [(POD, 5), (SCHEDULING_PROFILE, [{}]), (PRIORITY_CLASS, "classes")]
)
async def test_a_malformed_list_is_one_line_and_is_asked_for_again(
    resource: Resource, items: Any, caplog: pytest.LogCaptureFixture
) -> None:
    paused = list[float]()

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    async with small_api() as (api, server):
        api.items[resource] = items
        async with kopf_against(server, scheduler_state(), sleep=sleep) as operator:
            await until(lambda: len(paused) > 2)
            api.items[resource] = []
            await until(lambda: api.watches(resource))
            assert operator.restarts == 0
    assert paused[0] >= 0.4
    assert max(paused) > 1.5
    [line] = [record for record in caplog.records if record.levelname != "INFO"]
    assert line.exc_info is None
    assert line.getMessage().startswith(f"kopf's list of {resource} is malformed: ")


async def test_a_list_of_nothing_may_be_null() -> None:
    async with small_api() as (api, server):
        for resource in api.items:
            api.items[resource] = None
        async with kopf_against(server, scheduler_state()):
            await until(lambda: all(map(api.watches, api.items)))


@pytest.mark.parametrize(
    ("resource", "sent"),
    [
        (POD, b"no JSON\n"),
        (SCHEDULING_PROFILE, b'{"type":"ADDED","object":5}\n'),
        (PRIORITY_CLASS, b'{"type":"ERROR","object":{}}\n'),
    ],
)
async def test_a_malformed_event_is_one_line_and_the_watch_begins_again_before_it(
    resource: Resource, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    paused = list[float]()

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    async with (
        small_api() as (api, server),
        kopf_against(server, scheduler_state(), sleep=sleep) as operator,
    ):
        await until(lambda: api.watches(resource))
        [watch] = api.watches(resource)
        metadata = {"name": "a", "uid": "u1", "resourceVersion": "7"}
        watch.send({"type": "BOOKMARK", "object": {"metadata": metadata}})
        watch.send_bytes(sent)
        await until(lambda: api.watches(resource) not in ([], [watch]))
        assert operator.restarts == 0
        assert api.watches(resource)[-1].query["resourceVersion"] == "7"
    assert paused
    [line] = [record for record in caplog.records if record.levelname != "INFO"]
    assert line.exc_info is None
    assert line.getMessage().startswith(f"kopf's watch of {resource} is malformed: ")


async def test_the_pause_before_a_restart_of_kopf_is_short_again_after_a_minute_of_work() -> None:
    shared, pauses = scheduler_state(), Pauses()
    async with (
        small_api() as (api, server),
        kopf_against(server, shared, clock=pauses.clock, sleep=pauses.sleep) as operator,
    ):
        for restart in range(1, 6):
            await until(lambda: api.watches(POD))
            pauses.time += GOOD_SECONDS if restart == 5 else 0.0
            [watch] = api.watches(POD)
            watch.send(event("ERROR", status_object(500, "InternalError", "etcd has no leader")))
            await until(lambda: operator.restarts == restart)  # noqa: B023 - awaited here
            await until(lambda: len(pauses.slept) == restart)  # noqa: B023 - awaited here
    assert pauses.slept[3] >= 3.2
    assert pauses.slept[4] <= 0.8


def is_kopfs_task(task: "asyncio.Task[Any]") -> bool:
    """Return whether the task runs kopf's code."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and "/kopf/" in code.co_filename


def kopfs_tasks() -> list[str]:
    """Return the names of kopf's tasks that have not ended."""
    return [task.get_name() for task in asyncio.all_tasks() if is_kopfs_task(task)]


async def test_a_restart_of_kopf_sets_no_time_at_which_the_process_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise kopf would kill the process ten minutes after its tasks are cancelled."""
    timed = list[Any]()
    loop, pauses = asyncio.get_running_loop(), Pauses()
    call_later = loop.call_later

    def record(delay: float, callback: Any, *args: Any, **options: Any) -> asyncio.TimerHandle:
        timed.append(callback)
        return call_later(delay, callback, *args, **options)

    monkeypatch.setattr(loop, "call_later", record)
    async with (
        small_api() as (api, server),
        kopf_against(server, scheduler_state(), sleep=pauses.sleep) as operator,
    ):
        await until(lambda: api.watches(POD))
        api.watches(POD)[0].send(event("ERROR", status_object(500, "InternalError", "no leader")))
        await until(lambda: operator.restarts == 1)
        await until(lambda: api.watches(POD))
    assert timed
    assert signal.pthread_kill not in timed


@pytest.mark.parametrize("turns", [*range(12), *range(28, 42)])
async def test_nothing_of_kopf_is_left_if_it_is_stopped_as_soon_as_it_has_begun(turns: int) -> None:
    async with small_api() as (_, server):
        async with kopf_against(server, scheduler_state(), waits=True):
            for _ in range(turns):
                await asyncio.sleep(0)
        assert kopfs_tasks() == []


@pytest.mark.parametrize("turns", range(0, 24, 3))
async def test_a_stop_while_kopf_is_being_ended_waits_until_it_has_ended(turns: int) -> None:
    clock = VirtualClock()
    async with small_api() as (api, server):
        api.forbidden.add(PRIORITY_CLASS)
        async with kopf_against(server, scheduler_state(), clock=clock, sleep=clock.sleep):
            await until(lambda: api.watches(POD))
            await clock.sleepers(seconds=ASK_AGAIN_SECONDS)
            api.forbidden.clear()
            await clock.advance(ASK_AGAIN_SECONDS)
            for _ in range(turns):
                await asyncio.sleep(0)
        assert kopfs_tasks() == []


async def test_a_replica_whose_kopf_watches_nothing_for_a_minute_is_not_ready() -> None:
    shared, pauses = scheduler_state(), Pauses()
    async with (
        small_api() as (api, server),
        kopf_against(server, shared, clock=pauses.clock, retries=[0.0] * 10**6) as operator,
    ):
        await until(lambda: api.watches(POD) and api.watches(SCHEDULING_PROFILE))
        pauses.time += UNWATCHED_SECONDS + 1
        await until(lambda: operator.problem() is None)
        api.refuses[POD] = 10**6
        api.watches(POD)[0].end()
        await until(lambda: not api.watches(POD))
        assert operator.problem() is None
        await until(lambda: api.refuses[POD] < 10**6)
        pauses.time += UNWATCHED_SECONDS + 1
        words = operator.problem()
        assert words is not None
        assert words.startswith("kopf has not watched pods for 61 seconds")
        api.refuses[POD] = 0
        await until(lambda: operator.problem() is None)


async def test_a_kopf_that_does_not_run_lacks_nothing() -> None:
    shared, pauses = scheduler_state(), Pauses()
    async with small_api() as (api, server):
        async with kopf_against(server, shared, clock=pauses.clock) as operator:
            await until(lambda: api.watches(POD))
        pauses.time += UNWATCHED_SECONDS + 1
        assert operator.problem() is None


async def test_a_missing_right_on_priority_classes_stops_nothing_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared, clock = scheduler_state(), VirtualClock()
    async with small_api() as (api, server):
        api.forbidden.add(PRIORITY_CLASS)
        api.items[PRIORITY_CLASS] = [priority_class("high", 1000)]
        api.items[POD] = [builders.pod("web")]
        async with kopf_against(server, shared, clock=clock, sleep=clock.sleep) as operator:
            await until(lambda: shared.without_profile)
            await clock.sleepers(seconds=ASK_AGAIN_SECONDS)
            await clock.advance(ASK_AGAIN_SECONDS)
            await clock.sleepers(seconds=ASK_AGAIN_SECONDS)
            [said] = [r.getMessage() for r in caplog.records if r.name.startswith("mooring")]
            assert "priorities are shown without name" in said
            assert "may not list priorityclasses.scheduling.k8s.io" in said
            api.forbidden.clear()
            await clock.advance(ASK_AGAIN_SECONDS)
            await until(lambda: "high" in shared.state.objects.of(Kind.PRIORITY_CLASS))
            assert operator.restarts == 0


async def test_a_replica_that_knows_what_kopf_may_watch_does_not_look_again_when_it_leads() -> None:
    """Pods may be waiting since the former leader was killed."""
    shared = scheduler_state()
    async with small_api() as (api, server):
        api.items[POD] = [builders.pod("web")]
        async with kopf_against(server, shared, waits=True):
            before = len(server.seen)
            await until(lambda: shared.without_profile)
        looked = [r for r in server.seen[before:] if r.headers["User-Agent"] != KOPF]
        assert looked == []


async def test_listed_pods_are_queued_each_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """An error with one pod does not affect other pods, and all pods have their kind."""
    shared, seen = scheduler_state(), list[Any]()

    def see(pod: Pod, raw: Mapping[str, Any]) -> None:
        if pod.name == "broken":
            raise ValueError("this one is broken")
        seen.append((pod.name, raw["kind"], raw["apiVersion"]))

    names = [f"web-{number}" for number in range(60)]
    async with small_api() as (api, server):
        api.items[POD] = [builders.pod(name) for name in ("broken", *names)]
        for raw in api.items[POD]:
            raw.pop("kind", None)
            raw.pop("apiVersion", None)
        async with kopf_against(server, shared, seen=see):
            await until(lambda: len(shared.without_profile) == len(names))
    assert seen == [(name, "Pod", "v1") for name in names]
    assert "a pod is not queued: {" in caplog.text
    assert "'name': 'broken'" in caplog.text


async def test_pods_are_listed_when_all_of_the_first_list_have_come_in() -> None:
    shared, api, held = scheduler_state(), SmallApi(), list[Request]()
    api.items[POD] = [builders.pod("web")]

    def respond(request: Request) -> None:
        if request.path == POD.path() and request.headers["User-Agent"] == KOPF and not held:
            held.append(request)
        else:
            api.respond(request)

    async with ApiServer(respond) as server, kopf_against(server, shared) as operator:
        listed = asyncio.create_task(operator.until_pods_are_listed())
        await until(lambda: held)
        assert not listed.done()
        api.respond(held[0])
        await listed
        assert [*shared.without_profile] == [builders.uid_of("web")]


async def test_kopf_lists_page_by_page() -> None:
    """A single list of 50,000 pods would take a gigabyte."""
    async with small_api() as (api, server), kopf_against(server, scheduler_state()):
        await until(lambda: api.watches(POD))
    lists = [r for r in server.seen if r.headers["User-Agent"] == KOPF and r.path == POD.path()]
    assert [request.query.get("limit") for request in lists] == ["100", None]
    assert "watch" in lists[1].query
