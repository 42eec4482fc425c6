"""A plan and its moves, with an API server that answers evictions."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from kube.api_server import ApiServer, Request, budget_refusal
from kube.virtual_clock import VirtualClock
from mooring.framework.decision import TextAboutPods
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.timestamps import rfc3339
from mooring.model.events import Kind
from mooring.pausing import pause_now
from mooring.rebalancing.plan import Step
from mooring.rebalancing.profile_rebalancing import BUDGET_SECONDS, LOOK_SECONDS
from mooring.testing.builders import pdb, pod, uid_of
from rebalancing_stage import (
    OWNER,
    PROFILE,
    UID,
    WAIT_SECONDS,
    Api,
    Stage,
    running,
    until,
    working,
)

NAME = "default-scheduler"
OTHER = {**OWNER, "name": "db", "uid": "rs-db"}
TWO = {"movesAtATime": 2, "movesAtATimePerWorkload": 2}
NOT_READY = (
    "pod default/web-2-new, the replacement of pod default/web-1, was not ready on node b within "
    "60 s"
)
ALL_MOVED = "all moves of the last plan were carried out"


@pytest.fixture
def stage(connected: ApiClient) -> Stage:
    """Return a stage with three pods of two controllers on node a."""
    others = {"owner": OTHER, "labels": {"app": "db"}}
    return Stage(
        connected, running("web-1", "a"), running("web-2", "a"), running("db-1", "a", **others)
    )


class Executing:
    """A plan in execution; the test decides how each move ends."""

    def __init__(self, stage: Stage, api: Api) -> None:
        self.stage = stage
        self.api = api

    async def begins(self, *names: str) -> None:
        """Wait until exactly these pods were evicted."""
        await until(self.stage, lambda: len(self.api.evicted) >= len(names), within=400)
        await self.look()
        assert self.api.evicted == [*names]

    async def look(self) -> None:
        """Let two checking intervals pass."""
        end = self.stage.clock.time + 2 * LOOK_SECONDS
        await until(self.stage, lambda: self.stage.clock.time >= end)

    def moved(self, name: str, node: str = "b") -> None:
        """Add the ready replacement of the pod on the node."""
        fields = {"owner": OTHER, "labels": {"app": "db"}} if name.startswith("db") else {}
        self.stage.replaced(name, node, **fields)

    async def stops(self) -> str:
        """Wait for the end of the plan; return the profile's message."""
        await until(self.stage, lambda: not self.stage.message.endswith("planned"), within=900)
        return self.stage.message

    @property
    def is_going_on(self) -> bool:
        """Whether the plan is still running."""
        return self.stage.message.endswith("planned")


@asynccontextmanager
async def executing(
    stage: Stage, api: Api, *steps: Step, limits: dict[str, int] | None = None, **section: Any
) -> AsyncIterator[Executing]:
    """Make a plan of these steps and execute it; yield the plan in execution."""
    stage.put_profile(**section, limits={"replacementSeconds": 60, **(limits or {})})
    stage.rebalancer.profile_found(NAME, UID, {})
    stage.steps = [*steps]
    async with working(stage):
        await until(stage, lambda: stage.plans, within=100)  # it gives way to pods that wait
        await until(stage, lambda: stage.message, within=60)
        yield Executing(stage, api)


def steps(stage: Stage, *names: str) -> list[Step]:
    return [stage.step(stage.move(name, "b")) for name in names]


def group(stage: Stage) -> Step:
    moves = [stage.move(name, "b") for name in ("web-1", "web-2")]
    return stage.step(*moves, group="default/gang")


def making_room(stage: Stage) -> Step:
    """Return a step that moves web-1 and web-2 from node a to b, to make room for a pod."""
    waiting = stage.pending(pod("large", cpu="3"))
    return stage.room(waiting, "a", stage.move("web-1", "b"), stage.move("web-2", "b"))


# How fast, and in which order


async def test_one_pod_is_moved_at_a_time(stage: Stage, api: Api) -> None:
    async with executing(stage, api, *steps(stage, "web-1", "web-2")) as plan:
        await plan.begins("web-1")
        assert api.status["underWay"][0]["pod"] == "default/web-1"
        plan.moved("web-1")
        await plan.begins("web-1", "web-2")
        plan.moved("web-2")
        assert await plan.stops() == ALL_MOVED


