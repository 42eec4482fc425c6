"""The API through which plugins use the API server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from kube.api_server import ApiServer, Request
from kube.virtual_clock import VirtualClock
from mooring.framework.handle import ReadAgainError
from mooring.framework.verdicts import PluginError
from mooring.kube.api_resources import POD
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.errors import ConflictError, ForbiddenError, NotWantedError
from mooring.kube.recorder import EventRecorder
from mooring.kube.writes import PodWriter
from mooring.model.pod import Uid, parse_pod
from mooring.scheduling.plugin_api import BindAttempt, PluginApi
from mooring.testing.builders import pod

WEB = parse_pod(pod("web"))
LONG = 30.0
AT_ONCE = {"Retry-After": "0"}
Bind = Callable[..., Coroutine[Any, Any, None]]
Attempts = dict[Uid, BindAttempt]


@pytest.fixture
def at_bind() -> Attempts:
    return {}


@pytest.fixture
async def api(server: ApiServer, at_bind: Attempts) -> AsyncIterator[PluginApi]:
    async with ApiClient(Connection(server.url)) as client:
        yield PluginApi(client, PodWriter(client), at_bind)


@pytest.fixture
def bind(api: PluginApi, at_bind: Attempts) -> Bind:
    """Return a function that binds the pod to node a while `wanted` returns True."""

    async def attempt(wanted: Callable[[], bool] = lambda: True) -> None:
        at_bind[WEB.uid] = BindAttempt("a", wanted)
        await api.bind(WEB, "a")

    return attempt


async def test_a_binding_names_the_very_pod_and_its_node(server: ApiServer, bind: Bind) -> None:
    binding = asyncio.create_task(bind())
    request = await server.next()
    request.reply({}, 201)
    await binding
    assert request.path == "/api/v1/namespaces/default/pods/web/binding"
    assert request.body["metadata"]["uid"] == WEB.uid
    assert request.body["target"]["name"] == "a"


async def test_every_binding_carries_the_pods_annotations_until_they_are_taken_back(
    server: ApiServer, api: PluginApi, bind: Bind
) -> None:
    """The client repeats a failed Binding with the annotations."""
    api.annotate(WEB, {"card": "0"})
    api.annotate(WEB, {"memory": "4"})
    for _ in range(2):
        binding = asyncio.create_task(bind())
        request = await server.next()
        request.refuse(403, "Forbidden", "no")
        with pytest.raises(ForbiddenError):
            await binding
        assert request.body["metadata"]["annotations"] == {"card": "0", "memory": "4"}


async def test_annotations_that_are_taken_back_are_not_sent(
    server: ApiServer, api: PluginApi, bind: Bind
) -> None:
    api.annotate(WEB, {"card": "0"})
    api.annotate(WEB, {})
    binding = asyncio.create_task(bind())
    request = await server.next()
    request.reply({}, 201)
    await binding
    assert "annotations" not in request.body["metadata"]


async def test_the_time_is_in_nanoseconds(api: PluginApi) -> None:
    assert api.unix_nanoseconds() > 10**18


async def test_an_error_of_a_binding_is_raised_to_the_plugin(server: ApiServer, bind: Bind) -> None:
    binding = asyncio.create_task(bind())
    (await server.next()).refuse(409, "Conflict", "already bound")
    (await server.next()).reply({"metadata": {"uid": WEB.uid}, "spec": {"nodeName": "b"}})
    with pytest.raises(ConflictError):
        await binding


@pytest.mark.parametrize("tries", [0, 1])
async def test_a_binding_that_is_not_wanted_any_more_is_not_sent_or_not_sent_again(
    server: ApiServer, bind: Bind, tries: int
) -> None:
    """For example, the pod's group may be called off while the Binding waits for a connection."""
    answers = iter([True] * (1 + tries))  # the first is asked for before a connection
    binding = asyncio.create_task(bind(lambda: next(answers, False)))
    for _ in range(tries):
        (await server.next()).refuse(429, "TooManyRequests", "busy", **AT_ONCE)
    with pytest.raises(NotWantedError):
        await binding
    assert len(server.seen) == tries


