"""Finds objects that kopf has missed by listing all objects."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from background import in_background
from kube.api_server import ApiServer, Request
from kube.virtual_clock import VirtualClock
from mooring.kube.api_resources import POD, PRIORITY_CLASS
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.mirroring.comparer import (
    EVERY_SECONDS,
    MOST_FETCHED,
    PAUSE_SECONDS,
    CacheComparer,
    WatchedResource,
)
from mooring.scheduling.scheduler_state import DeletedUids

PENDING = {"fieldSelector": "spec.nodeName="}


class Register:
    """The known pods and PriorityClasses, and the comparer that checks both."""

    def __init__(self, client: ApiClient) -> None:
        self.clock = VirtualClock()
        self.pods = {"default/web": "u1", "default/db": "u2"}
        self.in_flight: dict[str, str] = {}
        self.classes: dict[str, str] = {}
        self.malformed: set[str] = set()
        self.broken: set[str] = set()
        self.handed_over: list[str] = []
        self.departures = DeletedUids()
        compared = (
            WatchedResource(
                POD,
                lambda: {*self.pods.values()},
                self._knows_pod,
                self._pod_gone,
                self._pod_found,
                self.departures.meanwhile,
                PENDING,
                self.in_flight.values,
            ),
            WatchedResource(
                PRIORITY_CLASS,
                lambda: {*self.classes.values()},
                lambda name, uid: self.classes.get(name) == uid,
                self._class_gone,
                self._class_found,
                DeletedUids().meanwhile,
            ),
        )
        self.comparer = CacheComparer(client, compared, sleep=self.clock.sleep)

    def _knows_pod(self, key: str, uid: str) -> bool:
        return uid in (self.pods.get(key), self.in_flight.get(key))

    def _pod_gone(self, uid: str) -> None:
        self.pods = {key: each for key, each in self.pods.items() if each != uid}

    async def _pod_found(self, raw: dict[str, Any]) -> None:
        metadata = raw["metadata"]
        self.handed_over.append(metadata["uid"])
        if metadata["uid"] in self.broken:
            raise ValueError("a mistake of the handler")
        if metadata["uid"] not in self.malformed:
            self.pods[f"{metadata['namespace']}/{metadata['name']}"] = metadata["uid"]

    def _class_gone(self, uid: str) -> None:
        self.classes = {name: each for name, each in self.classes.items() if each != uid}

    async def _class_found(self, raw: dict[str, Any]) -> None:
        self.classes[raw["metadata"]["name"]] = raw["metadata"]["uid"]

    async def due(self) -> None:
        """End the pause before a comparison."""
        await self.clock.end_sleep(PAUSE_SECONDS)

    async def done(self) -> None:
        """Wait until the comparison has ended and the comparer waits for the next one."""
        await self.clock.sleepers(seconds=EVERY_SECONDS)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def register(server: ApiServer) -> AsyncIterator[Register]:
    async with ApiClient(Connection(server.url)) as client:
        made = Register(client)
        async with in_background(made.comparer.run()):
            await made.done()
            yield made


NAMES = {"u1": "web", "u2": "db"}


def metadata(uid: str, version: str = "1", namespace: str | None = "default") -> dict[str, Any]:
    named = {"name": NAMES.get(uid, uid), "uid": uid, "resourceVersion": version}
    return named if namespace is None else {**named, "namespace": namespace}


def listed(
    request: Request, *uids: str, version: str = "1", namespace: str | None = "default"
) -> None:
    items = [{"metadata": metadata(uid, version, namespace)} for uid in uids]
    request.reply({"metadata": {"resourceVersion": "9"}, "items": items})


async def compared(register: Register, server: ApiServer, *uids: str, version: str = "1") -> None:
    """Begin a comparison; answer its list of pods with these uids."""
    register.comparer.hint()
    await register.due()
    listed(await server.next(), *uids, version=version)


async def no_classes(server: ApiServer) -> None:
    """Answer the next list of PriorityClasses with an empty list."""
    request = await server.next()
    assert "priorityclasses" in request.path
    listed(request)


async def ended(register: Register, server: ApiServer) -> None:
    """Answer the list of PriorityClasses with an empty list; wait for the comparison's end."""
    await no_classes(server)
    await register.done()