async def test_more_pods_of_several_workloads_are_moved_at_a_time_than_of_one(
    stage: Stage, api: Api
) -> None:
    planned = steps(stage, "web-1", "db-1", "web-2")
    async with executing(stage, api, *planned, limits={"movesAtATime": 3}) as plan:
        await plan.begins("web-1", "db-1")
        plan.moved("db-1")
        await plan.begins("web-1", "db-1")


async def test_no_more_pods_are_moved_within_an_hour_than_the_limit_says(
    stage: Stage, api: Api
) -> None:
    status = {"observedTime": rfc3339(stage.clock()), "evictedInLastHour": 2}
    stage.rebalancer.profile_found(NAME, UID, {"rebalancing": status})
    planned = steps(stage, "web-1")
    async with executing(stage, api, *planned, limits={"movesPerHour": 2}) as plan:
        assert await plan.stops() == "at most 2 pods an hour may be moved"
    assert api.evicted == []


async def test_nothing_is_moved_outside_of_the_windows(stage: Stage, api: Api) -> None:
    stage.clock.time = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
    windows = [{"start": "22:00", "end": "04:00"}]
    async with executing(stage, api, *steps(stage, "web-1"), windows=windows) as plan:
        assert await plan.stops() == "it is outside of the windows for moves"
    assert api.evicted == []


async def test_nothing_is_evicted_when_the_status_cannot_be_written(stage: Stage, api: Api) -> None:
    api.refuse_status = True
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        assert "the profile's status is not written" in await plan.stops()
        [report] = stage.rebalancer.report()
        assert report.under_way == ()
    assert api.evicted == []


async def test_an_old_plan_is_not_carried_out_to_its_end(stage: Stage, api: Api) -> None:
    limits = {"replacementSeconds": 3600}
    async with executing(stage, api, *steps(stage, "web-1", "web-2"), limits=limits) as plan:
        await plan.begins("web-1")
        stage.clock.time += 400
        plan.moved("web-1")
        assert await plan.stops() == (
            "the cluster has changed since the plan was made: a new one follows"
        )
    assert api.evicted == ["web-1"]


async def test_a_step_that_has_begun_is_carried_out_to_its_end(stage: Stage, api: Api) -> None:
    both = stage.step(*(stage.move(name, "b") for name in ("web-1", "db-1")))
    async with executing(stage, api, both, limits={"replacementSeconds": 3600}) as plan:
        await plan.begins("web-1")
        stage.clock.time += 400
        plan.moved("web-1")
        await plan.begins("web-1", "db-1")


async def test_a_group_begins_together_with_places_for_all_members(stage: Stage, api: Api) -> None:
    places: list[dict[str, str]] = []
    api.evict = lambda _name: places.append(stage.nominated())
    async with executing(stage, api, group(stage), limits=TWO) as plan:
        await plan.begins("web-1", "web-2")
    assert [*places[0].values()] == ["b", "b"]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({}, "limits.movesAtATime is 1"),
        ({"movesAtATime": 2}, "limits.movesAtATimePerWorkload is 1"),
        ({**TWO, "movesPerHour": 1}, "limits.movesPerHour is 1"),
    ],
)
async def test_a_group_that_is_larger_than_the_limits_holds_up_no_moves_of_others(
    stage: Stage, api: Api, limits: dict[str, int], why: str
) -> None:
    planned = [group(stage), *steps(stage, "db-1")]
    async with executing(stage, api, *planned, limits=limits) as plan:
        await plan.begins("db-1")
        plan.moved("db-1")
        assert await plan.stops() == (
            f"group default/gang has 2 members to be moved together, and {why}"
        )


# Steps that are passed over, and what ends a plan


