"""The page over HTTPS: the answers for each user, and their formats."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import files
from io import BytesIO
from typing import Any

import aiohttp
import pytest

from mooring.model.access import Attributes, User
from mooring.model.events import Kind
from mooring.model.objects import object_key, parse_object
from mooring.model.pod import parse_pod
from mooring.page import MOST_BYTES
from mooring.page.routes import MOST_STREAMS, MOST_STREAMS_OF_A_USER, WHAT_IF, Page
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing.builders import (
    node,
    pod,
    pod_group,
    priority_class,
    queue_object,
    uid_of,
)
from pages import page, served
from queue_files import elastic_quota, koordinator_quota
from scheduler_states import put_profile, scheduler_state
from served_endpoints import EVERYTHING, Rights

PATHS = (
    "session",
    "stream",
    "node?name=a",
    "queue",
    "queues",
    "pods",
    "find?text=web",
    "trend",
    "pod?pod=shop/web",
    "podgroup?podgroup=shop/g",
    "object?pod=shop/web",
    "events?pod=shop/web",
    "policy",
)
FILES = ("", *(file.name for file in files("mooring.page").joinpath("bundle").iterdir()))
POD = """
kind: Pod
apiVersion: v1
metadata: {name: tried}
spec:
  containers: [{name: main, image: x, resources: {requests: {cpu: "100"}}}]
