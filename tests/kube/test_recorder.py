"""Writes Events: their contents, series of repeated events, and limits."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from background import in_background
from kube.api_server import ApiServer
from kube.virtual_clock import VirtualClock
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.recorder import PATIENCE_SECONDS, PAUSE_SECONDS, EventRecorder, ObjectRef

WEB = ObjectRef("Pod", "web", "team-a", "u1")
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class WallClock:
    """A wall clock that the test sets."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time


@asynccontextmanager
async def recording(
    server: ApiServer, wall: WallClock | None = None, **options: Any
) -> AsyncIterator[EventRecorder]:
    async with ApiClient(Connection(server.url)) as client:
        recorder = EventRecorder(client, "mooring", "mooring-0", now=wall or WallClock(), **options)
        async with in_background(recorder.run()):
            yield recorder


def fail(recorder: EventRecorder, pod: ObjectRef = WEB, note: str = "0/3 nodes") -> None:
    recorder.record(pod, "Warning", "FailedScheduling", "Scheduling", note)


async def test_an_event_says_who_what_when_and_why(server: ApiServer) -> None:
    async with recording(server) as recorder:
        node = ObjectRef("Node", "n1", uid="u2")
        recorder.record(WEB, "Normal", "Scheduled", "Binding", "bound", related=node)
        request = await server.next()
        request.reply(request.body, 201)
        assert await recorder.drain(5)
    assert request.path == "/apis/events.k8s.io/v1/namespaces/team-a/events"
    stamp = f"{int(START.timestamp()) * 10**9:x}"
    assert request.body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"web.{stamp}", "namespace": "team-a"},
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": "bound",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "team-a",
            "name": "web",
            "uid": "u1",
        },
        "related": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u2"},
        "reportingController": "mooring",
        "reportingInstance": "mooring-0",
    }


async def test_an_event_about_a_cluster_object_lies_in_default(server: ApiServer) -> None:
    async with recording(server) as recorder:
        fail(recorder, ObjectRef("SchedulingProfile", "batch"))
        assert (await server.next()).path.endswith("/namespaces/default/events")


async def test_names_are_unique_and_never_too_long(server: ApiServer) -> None:
    async with recording(server, lanes=3) as recorder:
        for note in ("one", "two", "three"):
            fail(recorder, ObjectRef("Pod", "a" * 235 + "." + "b" * 17, "team-a"), note)
        names = [(await server.next()).body["metadata"]["name"] for _ in range(3)]
    assert len(set(names)) == 3
    assert {len(name) for name in names} == {235 + 1 + 16}


@pytest.mark.parametrize("note", ["x" * 1025, "\u00e4" * 600, "\U0001f6a2" * 2000])
async def test_a_note_is_cut_to_the_bytes_that_the_api_allows(server: ApiServer, note: str) -> None:
    async with recording(server) as recorder:
        fail(recorder, note=note)
        written = (await server.next()).body["note"]
    assert 1021 <= len(written.encode()) <= 1024
    assert written.endswith(" ...")
    assert note.startswith(written.removesuffix(" ..."))


async def test_a_note_of_the_full_length_stays_whole(server: ApiServer) -> None:
    async with recording(server) as recorder:
        fail(recorder, note="x" * 1024)
        assert (await server.next()).body["note"] == "x" * 1024


async def test_repeats_are_added_to_the_series_of_the_first(server: ApiServer) -> None:
    wall = WallClock()
    async with recording(server, wall) as recorder:
        fail(recorder)
        first = await server.next()
        first.reply(first.body, 201)
        assert await recorder.drain(5)
        wall.time += timedelta(seconds=10)
        fail(recorder)
        second = await server.next()
        second.reply({})
        assert await recorder.drain(5)
    assert "series" not in first.body
    assert (second.method, second.path) == (
        "PATCH",
        f"{first.path}/{first.body['metadata']['name']}",
    )
    assert second.body == {
        "series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:15.000000Z"}
    }


async def test_repeats_while_the_server_is_slow_become_one_request(server: ApiServer) -> None:
    async with recording(server) as recorder:
        fail(recorder)
        first = await server.next()
        for _ in range(9):
            fail(recorder)
        first.reply(first.body, 201)
        second = await server.next()
        second.reply({})
        assert await recorder.drain(5)
    assert second.body["series"]["count"] == 10
    assert len(server.seen) == 2


async def test_another_note_is_another_event(server: ApiServer) -> None:
    async with recording(server, lanes=2) as recorder:
        fail(recorder, note="0/3 nodes")
        fail(recorder, note="0/4 nodes")
        requests = [await server.next(), await server.next()]
    assert {request.method for request in requests} == {"POST"}


async def test_a_series_that_the_server_has_forgotten_begins_anew(server: ApiServer) -> None:
    async with recording(server) as recorder:
        fail(recorder)
        (await server.next()).reply({}, 201)
        assert await recorder.drain(5)
        fail(recorder)
        (await server.next()).refuse(404, "NotFound", "expired")
        again = await server.next()
        again.reply({}, 201)
        assert await recorder.drain(5)
    assert again.method == "POST"
    assert again.body["series"]["count"] == 2


