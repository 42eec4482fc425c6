"""Lists and watches: the sink gets whole lists, then every change, despite broken connections."""

import asyncio
import logging
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given, settings

from kube.api_server import ApiServer, Request, bookmark, event, pod, status_object
from kube.faulty_server import CHANGES, CONNECTIONS, Connection, FaultyServer
from kube.mirror import reflecting
from kube.virtual_clock import VirtualClock
from memory import collections_of_garbage
from mooring.kube.errors import ForbiddenError, GoneError, UnansweredError, explain
from mooring.kube.reflector import LONGEST_RETRY_AFTER

GONE = event("ERROR", status_object(410, "Expired", "too old resource version"))


def added(*pods: dict[str, Any]) -> list[dict[str, Any]]:
    return [event("ADDED", obj) for obj in pods]


async def initial(server: ApiServer, *pods: dict[str, Any], version: int) -> Request:
    """Answer the next WatchList with these pods; leave the watch open and return its request."""
    request = await server.next()
    assert request.query["sendInitialEvents"] == "true"
    request.send(*added(*pods), bookmark(version, initial_end=True))
    return request


async def resumed(server: ApiServer, version: int) -> Request:
    """Return the next request, which must continue the watch from `version`."""
    request = await server.next()
    assert "sendInitialEvents" not in request.query
    assert request.query["resourceVersion"] == str(version)
    return request


async def test_the_initial_set_is_handed_over_whole(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, reflector):
        request = await server.next()
        request.send(*added(pod("a", 1), pod("b", 2)))
        request.send(event("DELETED", pod("b", 3)), event("MODIFIED", pod("a", 4)), bookmark(4))
        request.send(*added(pod("c", 5)))
        assert not reflector.synced.is_set()
        request.send(bookmark(5, initial_end=True))
        await reflector.synced.wait()
        assert mirror.versions == {"a": 4, "c": 5}
        assert (len(mirror.replaced), mirror.applied) == (1, [])


async def test_the_query_is_that_of_a_watch_list(server: ApiServer) -> None:
    selectors = {"fieldSelector": "spec.nodeName!=", "labelSelector": "a=b"}
    async with reflecting(server.url, selectors=selectors):
        request = await server.next()
    seconds = int(request.query.pop("timeoutSeconds"))
    assert 300 <= seconds <= 600
    assert request.query == {
        **selectors,
        "watch": "true",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }


async def test_changes_are_applied_in_order(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, _):
        request = await initial(server, pod("a", 1), version=1)
        request.send(event("ADDED", pod("b", 2)), event("MODIFIED", pod("a", 3)))
        request.send(event("DELETED", pod("b", 4)))
        await mirror.until(lambda: len(mirror.applied) == 3)
        assert mirror.applied == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
        assert mirror.versions == {"a": 3}


async def test_a_server_without_watch_list_is_listed(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, reflector):
        (await server.next()).refuse(422, "Invalid", "sendInitialEvents is forbidden")
        listing = await server.next()
        assert "watch" not in listing.query
        listing.reply({"metadata": {"resourceVersion": "7"}, "items": [pod("a", 1)]})
        watch = await resumed(server, 7)
        await reflector.synced.wait()
        assert mirror.versions == {"a": 1}
        watch.send(GONE)
        again = await server.next()
        assert "sendInitialEvents" not in again.query
        again.reply({"metadata": {"resourceVersion": "9"}, "items": []})
        await resumed(server, 9)
        assert mirror.replaced == [{"a"}, set()]


async def test_a_watch_that_ends_is_resumed_where_it_stopped(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, _):
        request = await initial(server, pod("a", 1), version=5)
        request.send(event("MODIFIED", pod("a", 8)))
        request.end()
        await resumed(server, 8)
        assert (mirror.pauses, mirror.troubles) == ([], [])
        assert len(mirror.replaced) == 1


async def test_a_bookmark_moves_the_version_forward(server: ApiServer) -> None:
    async with reflecting(server.url):
        request = await initial(server, version=5)
        request.send(bookmark(50))
        request.end()
        await resumed(server, 50)


async def test_a_lost_connection_is_resumed_after_a_pause(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, _):
        request = await initial(server, pod("a", 1), version=5)
        await mirror.until(lambda: bool(mirror.replaced))
        request.cut()
        (await resumed(server, 5)).send(bookmark(6))
        await mirror.until(lambda: len(mirror.troubles) == 2)
        assert isinstance(mirror.troubles[0], UnansweredError)
        assert mirror.troubles[1] is None
        assert len(mirror.pauses) == 1