"""


def state() -> SchedulerState:
    """Return one node; each of two namespaces has a pod on it and a pending pod."""
    shared = scheduler_state(
        node("a", cpu="4"),
        pod("web", namespace="shop", node="a"),
        pod("db", namespace="bank", node="a"),
    )
    pipeline = put_profile(shared).pipeline
    for namespace in ("shop", "bank"):
        shared.queue.add(parse_pod(pod(f"{namespace}-new", namespace=namespace)), pipeline, 0.0)
    return shared


def may(*paths: str, verb: str = "get") -> list[str]:
    return [f'{verb} path "/ui/api/{path}"' for path in paths]


def pods_of(namespace: str) -> str:
    return f'get resource "pods" in API group "" in the namespace "{namespace}"'


SEES_SHOP = Rights(
    ann=[*may("session", "stream", "node", "queue", "pods", "trend", "policy"), pods_of("shop")]
)


async def got(client: aiohttp.ClientSession, path: str) -> Any:
    async with client.get(f"/ui/api/{path}") as response:
        assert response.status == 200, await response.text()
        return json.loads(await response.text())


def bearer(user: str | None) -> dict[str, str] | None:
    """Return request headers with the token of `user`; None if `user` is None."""
    return None if user is None else {"Authorization": f"Bearer {user}"}


async def refused(
    client: aiohttp.ClientSession, path: str, user: str | None = None
) -> tuple[int, str]:
    async with client.get(f"/ui/api/{path}", headers=bearer(user)) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("file", FILES)
async def test_the_files_of_the_page_are_for_everybody(file: str) -> None:
    async with served(page(state()), user=None) as client, client.get(f"/ui/{file}") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].partition(";")[0] in (
            "text/html",
            "text/css",
            "text/javascript",
        )


async def test_queues_come_as_a_tree_with_what_their_statuses_say() -> None:
    shared = state()
    status = {"waiting": 8, "share": "0.5", "resources": [{"name": "cpu", "nominal": "4"}]}
    for raw in (queue_object("team", parent="all", status=status), queue_object("all")):
        shared.state.put(Kind.QUEUE, raw["metadata"]["name"], parse_object(Kind.QUEUE, raw))
    quota = {**elastic_quota("ns", min={"cpu": 4}), "status": {"used": {"cpu": "1500m"}}}
    shared.state.put(Kind.ELASTIC_QUOTA, "ns/quota", parse_object(Kind.ELASTIC_QUOTA, quota))
    ann = Rights(ann=[*may("queues"), pods_of("other")])
    async with served(page(shared), rights=ann, user="ann") as client:
        names = [each["name"] for each in (await got(client, "queues"))["queues"]]
    assert names == ["all", "team", "elastic-quota.root"], "without the name of the namespace"
    async with served(page(shared)) as client:
        found = (await got(client, "queues"))["queues"]
    assert [(each["name"], each["kind"], each["depth"], each["waiting"]) for each in found] == [
        ("all", "Queue", 0, None),
        ("team", "Queue", 1, 8),
        ("elastic-quota.root", "ElasticQuota", 0, None),
        ("ns", "ElasticQuota", 1, None),
    ]
    assert found[1]["resources"] == status["resources"]
    amounts = {"nominal": "4", "used": "1500m", "borrowed": "0", "lent": "0"}
    assert found[3]["resources"] == [{"name": "cpu", **amounts}]


async def test_quotas_of_koordinator_are_shown_to_users_of_their_namespaces() -> None:
    shared = state()
    for raw in (
        koordinator_quota("dept", namespace="hidden", labels={"is-parent": "true"}),
        koordinator_quota("team", "dept", namespace="z"),
        koordinator_quota("team", "dept", namespace="other"),
        koordinator_quota("secret", "dept", namespace="hidden"),
        koordinator_quota("secret", "dept", namespace="other-too"),
    ):
        key, quota = object_key(Kind.ELASTIC_QUOTA, raw), parse_object(Kind.ELASTIC_QUOTA, raw)
        shared.state.put(Kind.ELASTIC_QUOTA, key, quota)
    ann = Rights(ann=[*may("queues"), pods_of("other"), pods_of("other-too")])
    async with served(page(shared), rights=ann, user="ann") as client:
        found = (await got(client, "queues"))["queues"]
    assert [each["name"] for each in found] == ["koordinator-root-quota", "team"]


async def test_an_elastic_quota_that_comes_during_a_request_does_not_break_it() -> None:
    shared = state()

    def put(name: str) -> None:
        raw = koordinator_quota(name, namespace="other")
        key, quota = object_key(Kind.ELASTIC_QUOTA, raw), parse_object(Kind.ELASTIC_QUOTA, raw)
        shared.state.put(Kind.ELASTIC_QUOTA, key, quota)

    class Slow(Rights):
        async def allows(self, user: User, attributes: Attributes) -> bool:
            if str(attributes) == pods_of("other"):
                put("second")
            return await super().allows(user, attributes)

    put("first")
    ann = Slow(ann=[*may("queues"), pods_of("other")])
    async with served(page(shared), rights=ann, user="ann") as client:
        found = (await got(client, "queues"))["queues"]
    assert [each["name"] for each in found] == ["koordinator-root-quota", "first"]


async def test_no_other_file_of_the_package_is_served() -> None:
    async with served(page(state()), user=None) as client:
        for path in ("/ui/api.py", "/ui/none.js", "/ui/..%2fapi.py", "/ui/bundle/main.js"):
            async with client.get(path) as answer:
                assert answer.status == 404


async def test_ui_leads_to_the_page() -> None:
    async with served(page(state()), user=None) as client, client.get("/ui") as answer:
        assert answer.url.path == "/ui/"
        assert "<!doctype html>" in await answer.text()


async def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    async with served(page(state()), user=None) as client:
        async with client.get("/ui/main.js") as first:
            tag = first.headers["ETag"]
        async with client.get("/ui/main.js", headers={"If-None-Match": tag}) as second:
            assert second.status == 304


@pytest.mark.parametrize("path", ["/ui/", "/ui/api/session", "/ui/api/node?name=none"])
async def test_every_answer_has_the_content_security_policy(path: str) -> None:
    async with served(page(state())) as client, client.get(path) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == ("no-cache" if path == "/ui/" else "no-store")
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("path", PATHS)
async def test_data_is_for_users_with_the_right_to_get_its_path(path: str) -> None:
    shown = page(state())
    async with served(shown, user=None) as client:
        assert (await refused(client, path))[0] == 403
    async with served(shown, user="nobody") as client:
        assert (await refused(client, path))[0] == 401
    async with served(shown, rights=Rights(ann=[pods_of("shop")]), user="ann") as client:
        status, text = await refused(client, path)
        assert status == 403
        assert f'cannot get path "/ui/api/{path.partition("?")[0]}"' in text


async def test_the_session_says_who_the_user_is_and_what_it_may_do() -> None:
    async with served(page(state())) as client:
        session = await got(client, "session")
    assert (session["user"], session["mayTry"], session["seesAllPods"]) == ("admin", True, True)
    async with served(page(state(), leading=False), rights=SEES_SHOP, user="ann") as client:
        session = await got(client, "session")
    assert (session["mayTry"], session["seesAllPods"], session["leading"]) == (False, False, False)


def gang() -> Page:
    """Return the page of a cluster where shop/g waits for the cpu that bank/squat uses."""
    shared = scheduler_state(
        node("a", cpu="3"),
        pod("squat", namespace="bank", cpu="1", node="a"),
        pod_group("g", 3, namespace="shop"),
    )
    pipeline = put_profile(shared).pipeline
    for name in ("m0", "m1", "m2"):
        member = parse_pod(pod(name, namespace="shop", cpu="1", group="g"))
        shared.state.put_unscheduled(member)
        shared.queue.add(member, pipeline, 0.0)
    document = {"podGroup": "shop/g", "source": "podgroups.scheduling.k8s.io", "message": "full"}
    return page(shared, groups=lambda namespace, _: [document] if namespace == "shop" else [])


async def test_what_a_group_waits_for_names_pods_to_those_who_may_get_them() -> None:
    ann = Rights(ann=[*may("podgroup"), pods_of("shop")], admin=[EVERYTHING])
    path, changes = "podgroup?podgroup=shop/g", {}
    for user in ("admin", "ann"):
        async with served(gang(), rights=ann, user=user) as client:
            (group,) = (await got(client, path))["podGroups"]
            changes[user] = [each["change"] for each in group["suggestions"] if each["ended"]]
            assert group["message"] == "full"
    assert changes == {
        "admin": ["when bank/squat on a ends"],
        "ann": ["when a pod on a ends"],
    }


async def test_a_group_is_for_users_who_may_get_the_pods_of_its_namespace() -> None:
    bob = Rights(bob=[*may("podgroup"), pods_of("bank")])
    async with served(gang(), rights=bob, user="bob") as client:
        status, text = await refused(client, "podgroup?podgroup=shop/g")
        assert (status, 'in the namespace "shop"' in text) == (403, True)
        assert (await refused(client, "podgroup?podgroup=bank/none"))[0] == 404
        assert (await refused(client, "podgroup?podgroup=none"))[0] == 400


async def test_a_user_sees_the_pods_of_its_namespaces_only() -> None:
    async with served(page(state()), rights=SEES_SHOP, user="ann") as client:
        shown = [await got(client, path) for path in ("node?name=a", "queue", "pods", "policy")]
        details, queue, pods, _ = shown
    assert [each["pod"] for each in details["pods"]] == ["shop/web"]
    assert details["otherPods"] == queue["otherPods"] == 1
    assert [each["pod"] for each in pods["pods"]] == ["shop/shop-new"]
    assert "bank" not in str(shown)


async def test_pods_are_found_by_a_part_of_their_names() -> None:
    rights = Rights(ann=[*may("find"), pods_of("shop")])
    async with served(page(state()), rights=rights, user="ann") as client:
        found = await got(client, "find?text=new")
        assert found == {"pods": [{"pod": "shop/shop-new", "node": None}], "more": False}
        assert (await got(client, "find?text=bank"))["pods"] == []


async def test_a_pod_is_for_users_who_may_get_it() -> None:
    shown = page(state())
    async with served(shown) as client:
        assert (await got(client, "pod?pod=shop/web"))["report"]["node"] == "a"
        assert (await refused(client, "pod?pod=shop/none"))[0] == 404
        assert (await refused(client, "pod?pod=shop"))[0] == 400
    rights = Rights(ann=[*may("pod"), pods_of("shop")])
    async with served(shown, rights=rights, user="ann") as client:
        status, text = await refused(client, "pod?pod=bank/db")
    assert status == 403
    assert 'cannot get resource "pods" "db"' in text


def event_about(name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": "e", "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}
    about = {"kind": "Pod", "name": name, "uid": uid_of(name, namespace)}
    return {"kind": "Event", "metadata": metadata, "involvedObject": about, "reason": "Pulled"}


WEB = 'get resource "pods" "web" in API group "" in the namespace "shop"'
OBJECTS = (
    pod("web", namespace="shop", node="a"),
    pod("db", namespace="bank", node="a"),
    event_about("web", "shop"),
    event_about("db", "bank"),
)


async def test_a_pod_as_it_is_stored_is_for_users_who_may_get_it() -> None:
    shown = page(state(), objects=OBJECTS)
    rights = Rights(ann=[*may("object"), WEB, WEB.replace("web", "none")])
    async with served(shown, rights=rights, user="ann") as client:
        assert (await got(client, "object?pod=shop/web"))["metadata"]["name"] == "web"
        assert (await refused(client, "object?pod=shop/none"))[0] == 404
        status, text = await refused(client, "object?pod=bank/db")
    assert status == 403
    assert 'cannot get resource "pods" "db"' in text


async def test_events_are_for_users_who_may_get_the_pod_and_list_events() -> None:
    shown = page(state(), objects=OBJECTS)
    events = 'list resource "events" in API group "" in the namespace "{}"'.format
    for allowed, lacks in (
        ([WEB, events("bank")], 'cannot list resource "events"'),
        ([events("shop")], 'cannot get resource "pods" "web"'),
    ):
        rights = Rights(ann=[*may("events"), *allowed])
        async with served(shown, rights=rights, user="ann") as client:
            status, text = await refused(client, "events?pod=shop/web")
        assert (status, lacks in text) == (403, True)
    rights = Rights(ann=[*may("events"), WEB, events("shop"), events("bank")])
    async with served(shown, rights=rights, user="ann") as client:
        found = await got(client, "events?pod=shop/web")
        assert (await refused(client, "events?pod=bank/db"))[0] == 403
    assert [each["reason"] for each in found["events"]] == ["Pulled"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("node?name=none", 404),
        ("object?pod=shop", 400),
        ("object?pod=shop/..", 400),
        ("events?pod=shop/web,metadata.name=x", 404),
        ("node", 404),
        ("pods?limit=-1", 400),
        ("pods?offset=9999999999", 400),
        ("pods?offset=%C2%B2", 400),
        (f"pods?search={'x' * 600}", 400),
        ("none", 404),
    ],
)
async def test_a_bad_request_gets_one_line(path: str, status: int) -> None:
    async with served(page(state())) as client:
        found, text = await refused(client, path)
    assert found == status
    assert len(text.splitlines()) == 1


@asynccontextmanager
async def stream(
    client: aiohttp.ClientSession, path: str, user: str | None = None
) -> AsyncIterator[AsyncIterator[Any]]:
    """Yield the events of a stream as (name, data); `user` replaces the client's user."""

    async def events(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
        name = ""
        while line := (await response.content.readline()).decode():
            if line.startswith("event: "):
                name = line.removeprefix("event: ").strip()
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))

    async with client.get(f"/ui/api/{path}", headers=bearer(user)) as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        yield events(response)


