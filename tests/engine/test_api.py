"""The port through which plugins reach the API server."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kube.api_server import ApiServer
from mooring.engine.api import PluginApi
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.errors import ConflictError, ForbiddenError
from mooring.kube.writes import PodWriter
from mooring.model.pod import parse_pod
from mooring.testing.builders import pod

WEB = parse_pod(pod("web"))
LONG = 30.0


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[PluginApi]:
    async with ApiClient(Connection(server.url)) as client:
        yield PluginApi(client, PodWriter(client))


async def test_a_binding_names_the_very_pod_and_its_node(server: ApiServer, api: PluginApi) -> None:
    binding = asyncio.create_task(api.bind(WEB, "a"))
    request = await server.next()
    request.reply({}, 201)
    await binding
    assert request.path == "/api/v1/namespaces/default/pods/web/binding"
    assert request.body["metadata"]["uid"] == WEB.uid
    assert request.body["target"]["name"] == "a"


async def test_every_binding_carries_the_pods_annotations_until_they_are_taken_back(
    server: ApiServer, api: PluginApi
) -> None:
    """A Binding that fails is repeated."""
    api.annotate(WEB, {"card": "0"})
    api.annotate(WEB, {"memory": "4"})
    for _ in range(2):
        binding = asyncio.create_task(api.bind(WEB, "a"))
        request = await server.next()
        request.refuse(403, "Forbidden", "no")
        with pytest.raises(ForbiddenError):
            await binding
        assert request.body["metadata"]["annotations"] == {"card": "0", "memory": "4"}


async def test_annotations_that_are_taken_back_are_not_sent(
    server: ApiServer, api: PluginApi
) -> None:
    api.annotate(WEB, {"card": "0"})
    api.annotate(WEB, {})
    binding = asyncio.create_task(api.bind(WEB, "a"))
    request = await server.next()
    request.reply({}, 201)
    await binding
    assert "annotations" not in request.body["metadata"]


async def test_the_time_is_in_nanoseconds(api: PluginApi) -> None:
    assert api.unix_nanoseconds() > 10**18


async def test_an_error_of_a_binding_is_raised_to_the_plugin(
    server: ApiServer, api: PluginApi
) -> None:
    binding = asyncio.create_task(api.bind(WEB, "a"))
    (await server.next()).refuse(409, "Conflict", "already bound")
    (await server.next()).reply({"metadata": {"uid": WEB.uid}, "spec": {"nodeName": "b"}})
    with pytest.raises(ConflictError):
        await binding


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
