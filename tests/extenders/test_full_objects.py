"""Reads the objects for extenders from an API server on loopback."""

import asyncio

import orjson
import pytest

from kube.api_server import ApiServer, Request
from memory import traced_memory
from mooring.extenders.full_objects import ApiObjects, as_json
from mooring.extenders.verdicts import ExtenderError
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod

WEB = pod("web")


async def test_a_pod_is_read_without_its_managed_fields() -> None:
    async with ApiServer() as server, ApiClient(Connection(server.url)) as client:
        reading = asyncio.create_task(ApiObjects(client).pod(parse_pod(WEB)))
        request = await server.next()
        assert request.path == "/api/v1/namespaces/default/pods/web"
        request.reply({**WEB, "metadata": {**WEB["metadata"], "managedFields": [{}]}})
        assert orjson.loads(await reading or b"") == WEB


async def test_a_pod_that_is_gone_or_another_one_is_gone() -> None:
    async with ApiServer() as server, ApiClient(Connection(server.url)) as client:
        reading = asyncio.create_task(ApiObjects(client).pod(parse_pod(WEB)))
        (await server.next()).refuse(404, "NotFound", "no such pod")
        assert await reading is None
        reading = asyncio.create_task(ApiObjects(client).pod(parse_pod(WEB)))
        (await server.next()).reply({**WEB, "metadata": {**WEB["metadata"], "uid": "other"}})
        assert await reading is None
        reading = asyncio.create_task(ApiObjects(client).pod(parse_pod(WEB)))
        (await server.next()).refuse(403, "Forbidden", "not allowed")
        with pytest.raises(ExtenderError, match="pod default/web cannot be read for the extenders"):
            await reading


async def test_nodes_are_listed_once_and_then_watched() -> None:
    async with ApiServer() as server, ApiClient(Connection(server.url)) as client:
        objects = ApiObjects(client)
        reading = asyncio.create_task(objects.nodes(["n1", "n2", "n9"]))
        request: Request = await server.next()
        assert request.path == "/api/v1/nodes"

        def event(kind: str, name: str, version: str, cpu: str = "4") -> dict[str, object]:
            raw = node(name, cpu=cpu)
            raw["metadata"]["resourceVersion"] = version
            return {"type": kind, "object": raw}

        end = {"k8s.io/initial-events-end": "true"}
        bookmark = {"metadata": {"resourceVersion": "3", "annotations": end}}
        request.send(
            event("ADDED", "n1", "1"),
            event("ADDED", "n2", "2"),
            {"type": "BOOKMARK", "object": bookmark},
        )
        assert sorted(await reading) == ["n1", "n2"]
        request.send(event("DELETED", "n1", "4"), event("MODIFIED", "n2", "5", cpu="8"))
        async with asyncio.timeout(60.0):
            while True:
                found = await objects.nodes(["n1", "n2"])
                cpu = orjson.loads(found["n2"])["status"]["allocatable"]["cpu"]
                if "n1" not in found and cpu == "8":
                    break
                await asyncio.sleep(0)  # the watch reads them, one after the other
        await objects.close()


async def test_a_pod_that_was_seen_is_not_read_again() -> None:
    async with ApiServer() as server, ApiClient(Connection(server.url)) as client:
        objects = ApiObjects(client, wanted=lambda _: True)
        found = parse_pod(WEB)
        objects.seen(found, {**WEB, "metadata": {**WEB["metadata"], "managedFields": [{}]}})
        assert orjson.loads(await objects.pod(found) or b"") == WEB
        assert server.seen == []
        objects.forget(found.uid)
        reading = asyncio.create_task(objects.pod(found))
        (await server.next()).reply(WEB)
        assert orjson.loads(await reading or b"") == WEB


async def test_pods_are_not_kept_whose_profile_has_no_extenders() -> None:
    async with ApiServer() as server, ApiClient(Connection(server.url)) as client:
        objects = ApiObjects(client, wanted=lambda pod: pod.name != WEB["metadata"]["name"])
        objects.seen(parse_pod(WEB), WEB)
        reading = asyncio.create_task(objects.pod(parse_pod(WEB)))
        (await server.next()).reply(WEB)
        assert orjson.loads(await reading or b"") == WEB


async def test_a_pod_that_changed_while_its_profile_had_no_extenders_is_read_again() -> None:
    async with ApiServer() as server, ApiClient(Connection(server.url)) as client:
        wanted = True
        objects = ApiObjects(client, wanted=lambda _: wanted)
        objects.seen(parse_pod(WEB), {**WEB, "old": True})
        wanted = False
        objects.seen(parse_pod(WEB), WEB)
        reading = asyncio.create_task(objects.pod(parse_pod(WEB)))
        (await server.next()).reply(WEB)
        assert orjson.loads(await reading or b"") == WEB


async def test_pods_are_kept_up_to_so_many_bytes_and_others_are_read() -> None:
    async with ApiServer() as server, ApiClient(Connection(server.url)) as client:
        objects = ApiObjects(client, wanted=lambda _: True, most_bytes=300_000)
        large = {"a": "x" * 100_000}
        raws = [pod(f"web-{number}", annotations=large) for number in range(5)]
        for raw in raws:
            for _ in range(3):
                objects.seen(parse_pod(raw), raw)
        assert 200_000 <= objects.bytes <= 300_000
        assert orjson.loads(await objects.pod(parse_pod(raws[0])) or b"") == raws[0]
        reading = asyncio.create_task(objects.pod(parse_pod(raws[4])))
        (await server.next()).reply(raws[4])
        assert orjson.loads(await reading or b"") == raws[4]
        for raw in raws:
            objects.forget(raw["metadata"]["uid"])
        assert objects.bytes == 0


def test_an_object_that_is_kept_as_json_occupies_little_more_than_its_length() -> None:
    with traced_memory() as taken_so_far:
        kept = [as_json(WEB) for _ in range(100)]
        used = taken_so_far()
    assert used < 2 * sum(map(len, kept))