async def test_half_a_line_is_not_an_event(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, _):
        request = await initial(server, pod("a", 1), version=1)
        request.send(event("MODIFIED", pod("a", 2)))
        request.send_bytes(b'{"type":"DELETED","object":{"metadata":{"name":"a"')
        await mirror.until(lambda: mirror.versions == {"a": 2})
        request.end()
        (await resumed(server, 2)).send(event("MODIFIED", pod("a", 3)))
        await mirror.until(lambda: mirror.versions == {"a": 3})


async def test_a_version_refused_as_gone_is_listed_again_and_replaces_all(
    server: ApiServer,
) -> None:
    async with reflecting(server.url) as (mirror, _):
        (await initial(server, pod("a", 1), pod("b", 2), version=2)).end()
        (await resumed(server, 2)).refuse(410, "Expired", "too old resource version: 2")
        assert mirror.relists == 0
        await initial(server, pod("b", 7), pod("c", 8), version=9)
        await mirror.until(lambda: len(mirror.replaced) == 2)
        assert mirror.relists == 1
        assert mirror.versions == {"b": 7, "c": 8}
        assert isinstance(mirror.troubles[0], GoneError)


async def test_a_version_gone_within_a_watch_is_listed_again(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, _):
        request = await initial(server, pod("a", 1), version=1)
        request.send(event("MODIFIED", pod("a", 2)), GONE)
        await initial(server, version=9)
        await mirror.until(lambda: mirror.versions == {})
        assert isinstance(mirror.troubles[0], GoneError)
        assert mirror.troubles[0].verb == "watch"


@pytest.mark.parametrize(
    "line",
    [
        b"{broken",
        b"[]",
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":{}}',
        b"\xff",
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"2"}}}',
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2","annotations":"a"}}}',
        b'{"type":"ERROR","object":5}',
        b'{"type":"ERROR","object":{}}',
    ],
)
async def test_after_an_unreadable_line_everything_is_listed_again(
    server: ApiServer, line: bytes
) -> None:
    async with reflecting(server.url) as (mirror, _):
        request = await initial(server, pod("a", 1), version=1)
        request.send_bytes(line + b"\n")
        await initial(server, pod("b", 4), version=4)
        await mirror.until(lambda: mirror.versions == {"b": 4})


async def test_a_set_cut_short_is_not_handed_over(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, _):
        request = await server.next()
        request.send(*added(pod("a", 1)))
        request.end()
        await initial(server, pod("b", 2), version=2)
        await mirror.until(lambda: mirror.versions == {"b": 2})
        assert mirror.replaced == [{"b"}]
        assert len(mirror.pauses) == 1


async def test_objects_of_a_megabyte_are_mirrored(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, _):
        request = await initial(server, version=1)
        request.send(event("ADDED", pod("big", 2, note="x" * 1_000_000)))
        await mirror.until(lambda: mirror.versions == {"big": 2})


async def test_watches_that_end_at_once_are_not_repeated_hot(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, _):
        (await initial(server, version=1)).end()
        for _ in range(4):
            request = await resumed(server, 1)
            request.send_bytes(b"")
            request.end()
        await server.next()
        assert len(mirror.pauses) == 4
        assert mirror.pauses[-1] > 2 * mirror.pauses[0]


async def test_a_silent_watch_is_replaced(server: ApiServer) -> None:
    async with reflecting(server.url, silence=0.5) as (mirror, _):
        await initial(server, version=3)
        await resumed(server, 3)
        assert isinstance(mirror.troubles[0], UnansweredError)