@pytest.mark.parametrize(("other", "node"), [("other", "a"), ("web", "b")])
async def test_no_other_pod_is_bound_and_to_no_other_node_than_an_attempt_is_about(
    server: ApiServer, api: PluginApi, at_bind: Attempts, other: str, node: str
) -> None:
    with pytest.raises(PluginError, match="cannot be bound to node a now: call bind only"):
        await api.bind(WEB, "a")
    at_bind[WEB.uid] = BindAttempt("a", lambda: True)
    with pytest.raises(PluginError, match=f"default/{other} cannot be bound to node {node} now"):
        await api.bind(parse_pod(pod(other)), node)
    assert server.seen == []


async def test_a_task_that_a_plugin_began_before_may_bind_a_pod_that_is_at_bind(
    server: ApiServer, api: PluginApi, at_bind: Attempts
) -> None:
    begins = asyncio.Event()

    async def work() -> None:
        await begins.wait()
        await api.bind(WEB, "a")

    working = asyncio.create_task(work())
    attempt = at_bind[WEB.uid] = BindAttempt("a", lambda: True)
    begins.set()
    (await server.next()).reply({}, 201)
    await working
    assert await attempt.is_bound()


async def test_a_scheduler_that_stops_leaves_no_binding_of_a_plugin_behind(
    server: ApiServer, api: PluginApi, at_bind: Attempts
) -> None:
    async def attempt() -> None:
        at_bind[WEB.uid] = BindAttempt("a", lambda: True)
        try:
            await asyncio.create_task(api.bind(WEB, "a"))
        finally:
            await at_bind[WEB.uid].end()

    def on_their_way() -> int:
        coroutines = (task.get_coro() for task in asyncio.all_tasks())
        return sum("PodWriter.bind" in str(coroutine) for coroutine in coroutines)

    binding = asyncio.create_task(attempt())
    await server.next()
    assert on_their_way() == 1
    binding.cancel()
    await asyncio.wait((binding,))
    assert on_their_way() == 0


async def test_a_patch_returns_the_object_as_it_is_then(server: ApiServer, api: PluginApi) -> None:
    patching = asyncio.create_task(
        api.patch("persistentvolumeclaims", "default", "data", {"spec": {"volumeName": "pv"}})
    )
    request = await server.next()
    request.reply({"metadata": {"name": "data", "resourceVersion": "7"}})
    assert (await patching)["metadata"]["resourceVersion"] == "7"
    assert request.method == "PATCH"
    assert request.path == "/api/v1/namespaces/default/persistentvolumeclaims/data"


async def test_a_resource_that_plugins_may_not_patch_causes_no_request(
    server: ApiServer, api: PluginApi
) -> None:
    with pytest.raises(KeyError, match="secrets"):
        await api.patch("secrets", "default", "token", {})
    assert server.seen == []


async def test_until_returns_at_once_if_the_predicate_is_true(api: PluginApi) -> None:
    await api.until(lambda: True, LONG)


async def test_a_cluster_event_evaluates_every_predicate_again(api: PluginApi) -> None:
    volumes: list[str] = []
    looks = asyncio.Semaphore(0)

    def bound(count: int) -> bool:
        looks.release()
        return len(volumes) >= count

    first = asyncio.create_task(api.until(lambda: bound(1), LONG))
    second = asyncio.create_task(api.until(lambda: bound(2), LONG))
    for _ in range(2):
        await looks.acquire()
    volumes.append("pv-1")
    api.cluster_changed()
    await first
    await looks.acquire()
    assert not second.done()
    volumes.append("pv-2")
    api.cluster_changed()
    await second


async def test_many_waits_look_again_once_after_many_changes(client: ApiClient) -> None:
    """Thousands of pods may wait for volumes, and hundreds of changes may come together."""
    clock, bound, looks = VirtualClock(), False, 0
    api = PluginApi(client, PodWriter(client), {}, sleep=clock.sleep)

    def looked() -> bool:
        nonlocal looks
        looks += 1
        return bound

    waits = [asyncio.create_task(api.until(looked, LONG)) for _ in range(1_000)]
    for _ in range(20):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        api.cluster_changed()
    assert looks == len(waits)
    bound = True
    await clock.sleepers(len(waits))
    await clock.advance(1.0)
    await asyncio.gather(*waits)
    assert looks == 2 * len(waits)


