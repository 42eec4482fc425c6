"""The periodic work of the scheduler."""

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from background import in_background
from engines import Marked
from kube.api_server import ApiServer, Request
from kube.virtual_clock import VirtualClock
from mooring.framework.registry import Registry
from mooring.framework.verdicts import Unschedulable
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod, parse_pod
from mooring.model.workloads import parse_pod_disruption_budget
from mooring.pausing import pause
from mooring.plugins import SHIPPED
from mooring.process.time_slices import TimeSlices
from mooring.scheduling.housekeeping import (
    ASK_AGAIN_SECONDS,
    CONFIRMATION_SECONDS,
    Housekeeping,
)
from mooring.state.evictions import OLDER_SECONDS
from mooring.testing.builders import node, pdb, pod
from rebalancing_stage import READY
from relists import replace_all
from scheduler_states import put_profile, scheduler_state

WEB = parse_pod(pod("web"))
OFTEN, SELDOM = 7.0, 14.0


class Keeper(Marked):
    """A plugin that records each pod for which it must undo its reservation."""

    name: ClassVar[str] = "Keeper"
    undone: ClassVar[list[tuple[str, str]]] = []

    def unreserve(self, pod: Pod, node: str) -> None:
        self.undone.append((pod.name, node))


class House:
    """A cluster of one node, a clock that the test moves, and the housekeeping."""

    def __init__(self, client: ApiClient) -> None:
        self.clock = VirtualClock()
        registry = Registry((*SHIPPED, Keeper), {})
        self.scheduler_state = scheduler_state(
            node("a"), registry=registry, clock=self.clock, sleep=self.clock.sleep
        )
        uses = {"multiPoint": {"enabled": [{"name": Keeper.name}]}}
        put_profile(self.scheduler_state, registry=registry, plugins=uses)
        self.undone = Keeper.undone
        self.undone.clear()
        self.heard: list[ClusterEvent] = []
        self.changed = asyncio.Event()
        self.called = 0
        self.called_seldom = 0
        self.unbound: list[str] = []
        self.scheduler_state.state.on_events(self._hear)
        self.keeping = Housekeeping(
            self.scheduler_state,
            client,
            periodic={self._call: OFTEN, self._call_seldom: SELDOM},
            unbound=lambda found: self.unbound.append(found.key),
        )

    def _call(self) -> None:
        pause()
        self.called += 1

    def _call_seldom(self) -> None:
        pause()
        self.called_seldom += 1

    def _hear(self, changes: tuple[ClusterEvent, ...]) -> None:
        self.heard.extend(changes)
        self.changed.set()

    def bound(self, seconds: float) -> None:
        """Assume the pod as bound; the watch must confirm this within `seconds`."""
        self.scheduler_state.state.assume(WEB, self.scheduler_state.state.nodes.row_of["a"])
        self.scheduler_state.state.announce(WEB)
        self.heard.clear()
        self.changed.clear()
        self.scheduler_state.state.expect_confirmation(WEB, self.clock() + seconds)

    async def overdue(self, server: ApiServer) -> Request:
        """Assume the pod as bound without a confirmation; return the server's next request."""
        self.bound(1.0)
        await self.clock.advance(CONFIRMATION_SECONDS)
        return await server.next()

    async def events_of_the_pod(self) -> list[Action]:
        """Wait for the pod's events; return their actions."""
        async with asyncio.timeout(60.0):
            await self.changed.wait()
        return [change.action for change in self.heard]

    async def chores_wait(self) -> None:
        """Wait until all periodic tasks are asleep."""
        await self.clock.sleepers(5)


@pytest.fixture
async def house(server: ApiServer) -> AsyncIterator[House]:
    async with ApiClient(Connection(server.url)) as client:
        made = House(client)
        async with in_background(made.keeping.run()):
            await made.chores_wait()
            yield made


async def test_chores_begin_while_another_task_decides(server: ApiServer) -> None:
    async with ApiClient(Connection(server.url)) as client:
        house = House(client)

        def decide() -> None:
            for _ in range(10):
                pause()

        async def have_the_turn() -> None:
            async with house.scheduler_state.turn:
                await TimeSlices(0.0).run(decide)

        deciding = asyncio.create_task(have_the_turn())
        async with in_background(house.keeping.run()):
            await deciding


async def test_a_wait_at_permit_ends_when_its_time_is_up(house: House) -> None:
    decided: asyncio.Future[Unschedulable | None] = asyncio.get_running_loop().create_future()
    house.scheduler_state.waiting.enter(
        WEB, "a", {"Gang": house.clock() + 2.0}, house.clock(), lambda no, _: decided.set_result(no)
    )
    await house.clock.advance(1.0)
    await house.chores_wait()
    assert not decided.done()
    await house.clock.advance(1.0)
    rejection = await decided
    assert rejection is not None
    assert rejection.reason == "rejected due to timeout after waiting 2s at plugin Gang"