async def test_trouble_is_told_every_time_and_logged_once(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mooring.kube.reflector")
    message = 'User "dora" cannot list resource "pods" in API group "" at the cluster scope'
    async with reflecting(server.url) as (mirror, _):
        for _ in range(3):
            (await server.next()).refuse(403, "Forbidden", message)
        await initial(server, version=1)
        await mirror.until(lambda: len(mirror.troubles) == 4)
    assert [type(error) for error in mirror.troubles[:3]] == [ForbiddenError] * 3
    assert mirror.troubles[3] is None
    assert caplog.messages == [
        'pods: user "dora" may not watch pods; grant it with: kubectl apply -k manifests/',
        "pods: the watch works again",
    ]


async def test_pauses_grow_until_something_works(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, _):
        for _ in range(8):
            (await server.next()).refuse(500, "InternalError", "no")
        (await initial(server, version=1)).cut()
        await resumed(server, 1)
        assert mirror.pauses[0] <= 0.8
        assert 15 <= mirror.pauses[7] <= 30
        assert mirror.pauses[8] <= 0.8


async def test_pauses_do_not_grow_where_silent_watches_are_cut_again_and_again(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A load balancer may close a watch that is silent for 35 s; bookmarks come less often."""
    clock = VirtualClock()
    caplog.set_level(logging.INFO, "mooring")
    async with reflecting(server.url, clock=clock) as (mirror, _):
        request = await initial(server, version=1)
        await mirror.until(lambda: bool(mirror.replaced))
        for _ in range(6):
            mirror.troubles.clear()
            await clock.advance(35)
            request.cut()
            request = await resumed(server, 1)
            request.send_bytes(b"\n")
            await mirror.until(lambda: mirror.troubles[1:] == [None])
        assert len(mirror.pauses) == 6
        assert max(mirror.pauses) <= 0.8
        assert caplog.messages == []
        mirror.troubles.clear()
        await clock.advance(35)
        request.cut()
        (await resumed(server, 1)).refuse(403, "Forbidden", "pods are not for you")
        (await resumed(server, 1)).send_bytes(b"\n")
        await mirror.until(lambda: mirror.troubles[2:] == [None])
    assert caplog.messages == [
        "pods: watch pods: pods are not for you (403 Forbidden)",
        "pods: the watch works again",
    ]


async def test_a_server_that_asks_for_time_gets_it_within_bounds(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, _):
        for seconds in ("20", "3600"):
            (await server.next()).refuse(429, "TooManyRequests", "busy", Retry_After=seconds)
        await server.next()
        assert mirror.pauses == [20, LONGEST_RETRY_AFTER]


async def test_an_object_that_the_mirror_refuses_does_not_stop_the_feed(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with reflecting(server.url) as (mirror, _):
        mirror.refuses = "bad"
        request = await initial(server, version=1)
        request.send(*added(pod("bad", 2), pod("bad", 3), pod("good", 4)))
        await mirror.until(lambda: mirror.versions == {"good": 4})
    words = "pods: Mooring failed to take over an object; later failures are not logged"
    refusals = [record for record in caplog.records if record.message == words]
    assert len(refusals) == 1
    assert refusals[0].exc_info


async def test_a_set_that_the_mirror_refuses_is_listed_again(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, reflector):
        mirror.refuses = "everything"
        await initial(server, pod("a", 1), version=1)
        await mirror.until(lambda: bool(mirror.troubles))
        assert not reflector.synced.is_set()
        mirror.refuses = None
        await initial(server, pod("a", 1), version=1)
        await reflector.synced.wait()
    trouble = mirror.troubles[0]
    assert trouble is not None
    line = explain(trouble)
    assert line.startswith("watch pods: Mooring failed to take over the listed objects: Assertion")
    assert line.endswith("; they are listed again; report this with the traceback in the log")


async def test_a_listed_set_that_the_mirror_refuses_is_listed_again(server: ApiServer) -> None:
    async with reflecting(server.url) as (mirror, reflector):
        mirror.refuses = "everything"
        (await server.next()).refuse(422, "Invalid", "sendInitialEvents is forbidden")
        listing = {"metadata": {"resourceVersion": "7"}, "items": [pod("a", 1)]}
        (await server.next()).reply(listing)
        await mirror.until(lambda: bool(mirror.troubles))
        assert not reflector.synced.is_set()
        mirror.refuses = None
        (await server.next()).reply(listing)
        await resumed(server, 7)
        assert reflector.synced.is_set()


async def test_an_object_of_a_list_that_the_mirror_refuses_does_not_stop_the_list(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with reflecting(server.url) as (mirror, reflector):
        mirror.refuses = "bad"
        await initial(server, pod("bad", 2), pod("good", 4), version=4)
        await reflector.synced.wait()
    assert mirror.versions == {"good": 4}
    assert mirror.troubles == []
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_other_tasks_run_while_a_list_is_taken_over_and_events_wait_until_that_is_done(
    server: ApiServer,
) -> None:
    async with reflecting(server.url, slowly=True) as (mirror, reflector):
        request = await server.next()
        names = [f"p{number}" for number in range(50)]
        request.send(*added(*(pod(name, 1) for name in names)), bookmark(1, initial_end=True))
        request.send(event("DELETED", pod("p0", 2)))
        turns = list[tuple[int, bool]]()
        while not mirror.applied:
            turns.append((len(mirror.steps), reflector.synced.is_set()))
            await asyncio.sleep(0)
    assert {(steps, False) for steps in range(1, 50)} <= set(turns)
    assert mirror.steps == names
    assert mirror.applied == [("DELETED", "p0")]
    assert (len(names), True) in turns


async def test_waiting_for_events_does_not_end_a_slice_of_work(server: ApiServer) -> None:
    """A slice may end with a garbage collection, which takes longer than an event."""
    now = 0.0
    async with reflecting(server.url, clock=lambda: now) as (mirror, _):
        request = await initial(server, version=1)
        with collections_of_garbage() as collected:
            for version in range(2, 32):
                now += 1.0
                request.send(event("ADDED", pod(f"p{version}", version)))
                await mirror.until(partial(mirror.applied.__contains__, ("ADDED", f"p{version}")))
    assert collected == []


async def test_other_tasks_run_while_an_event_is_taken_over_and_the_next_one_waits(
    server: ApiServer,
) -> None:
    async with reflecting(server.url, slowly=True) as (mirror, _):
        request = await initial(server, version=1)
        request.send(event("ADDED", pod("a", 2)), event("DELETED", pod("a", 3)))
        turns = set[tuple[int, int]]()
        while len(mirror.applied) < 2:
            turns.add((mirror.begun, len(mirror.applied)))
            await asyncio.sleep(0)
    assert turns == {(0, 0), (1, 0), (1, 1), (2, 1)}
    assert mirror.versions == {}


async def test_a_stop_while_a_list_is_taken_over_leaves_it_unfinished(server: ApiServer) -> None:
    async with reflecting(server.url, slowly=True) as (mirror, reflector):
        request = await server.next()
        request.send(*added(pod("a", 1), pod("b", 1)), bookmark(1, initial_end=True))
        await mirror.until(lambda: bool(mirror.steps))
    assert (mirror.steps, mirror.replaced) == (["a"], [])
    assert not reflector.synced.is_set()


async def test_pages_that_expire_are_listed_anew_page_by_page(server: ApiServer) -> None:
    """All objects at once might not fit into memory."""
    async with reflecting(server.url) as (mirror, reflector):
        (await server.next()).refuse(422, "Invalid", "sendInitialEvents is forbidden")
        first = {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [pod("a", 1)]}
        (await server.next()).reply(first)
        (await server.next()).refuse(410, "Expired", "the token is too old")
        again = await server.next()
        assert (again.query.get("limit"), again.query.get("continue")) == ("100", None)
        again.reply({"metadata": {"resourceVersion": "9"}, "items": [pod("b", 8)]})
        await reflector.synced.wait()
        assert mirror.replaced == [{"b"}]


DEEP = b'{"f:a":' * 5_000 + b"{}" + b"}" * 5_000
"""Managed fields as any user may write them: the API server takes 10,000 levels."""


@pytest.mark.parametrize("is_initial", [True, False])
async def test_an_object_that_is_nested_too_deeply_is_mirrored_like_any_other(
    server: ApiServer, *, is_initial: bool
) -> None:
    deep = orjson.dumps(event("ADDED", pod("deep", 2, note="HERE"))).replace(b'"HERE"', DEEP)
    async with reflecting(server.url) as (mirror, reflector):
        request = await server.next()
        if is_initial:
            request.send_bytes(deep + b"\n")
        request.send(bookmark(2, initial_end=True))
        await reflector.synced.wait()
        if not is_initial:
            request.send_bytes(deep + b"\n")
        await mirror.until(lambda: mirror.versions == {"deep": 2})
        assert (mirror.troubles, mirror.pauses) == ([], [])


async def test_cancelling_ends_the_watch_at_the_server(server: ApiServer) -> None:
    async with reflecting(server.url) as (_, reflector):
        request = await initial(server, version=1)
        await reflector.synced.wait()
    async with asyncio.timeout(20):
        await request.gone.wait()


@settings(max_examples=60, deadline=None)
@given(changes=CHANGES, connections=CONNECTIONS)
def test_whatever_happens_to_connections_the_mirror_ends_like_the_cluster(
    changes: list[tuple[str, bool]], connections: list[Connection]
) -> None:
    async def mirror_all() -> None:
        faulty = FaultyServer(changes, connections)
        async with ApiServer(faulty.respond) as server, reflecting(server.url) as (mirror, _):
            await mirror.until(lambda: bool(mirror.replaced) and mirror.versions == faulty.final)
            assert mirror.went_back == []

    asyncio.run(mirror_all())