async def test_until_raises_timeout_error_after_the_timeout(api: PluginApi) -> None:
    with pytest.raises(TimeoutError):
        await api.until(lambda: False, 0.0)


async def test_an_error_of_a_predicate_is_raised_to_the_plugin_that_waits(api: PluginApi) -> None:
    looked = asyncio.Event()

    def lost_claim() -> bool:
        if looked.is_set():
            raise LookupError("the claim has gone")
        looked.set()
        return False

    waiting = asyncio.create_task(api.until(lost_claim, LONG))
    await looked.wait()
    api.cluster_changed()
    with pytest.raises(LookupError, match="the claim has gone"):
        await waiting


# ---- Claims

CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
PATCH: dict[str, Any] = {"metadata": {"resourceVersion": "3"}, "status": {}}


async def test_an_update_is_a_merge_patch_of_the_subresource(
    server: ApiServer, api: PluginApi
) -> None:
    update = asyncio.create_task(
        api.update("resourceclaims", "default", "c", PATCH, subresource="status")
    )
    request = await server.next()
    request.reply({"metadata": {"name": "c"}})
    assert await update == {"metadata": {"name": "c"}}
    assert (request.method, request.path, request.body) == ("PATCH", f"{CLAIM}/status", PATCH)


@pytest.mark.parametrize(
    ("status", "reason"), [(409, "Conflict"), (404, "NotFound"), (500, "InternalError")]
)
async def test_an_update_of_another_version_or_without_an_answer_is_to_be_read_again(
    server: ApiServer, api: PluginApi, status: int, reason: str
) -> None:
    update = asyncio.create_task(api.update("resourceclaims", "default", "c", PATCH))
    request = await server.next()
    request.refuse(status, reason, "no")
    with pytest.raises(ReadAgainError):
        await update


async def test_an_update_that_is_forbidden_is_an_error_of_the_api_server(
    server: ApiServer, api: PluginApi
) -> None:
    update = asyncio.create_task(api.update("resourceclaims", "default", "c", PATCH))
    request = await server.next()
    request.refuse(403, "Forbidden", "no")
    with pytest.raises(ForbiddenError):
        await update


async def test_a_read_waits_until_the_server_answers(server: ApiServer) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with ApiClient(Connection(server.url)) as client:
        api = PluginApi(client, PodWriter(client), {}, sleep=sleep)
        read = asyncio.create_task(api.read("resourceclaims", "default", "c"))
        (await server.next()).refuse(500, "InternalError", "no")
        (await server.next()).reply({"metadata": {"name": "c"}})
        assert await read == {"metadata": {"name": "c"}}
    assert len(pauses) == 1


async def test_an_object_that_is_gone_is_read_as_none(server: ApiServer, api: PluginApi) -> None:
    read = asyncio.create_task(api.read("resourceclaims", "default", "c"))
    (await server.next()).refuse(404, "NotFound", "no")
    assert await read is None


async def test_an_event_about_a_pod_is_recorded_once_there_is_a_recorder(api: PluginApi) -> None:
    api.record(WEB, "Pending", "nobody hears of it")
    async with ApiClient(Connection("http://127.0.0.1:1")) as client:
        recorder = EventRecorder(client, "mooring", "replica", capacity=1)
        api.recorder = recorder
        for _ in range(2):
            api.record(WEB, "Pending", "waiting for devices")
            api.record(WEB, "Other", "waiting for devices")
        assert recorder.dropped > 0


async def write_alone(api: PluginApi) -> None:
    """Write a claim inside `alone`."""
    async with api.alone("c"):
        await api.update("resourceclaims", "default", "c", PATCH)


async def come(api: PluginApi, came: list[str], name: str) -> None:
    """Enter `alone`, and append `name` to `came`."""
    async with api.alone("c"):
        came.append(name)


async def test_callers_are_alone_one_after_the_other_for_each_key(api: PluginApi) -> None:
    order: list[str] = []

    async def caller(name: str, key: str) -> None:
        async with api.alone(key):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(caller("a", "x"), caller("b", "x"))
    assert order == ["a in", "a out", "b in", "b out"]
    order.clear()
    await asyncio.gather(caller("a", "x"), caller("b", "y"))
    assert order == ["a in", "b in", "a out", "b out"]