async def test_a_stream_begins_with_all_nodes_and_goes_on_with_changes() -> None:
    shared = state()
    async with (
        served(page(shared)) as client,
        stream(client, "stream?resource=cpu&label=none") as events,
    ):
        name, snapshot = await anext(events)
        assert (name, snapshot["names"], snapshot["label"]) == (
            "snapshot",
            ["a"],
            "none",
        )
        name, queue = await anext(events)
        assert (name, queue["active"], queue["leading"]) == ("queue", 2, True)
        placed = parse_object(Kind.POD, pod("more", cpu="500m", node="a"))
        shared.state.put(Kind.POD, uid_of("more"), placed)
        name, changes = await anext(events)
        assert (name, changes["at"], changes["pods"]) == ("nodes", [0], [3])
        shared.state.put(Kind.NODE, "b", parse_object(Kind.NODE, node("b")))
        name, again = await anext(events)
        assert (name, again["names"]) == ("snapshot", ["a", "b"])


async def test_a_stream_may_be_without_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.page.routes._BEAT_SECONDS", 0.0)
    async with served(page(state())) as client, stream(client, "stream?nodes=false") as events:
        assert {(await anext(events))[0] for _ in range(3)} == {"queue"}


async def test_a_stream_is_never_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.page.routes._BEAT_SECONDS", 0.0)
    async with served(page(state())) as client, stream(client, "stream") as events:
        names = [(await anext(events))[0] for _ in range(4)]
    assert names == ["snapshot", "queue", "queue", "queue"]