async def test_a_step_that_is_not_possible_any_more_holds_up_no_moves_of_others(
    stage: Stage, api: Api
) -> None:
    stage.add_node("c")
    planned = [stage.step(stage.move("web-1", "b")), stage.step(stage.move("db-1", "c"))]
    stage.show(running("there", "b", cpu="3500m", owner=OTHER))
    async with executing(stage, api, *planned) as plan:
        await plan.begins("db-1")
        plan.moved("db-1", "c")
        assert await plan.stops() == "pod default/web-1 does not fit on node b any more"
        [report] = stage.rebalancer.report()
        assert report.under_way == ()


async def test_a_pod_that_changes_all_the_time_holds_up_no_moves_of_others(
    stage: Stage, api: Api
) -> None:
    planned = steps(stage, "web-1", "web-2", "db-1")
    stage.show(running("web-1", "a", annotations={"beat": "1"}))
    async with executing(stage, api, *planned) as plan:
        await plan.begins("web-2")
        stage.show(running("db-1", "a", owner=OTHER, labels={"app": "db", "beat": "2"}))
        plan.moved("web-2")
        assert await plan.stops() == "pod default/web-1 has changed"
    assert api.evicted == ["web-2"]


async def test_a_pod_that_waits_no_more_holds_up_no_moves_of_others(stage: Stage, api: Api) -> None:
    room = making_room(stage)
    stage.parts.pod_enqueuer.gone(room.fits[0].uid)
    async with executing(stage, api, room, *steps(stage, "db-1")) as plan:
        await plan.begins("db-1")
        plan.moved("db-1")
        assert await plan.stops() == "what it makes room for waits no more"


async def test_a_step_that_has_begun_ends_if_a_pod_of_it_changes_and_others_go_on(
    stage: Stage, api: Api
) -> None:
    together = stage.step(stage.move("web-1", "b"), stage.move("web-2", "b"))
    async with executing(stage, api, together, *steps(stage, "db-1")) as plan:
        await plan.begins("web-1")
        stage.gone("web-2")
        plan.moved("web-1")
        await plan.begins("web-1", "db-1")
        plan.moved("db-1")
        assert await plan.stops() == "pod default/web-2 has gone"


async def test_a_pod_that_is_not_evicted_holds_up_no_moves_of_others(
    stage: Stage, api: Api
) -> None:
    api.answers["web-1"] = partial(
        Request.refuse, status=403, reason="Forbidden", message="a webhook says no"
    )
    together = stage.step(stage.move("web-1", "b"), stage.move("web-2", "b"))
    async with executing(stage, api, together, *steps(stage, "db-1")) as plan:
        await plan.begins("web-1", "db-1")
        plan.moved("db-1")
        assert "a webhook says no" in await plan.stops()


async def test_a_budget_that_stays_exhausted_holds_up_no_moves_of_others(
    stage: Stage, api: Api
) -> None:
    stage.put_budget(pdb("guard", {"app": "web"}, allowed=1))
    async with executing(stage, api, *steps(stage, "db-1", "web-1")) as plan:
        await plan.begins("db-1")
        stage.put_budget(pdb("guard", {"app": "web"}, allowed=0))
        plan.moved("db-1")
        began = stage.clock.time
        assert await plan.stops() == "disruption budget default/guard allows no eviction"
        assert stage.clock.time - began >= BUDGET_SECONDS
    assert api.evicted == ["db-1"]


async def test_a_budget_is_waited_for_as_long_as_moves_are_under_way(
    stage: Stage, api: Api
) -> None:
    stage.put_budget(pdb("guard", {"app": "web"}, allowed=0))
    planned, limits = steps(stage, "db-1", "web-1"), {**TWO, "replacementSeconds": 600}
    async with executing(stage, api, *planned, limits=limits) as plan:
        await plan.begins("db-1")
        end = stage.clock.time + 2 * BUDGET_SECONDS
        await until(stage, lambda: stage.clock.time >= end)
        await plan.begins("db-1")
        stage.put_budget(pdb("guard", {"app": "web"}, allowed=1))
        await plan.begins("db-1", "web-1")


