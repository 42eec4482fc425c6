"""What is remembered of a profile's moves, and what the next leader makes of its status."""

from typing import Any

import pytest

from kube.virtual_clock import VirtualClock
from mooring.engine.rebalancing.limits import Evictions, Rests
from mooring.engine.rebalancing.plan import Move, Plan, Step
from mooring.engine.rebalancing.record import Record
from mooring.engine.rebalancing.under_way import Result, UnderWay
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.model.pod import Pod, parse_pod
from mooring.observe.documents import HIDDEN, dumps, plain
from mooring.policy.errors import ProfileInvalid
from mooring.policy.profile import SchedulingProfile, SchedulingProfileSpec
from mooring.policy.reading import read
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.testing.builders import uid_of
from rebalancing_stage import running

SECTION = read(Rebalancing, {"limits": {"replacementSeconds": 300, "restSeconds": 3600}}, "")
SPEC = read(SchedulingProfileSpec, {"rebalancing": {"mode": "Apply"}}, "spec")


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
    return Record(clock, clock, Evictions(clock))


def begin(record: Record, name: str) -> UnderWay:
    found = step(name)
    under_way = UnderWay(found.moves[0], found, record.now())
    record.under_way[uid_of(name)] = under_way
    return under_way


def end(record: Record, name: str, result: Result = Result.MOVED) -> None:
    under_way = record.under_way.pop(uid_of(name))
    record.evictions.note()
    under_way.replacement = pod(f"{name}-new")
    under_way.end(result)
    record.note(under_way)


def taken_over(status: dict[str, Any], clock: VirtualClock) -> tuple[Record, Rests]:
    """Return what another leader makes of the status."""
    new, rests = Record(clock, clock, Evictions(clock)), Rests(clock)
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
    """Return the pods that these steps of a document move."""
    return [move["pod"] for step in steps for move in step["moves"]]


def test_the_report_says_what_is_planned_and_under_way(record: Record) -> None:
    record.publish("mooring", SECTION, Plan((step("web-1", "web-2"),), pods=9, examined=7))
    begin(record, "web-1")
    found = plain(record.report(SchedulingProfile("mooring", SPEC)))
    assert (found["profile"], found["mode"], found["plan"]["pods"]) == ("mooring", "Apply", 9)
    assert pods(found["plan"]["steps"]) == ["default/web-1", "default/web-2"]
    assert pods(found["underWay"]) == ["default/web-1"]
    assert found["plan"]["emptied"] == ["a"]