async def test_a_stream_ends_when_its_user_loses_the_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mooring.page.routes._RIGHTS_SECONDS", 0.0)
    rights = Rights(ann=may("stream"))
    async with (
        served(page(state()), rights=rights, user="ann") as client,
        stream(client, "stream") as events,
    ):
        assert (await anext(events))[0] == "snapshot"
        rights.rights["ann"].clear()
        assert "snapshot" not in [name async for name, _ in events]


async def test_streams_are_bounded_and_end_when_the_page_stops() -> None:
    shown = page(state())
    rights = Rights(ann=may("stream"), ben=may("stream"), eve=may("stream"))
    users = ("ann", "ben") * MOST_STREAMS_OF_A_USER
    async with served(shown, rights=rights, user="eve") as client:
        contexts = [stream(client, "stream", user) for user in users]
        opened = [await context.__aenter__() for context in contexts]
        for events in opened:
            assert (await anext(events))[0] == "snapshot"
        status, text = await refused(client, "stream")
        assert status == 503
        assert f"{MOST_STREAMS} pages are open already" in text
        await shown.stop()
        for events in opened:
            assert [name async for name, _ in events][-1:] in ([], ["queue"])
        for context in contexts:
            await context.__aexit__(None, None, None)


async def test_the_streams_of_one_user_keep_no_other_user_from_the_page() -> None:
    rights = Rights(ann=may("stream"), ben=may("stream"))
    async with (
        served(page(state()), rights=rights, user="eve") as client,
        AsyncExitStack() as open_,
    ):
        for _ in range(MOST_STREAMS_OF_A_USER):
            await open_.enter_async_context(stream(client, "stream", "ann"))
        status, text = await refused(client, "stream", "ann")
        assert status == 503
        assert f"{MOST_STREAMS_OF_A_USER} pages of this user are open already" in text
        events = await open_.enter_async_context(stream(client, "stream", "ben"))
        assert (await anext(events))[0] == "snapshot"