async def test_a_pod_whose_confirmation_is_not_overdue_is_not_asked_for(
    server: ApiServer, house: House
) -> None:
    house.bound(CONFIRMATION_SECONDS + 1)
    await house.clock.advance(CONFIRMATION_SECONDS)
    await house.chores_wait()
    assert server.seen == []


async def test_an_overdue_pod_that_is_bound_stays_assumed_and_is_asked_for_again(
    server: ApiServer, house: House
) -> None:
    request = await house.overdue(server)
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/default/pods/web")
    request.reply(pod("web", node="a"))
    await house.chores_wait()
    assert house.heard == []
    assert house.scheduler_state.state.overdue(house.clock()) == []
    assert [placed.assumed for placed in house.scheduler_state.state.pods] == [True]
    await house.clock.advance(ASK_AGAIN_SECONDS)
    (await server.next()).refuse(404, "NotFound", "pods web not found")
    await house.chores_wait()
    assert [*house.scheduler_state.state.pods] == []


async def test_an_overdue_pod_that_another_scheduler_bound_elsewhere_is_there(
    server: ApiServer, house: House
) -> None:
    (await house.overdue(server)).reply(pod("web", node="b"))
    await house.chores_wait()
    placed = [*house.scheduler_state.state.pods]
    assert [(there.pod.node_name, there.assumed) for there in placed] == [("b", False)]


async def test_a_relist_that_overtakes_the_answer_leaves_no_pod_that_is_gone(
    server: ApiServer, house: House
) -> None:
    asked = await house.overdue(server)
    replace_all(house.scheduler_state.state, Kind.POD, {})
    asked.reply(pod("web", node="a"))
    await house.chores_wait()
    await house.clock.advance(ASK_AGAIN_SECONDS)
    (await server.next()).refuse(404, "NotFound", "pods web not found")
    await house.chores_wait()
    assert [*house.scheduler_state.state.pods] == []


async def test_an_overdue_pod_that_is_not_bound_is_forgotten_and_scheduled_again(
    server: ApiServer, house: House
) -> None:
    (await house.overdue(server)).reply(pod("web"))
    assert await house.events_of_the_pod() == [Action.DELETE]
    await house.chores_wait()
    assert house.scheduler_state.state.pods.get(WEB.uid) is None
    assert house.unbound == [WEB.key]


async def test_an_overdue_pod_that_has_gone_is_forgotten(server: ApiServer, house: House) -> None:
    house.scheduler_state.state.put_unscheduled(WEB)
    (await house.overdue(server)).refuse(404, "NotFound", "pods web not found")
    assert await house.events_of_the_pod() == [Action.DELETE]
    assert house.scheduler_state.state.pods.get(WEB.uid) is None
    assert house.scheduler_state.state.unscheduled == {}


async def test_what_was_reserved_for_an_overdue_pod_that_is_not_bound_is_undone(
    server: ApiServer, house: House
) -> None:
    (await house.overdue(server)).reply(pod("web"))
    await house.events_of_the_pod()
    assert house.undone == [("web", "a")]


async def test_what_was_reserved_for_an_overdue_pod_that_has_gone_is_undone(
    server: ApiServer, house: House
) -> None:
    (await house.overdue(server)).refuse(404, "NotFound", "pods web not found")
    await house.events_of_the_pod()
    assert house.undone == [("web", "a")]


async def test_what_was_reserved_for_an_overdue_pod_that_is_bound_stays(
    server: ApiServer, house: House
) -> None:
    (await house.overdue(server)).reply(pod("web", node="a"))
    await house.chores_wait()
    assert house.undone == []


async def test_an_overdue_pod_that_ended_before_it_was_bound_is_forgotten(
    server: ApiServer, house: House
) -> None:
    """The API server also binds a pod that has ended, and neither watch of pods shows this."""
    house.bound(1.0)
    await house.clock.advance(CONFIRMATION_SECONDS)
    (await server.next()).reply({**pod("web", node="a"), "status": {"phase": "Succeeded"}})
    assert await house.events_of_the_pod() == [Action.DELETE]
    assert house.scheduler_state.state.pods.get(WEB.uid) is None
    assert house.unbound == []


async def test_a_successor_of_the_overdue_pod_does_not_confirm_it(
    server: ApiServer, house: House
) -> None:
    house.bound(1.0)
    await house.clock.advance(CONFIRMATION_SECONDS)
    successor = pod("web", node="a")
    successor["metadata"]["uid"] = "another"
    (await server.next()).reply(successor)
    assert await house.events_of_the_pod() == [Action.DELETE]


async def test_an_answer_about_a_pod_that_the_watch_has_shown_bound_and_deleted_is_dropped(
    server: ApiServer, house: House
) -> None:
    state = house.scheduler_state.state
    asked = await house.overdue(server)
    state.put(Kind.POD, WEB.uid, parse_pod(pod("web", node="a")))
    state.delete(Kind.POD, WEB.uid)
    asked.reply(pod("web", node="a"))
    await house.chores_wait()
    assert [*state.pods] == []