async def test_a_step_that_needs_the_room_of_a_move_before_it_waits_for_that(
    stage: Stage, api: Api
) -> None:
    """Node b has room for web-2 after its own pod has moved to node c."""
    stage.add_node("c")
    stage.show(running("db-2", "b", cpu="3500m", owner=OTHER, labels={"app": "db"}))
    planned = [stage.step(stage.move("db-2", "c")), *steps(stage, "web-2")]
    async with executing(stage, api, *planned, limits=TWO) as plan:
        await plan.begins("db-2")
        assert len(api.status["underWay"]) == 2
        stage.gone("db-2")
        await plan.begins("db-2", "web-2")


async def test_a_plan_that_is_stopped_waits_for_the_moves_that_have_begun(
    stage: Stage, api: Api
) -> None:
    planned = steps(stage, "web-1", "db-1")
    async with executing(stage, api, *planned, limits=TWO) as plan:
        await plan.begins("web-1", "db-1")
        plan.moved("web-1", "a")
        await plan.look()
        assert plan.is_going_on
        plan.moved("db-1")
        assert await plan.stops() == (
            "pod default/web-1-new, the replacement of pod default/web-1, is on node a and not on b"
        )


async def test_nothing_is_evicted_once_the_profile_has_changed(stage: Stage, api: Api) -> None:
    held = api.held = []
    async with executing(stage, api, *steps(stage, "web-1")):
        await until(stage, lambda: held)
        stage.put_profile(minimumGain=20)
        api.held = None
        held[0].reply(PROFILE)
        for _ in range(100_000):  # no time passes, in which the profile's work would be cancelled
            if not stage.message.endswith("planned"):
                break
            await asyncio.sleep(0)
        assert stage.message == "the profile has changed"
    assert api.evicted == []


class PausingClock(VirtualClock):
    """A clock that pauses work at each reading while `pauses` is set."""

    pauses = reads = False

    def __init__(self) -> None:
        super().__init__()
        self.paused = asyncio.Event()

    def __call__(self) -> float:
        """Return the time, after a pause if `pauses` is set."""
        if self.pauses and not self.reads:
            self.reads = True  # a pause reads it too
            for _ in range(20):
                pause_now()
                self.paused.set()
            self.reads = False
        return super().__call__()


async def begins(stage: Stage, api: Api, clock: PausingClock) -> None:
    """Wait until a move begins in a turn that pauses; the first status write is held until then."""
    held = api.held
    assert held is not None
    await until(stage, lambda: held)
    api.held, clock.pauses = None, True
    held[0].reply(PROFILE)
    async with asyncio.timeout(WAIT_SECONDS):
        await clock.paused.wait()
    assert not stage.scheduler.turn.is_free


async def test_nothing_is_kept_for_a_move_whose_profile_changes_as_its_turn_ends(
    connected: ApiClient, api: Api
) -> None:
    """The profile's work is cancelled while it waits for the end of its turn."""
    clock = PausingClock()
    stage, api.held = Stage(connected, running("web-1", "a"), clock=clock), []
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await begins(stage, api, clock)
        stage.scheduler.turn.post(partial(stage.put_profile, mode="Plan"))
        await clock.advance(LOOK_SECONDS)  # it is looked for other profiles once the turn is free
        clock.pauses = False
        await plan.look()
        assert (stage.nominated(), len(stage.expected.moves)) == ({}, 0)
    assert api.evicted == []


async def test_nothing_is_kept_for_a_move_that_is_cancelled_before_its_first_step(
    connected: ApiClient, api: Api
) -> None:
    """The replica stops while an attempt has the turn that the move needs."""
    clock = PausingClock()
    stage, api.held = Stage(connected, running("web-1", "a"), clock=clock), []

    async def attempt() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        async with stage.scheduler.turn:
            for _ in range(20):
                await asyncio.sleep(0)

    async with executing(stage, api, *steps(stage, "web-1")):
        await begins(stage, api, clock)
        stage.scheduler.turn.post(lambda: None)
        attempting = asyncio.create_task(attempt())
    await attempting
    assert api.evicted == []


async def test_a_plan_that_has_not_reached_what_it_was_for_says_so(stage: Stage, api: Api) -> None:
    for name in ("web-2", "db-1"):
        stage.gone(name)
    planned = stage.emptying("a", stage.move("web-1", "b"))
    async with executing(stage, api, planned) as plan:
        await plan.begins("web-1")
        plan.moved("web-1")
        stage.show(running("new", "a", owner=OTHER))
        assert await plan.stops() == "node a is not empty once the moves are made"


