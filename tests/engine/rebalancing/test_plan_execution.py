"""The steps of a plan, carried out within the limits of the profile."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from mooring.engine.rebalancing.executor import BUDGET_SECONDS, LOOK_SECONDS, Ended, Result
from mooring.engine.rebalancing.expected import Expected
from mooring.engine.rebalancing.limits import Evictions
from mooring.engine.rebalancing.plan import Plan, Step
from mooring.engine.rebalancing.plan_execution import PlanExecution, Stopped
from mooring.engine.rebalancing.record import Record, UnderWay, whole
from mooring.kube.client import ApiClient
from mooring.kube.errors import UnreachableError
from mooring.kube.resources import Call
from mooring.model.pod import Uid
from mooring.testing.builders import pdb, pod, uid_of
from rebalancing_stage import OWNER, Stage, running

SECONDS = 60.0
OTHER = {**OWNER, "name": "db", "uid": "rs-db"}


class Executing:
    """A plan that is being carried out; the test says how each move ends.

    Attributes:
        begun: The names of the pods whose moves have begun, in order.
        written: How many moves the status said to be under way at each write.
    """

    def __init__(self, stage: Stage, *steps: Step, **limits: Any) -> None:
        self.stage = stage
        fields = {"limits": limits.pop("limits", {}), **limits}
        entry = stage.put_profile(**fields)
        section = entry.profile.spec.rebalancing
        assert section is not None
        clock = stage.clock
        self.record = Record(clock, clock, Evictions(clock))
        self.begun: list[str] = []
        self.written: list[int] = []
        self.write_fails = False
        self._ends: dict[str, Callable[[Ended], object]] = {}
        self._expected: dict[str, Expected] = {}
        execution = PlanExecution(
            Plan(steps),
            entry,
            section,
            self.record,
            stage.executor,
            write=self._write,
            begin=self._begin,
            resting=frozenset,
            clock=clock,
            now=clock,
            sleep=clock.sleep,
        )
        self.task = asyncio.create_task(execution.run())

    async def _write(self) -> None:
        self.written.append(self.record.in_flight)
        if self.write_fails:
            raise UnreachableError(Call.parse("PATCH", "/api"), "refused")

    def _begin(
        self, under_way: UnderWay, expected: Expected, ended: Callable[[Ended], object]
    ) -> None:
        name = under_way.move.pod.name
        self.begun.append(name)
        self._ends[name], self._expected[name] = ended, expected

    def end(
        self, name: str, result: Result = Result.MOVED, why: str = "", *, evicted: bool = True
    ) -> None:
        """Let the move of this pod end."""
        self.stage.expected.forget(self._expected[name])
        del self.record.under_way[uid_of(name)]
        self._ends[name](Ended(result, why, evicted=evicted))

    async def look(self) -> None:
        """Let it look once more."""
        await self.stage.clock.end_sleep(LOOK_SECONDS)
        await asyncio.wait([self.task], timeout=0)
        for _ in range(5):
            await asyncio.sleep(0)

    async def begins(self, *names: str) -> None:
        """Wait until exactly these moves have begun, and the execution waits."""
        await self.stage.clock.sleepers(seconds=LOOK_SECONDS)
        assert self.begun == [*names]

    async def stops(self) -> str:
        """Return why it is stopped; "" if all is carried out."""
        async with asyncio.timeout(SECONDS):
            try:
                await self.task
            except Stopped as stopped:
                return whole(stopped.why)
        return ""


@pytest.fixture
def stage(client: ApiClient) -> Stage:
    """Return a stage with three pods of two controllers on node a."""
    others = {"owner": OTHER, "labels": {"app": "db"}}
    return Stage(
        client, running("web-1", "a"), running("web-2", "a"), running("db-1", "a", **others)
    )


def steps(stage: Stage, *names: str) -> list[Step]:
    return [stage.step(stage.move(name, "b")) for name in names]


async def test_one_pod_is_moved_at_a_time(stage: Stage) -> None:
    executing = Executing(stage, *steps(stage, "web-1", "web-2"))
    await executing.begins("web-1")
    await executing.look()
    await executing.begins("web-1")
    executing.end("web-1")
    await executing.look()
    await executing.begins("web-1", "web-2")
    executing.end("web-2")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == ""


async def test_what_is_about_to_be_done_is_written_before_it_begins(stage: Stage) -> None:
    executing = Executing(stage, *steps(stage, "web-1"))
    await executing.begins("web-1")
    assert executing.written == [1]
    executing.task.cancel()


async def test_nothing_is_evicted_when_the_status_cannot_be_written(stage: Stage) -> None:
    executing = Executing(stage, *steps(stage, "web-1"))
    executing.write_fails = True
    assert "the profile's status is not written" in await executing.stops()
    assert (executing.begun, executing.record.in_flight, stage.nominated()) == ([], 0, {})


async def test_more_pods_of_several_workloads_are_moved_at_a_time_than_of_one(
    stage: Stage,
) -> None:
    planned = steps(stage, "web-1", "db-1", "web-2")
    executing = Executing(stage, *planned, limits={"movesAtATime": 3})
    await executing.begins("web-1", "db-1")
    executing.end("db-1")
    await executing.look()
    await executing.begins("web-1", "db-1")
    executing.task.cancel()


async def test_moves_of_a_former_leader_count(stage: Stage) -> None:
    executing = Executing(stage, *steps(stage, "web-1"))
    executing.record.under_way[Uid("former")] = UnderWay(
        stage.move("db-1", "b"), steps(stage, "db-1")[0], 0.0
    )
    await executing.begins()
    executing.task.cancel()


async def test_no_more_pods_are_moved_within_an_hour_than_the_limit_says(stage: Stage) -> None:
    executing = Executing(stage, *steps(stage, "web-1"), limits={"movesPerHour": 2})
    executing.record.evictions.note(2)
    assert await executing.stops() == "at most 2 pods an hour may be moved"
    assert executing.begun == []


async def test_nothing_is_moved_outside_of_the_windows(stage: Stage) -> None:
    stage.clock.time = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
    windows = [{"start": "22:00", "end": "04:00"}]
    executing = Executing(stage, *steps(stage, "web-1"), windows=windows)
    assert await executing.stops() == "it is outside of the windows for moves"


async def test_a_move_that_ends_otherwise_than_planned_ends_the_plan(stage: Stage) -> None:
    executing = Executing(stage, *steps(stage, "web-1", "web-2"))
    await executing.begins("web-1")
    executing.end("web-1", Result.ELSEWHERE, "it is on node a")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == "it is on node a"
    assert executing.begun == ["web-1"]


async def test_a_plan_that_is_stopped_waits_for_the_moves_that_have_begun(stage: Stage) -> None:
    planned = steps(stage, "web-1", "db-1")
    executing = Executing(stage, *planned, limits={"movesAtATime": 2})
    await executing.begins("web-1", "db-1")
    executing.end("web-1", Result.LATE, "late")
    await executing.look()
    assert not executing.task.done()
    executing.end("db-1")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == "late"


async def test_a_step_that_is_not_possible_any_more_holds_up_no_moves_of_others(
    stage: Stage,
) -> None:
    stage.add_node("c")
    planned = [stage.step(stage.move("web-1", "b")), stage.step(stage.move("db-1", "c"))]
    stage.show(running("there", "b", cpu="3500m", owner=OTHER))
    executing = Executing(stage, *planned)
    await executing.begins("db-1")
    executing.end("db-1")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == "pod default/web-1 does not fit on node b any more"
    assert (executing.begun, executing.record.in_flight) == (["db-1"], 0)


async def test_a_pod_that_changes_all_the_time_holds_up_no_moves_of_others(stage: Stage) -> None:
    planned = steps(stage, "web-1", "web-2", "db-1")
    executing = Executing(stage, *planned)
    stage.show(running("web-1", "a", annotations={"beat": "1"}))
    await executing.begins("web-2")
    stage.show(running("db-1", "a", owner=OTHER, labels={"app": "db", "beat": "2"}))
    executing.end("web-2")
    await executing.look()
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == "pod default/web-1 has changed"
    assert (executing.begun, executing.record.in_flight) == (["web-2"], 0)


async def test_a_pod_that_waits_no_more_holds_up_no_moves_of_others(stage: Stage) -> None:
    waiting = stage.pending(pod("large", cpu="4"))
    room = stage.room(waiting, "a", stage.move("web-1", "b"))
    executing = Executing(stage, room, *steps(stage, "db-1"))
    stage.parts.pod_enqueuer.gone(waiting.uid)
    await executing.begins("db-1")
    executing.end("db-1")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == "what it makes room for waits no more"


async def test_a_step_that_has_begun_ends_if_a_pod_of_it_changes_and_others_go_on(
    stage: Stage,
) -> None:
    together = stage.step(stage.move("web-1", "b"), stage.move("web-2", "b"))
    executing = Executing(stage, together, *steps(stage, "db-1"))
    await executing.begins("web-1")
    stage.gone("web-2")
    executing.end("web-1")
    await executing.look()
    await executing.begins("web-1", "db-1")
    executing.end("db-1")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == "pod default/web-2 has gone"


async def test_a_pod_that_is_not_evicted_holds_up_no_moves_of_others(stage: Stage) -> None:
    together = stage.step(stage.move("web-1", "b"), stage.move("web-2", "b"))
    executing = Executing(stage, together, *steps(stage, "db-1"))
    await executing.begins("web-1")
    executing.end("web-1", Result.FAILED, "a webhook says no", evicted=False)
    await executing.look()
    await executing.begins("web-1", "db-1")
    executing.end("db-1")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == "a webhook says no"


def making_room(stage: Stage) -> Step:
    """Return a step that makes room on node a for a pod, by moves of web-1 and web-2 to node b."""
    waiting = stage.pending(pod("large", cpu="3"))
    return stage.room(waiting, "a", stage.move("web-1", "b"), stage.move("web-2", "b"))


async def test_no_second_pod_is_evicted_once_another_one_has_taken_the_room(stage: Stage) -> None:
    executing = Executing(stage, making_room(stage), *steps(stage, "db-1"))
    await executing.begins("web-1")
    stage.gone("web-1")
    stage.show(running("web-1-new", "b"))
    executing.end("web-1")
    stage.show(running("small", "a", cpu="500m", owner=OTHER))
    await executing.look()
    await executing.begins("web-1", "db-1")
    executing.end("db-1")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == (
        "pod default/large does not fit on node a once the moves are made"
    )
    assert stage.nominated() == {}


async def test_room_is_kept_for_its_pod_while_it_is_made(stage: Stage) -> None:
    executing = Executing(stage, making_room(stage))
    await executing.begins("web-1")
    assert sorted(stage.nominated().values()) == ["a", "b"]
    assert not stage.state.nominations.get(uid_of("large"))
    small = stage.what_fits(pod("small", cpu="500m"))
    assert small == {"b"}
    stage.gone("web-1")
    stage.show(running("web-1-new", "b"))
    executing.end("web-1")
    await executing.look()
    await executing.begins("web-1", "web-2")
    assert stage.what_fits(pod("small", cpu="500m")) == {"b"}
    stage.gone("web-2")
    executing.end("web-2")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == ""
    assert stage.nominated() == {uid_of("large"): "a"}
    assert stage.what_fits(pod("small", cpu="500m")) == {"b"}


async def test_room_is_kept_until_the_pods_that_made_it_have_left(stage: Stage) -> None:
    only = stage.pending(pod("large", cpu="2"))
    executing = Executing(stage, stage.room(only, "a", stage.move("web-1", "b")))
    await executing.begins("web-1")
    stage.state.begin_evictions(only, [stage.placed("web-1")])
    stage.show(running("web-1", "a", terminating=True))
    executing.end("web-1")
    await executing.look()
    assert not executing.task.done()
    assert not stage.state.nominations.get(only.uid)
    stage.gone("web-1")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == ""
    assert stage.nominated() == {only.uid: "a"}


async def test_room_is_not_kept_for_ever_for_pods_that_do_not_leave(stage: Stage) -> None:
    only = stage.pending(pod("large", cpu="2"))
    executing = Executing(stage, stage.room(only, "a", stage.move("web-1", "b")))
    await executing.begins("web-1")
    stage.state.begin_evictions(only, [stage.placed("web-1")])
    stage.show(running("web-1", "a", terminating=True))
    executing.end("web-1")
    await executing.look()
    await stage.clock.advance(300)
    async with asyncio.timeout(SECONDS):
        await asyncio.wait([executing.task])
    assert executing.task.done()


@pytest.mark.parametrize("ends", ["elsewhere", "cancelled"])
async def test_room_is_given_back_when_the_plan_ends(stage: Stage, ends: str) -> None:
    executing = Executing(stage, making_room(stage))
    await executing.begins("web-1")
    if ends == "cancelled":
        executing.task.cancel()
        await asyncio.wait([executing.task])
        executing.end("web-1")
    else:
        executing.end("web-1", Result.ELSEWHERE, "it is on node c")
        await stage.clock.advance(LOOK_SECONDS)
        assert await executing.stops() == "it is on node c"
    assert stage.nominated() == {}


async def test_a_plan_that_has_not_reached_what_it_was_for_says_so(stage: Stage) -> None:
    for name in ("web-2", "db-1"):
        stage.gone(name)
    executing = Executing(stage, stage.emptying("a", stage.move("web-1", "b")))
    await executing.begins("web-1")
    stage.gone("web-1")
    stage.show(running("new", "a", owner=OTHER))
    executing.end("web-1")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == "node a is not empty once the moves are made"


async def test_a_budget_that_stays_exhausted_holds_up_no_moves_of_others(stage: Stage) -> None:
    stage.put_budget(pdb("guard", {"app": "web"}, allowed=0))
    executing = Executing(stage, *steps(stage, "web-1", "db-1"))
    await stage.clock.sleepers(seconds=LOOK_SECONDS)
    await stage.clock.advance(BUDGET_SECONDS)
    await executing.begins("db-1")
    executing.task.cancel()


async def test_a_step_that_needs_the_room_of_a_move_before_it_waits_for_that(
    stage: Stage,
) -> None:
    """Node b has room for web-2 as soon as its own pod has moved to node a."""
    stage.show(running("there", "b", cpu="3500m", owner=OTHER))
    planned = [stage.step(stage.move("there", "c")), *steps(stage, "web-2")]
    stage.add_node("c")
    executing = Executing(stage, *planned, limits={"movesAtATime": 2})
    await executing.begins("there")
    assert executing.written == [1, 2]
    stage.gone("there")
    executing.end("there")
    await executing.look()
    await executing.begins("there", "web-2")
    executing.task.cancel()


async def test_a_budget_that_stays_exhausted_ends_the_plan(stage: Stage) -> None:
    stage.put_budget(pdb("guard", {"app": "web"}, allowed=0))
    executing = Executing(stage, *steps(stage, "web-1"))
    await stage.clock.sleepers(seconds=LOOK_SECONDS)
    await stage.clock.advance(BUDGET_SECONDS)
    assert await executing.stops() == "disruption budget default/guard allows no eviction"
    assert executing.begun == []


async def test_a_budget_is_waited_for_as_long_as_moves_are_under_way(stage: Stage) -> None:
    executing = Executing(stage, *steps(stage, "db-1", "web-1"), limits={"movesAtATime": 2})
    stage.put_budget(pdb("guard", {"app": "web"}, allowed=0))
    await executing.begins("db-1")
    await stage.clock.advance(2 * BUDGET_SECONDS)
    await executing.begins("db-1")
    stage.put_budget(pdb("guard", {"app": "web"}, allowed=1))
    await executing.look()
    await executing.begins("db-1", "web-1")
    executing.task.cancel()


async def test_an_old_plan_is_not_carried_out_to_its_end(stage: Stage) -> None:
    executing = Executing(stage, *steps(stage, "web-1", "web-2"))
    await executing.begins("web-1")
    executing.end("web-1")
    await stage.clock.advance(3600)
    assert await executing.stops() == (
        "the cluster has changed since the plan was made: a new one follows"
    )
    assert executing.begun == ["web-1"]


async def test_a_step_that_has_begun_is_carried_out_to_its_end(stage: Stage) -> None:
    both = stage.step(*(stage.move(name, "b") for name in ("web-1", "db-1")))
    executing = Executing(stage, both)
    await executing.begins("web-1")
    executing.end("web-1")
    await stage.clock.advance(3600)
    await executing.begins("web-1", "db-1")
    executing.task.cancel()


async def test_a_group_begins_together_or_not_at_all(stage: Stage) -> None:
    moves = [stage.move(name, "b") for name in ("web-1", "web-2")]
    both = {"movesAtATime": 2, "movesAtATimePerWorkload": 2}
    executing = Executing(stage, stage.step(*moves, group="default/gang"), limits=both)
    await executing.begins("web-1", "web-2")
    executing.task.cancel()
    await asyncio.wait([executing.task])
    few = Executing(stage, stage.step(*moves, group="default/gang"))
    assert await few.stops() == (
        "group default/gang has 2 members to be moved together, and limits.movesAtATime is 1"
    )
    assert few.begun == []


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({}, "limits.movesAtATime is 1"),
        ({"movesAtATime": 2}, "limits.movesAtATimePerWorkload is 1"),
        (
            {"movesAtATime": 2, "movesAtATimePerWorkload": 2, "movesPerHour": 1},
            "limits.movesPerHour is 1",
        ),
    ],
)
async def test_a_group_that_is_larger_than_the_limits_holds_up_no_moves_of_others(
    stage: Stage, limits: dict[str, int], why: str
) -> None:
    moves = [stage.move(name, "b") for name in ("web-1", "web-2")]
    planned = [stage.step(*moves, group="default/gang"), *steps(stage, "db-1")]
    executing = Executing(stage, *planned, limits=limits)
    await executing.begins("db-1")
    executing.end("db-1")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == (
        f"group default/gang has 2 members to be moved together, and {why}"
    )


async def test_the_places_of_a_group_are_kept_before_its_first_member_is_evicted(
    stage: Stage,
) -> None:
    moves = [stage.move(name, "b") for name in ("web-1", "web-2")]
    both = {"movesAtATime": 2, "movesAtATimePerWorkload": 2}
    executing = Executing(stage, stage.step(*moves, group="default/gang"), limits=both)
    await executing.begins("web-1", "web-2")
    assert [*stage.nominated().values()] == ["b", "b"]
    executing.task.cancel()


async def test_a_profile_that_changes_meanwhile_begins_nothing_more(stage: Stage) -> None:
    executing = Executing(stage, *steps(stage, "web-1", "web-2"))
    await executing.begins("web-1")
    stage.put_profile(mode="Plan")
    executing.end("web-1")
    await stage.clock.advance(LOOK_SECONDS)
    assert await executing.stops() == "the profile has changed"
