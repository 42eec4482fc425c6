"""What is done by the clock rather than by an event."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kube.api_server import ApiServer
from kube.virtual_clock import VirtualClock
from mooring.engine.housekeeping import CONFIRMATION_SECONDS, FLUSH_SECONDS, Housekeeping
from mooring.framework.verdicts import Refused
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.changes import Action, Change
from mooring.model.pod import parse_pod
from mooring.state.queue import UNSCHEDULABLE_TIMEOUT, Part
from mooring.testing.builders import node, pod
from worlds import put_profile, world

WEB = parse_pod(pod("web"))


class House:
    """A world in order, a clock that stands, and what housekeeping says."""

    def __init__(self, client: ApiClient) -> None:
        self.clock = VirtualClock()
        self.world = world(node("a"))
        put_profile(self.world)
        self.heard: list[Change] = []
        self.changed = asyncio.Event()
        self.woken = 0
        self.keeping = Housekeeping(
            self.world,
            client,
            wake=self._wake,
            changed=self._hear,
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def _wake(self) -> None:
        self.woken += 1

    def _hear(self, changes: tuple[Change, ...]) -> None:
        self.heard.extend(changes)
        self.changed.set()

    def bound(self, seconds: float) -> None:
        """The pod is bound, and the watch must confirm it within `seconds`."""
        self.world.state.assume(WEB, self.world.state.nodes.row_of["a"])
        self.world.state.expect_confirmation(WEB, self.clock() + seconds)

    async def settled(self) -> list[Action]:
        """What was heard of the pod's place in the end."""
        async with asyncio.timeout(10.0):
            await self.changed.wait()
        return [change.action for change in self.heard]

    async def chores_wait(self) -> None:
        """All three chores are asleep."""
        await self.clock.sleepers(3)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


@pytest.fixture
async def house(server: ApiServer) -> AsyncIterator[House]:
    async with ApiClient(Connection(server.url)) as client:
        made = House(client)
        task = asyncio.create_task(made.keeping.run())
        await made.chores_wait()
        yield made
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def test_a_wait_at_permit_ends_when_its_time_is_up(house: House) -> None:
    decided: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
    house.world.waiting.enter(
        WEB, "a", {"Gang": house.clock() + 2.0}, house.clock(), lambda no, _: decided.set_result(no)
    )
    await house.clock.advance(1.0)
    await house.chores_wait()
    assert not decided.done()
    await house.clock.advance(1.0)
    refusal = await decided
    assert refusal is not None
    assert refusal.reason == "rejected due to timeout after waiting 2s at plugin Gang"


async def test_a_pod_whose_confirmation_is_not_overdue_is_not_asked_for(
    server: ApiServer, house: House
) -> None:
    house.bound(CONFIRMATION_SECONDS + 1)
    await house.clock.advance(CONFIRMATION_SECONDS)
    await house.chores_wait()
    assert server.seen == []


async def test_an_overdue_pod_that_is_bound_is_confirmed(server: ApiServer, house: House) -> None:
    house.bound(1.0)
    await house.clock.advance(CONFIRMATION_SECONDS)
    request = await server.next()
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/default/pods/web")
    request.reply(pod("web", node="a"))
    assert await house.settled() == []
    assert house.world.state.overdue(house.clock()) == []
    placed = house.world.state.pods.get(WEB.key)
    assert placed is not None
    assert not placed.assumed


async def test_an_overdue_pod_that_has_gone_gives_its_place_back(
    server: ApiServer, house: House
) -> None:
    house.bound(1.0)
    await house.clock.advance(CONFIRMATION_SECONDS)
    (await server.next()).refuse(404, "NotFound", "pods web not found")
    assert await house.settled() == [Action.DELETE]
    assert house.world.state.pods.get(WEB.key) is None


async def test_a_successor_of_the_overdue_pod_does_not_confirm_it(
    server: ApiServer, house: House
) -> None:
    house.bound(1.0)
    await house.clock.advance(CONFIRMATION_SECONDS)
    successor = pod("web", node="a")
    successor["metadata"]["uid"] = "another"
    (await server.next()).reply(successor)
    assert await house.settled() == [Action.DELETE]


async def test_without_an_answer_the_place_is_kept_and_asked_for_again(
    server: ApiServer, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.bound(1.0)
    await house.clock.advance(CONFIRMATION_SECONDS)
    (await server.next()).refuse(403, "Forbidden", "no")
    await house.chores_wait()
    assert "pod default/web is still unconfirmed" in caplog.text
    assert house.world.state.pods.get(WEB.key) is not None
    await house.clock.advance(CONFIRMATION_SECONDS)
    (await server.next()).reply(pod("web", node="a"))
    assert await house.settled() == []


async def test_an_answer_that_takes_long_keeps_no_other_chore_waiting(
    server: ApiServer, house: House
) -> None:
    house.bound(1.0)
    await house.clock.advance(CONFIRMATION_SECONDS)
    asked = await server.next()
    decided: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
    house.world.waiting.enter(
        WEB, "a", {"Gang": house.clock()}, house.clock(), lambda no, _: decided.set_result(no)
    )
    await house.clock.sleepers(2)
    await house.clock.advance(1.0)
    assert await decided is not None
    asked.reply(pod("web", node="a"))
    await house.settled()


async def test_pods_unschedulable_for_five_minutes_try_again(house: House) -> None:
    queue = house.world.queue
    queue.add(WEB, house.clock())
    queued = queue.pop(house.clock())
    assert queued is not None
    queue.refused(queued, frozenset({"NodeResourcesFit"}), house.clock())
    await house.clock.advance(UNSCHEDULABLE_TIMEOUT - FLUSH_SECONDS)
    await house.chores_wait()
    assert (queued.part, house.woken) == (Part.UNSCHEDULABLE, 0)
    await house.clock.advance(FLUSH_SECONDS)
    await house.chores_wait()
    assert (queued.part, house.woken) == (Part.ACTIVE, 1)