async def test_a_turn_goes_on_until_the_write_of_a_cancelled_caller_is_answered(
    server: ApiServer, api: PluginApi
) -> None:
    """Otherwise the next caller would read the object before this write arrives."""
    came: list[str] = []

    first = asyncio.create_task(write_alone(api))
    request = await server.next()
    second = asyncio.create_task(come(api, came, "next"))
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    async with api.alone("another"):
        assert came == []
    request.reply({"metadata": {"name": "c"}})
    await second
    assert came == ["next"]


async def test_a_task_that_outlives_its_turn_does_not_end_the_turn_of_another(
    server: ApiServer, api: PluginApi
) -> None:
    """A plugin may start a task in its turn that writes only after the turn."""
    came: list[str] = []
    may_write, may_leave = asyncio.Event(), asyncio.Event()

    async def late() -> None:
        await may_write.wait()
        await api.update("resourceclaims", "default", "c", PATCH)

    async def turn(name: str) -> None:
        async with api.alone("c"):
            came.append(name)
            await may_leave.wait()

    async with api.alone("c"):
        straggler = asyncio.create_task(late())
    holder = asyncio.create_task(turn("holder"))
    may_write.set()
    request = await server.next()
    straggler.cancel()
    await asyncio.wait([straggler])
    (write,) = (t for t in asyncio.all_tasks() if "ApiClient.patch" in repr(t.get_coro()))
    request.reply({"metadata": {"name": "c"}})
    await write
    waiting = asyncio.create_task(turn("next"))
    await asyncio.sleep(0)  # so that it begins, and comes in if nobody keeps it out
    assert came == ["holder"]
    may_leave.set()
    await asyncio.gather(holder, waiting)
    assert came == ["holder", "next"]


async def test_a_write_that_is_not_sent_when_its_caller_is_cancelled_is_not_sent_any_more(
    server: ApiServer, api: PluginApi
) -> None:
    first = asyncio.create_task(write_alone(api))
    request = await server.next()
    first.cancel()
    request.refuse(429, "TooManyRequests", "later", **{"Retry-After": "0"})
    async with api.alone("c"):
        pass
    assert len(server.seen) == 1


async def test_the_writes_of_a_turn_do_not_overtake_each_other(
    server: ApiServer, api: PluginApi
) -> None:
    """A plugin may write after its cancellation, and be cancelled again."""
    came: list[str] = []

    async def write() -> None:
        async with api.alone("c"):
            try:
                await api.update("resourceclaims", "default", "c", PATCH)
            finally:
                await api.update("resourceclaims", "default", "c", PATCH)

    first = asyncio.create_task(write())
    one = await server.next()
    first.cancel()
    second = asyncio.create_task(come(api, came, "next"))
    other = asyncio.create_task(api.update("resourceclaims", "default", "d", PATCH))
    (await server.next()).reply({"metadata": {"name": "d"}})
    assert await other == {"metadata": {"name": "d"}}
    assert len(server.seen) == 2
    one.reply({"metadata": {"name": "c"}})
    two = await server.next()
    first.cancel()
    await asyncio.wait([first])
    assert came == []
    two.reply({"metadata": {"name": "c"}})
    await second
    assert came == ["next"]


async def finishes_after_the_answer(server: ApiServer, api: PluginApi, request: Request) -> None:
    """Check that `finish` waits until the server answers the request."""
    finishing = asyncio.create_task(api.finish(LONG))
    async with ApiClient(Connection(server.url)) as client:
        other = asyncio.create_task(client.get(POD, "other", "default"))
        (await server.next()).reply({"metadata": {"name": "other"}})
        await other
    assert not finishing.done()
    assert not request.gone.is_set()
    request.reply({"metadata": {"name": "c"}})
    await finishing


@pytest.mark.parametrize("stops_before", [True, False])
async def test_a_scheduler_that_stops_awaits_the_answers_to_what_it_has_sent(
    server: ApiServer, api: PluginApi, *, stops_before: bool
) -> None:
    """Otherwise the server could carry out the write after the next leader has read the claim."""
    first = asyncio.create_task(write_alone(api))
    request = await server.next()
    if stops_before:
        api.stop()
    first.cancel()
    await asyncio.wait([first])
    if not stops_before:
        api.stop()
    await finishes_after_the_answer(server, api, request)