async def posted(client: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, str]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with client.post(f"/ui/api/{path}", data=BytesIO(data)) as response:
        return response.status, await response.text()


async def test_a_pod_is_tried() -> None:
    async with served(page(state())) as client:
        status, text = await posted(client, "try", {"manifests": POD})
    assert status == 200
    found = json.loads(text)
    (decision,) = found["decisions"]
    assert decision["pods"] == [{"pod": "default/tried", "node": None}]
    first = decision["suggestions"][0]
    assert (first.keys(), first["nodes"]) == ({"change", "nodes", "examples", "ended"}, 1)


async def test_trying_needs_a_right_of_its_own() -> None:
    async with served(page(state()), rights=SEES_SHOP, user="ann") as client:
        status, text = await posted(client, "try", {"manifests": POD})
        assert status == 403
        assert 'cannot post path "/ui/api/try"' in text
        assert (await posted(client, "compare", {}))[0] == 403


async def test_a_victim_of_another_namespace_is_not_named_in_a_trial() -> None:
    vault = pod("vault", namespace="bank", cpu="1", node="a")
    shared = scheduler_state(node("a", cpu="1"), vault, priority_class("high", 9))
    put_profile(shared)
    with_class = POD.replace("spec:", "spec:\n  priorityClassName: high")
    high = with_class.replace('cpu: "100"', 'cpu: "1"')
    rights = Rights(ann=[*may("try", verb="post"), pods_of("default")], admin=[EVERYTHING])
    shown = page(shared)
    async with served(shown, rights=rights, user="ann") as client:
        status, text = await posted(client, "try", {"manifests": high})
    assert status == 200
    assert json.loads(text)["decisions"][0]["pods"][0]["nominatedNode"] == "a"
    assert "vault" not in text
    async with served(shown, rights=rights) as client:
        assert "bank/vault" in (await posted(client, "try", {"manifests": high}))[1]


@pytest.mark.parametrize(
    ("body", "status", "mistake"),
    [
        (b"no JSON", 400, "JSON"),
        ({}, 400, "manifests"),
        ({"manifests": 5}, 400, "manifests"),
        ({"manifests": "x" * MOST_BYTES}, 413, ""),
        ({"manifests": "kind: ["}, 422, "expected"),
        ({"manifests": POD, "profile": "none"}, 422, "no profile"),
    ],
)
async def test_what_cannot_be_tried_is_told(body: Any, status: int, mistake: str) -> None:
    async with served(page(state())) as client:
        found, text = await posted(client, "try", body)
    assert found == status
    assert mistake in text