# The room that a step makes


async def test_no_second_pod_is_evicted_once_another_one_has_taken_the_room(
    stage: Stage, api: Api
) -> None:
    async with executing(stage, api, making_room(stage), *steps(stage, "db-1")) as plan:
        await plan.begins("web-1")
        plan.moved("web-1")
        stage.show(running("small", "a", cpu="500m", owner=OTHER))
        await plan.begins("web-1", "db-1")
        plan.moved("db-1")
        assert await plan.stops() == (
            "pod default/large does not fit on node a once the moves are made"
        )


async def test_room_is_kept_for_its_pod_while_it_is_made(stage: Stage, api: Api) -> None:
    small = pod("small", cpu="500m")
    async with executing(stage, api, making_room(stage)) as plan:
        await plan.begins("web-1")
        assert sorted(stage.nominated().values()) == ["a", "b"]
        assert not stage.state.nominations.get(uid_of("large"))
        assert stage.what_fits(small) == {"b"}
        plan.moved("web-1")
        await plan.begins("web-1", "web-2")
        plan.moved("web-2")
        assert await plan.stops() == ALL_MOVED
        assert stage.nominated()[uid_of("large")] == "a"
        assert stage.what_fits(small) == {"b"}
        stage.state.withdraw(uid_of("large"))


async def test_room_is_kept_until_the_pods_that_made_it_have_left(stage: Stage, api: Api) -> None:
    only = stage.pending(pod("large", cpu="2"))
    planned = stage.room(only, "a", stage.move("web-1", "b"))
    async with executing(stage, api, planned) as plan:
        await plan.begins("web-1")
        stage.show(running("web-1", "a", terminating=True))
        stage.come("web-1-new")
        stage.show(running("web-1-new", "b"))
        await plan.look()
        assert plan.is_going_on
        assert not stage.state.nominations.get(only.uid)
        stage.gone("web-1")
        assert await plan.stops() == ALL_MOVED
        assert stage.nominated()[only.uid] == "a"
        stage.state.withdraw(only.uid)


async def test_room_is_not_kept_for_ever_for_pods_that_do_not_leave(stage: Stage, api: Api) -> None:
    only = stage.pending(pod("large", cpu="2"))
    planned = stage.room(only, "a", stage.move("web-1", "b"))
    async with executing(stage, api, planned) as plan:
        await plan.begins("web-1")
        stage.show(running("web-1", "a", terminating=True))
        stage.come("web-1-new")
        stage.show(running("web-1-new", "b"))
        began = stage.clock.time
        await plan.stops()
        assert 60 <= stage.clock.time - began <= 65
        stage.state.withdraw(only.uid)


async def test_room_is_given_back_when_a_move_fails(stage: Stage, api: Api) -> None:
    async with executing(stage, api, making_room(stage)) as plan:
        await plan.begins("web-1")
        plan.moved("web-1", "a")
        assert "is on node a and not on b" in await plan.stops()
        assert not stage.state.nominations.get(uid_of("large"))


# One move


async def test_a_move_has_ended_when_the_replacement_is_ready_on_the_target(
    stage: Stage, api: Api
) -> None:
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await plan.begins("web-1")
        stage.come("web-1-new")
        await plan.look()
        stage.show(running("web-1-new", "b", status={}))
        await plan.look()
        assert plan.is_going_on
        stage.show(running("web-1-new", "b"))
        assert await plan.stops() == ALL_MOVED


async def test_the_replacement_may_be_shown_on_its_node_before_kopf_shows_it(
    stage: Stage, api: Api
) -> None:
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await plan.begins("web-1")
        stage.show(running("web-1-new", "b"))
        assert await plan.stops() == ALL_MOVED


@pytest.mark.parametrize(
    ("comes", "expected"),
    [
        (False, "no replacement of pod default/web-1 has come within 60 s"),
        (True, NOT_READY),
    ],
)
async def test_a_replacement_is_awaited_for_its_time_and_no_longer(
    stage: Stage, api: Api, *, comes: bool, expected: str
) -> None:
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await plan.begins("web-1")
        if comes:
            stage.come("web-2-new")
        began = stage.clock.time
        assert await plan.stops() == expected
        assert 55 <= stage.clock.time - began <= 65