async def test_a_write_of_later_that_is_sent_when_the_scheduler_stops_is_answered(
    server: ApiServer, api: PluginApi
) -> None:
    """For example, the write may remove a claim's reservation."""
    api.later(partial(write_alone, api))
    request = await server.next()
    api.stop()
    await finishes_after_the_answer(server, api, request)


async def test_a_scheduler_that_stops_gives_answers_so_much_time_and_no_more(
    server: ApiServer, api: PluginApi, caplog: pytest.LogCaptureFixture
) -> None:
    first = asyncio.create_task(write_alone(api))
    request = await server.next()
    api.stop()
    first.cancel()
    await asyncio.wait([first])
    await api.finish(-1.0)
    await request.gone.wait()
    assert "1 writes of claims were not answered before the end" in caplog.text
    async with api.alone("c"):
        pass


async def test_later_writes_run_to_their_end_and_log_their_errors(
    api: PluginApi, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    async def write() -> None:
        done.append("written")
        raise PluginError("claim default/c is odd")

    api.later(write)
    assert not done
    await asyncio.sleep(0)
    assert done == ["written"]
    assert "a write of a plugin failed: claim default/c is odd" in caplog.text


async def test_a_scheduler_that_stops_cancels_later_writes_and_begins_no_more(
    api: PluginApi,
) -> None:
    ended: list[str] = []

    async def write() -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            ended.append("cancelled")

    api.later(write)
    await asyncio.sleep(0)
    api.stop()
    api.later(write)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == ["cancelled"]


async def test_what_is_only_tried_writes_nothing_later(client: ApiClient) -> None:
    tried, written = [True], list[bool]()

    async def write() -> None:
        written.append(True)

    api = PluginApi(client, PodWriter(client), {}, is_tried=lambda: tried[0])
    api.later(write)
    await asyncio.sleep(0)
    assert written == []
    tried[0] = False
    api.later(write)
    await asyncio.sleep(0)
    assert written == [True]


async def test_a_claim_is_created_in_its_namespace(server: ApiServer, api: PluginApi) -> None:
    body = {"metadata": {"namespace": "default", "generateName": "c-"}}
    creating = asyncio.create_task(api.create("resourceclaims", body))
    request = await server.next()
    request.reply({"metadata": {"name": "c-x"}}, 201)
    assert (await creating)["metadata"]["name"] == "c-x"
    assert (request.method, request.path) == ("POST", CLAIM.removesuffix("/c"))
    assert request.body == body


@pytest.mark.parametrize(("status", "reason"), [(404, "NotFound"), (409, "Conflict")])
async def test_a_claim_that_is_gone_needs_no_deletion(
    server: ApiServer, api: PluginApi, status: int, reason: str
) -> None:
    deleting = asyncio.create_task(api.delete("resourceclaims", "default", "c", "uid-c"))
    request = await server.next()
    request.refuse(status, reason, "no")
    await deleting
    assert (request.method, request.path) == ("DELETE", CLAIM)
    assert request.body == {"preconditions": {"uid": "uid-c"}}


async def test_a_deletion_is_sent_until_the_server_answers(server: ApiServer) -> None:
    async def at_once(_seconds: float) -> None:
        """Do not wait."""

    async with ApiClient(Connection(server.url)) as client:
        api = PluginApi(client, PodWriter(client), {}, sleep=at_once)
        deleting = asyncio.create_task(api.delete("resourceclaims", "default", "c", "uid-c"))
        (await server.next()).refuse(500, "InternalError", "no")
        (await server.next()).reply({})
        await deleting


async def test_a_pods_status_is_set(server: ApiServer, api: PluginApi) -> None:
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c"}}
    setting = asyncio.create_task(api.set_pod_status(WEB, status))
    request = await server.next()
    request.reply({})
    await setting
    assert request.path == "/api/v1/namespaces/default/pods/web/status"
    assert request.body == {"metadata": {"uid": WEB.uid}, "status": status}