async def asked(
    client: aiohttp.ClientSession, body: bytes, query: str = ""
) -> tuple[int, str, str | None]:
    async with client.post(f"{WHAT_IF}{query}", data=BytesIO(body)) as response:
        return response.status, await response.text(), response.headers.get("Retry-After")


async def test_a_program_asks_what_the_scheduler_would_do_with_objects_as_they_are() -> None:
    async with served(page(state())) as client:
        status, text, _ = await asked(client, POD.encode(), "?profile=default-scheduler")
        tried = json.loads((await posted(client, "try", {"manifests": POD}))[1])
    assert status == 200
    found = json.loads(text)
    assert "details" not in found
    del tried["details"]
    assert found == tried
    assert found["decisions"][0]["suggestions"]


async def test_asking_needs_a_right_and_names_no_pods_that_the_user_may_not_get() -> None:
    vault = pod("vault", namespace="bank", cpu="1", node="a")
    shared = scheduler_state(node("a", cpu="1"), vault, priority_class("high", 9))
    put_profile(shared)
    body = POD.replace("spec:", "spec:\n  priorityClassName: high").replace('"100"', '"1"').encode()
    rights = Rights(ann=[f'post path "{WHAT_IF}"', pods_of("default")], bob=may("try", verb="post"))
    async with served(page(shared), rights=rights, user="ann") as client:
        status, text, _ = await asked(client, body)
    (decision,) = json.loads(text)["decisions"]
    assert decision["victims"] == ["a pod that you may not get"]
    assert (status, "vault" in text) == (200, False)
    async with served(page(shared), rights=rights, user="bob") as client:
        status, text, _ = await asked(client, body)
    assert (status, text) == (403, f'forbidden: User "bob" cannot post path "{WHAT_IF}"\n')


@pytest.mark.parametrize(
    ("body", "query", "status", "mistake"),
    [
        (b"kind: [", "", 422, "the pods: "),
        (b"\xff", "", 400, "the body: is not UTF-8 text"),
        (b"x" * (MOST_BYTES + 1), "", 413, "exceeded"),
        (b"", "?profil=x", 400, "profil: is not known; there is profile"),
        (b"", "?profile=none", 422, 'there is no profile "none" in force'),
        (b"", "", 422, "makes no pods"),
    ],
)
async def test_what_cannot_be_asked_is_one_line(
    body: bytes, query: str, status: int, mistake: str
) -> None:
    async with served(page(state())) as client:
        found, text, _ = await asked(client, body, query)
    assert found == status
    assert mistake in text
    assert len(text.splitlines()) == 1


async def test_the_answers_to_programs_are_for_no_browser() -> None:
    async with served(page(state())) as client:
        site = {"Sec-Fetch-Site": "cross-site"}
        async with client.post(WHAT_IF, data=POD.encode(), headers=site) as refused:
            assert (refused.status, await refused.text()) == (
                403,
                "forbidden: another site's page asks\n",
            )
        async with client.post(WHAT_IF, data=POD.encode()) as answer:
            assert answer.status == 200
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"


async def test_a_replica_that_does_not_decide_says_so() -> None:
    async with served(page(state(), leading=False)) as client:
        status, text, after = await asked(client, POD.encode())
    assert (status, after) == (503, "5")
    assert "ask the leading one" in text


async def test_a_user_who_asks_too_much_at_once_is_told_to_wait() -> None:
    async with served(page(state())) as client:
        answers = await asyncio.gather(*(asked(client, POD.encode()) for _ in range(4)))
    assert (429, "5") in [(status, after) for status, _, after in answers]
    assert {status for status, _, _ in answers} == {200, 429}


async def test_two_profiles_are_compared() -> None:
    body = {"profile": "default-scheduler", "other": "default-scheduler", "namespace": "shop"}
    async with served(page(state())) as client:
        status, text = await posted(client, "compare", body)
    assert status == 200
    assert [each["pod"] for each in json.loads(text)["results"]] == ["shop/shop-new"]
