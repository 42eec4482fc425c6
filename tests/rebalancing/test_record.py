"""The record of a profile's moves, and its restoration from the status by the next leader."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kube.virtual_clock import VirtualClock
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.kube.client import ApiClient
from mooring.model.pod import Pod, parse_pod
from mooring.observe.documents import HIDDEN, dumps, plain
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.profile_errors import ProfileInvalid
from mooring.policy.reading import read
from mooring.policy.rebalancing import Goal, Rebalancing, Window
from mooring.rebalancing.plan import Move, Plan, Step
from mooring.rebalancing.profile_rebalancing import FIRST_SECONDS
from mooring.rebalancing.record import HOUR, RecentEvictions, Record, Rests, is_open
from mooring.rebalancing.under_way import ExpectedReplacements, Result, UnderWay
from mooring.state.cluster import ClusterState
from mooring.testing.builders import uid_of
from rebalancing_stage import OWNER, UID, Api, Stage, running, until, working

SECTION = read(Rebalancing, {"limits": {"replacementSeconds": 300, "restSeconds": 3600}}, "")
SPEC = read(SchedulingProfileSpec, {"rebalancing": {"mode": "Apply"}}, "spec")
NEW = "1970-01-01T00:17:00Z"
"""After a thousand seconds, at which the clock of the tests begins."""
DATABASE = {**OWNER, "name": "db", "uid": "rs-db"}
MONDAY = datetime(2026, 11, 23, tzinfo=UTC)


def pod(name: str) -> Pod:
    return parse_pod(running(name, "a"))


def step(*names: str) -> Step:
    moves = tuple(Move(pod(name), "a", "b") for name in names)
    return Step(Goal.PACK, moves, "node a is emptied", 1000, emptied=("a",))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def record(clock: VirtualClock) -> Record:
    return Record("web", ExpectedReplacements(ClusterState()), clock, clock, RecentEvictions(clock))


def begin(record: Record, name: str) -> UnderWay:
    found = step(name)
    under_way = UnderWay(found.moves[0], found, record.name, record.now())
    record.expected.moves.append(under_way)
    return under_way


def end(record: Record, name: str, result: Result = Result.MOVED) -> None:
    (under_way,) = (each for each in record.under_way if each.move.pod.name == name)
    record.expected.moves.remove(under_way)
    record.evictions.note()
    under_way.replacement = pod(f"{name}-new")
    under_way.end(result)
    record.note(under_way)


def taken_over(status: dict[str, Any], clock: VirtualClock) -> tuple[Record, Rests]:
    """Return the record and the rests that the next leader restores from the status."""
    new, rests = (
        Record("web", ExpectedReplacements(ClusterState()), clock, clock, RecentEvictions(clock)),
        Rests(clock),
    )
    new.restore(status, SECTION, rests)
    return new, rests


def test_the_status_has_the_first_ten_moves_of_the_plan_and_their_number(record: Record) -> None:
    record.publish(
        "mooring",
        SECTION,
        Plan(tuple(step(f"web-{number}") for number in range(12)), refused={"why": 3}),
    )
    status = record.status()
    assert (status["planned"], len(status["plan"])) == (12, 10)
    assert status["plan"][0] == {
        "pod": "default/web-0",
        "from": "a",
        "to": "b",
        "goal": "Pack",
        "reason": "node a is emptied",
    }
    assert status["refused"] == [{"reason": "why", "count": 3}]


def test_another_leader_knows_the_evictions_of_the_last_hour(
    record: Record, clock: VirtualClock
) -> None:
    for name in ("web-1", "web-2"):
        begin(record, name)
        end(record, name)
    begin(record, "web-3")
    status = record.status()
    clock.time += 1800
    new, _ = taken_over(status, clock)
    assert new.used_of_hour == 3
    clock.time += 1800
    assert new.used_of_hour == 0


def test_another_leader_leaves_alone_what_was_moved(record: Record, clock: VirtualClock) -> None:
    begin(record, "web-1")
    end(record, "web-1")
    status = record.status()
    clock.time += 1800
    new, rests = taken_over(status, clock)
    assert rests.resting() == {uid_of("web-1-new")}
    assert (new.done, new.status()["lastMoves"]) == (1, status["lastMoves"])
    clock.time += 1800
    assert rests.resting() == frozenset()


def test_another_leader_awaits_what_is_under_way(record: Record, clock: VirtualClock) -> None:
    begin(record, "web-1")
    status, began = record.status(), clock.time
    clock.time += 100
    new, rests = taken_over(status, clock)
    assert (new.in_flight, new.in_flight_of("rs-web"), new.in_flight_of("other")) == (1, 1, 0)
    assert (new.former[0].began, new.former[0].until) == (began, began + 300)
    assert rests.resting() == frozenset()
    assert new.status()["underWay"] == status["underWay"]


def test_a_clock_that_goes_back_makes_no_rest_longer(record: Record, clock: VirtualClock) -> None:
    begin(record, "web-1")
    end(record, "web-1")
    status = record.status()
    clock.time -= 900
    new, rests = taken_over(status, clock)
    clock.time += 3600
    assert (len(new.evictions), rests.resting()) == (0, frozenset())


@pytest.mark.parametrize(
    "status", ["text", {"observedTime": 5}, {"observedTime": "2026-01-01T00:00:00Z", "done": "x"}]
)
def test_a_status_that_somebody_has_spoilt_is_told_from_one_that_is_right(
    record: Record, status: object
) -> None:
    with pytest.raises(ProfileInvalid):
        record.restore(status, SECTION, Rests(record.clock))


def test_only_the_last_fifty_moves_are_in_the_status(record: Record) -> None:
    for number in range(60):
        begin(record, f"web-{number}")
        end(record, f"web-{number}", Result.ELSEWHERE)
    last = record.status()["lastMoves"]
    assert (len(last), last[0]["pod"], last[-1]["pod"]) == (50, "default/web-10", "default/web-59")
    assert record.status()["done"] == 0


def test_a_controller_without_a_replacement_is_named_in_the_last_moves(record: Record) -> None:
    under_way = begin(record, "web-1")
    under_way.end(Result.LATE, "late")
    record.note(under_way)
    assert record.status()["lastMoves"][0]["uid"] == "rs-web"


@pytest.mark.parametrize("result", [Result.ELSEWHERE, Result.LATE, Result.GONE])
def test_another_leader_leaves_all_pods_of_the_controller_alone_after_a_move_that_failed(
    record: Record, clock: VirtualClock, result: Result
) -> None:
    begin(record, "web-1")
    end(record, "web-1", result)
    _, rests = taken_over(record.status(), clock)
    assert rests.resting() == {"rs-web"}


def test_the_report_has_no_names_of_pods_that_a_user_may_not_get(record: Record) -> None:
    record.publish("mooring", SECTION, Plan((step("secret"),)))
    begin(record, "secret")
    secret = PodRef.of(pod("secret"))
    record.message = TextAboutPods("pod default/secret has gone", (secret,), "a pod has gone")
    report = record.report(SchedulingProfile("mooring", SPEC))
    assert b"secret" in dumps(report, lambda _pod: True)
    hidden = dumps(report, lambda _pod: False)
    assert b"secret" not in hidden
    assert HIDDEN.encode() in hidden


def pods(steps: list[dict[str, Any]]) -> list[str]:
    return [move["pod"] for step in steps for move in step["moves"]]


def test_the_report_says_what_is_planned_and_under_way(record: Record) -> None:
    record.publish("mooring", SECTION, Plan((step("web-1", "web-2"),), pods=9, examined=7))
    begin(record, "web-1")
    found = plain(record.report(SchedulingProfile("mooring", SPEC)))
    assert (found["profile"], found["mode"], found["plan"]["pods"]) == ("mooring", "Apply", 9)
    assert pods(found["plan"]["steps"]) == ["default/web-1", "default/web-2"]
    assert pods(found["underWay"]) == ["default/web-1"]
    assert found["plan"]["emptied"] == ["a"]


@pytest.fixture
def stage(connected: ApiClient) -> Stage:
    stage = Stage(connected, running("web-1", "a"), running("web-2", "a"))
    stage.rebalancer.profile_found("default-scheduler", UID, {})
    return stage


async def test_another_leader_keeps_to_the_limits(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    """The first leader evicts and ends; the next one waits for the replacement."""
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.evicted)
    status = api.status
    terminating = running("web-1", "a", terminating=True)
    others = running("web-2", "a"), running("db-1", "a", owner=DATABASE)
    second = Stage(connected, terminating, *others)
    second.clock.time = stage.clock.time
    second.rebalancer.profile_found("default-scheduler", UID, {"rebalancing": status})
    second.steps = [second.step(second.move("db-1", "b"))]
    async with working(second):
        await until(second, lambda: second.clock.time > stage.clock.time + 60)
        assert (second.plans, api.evicted) == (0, ["web-1"])
        second.gone("web-1")
        second.come("web-1-new", created=NEW)
        await until(second, lambda: second.clock.time > stage.clock.time + 90)
        assert second.plans == 0
        second.show(running("web-1-new", "b", created=NEW))
        await until(second, lambda: len(api.evicted) == 2)
        await until(second, lambda: second.plans == 2)
        assert uid_of("web-1-new") in second.resting
        assert not second.resting & {"rs-web", uid_of("web-2")}


def successor(connected: ApiClient, stage: Stage, api: Api, *pods: dict[str, Any]) -> Stage:
    """Return the stage of another leader, which reads the status that the first one wrote."""
    second = Stage(connected, *pods)
    second.clock.time = stage.clock.time
    status = {"rebalancing": api.status}
    second.rebalancer.profile_found("default-scheduler", UID, status)
    return second


async def test_a_controller_whose_pods_do_not_become_ready_is_left_alone_by_another_leader(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.evicted)
    second = successor(connected, stage, api, running("web-2", "a"))
    async with working(second):
        second.come("web-1-new", node_selector={"no": "node"})
        await until(second, lambda: second.plans)
        assert second.clock.time >= stage.clock.time + 280
    assert second.resting == {"rs-web"}


async def test_a_pod_of_another_namespace_that_names_the_controller_holds_no_leader_up(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.evicted)
    second = successor(connected, stage, api, running("web-1-new", "b", created=NEW))
    second.come("lies", namespace="mallory", node_selector={"no": "node"})
    async with working(second):
        await until(second, lambda: second.plans, within=100)
    assert second.resting == {uid_of("web-1-new")}


async def led(
    stage: Stage, api: Api, connected: ApiClient, *left: dict[str, Any], owner: str = "ReplicaSet"
) -> Stage:
    """Let a leader evict web-1 and end; return the next leader's stage with the pods `left`."""
    stage.show(running("web-1", "a", owner={**OWNER, "kind": owner}))
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    stage.put_profile(pods={"owners": ["ReplicaSet", "StatefulSet"]})
    async with working(stage):
        await until(stage, lambda: api.evicted)
    return successor(connected, stage, api, *left)