async def test_only_the_last_events_are_remembered(server: ApiServer) -> None:
    async with recording(server, remembered=8000) as recorder:
        for name in ("a", "b", "c", "a"):
            fail(recorder, ObjectRef("Pod", name, "team-a"))
        methods = []
        for _ in range(4):
            request = await server.next()
            request.reply({}, 201)
            methods.append(request.method)
    assert methods == ["POST"] * 4


async def test_a_full_queue_drops_the_oldest_and_counts_it(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with ApiClient(Connection(server.url)) as client:
        recorder = EventRecorder(client, "mooring", "mooring-0", capacity=2)
        for name in "abcde":
            fail(recorder, ObjectRef("Pod", name, "team-a"))
        assert recorder.dropped == 3
        assert caplog.messages == ["events are recorded faster than written: 1 dropped so far"]
        fail(recorder, ObjectRef("Pod", "a", "team-a"))  # dropped before: it is written as new
        task = asyncio.create_task(recorder.run())
        bodies = []
        for _ in range(2):
            request = await server.next()
            request.reply({}, 201)
            bodies.append(request.body)
        assert await recorder.drain(5)
        task.cancel()
        await asyncio.wait([task])
    assert [body["regarding"]["name"] for body in bodies] == ["e", "a"]
    assert bodies[1]["series"]["count"] == 2


async def test_no_more_than_the_lanes_are_in_flight(server: ApiServer) -> None:
    async with recording(server, lanes=2) as recorder:
        for name in "abc":
            fail(recorder, ObjectRef("Pod", name, "team-a"))
        first, _second = await server.next(), await server.next()
        assert len(server.seen) == 2
        first.reply({}, 201)
        await server.next()
        assert len(server.seen) == 3


@asynccontextmanager
async def giving_way(
    server: ApiServer, clock: VirtualClock, gives_way: Callable[[], bool] = lambda: True
) -> AsyncIterator[EventRecorder]:
    """Yield a recorder with one lane and an event that waits because of `gives_way`."""
    async with recording(
        server, lanes=1, gives_way=gives_way, clock=clock, sleep=clock.sleep
    ) as recorder:
        fail(recorder)
        await clock.sleepers(seconds=PAUSE_SECONDS)
        yield recorder


async def test_events_wait_while_there_is_more_important_work(server: ApiServer) -> None:
    clock, busy = VirtualClock(), True
    async with giving_way(server, clock, lambda: busy) as recorder:
        for _ in range(3):
            await clock.advance(PAUSE_SECONDS)
            await clock.sleepers(seconds=PAUSE_SECONDS)
        assert not server.seen
        busy = False
        await clock.advance(PAUSE_SECONDS)
        (await server.next()).reply({}, 201)
        assert await recorder.drain(5)


async def test_no_event_waits_longer_than_ten_seconds(server: ApiServer) -> None:
    clock = VirtualClock()
    async with giving_way(server, clock) as recorder:
        await clock.advance(PATIENCE_SECONDS)
        (await server.next()).reply({}, 201)
        assert await recorder.drain(5)


async def test_events_give_way_to_nothing_at_the_end(server: ApiServer) -> None:
    clock = VirtualClock()
    async with giving_way(server, clock) as recorder:
        drained = asyncio.create_task(recorder.drain(5))
        await asyncio.sleep(0)  # a task begins at the next turn of the loop
        await clock.advance(PAUSE_SECONDS)
        (await server.next()).reply({}, 201)
        assert await drained


async def test_a_refused_event_is_counted_logged_once_and_forgotten(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    bodies = []
    async with recording(server) as recorder:
        for _ in range(2):
            fail(recorder)
            request = await server.next()
            request.refuse(403, "Forbidden", "the namespace is being terminated")
            assert await recorder.drain(5)
            bodies.append(request.body)
        assert recorder.refused == 2
    # A new name: a create whose answer was lost may have taken the old one.
    assert bodies[0]["metadata"]["name"] != bodies[1]["metadata"]["name"]
    assert "series" not in bodies[1]
    assert len(caplog.messages) == 1
    assert "the namespace is being terminated" in caplog.messages[0]


async def test_draining_gives_up_after_its_time(server: ApiServer) -> None:
    async with recording(server) as recorder:
        fail(recorder)
        await server.next()
        assert not await recorder.drain(0.01)


def series_count(body: dict[str, Any]) -> int:
    return int(body.get("series", {}).get("count", 1))


@given(st.lists(st.sampled_from("abc"), max_size=20))
def test_the_server_ends_with_one_event_each_and_the_right_counts(names: list[str]) -> None:
    async def write_all() -> dict[str, int]:
        counts: dict[str, int] = {}
        async with ApiServer(lambda request: request.reply(request.body)) as server:
            async with recording(server) as recorder:
                for name in names:
                    fail(recorder, ObjectRef("Pod", name, "team-a"))
                    await asyncio.sleep(0)
                assert await recorder.drain(5)
            owners = {}
            for request in server.seen:
                if request.method == "POST":
                    owner = request.body["regarding"]["name"]
                    assert owner not in counts
                    owners[request.body["metadata"]["name"]] = owner
                else:
                    owner = owners[request.path.rsplit("/", 1)[1]]
                counts[owner] = series_count(request.body)
        return counts

    assert asyncio.run(write_all()) == {name: names.count(name) for name in names}