@pytest.mark.parametrize("what", ["another spec", "deleted", "no target"])
async def test_a_move_that_can_come_to_no_good_end_ends_at_once(
    stage: Stage, api: Api, what: str
) -> None:
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await plan.begins("web-1")
        if what == "another spec":
            stage.come("web-1-new", cpu="2")
        elif what == "deleted":
            new = stage.come("web-1-new")
            await plan.look()
            stage.parts.pod_enqueuer.gone(new.uid)
        else:
            stage.state.delete(Kind.NODE, "b")
        began = stage.clock.time
        await plan.stops()
        assert stage.clock.time - began < 5
        await until(stage, lambda: api.status["lastMoves"], within=60)
    assert [move["result"] for move in api.status["lastMoves"]] == ["gone"]


async def test_the_pod_of_a_stateful_set_has_its_grace_before_its_replacement_is_awaited(
    connected: ApiClient, api: Api
) -> None:
    owner, grace = {**OWNER, "kind": "StatefulSet"}, {"terminationGracePeriodSeconds": 50}
    stage = Stage(connected, running("web-1", "a", owner=owner, spec=grace))
    pods = {"owners": ["StatefulSet"]}
    async with executing(stage, api, *steps(stage, "web-1"), pods=pods) as plan:
        await plan.begins("web-1")
        began = stage.clock.time
        assert await plan.stops() == "no replacement of pod default/web-1 has come within 110 s"
        assert 105 <= stage.clock.time - began <= 115


async def test_only_the_eviction_api_is_asked_once_and_for_the_uid(stage: Stage, api: Api) -> None:
    asked: list[Any] = []

    def answer(request: Request) -> None:
        asked.append(request.body)
        request.reply({}, 201)

    api.answers["web-1"] = answer
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await plan.begins("web-1")
        plan.moved("web-1")
        await plan.stops()
    [body] = asked
    assert body["deleteOptions"] == {"preconditions": {"uid": uid_of("web-1")}}


async def test_a_budget_that_forbids_the_eviction_is_known_to_be_exhausted_then(
    stage: Stage, api: Api
) -> None:
    stage.put_budget(pdb("guard", {"app": "web"}, allowed=1))
    api.answers["web-1"] = partial(Request.reply, body=budget_refusal(), status=429)
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        assert await plan.stops() == "a disruption budget keeps pod default/web-1"
        evictions, kept = stage.state.evictions, stage.placed("web-1")
        assert evictions.exhausted_budget([kept]) == "default/guard"
        assert not evictions.evicting(kept)
        [report] = stage.rebalancer.report()
        assert report.evicted_in_last_hour == 0


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (404, "NotFound", "pod default/web-1 was deleted by somebody else"),
        (403, "Forbidden", 'pods "web-1" is forbidden'),
    ],
)
async def test_a_pod_that_is_not_evicted_is_told_without_its_name_to_who_may_not_get_it(
    stage: Stage, api: Api, status: int, reason: str, expected: str
) -> None:
    text = 'pods "web-1" is forbidden'
    api.answers["web-1"] = partial(Request.refuse, status=status, reason=reason, message=text)
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        assert expected in await plan.stops()
        [report] = stage.rebalancer.report()
        assert isinstance(report.message, TextAboutPods)
        assert [each.key for each in report.message.pods] == ["default/web-1"]
        assert "web-1" not in report.message.otherwise
        assert report.evicted_in_last_hour == 0


@pytest.mark.parametrize("lost", [True, False])
async def test_an_eviction_that_was_carried_out_without_an_answer_counts(
    stage: Stage, api: Api, *, lost: bool
) -> None:
    """The pod is read, and no second eviction is sent."""
    terminating = {"uid": uid_of("web-1"), "deletionTimestamp": "2026-01-01T00:00:00Z"}
    api.answers["GET"] = partial(Request.reply, body={"metadata": terminating})
    error = partial(Request.refuse, status=500, reason="InternalError", message="etcd timed out")
    api.answers["web-1"] = Request.cut if lost else error
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await plan.begins("web-1")
        plan.moved("web-1")
        assert await plan.stops() == ALL_MOVED