async def test_a_move_of_a_former_leader_goes_on_while_its_replacement_does_not_exist(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    """All existing pods of the controller are ready, and one pod is missing."""
    second = await led(stage, api, connected, running("web-2", "a"))
    second.steps = [second.step(second.move("web-2", "b"))]
    async with working(second):
        await until(second, lambda: second.clock.time > stage.clock.time + 120)
        assert (second.plans, api.evicted) == (0, ["web-1"])
        second.show(running("web-1-new", "b", created=NEW))
        await until(second, lambda: len(api.evicted) == 2)
    assert api.evicted == ["web-1", "web-2"]


async def test_a_move_of_a_former_leader_has_ended_though_other_pods_are_not_ready(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    left = running("web-1-new", "b", created=NEW), running("web-2", "a", status={})
    second = await led(stage, api, connected, *left)
    async with working(second):
        await until(second, lambda: second.plans, within=100)
    assert second.resting == {uid_of("web-1-new")}


async def test_a_pod_that_was_new_before_the_move_of_a_former_leader_is_no_replacement(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    second = await led(stage, api, connected, running("web-2", "a", created="1970-01-01T00:16:40Z"))
    async with working(second):
        await until(second, lambda: second.clock.time > stage.clock.time + 120)
        assert second.plans == 0


async def test_only_the_pod_of_its_name_replaces_one_of_a_stateful_set(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    of_set: dict[str, Any] = {"owner": {**OWNER, "kind": "StatefulSet"}, "created": NEW}
    second = await led(stage, api, connected, running("web-2", "a", **of_set), owner="StatefulSet")
    again = running("web-1", "b", **of_set)
    again["metadata"]["uid"] = "the second"
    async with working(second):
        await until(second, lambda: second.clock.time > stage.clock.time + 120)
        assert second.plans == 0
        second.show(again)
        await until(second, lambda: second.plans, within=100)
    assert second.resting == {"the second"}


async def test_each_move_of_a_former_leader_ends_with_a_replacement_of_its_own(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    stage.put_profile(limits={"movesAtATime": 2, "movesAtATimePerWorkload": 2})
    stage.steps = [stage.step(stage.move(name, "b")) for name in ("web-1", "web-2")]
    async with working(stage):
        await until(stage, lambda: len(api.evicted) == 2)
    second = successor(connected, stage, api, running("web-1-new", "b", created=NEW))
    async with working(second):
        await until(second, lambda: second.clock.time > stage.clock.time + 120)
        assert second.plans == 0
        second.show(running("web-2-new", "b", created=NEW))
        await until(second, lambda: second.plans, within=100)
    assert second.resting == {uid_of("web-1-new"), uid_of("web-2-new")}


async def test_an_eviction_that_a_former_leader_did_not_send_is_not_awaited(
    stage: Stage, api: Api, connected: ApiClient
) -> None:
    stage.steps = [stage.step(stage.move("web-1", "b"))]
    async with working(stage):
        await until(stage, lambda: api.evicted)
    second = successor(connected, stage, api, running("web-1", "a"))
    async with working(second):
        await until(second, lambda: second.plans, within=FIRST_SECONDS + 5)


def window(start: str, end: str, *days: str) -> Window:
    return read(Window, {"start": start, "end": end, "days": list(days)}, "")


def at(day: int, hour: int, minute: int = 0) -> float:
    """Return the time in seconds since the epoch; day 0 is a Monday."""
    return MONDAY.replace(day=MONDAY.day + day, hour=hour, minute=minute).timestamp()


def test_without_windows_pods_may_be_moved_at_any_time() -> None:
    assert is_open((), at(0, 3))


@pytest.mark.parametrize(
    ("hour", "minute", "expected"), [(8, 59, 0), (9, 0, 1), (16, 59, 1), (17, 0, 0)]
)
def test_a_window_begins_with_its_start_and_is_over_at_its_end(
    hour: int, minute: int, *, expected: int
) -> None:
    assert is_open((window("09:00", "17:00"),), at(2, hour, minute)) == bool(expected)


def test_a_window_may_end_on_the_next_day_and_its_day_is_that_of_its_start() -> None:
    night = (window("22:00", "04:00", "Fri"),)
    assert [is_open(night, at(4, 23)), is_open(night, at(5, 3)), is_open(night, at(4, 3))] == [
        True,
        True,
        False,
    ]


def test_a_window_that_ends_when_it_begins_lasts_a_day() -> None:
    whole = (window("12:00", "12:00", "Sun"),)
    assert [is_open(whole, at(6, 11)), is_open(whole, at(6, 13))] == [False, True]
    assert is_open(whole, at(0, 11) + 7 * 24 * HOUR)


def test_one_open_window_is_enough() -> None:
    windows = (window("01:00", "02:00"), window("05:00", "06:00"))
    assert [is_open(windows, at(1, hour)) for hour in (1, 3, 5)] == [True, False, True]


def test_evictions_count_for_an_hour() -> None:
    clock = VirtualClock()
    evictions = RecentEvictions(clock)
    evictions.note()
    clock.time += HOUR / 2
    evictions.note(2)
    assert len(evictions) == 3
    clock.time += HOUR / 2
    assert len(evictions) == 2


def test_evictions_of_a_former_leader_run_out_before_those_that_came_later() -> None:
    clock = VirtualClock()
    evictions = RecentEvictions(clock)
    evictions.note()
    evictions.note(5, seconds_ago=HOUR - 1)
    assert len(evictions) == 6
    clock.time += 1
    assert len(evictions) == 1


def test_whoever_was_moved_rests_for_its_time() -> None:
    clock = VirtualClock()
    rests = Rests(clock)
    rests.rest("short", 10)
    rests.rest("long", 20)
    rests.rest("not at all", 0)
    assert rests.resting() == {"short", "long"}
    clock.time += 10
    assert rests.resting() == {"long"}


def test_what_is_remembered_of_rests_is_bounded() -> None:
    rests = Rests(VirtualClock())
    for number in range(50_000):
        rests.rest(f"uid-{number}", 1e9)
    assert len(rests.resting()) < 20_000
    assert "uid-49999" in rests.resting()
