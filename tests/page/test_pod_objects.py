"""A pod and its events, read from the API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube.api_server import ApiServer, Request
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.pod import Uid
from mooring.page.pod_objects import NotReadError, PodObjects
from mooring.testing.builders import pod, uid_of

UID = uid_of("web", "shop")


def known(key: str) -> Uid | None:
    return UID if key == "shop/web" else None


@asynccontextmanager
async def reading(
    *answers: dict[str, Any], status: int = 200
) -> AsyncIterator[tuple[PodObjects, ApiServer]]:
    """Yield a PodObjects and its server, which gives these answers in order."""
    left = list(answers)

    def answer(request: Request) -> None:
        if status == 200:
            request.reply(left.pop(0))
        else:
            request.refuse(status, "Forbidden", 'events is forbidden: User "m" cannot list')

    async with ApiServer(answer) as server, ApiClient(Connection(server.url)) as client:
        yield PodObjects(client, known), server


def event(name: str, last: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": last}
    return {"metadata": metadata, "type": "Warning", "reason": name, "message": "m", **fields}


def page_of(*events: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "EventList", "metadata": {"resourceVersion": "1"}, "items": [*events]}


async def test_a_pod_is_shown_without_its_managed_fields() -> None:
    raw = pod("web", namespace="shop")
    raw["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    async with reading(raw) as (objects, server):
        found = await objects.pod("shop", "web")
    assert "managedFields" not in found["metadata"]
    assert (found["kind"], found["metadata"]["name"]) == ("Pod", "web")
    assert found["spec"] == raw["spec"]
    assert [request.path for request in server.seen] == ["/api/v1/namespaces/shop/pods/web"]


async def test_a_pod_that_is_too_large_is_not_shown() -> None:
    raw = pod("web", namespace="shop", annotations={"a": "x" * 600_000})
    async with reading(raw) as (objects, _):
        with pytest.raises(NotReadError, match="kubectl get pod web -n shop") as refused:
            await objects.pod("shop", "web")
    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ("shop", ".."),
        ("..", "web"),
        ("shop", "a,metadata.name=b"),
        ("shop", "a/b"),
        ("shop", "A?x"),
    ],
)
async def test_what_is_no_name_reaches_no_path_and_no_selector(namespace: str, name: str) -> None:
    async with reading() as (objects, server):
        with pytest.raises(NotReadError, match="no name") as refused:
            await objects.pod(namespace, name)
        assert refused.value.status == 400
        assert server.seen == []


async def test_events_about_the_pod_come_last_first() -> None:
    page = page_of(
        event("Old", "2026-01-01T00:00:00Z", lastTimestamp="2026-01-01T00:01:00Z", count=3),
        event("New", "2026-01-01T00:00:00Z", series={"count": 7, "lastObservedTime": "2026-01-02"}),
        event("Long", "2026-01-01T00:00:30Z", message="x" * 5000, reportingComponent="kubelet"),
    )
    async with reading(page) as (objects, server):
        found = await objects.events("shop", "web")
    assert [each["reason"] for each in found["events"]] == ["New", "Old", "Long"]
    assert [each["count"] for each in found["events"]] == [7, 3, 1]
    assert (len(found["events"][2]["message"]), found["events"][2]["source"]) == (1024, "kubelet")
    assert not found["more"]
    (asked,) = server.seen
    assert asked.path == "/api/v1/namespaces/shop/events"
    assert asked.query["fieldSelector"].endswith(f"involvedObject.uid={UID}")
    assert asked.query["limit"] == "10"


def pages(number: int, **fields: Any) -> list[dict[str, Any]]:
    """Return `number` pages of ten events; each page says that another page follows."""
    made = []
    for start in range(0, 10 * number, 10):
        page = page_of(*(event(f"e-{start + i}", "2026-01-01", **fields) for i in range(10)))
        page["metadata"]["continue"] = "next"
        made.append(page)
    return made


async def test_of_many_events_some_are_read() -> None:
    async with reading(*pages(25)) as (objects, server):
        found = await objects.events("shop", "web")
        assert len(server.seen) == 20
    assert (len(found["events"]), found["more"]) == (200, True)


async def test_of_large_events_a_few_pages_are_read_and_every_field_is_cut() -> None:
    large = dict.fromkeys(("message", "type", "reportingComponent", "lastTimestamp"), "x" * 50_000)
    async with reading(*pages(3, **large)) as (objects, server):
        found = await objects.events("shop", "web")
        assert len(server.seen) == 2
    assert found["more"]
    lengths = {name: len(found["events"][0][name]) for name in ("type", "source", "last")}
    assert lengths == {"type": 253, "source": 253, "last": 253}


@pytest.mark.parametrize(("status", "words"), [(403, "list events"), (500, "no answer")])
async def test_why_events_cannot_be_read_is_said_in_a_line(status: int, words: str) -> None:
    async with reading(status=status) as (objects, _):
        with pytest.raises(NotReadError, match=words) as refused:
            await objects.events("shop", "web")
    assert refused.value.status == 503
    assert "127.0.0.1" not in str(refused.value)


async def test_events_are_read_of_pods_that_are_known() -> None:
    async with reading() as (objects, _):
        with pytest.raises(NotReadError, match="not known") as refused:
            await objects.events("shop", "other")
    assert refused.value.status == 404