async def test_an_answer_from_before_the_watch_showed_the_pod_bound_is_dropped(
    server: ApiServer, house: House
) -> None:
    state = house.scheduler_state.state
    asked = await house.overdue(server)
    state.put(Kind.POD, WEB.uid, parse_pod(pod("web", node="a")))
    asked.reply(pod("web"))
    await house.chores_wait()
    assert [placed.pod.uid for placed in state.pods] == [WEB.uid]
    assert house.unbound == []


async def test_an_answer_that_the_pod_has_gone_does_not_end_its_successors_binding(
    server: ApiServer, house: House
) -> None:
    state = house.scheduler_state.state
    asked = await house.overdue(server)
    state.delete(Kind.POD, WEB.uid)
    manifest = pod("web")
    manifest["metadata"]["uid"] = "another"
    successor = parse_pod(manifest)
    state.assume(successor, state.nodes.row_of["a"])
    asked.refuse(404, "NotFound", "pods web not found")
    await house.chores_wait()
    assert [(placed.pod.uid, placed.assumed) for placed in state.pods] == [("another", True)]


async def test_a_preemptor_still_waits_for_a_victim_that_was_shown_bound_meanwhile(
    server: ApiServer, house: House
) -> None:
    state = house.scheduler_state.state
    asked = await house.overdue(server)
    state.put(Kind.POD, WEB.uid, parse_pod(pod("web", node="a")))
    preemptor = parse_pod(pod("urgent", priority=10))
    state.nominate(preemptor, "a")
    state.begin_evictions(preemptor, [WEB])
    asked.refuse(404, "NotFound", "pods web not found")
    await house.chores_wait()
    assert state.evictions.evicting(WEB)
    assert [nominee.pod for nominee in state.nominations] == [preemptor]


async def test_a_pod_that_went_while_it_was_found_not_to_be_bound_is_not_scheduled_again(
    server: ApiServer, house: House
) -> None:
    asked = await house.overdue(server)
    house.scheduler_state.departures.note(WEB.uid)
    asked.reply(pod("web"))
    assert await house.events_of_the_pod() == [Action.DELETE]
    await house.chores_wait()
    assert [*house.scheduler_state.state.pods] == []
    assert house.unbound == []


async def test_without_an_answer_the_pod_stays_assumed_and_is_looked_for_again(
    server: ApiServer, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    (await house.overdue(server)).refuse(403, "Forbidden", "no")
    await house.chores_wait()
    assert "pod default/web is still unconfirmed" in caplog.text
    assert house.scheduler_state.state.pods.get(WEB.uid) is not None
    await house.clock.advance(CONFIRMATION_SECONDS)
    (await server.next()).reply(pod("web", node="a"))
    await house.chores_wait()
    assert house.heard == []


async def test_a_slow_answer_does_not_delay_other_housekeeping(
    server: ApiServer, house: House
) -> None:
    asked = await house.overdue(server)
    decided: asyncio.Future[Unschedulable | None] = asyncio.get_running_loop().create_future()
    house.scheduler_state.waiting.enter(
        WEB, "a", {"Gang": house.clock()}, house.clock(), lambda no, _: decided.set_result(no)
    )
    await house.clock.sleepers(4)
    await house.clock.advance(1.0)
    assert await decided is not None
    asked.reply(pod("web", node="a"))
    await house.chores_wait()
    assert house.heard == []


async def test_other_parts_are_called_each_in_its_time_and_may_pause(house: House) -> None:
    await house.clock.advance(OFTEN)
    await house.chores_wait()
    assert (house.called, house.called_seldom) == (1, 0)
    await house.clock.advance(SELDOM - OFTEN)
    await house.chores_wait()
    assert (house.called, house.called_seldom) == (2, 1)


async def test_a_disruption_is_charged_for_two_minutes_at_most_once_the_victim_has_left(
    house: House,
) -> None:
    """If another pod becomes ready meanwhile, the budget's status stays the same."""
    state = house.scheduler_state.state
    budget = parse_pod_disruption_budget(pdb("guard", {"app": "db"}, allowed=1))
    victim = parse_pod(pod("db-0", node="a", labels={"app": "db"}, status=READY))
    state.put(Kind.POD_DISRUPTION_BUDGET, budget.key, budget)
    state.put(Kind.POD, victim.uid, victim)
    state.begin_evictions(parse_pod(pod("high", priority=9)), [victim])
    state.delete(Kind.POD, victim.uid)
    await house.clock.advance(OLDER_SECONDS)
    await house.chores_wait()
    assert state.evictions.disruptions_allowed(budget) == 0
    await house.clock.advance(OLDER_SECONDS)
    await house.chores_wait()
    assert state.evictions.disruptions_allowed(budget) == 1