async def test_what_is_known_and_not_there_has_gone(
    server: ApiServer, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await register.clock.advance(EVERY_SECONDS)
        await register.due()
        listed(await server.next(), "u2")
        await ended(register, server)
    assert register.pods == {"default/db": "u2"}
    assert "1 pod had gone unnoticed" in caplog.messages


async def test_what_went_while_it_was_in_flight_is_found_when_it_is_known_again(
    server: ApiServer, register: Register
) -> None:
    register.in_flight["default/web"] = register.pods.pop("default/web")
    await compared(register, server, "u2")
    await no_classes(server)
    await register.clock.end_sleep(PAUSE_SECONDS)
    await register.clock.sleepers(seconds=PAUSE_SECONDS)  # it is in flight still
    register.pods.update(register.in_flight)
    register.in_flight.clear()
    await register.clock.end_sleep(PAUSE_SECONDS)
    await register.due()
    listed(await server.next(), "u2")
    await ended(register, server)
    assert register.pods == {"default/db": "u2"}


async def test_what_is_in_flight_and_leaves_for_good_is_not_compared_again(
    server: ApiServer, register: Register
) -> None:
    register.in_flight["default/web"] = register.pods.pop("default/web")
    await compared(register, server, "u2")
    await no_classes(server)
    register.in_flight.clear()
    await register.clock.end_sleep(PAUSE_SECONDS)
    await register.clock.sleepers(seconds=EVERY_SECONDS - PAUSE_SECONDS)
    assert len(server.seen) == 2


async def test_a_successor_of_the_same_name_does_not_stand_for_its_predecessor(
    server: ApiServer, register: Register
) -> None:
    await compared(register, server, "u2", "u3")
    await register.due()
    assert register.pods == {"default/db": "u2"}
    successor = await server.next()
    successor.refuse(404, "NotFound", "gone again")
    await ended(register, server)


async def test_only_the_metadata_of_those_concerned_are_asked_for(
    server: ApiServer, register: Register
) -> None:
    register.comparer.hint()
    await register.due()
    request = await server.next()
    listed(request, "u1", "u2")
    await ended(register, server)
    assert request.query["fieldSelector"] == "spec.nodeName="
    assert "PartialObjectMetadataList" in request.headers["Accept"]


async def test_many_hints_lead_to_one_comparison(server: ApiServer, register: Register) -> None:
    register.comparer.hint()
    await register.clock.sleepers(seconds=PAUSE_SECONDS)
    await compared(register, server, "u1", "u2")
    await ended(register, server)
    assert len(server.seen) == 2


async def test_what_came_after_the_question_is_not_missed(
    server: ApiServer, register: Register
) -> None:
    register.comparer.hint()
    await register.due()
    request = await server.next()
    register.pods["default/new"] = "u3"
    listed(request, "u1", "u2")
    await ended(register, server)
    assert "default/new" in register.pods


async def test_an_answer_that_fails_loses_nothing_and_nobody_else_is_left_out(
    server: ApiServer, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    register.classes["high"] = "c1"
    register.comparer.hint()
    await register.due()
    (await server.next()).refuse(403, "Forbidden", "no")
    listed(await server.next())
    await register.done()
    assert len(register.pods) == 2
    assert register.classes == {}
    assert "pods are not compared" in caplog.text


async def test_what_is_there_and_not_known_is_read_and_handed_over(
    server: ApiServer, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    await compared(register, server, "u1", "u2", "u3")
    await register.due()
    read = await server.next()
    assert (read.method, read.path) == ("GET", "/api/v1/namespaces/default/pods/u3")
    read.reply({"metadata": metadata("u3")})
    listed(await server.next(), "high", namespace=None)
    await register.due()
    (await server.next()).reply({"metadata": metadata("high", namespace=None)})
    await register.done()
    assert register.pods["default/u3"] == "u3"
    assert register.classes == {"high": "high"}
    assert "1 pods had come unnoticed" in caplog.messages


async def test_what_is_known_in_another_state_is_not_missing(
    server: ApiServer, register: Register
) -> None:
    register.in_flight["default/u3"] = "u3"
    await compared(register, server, "u1", "u2", "u3")
    await ended(register, server)


async def test_what_kopf_shows_within_the_pause_is_not_missing(
    server: ApiServer, register: Register
) -> None:
    await compared(register, server, "u1", "u2", "u3")
    await register.clock.sleepers(seconds=PAUSE_SECONDS)
    register.pods["default/u3"] = "u3"
    await register.clock.advance(PAUSE_SECONDS)
    await ended(register, server)


async def test_an_object_that_went_while_it_was_read_is_not_handed_over(
    server: ApiServer, register: Register
) -> None:
    await compared(register, server, "u1", "u2", "u3")
    await register.due()
    read = await server.next()
    register.departures.note("u3")
    read.reply({"metadata": metadata("u3")})
    await ended(register, server)
    assert "default/u3" not in register.pods


async def test_an_object_that_kopf_shows_while_it_is_read_is_not_handed_over(
    server: ApiServer, register: Register
) -> None:
    """The object that was read may be older than the version from kopf."""
    await compared(register, server, "u1", "u2", "u3")
    await register.due()
    read = await server.next()
    register.pods["default/u3"] = "u3"
    read.reply({"metadata": metadata("u3")})
    await ended(register, server)
    assert register.handed_over == []


async def test_another_object_of_the_same_name_is_not_handed_over(
    server: ApiServer, register: Register
) -> None:
    await compared(register, server, "u1", "u2", "u3")
    await register.due()
    (await server.next()).reply({"metadata": {**metadata("u3"), "uid": "u4"}})
    await ended(register, server)
    assert "default/u3" not in register.pods


@pytest.mark.parametrize("why", ["malformed", "broken"])
async def test_an_object_that_is_of_no_use_is_read_again_only_when_it_has_changed(
    server: ApiServer, register: Register, why: str
) -> None:
    getattr(register, why).add("u3")
    for version, reads in (("1", 1), ("1", 0), ("2", 1)):
        await compared(register, server, "u1", "u2", "u3", version=version)
        if reads:
            await register.due()
            (await server.next()).reply({"metadata": metadata("u3", version)})
        await ended(register, server)


async def test_a_round_reads_a_bounded_number_and_the_next_one_follows_at_once(
    server: ApiServer, register: Register
) -> None:
    uids = ("u1", "u2", *(f"new-{i:03}" for i in range(MOST_FETCHED + 1)))
    register.comparer.hint()
    for first, last in ((0, MOST_FETCHED), (MOST_FETCHED, MOST_FETCHED + 1)):
        await register.due()
        listed(await server.next(), *uids)
        await register.due()
        for i in range(first, last):
            (await server.next()).reply({"metadata": metadata(f"new-{i:03}")})
        await ended(register, server)
    assert len(register.pods) == len(uids)


async def test_a_round_begins_where_the_last_one_ended(
    server: ApiServer, register: Register
) -> None:
    """Objects that are dropped in every round must not keep other objects from being read.

    In this test, kopf shows a new version of each dropped object before the next round.
    """
    dropped = [f"dropped-{i:03}" for i in range(MOST_FETCHED)]
    register.malformed.update(dropped)
    register.comparer.hint()
    for version, reads in (("1", dropped), ("2", ["lost", *dropped[:-1]])):
        await register.due()
        listed(await server.next(), "u1", "u2", *dropped, "lost", version=version)
        await register.due()
        for uid in reads:
            request = await server.next()
            assert request.path.endswith(f"/{uid}")
            request.reply({"metadata": metadata(uid, version)})
        await no_classes(server)
    assert register.pods["default/lost"] == "lost"


async def test_an_object_that_cannot_be_handed_over_does_not_hold_up_the_next_round(
    server: ApiServer, register: Register
) -> None:
    register.comparer.hint()
    for first in ("a", "b"):
        await register.due()
        listed(await server.next(), "u1", "u2", "a", "b")
        await register.due()
        request = await server.next()
        assert request.path.endswith(f"/{first}")
        request.refuse(403, "Forbidden", "no")
        await ended(register, server)
        register.comparer.hint()
