"""What kopf has missed is found by asking for all."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube.api_server import ApiServer, Request
from kube.virtual_clock import VirtualClock
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.resources import POD, PRIORITY_CLASS
from mooring.mirroring.comparer import EVERY_SECONDS, PAUSE_SECONDS, CacheComparer, Compared

PENDING = {"fieldSelector": "spec.nodeName="}


class Register:
    """Pods and PriorityClasses that are known, and the census that checks them."""

    def __init__(self, client: ApiClient) -> None:
        self.clock = VirtualClock()
        self.pods = {"default/web": "u1", "default/db": "u2"}
        self.classes: dict[str, str] = {}
        counted = (
            Compared(POD, lambda: self.pods, self._pod_gone, PENDING),
            Compared(PRIORITY_CLASS, lambda: self.classes, self._class_gone),
        )
        self.comparer = CacheComparer(client, counted, sleep=self.clock.sleep)

    def _pod_gone(self, key: str, uid: str) -> None:
        assert self.pods.pop(key) == uid

    def _class_gone(self, key: str, uid: str) -> None:
        assert self.classes.pop(key) == uid

    async def due(self) -> None:
        """A hint has come or five minutes have passed, and the pause that follows has."""
        await self.clock.sleepers(seconds=PAUSE_SECONDS)
        await self.clock.advance(PAUSE_SECONDS)

    async def done(self) -> None:
        """The census has been taken, and the next one is awaited."""
        await self.clock.sleepers(seconds=EVERY_SECONDS)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def register(server: ApiServer) -> AsyncIterator[Register]:
    async with ApiClient(Connection(server.url)) as client:
        made = Register(client)
        task = asyncio.create_task(made.comparer.run())
        await made.done()
        yield made
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


def listed(request: Request, *uids: str) -> None:
    items: list[dict[str, Any]] = [{"metadata": {"name": uid, "uid": uid}} for uid in uids]
    request.reply({"metadata": {"resourceVersion": "9"}, "items": items})


async def test_what_is_known_and_not_there_has_gone(
    server: ApiServer, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await register.clock.advance(EVERY_SECONDS)
        await register.due()
        listed(await server.next(), "u2", "u3")
        await register.done()
    assert register.pods == {"default/db": "u2"}
    assert "1 pods had gone unnoticed" in caplog.messages


async def test_a_successor_of_the_same_name_does_not_stand_for_its_predecessor(
    server: ApiServer, register: Register
) -> None:
    register.comparer.hint()
    await register.due()
    listed(await server.next(), "u2", "u1-successor")
    await register.done()
    assert register.pods == {"default/db": "u2"}


async def test_only_the_metadata_of_those_concerned_are_asked_for(
    server: ApiServer, register: Register
) -> None:
    register.comparer.hint()
    await register.due()
    request = await server.next()
    listed(request, "u1", "u2")
    await register.done()
    assert request.query["fieldSelector"] == "spec.nodeName="
    assert "PartialObjectMetadataList" in request.headers["Accept"]


async def test_many_hints_lead_to_one_census(server: ApiServer, register: Register) -> None:
    register.comparer.hint()
    await register.clock.sleepers(seconds=PAUSE_SECONDS)
    register.comparer.hint()
    await register.due()
    listed(await server.next(), "u1", "u2")
    await register.done()
    assert len(server.seen) == 1


async def test_what_came_after_the_question_is_not_missed(
    server: ApiServer, register: Register
) -> None:
    register.comparer.hint()
    await register.due()
    request = await server.next()
    register.pods["default/new"] = "u3"
    listed(request, "u1", "u2")
    await register.done()
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
    assert "pods are not counted" in caplog.text


async def test_where_nothing_is_known_nothing_is_asked(
    server: ApiServer, register: Register
) -> None:
    register.pods.clear()
    register.comparer.hint()
    await register.due()
    await register.done()
    assert server.seen == []