async def test_an_eviction_without_an_answer_that_was_not_carried_out_is_not_repeated(
    stage: Stage, api: Api
) -> None:
    api.answers["GET"] = partial(Request.reply, body={"metadata": {"uid": uid_of("web-1")}})
    api.answers["web-1"] = Request.cut
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await plan.stops()
        assert stage.nominated() == {}
        [report] = stage.rebalancer.report()
        assert report.evicted_in_last_hour == 0
    assert api.evicted == ["web-1"]


async def test_an_eviction_that_waits_is_not_sent_once_its_profile_has_changed(api: Api) -> None:
    clock = VirtualClock()
    api.answers["web-1"] = partial(
        Request.refuse, status=429, reason="TooManyRequests", message="busy", Retry_After="3"
    )
    async with (
        ApiServer(api) as server,
        ApiClient(Connection(server.url), sleep=clock.sleep) as client,
    ):
        stage = Stage(client, running("web-1", "a"))
        async with executing(stage, api, *steps(stage, "web-1")) as plan:
            await plan.begins("web-1")
            await clock.sleepers(seconds=3.0)
            stage.put_profile(mode="Plan")
            await clock.advance(3.0)
            await until(stage, lambda: not stage.state.evictions.evicting(stage.placed("web-1")))
            await plan.look()
            assert stage.nominated() == {}
    assert api.evicted == ["web-1"]


async def test_a_pod_that_a_preemption_begins_to_evict_is_not_evicted_for_a_move(
    stage: Stage, api: Api
) -> None:
    """The preemption begins after the move, and before the move's eviction is sent."""
    stage.add_node("c")
    stage.show(running("db-2", "b", cpu="3500m", owner=OTHER, labels={"app": "db"}))
    planned = [stage.step(stage.move("db-2", "c")), *steps(stage, "web-2")]
    async with executing(stage, api, *planned, limits=TWO) as plan:
        await plan.begins("db-2")
        stage.gone("db-2")
        preemptor = stage.come("preemptor", owner=None)
        await stage.clock.sleepers(seconds=LOOK_SECONDS)
        await stage.clock.advance(LOOK_SECONDS)
        assert len(stage.nominated()) == 2
        assert stage.state.begin_evictions(preemptor, [stage.placed("web-2")])
        await plan.begins("db-2")


async def test_a_preemptor_that_waits_for_an_eviction_that_fails_is_tried_again(
    stage: Stage, api: Api
) -> None:
    held: list[Request] = []
    api.answers["web-1"] = held.append
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await plan.begins("web-1")
        preemptor = stage.come("preemptor", owner=None)
        stage.state.nominate(preemptor, "a")
        assert stage.state.begin_evictions(preemptor, [stage.placed("web-1")]) == []
        held[0].reply(budget_refusal(), 429)
        await plan.stops()
        assert not stage.state.evictions.awaits_victims(preemptor)
        assert stage.nominated() == {}


async def test_a_stopping_replica_waits_for_the_answer_of_an_eviction(
    stage: Stage, api: Api
) -> None:
    held: list[Request] = []
    api.answers["web-1"] = held.append
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await plan.begins("web-1")
    finishing = asyncio.create_task(stage.rebalancer.finish(60.0))
    await asyncio.wait([finishing], timeout=0)
    assert not finishing.done()
    held[0].reply({}, 201)
    async with asyncio.timeout(60.0):
        await finishing


async def test_an_eviction_that_fails_when_the_replica_stops_is_no_traceback(
    stage: Stage, api: Api
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    held: list[Request] = []
    api.answers["web-1"] = held.append
    async with executing(stage, api, *steps(stage, "web-1")) as plan:
        await plan.begins("web-1")
    held[0].refuse(403, "Forbidden", "no")
    async with asyncio.timeout(60.0):
        await stage.rebalancer.finish(60.0)
    gc.collect()
    assert reported == []
