"""Moves that have begun: room for replacements, their nominations, and resting pods."""

import pytest

from mooring.kube.client import ApiClient
from mooring.model.pod import Pod, parse_pod
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.plan import Move, Step
from mooring.rebalancing.under_way import Result, UnderWay, is_placeholder, place_uid
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.testing.builders import pod, uid_of
from rebalancing_stage import OWNER, Stage, running

PLACE = place_uid(uid_of("web-1"))


@pytest.fixture
def stage(client: ApiClient) -> Stage:
    """Return a stage with room for one more pod on node b."""
    return Stage(client, running("web-1", "a"), running("big", "b", cpu="3"))


def decided(stage: Stage, found: Pod) -> str | None:
    """Return the node that the profile would choose for the pod now; None if none fits."""
    cache = ResultCache(stage.scheduler.cluster)
    outcome = decide(found, stage.entry.pipeline, cache, seed=1)
    return outcome.node if isinstance(outcome, ScheduleResult) else None


def fits_on_b(stage: Stage, priority: int) -> bool:
    raw = pod("other", cpu="1", priority=priority, node_selector={"kubernetes.io/hostname": "b"})
    return decided(stage, parse_pod(raw)) == "b"


def test_nobody_of_equal_or_lower_priority_takes_a_place_that_is_kept(stage: Stage) -> None:
    assert fits_on_b(stage, priority=0)
    stage.keep("web-1", "b")
    assert [fits_on_b(stage, priority) for priority in (-1, 0, 1)] == [False, False, True]


def test_a_place_has_a_uid_that_no_pod_has(stage: Stage) -> None:
    expected = stage.keep("web-1", "b")
    assert expected.place is not None
    assert is_placeholder(expected.place.uid)
    assert not is_placeholder(uid_of("web-1"))
    assert stage.nominated() == {PLACE: "b"}


def test_the_replacement_takes_the_place_over_before_anything_is_decided_about_it(
    stage: Stage,
) -> None:
    expected = stage.keep("web-1", "b")
    new = stage.come("web-2")
    assert expected.replacement is new
    assert stage.nominated() == {new.uid: "b"}
    assert decided(stage, new) == "b"


def test_the_place_of_another_pod_of_the_controller_is_not_taken_twice(stage: Stage) -> None:
    stage.keep("web-1", "b")
    first, _second = stage.come("web-2"), stage.come("web-3")
    assert stage.nominated() == {first.uid: "b"}


def test_a_pod_that_waited_before_is_no_replacement(stage: Stage) -> None:
    """A former leader bound the pod, so kopf is not the first to show it on a node."""
    stage.come("waits")
    expected = stage.keep("web-1", "b")
    stage.show(running("waits", "a"))
    assert expected.replacement is None
    assert stage.nominated() == {PLACE: "b"}


@pytest.mark.parametrize("owner", [None, {**OWNER, "uid": "rs-other"}])
def test_pods_of_others_are_no_replacements(stage: Stage, owner: dict[str, str] | None) -> None:
    expected = stage.keep("web-1", "b")
    stage.come("web-2", owner=owner)
    assert expected.replacement is None


def test_a_pod_of_another_spec_says_that_no_replacement_will_come(stage: Stage) -> None:
    expected = stage.keep("web-1", "b")
    stage.come("web-2", cpu="2")
    assert (expected.replacement, expected.changed) == (None, True)


@pytest.mark.parametrize("cpu", ["1", "2"])
def test_a_pod_of_another_namespace_that_names_the_controller_changes_nothing(
    stage: Stage, cpu: str
) -> None:
    """Tenants can write any owner reference into their pods."""
    expected = stage.keep("web-1", "b")
    stage.come("web-2", namespace="mallory", cpu=cpu)
    assert (expected.replacement, expected.changed) == (None, False)
    assert stage.nominated() == {PLACE: "b"}


def test_the_replacement_of_a_pod_of_a_stateful_set_has_its_name(client: ApiClient) -> None:
    owner = {**OWNER, "kind": "StatefulSet"}
    stage = Stage(client, running("web-1", "a", owner=owner))
    expected = stage.keep("web-1", "b")
    stage.come("web-2", owner=owner)
    assert stage.nominated() == {PLACE: "b"}
    again = pod("web-1", cpu="1", labels={"app": "web"}, owner=owner)
    again["metadata"]["uid"] = "the second"
    assert stage.pending(again) is expected.replacement
    assert stage.nominated() == {"the second": "b"}


def test_a_replacement_that_is_shown_on_a_node_first_needs_no_place(stage: Stage) -> None:
    expected = stage.keep("web-1", "b")
    stage.show(running("web-2", "a"))
    assert expected.replacement is not None
    assert expected.replacement.uid == uid_of("web-2")
    assert stage.nominated() == {}


def test_a_place_that_somebody_of_higher_priority_took_is_not_passed_on(stage: Stage) -> None:
    expected = stage.keep("web-1", "b")
    stage.state.withdraw(PLACE)
    new = stage.come("web-2")
    assert expected.replacement is new
    assert stage.nominated() == {}


def test_what_is_forgotten_keeps_nothing(stage: Stage) -> None:
    first = stage.keep("web-1", "b")
    stage.come("web-2")
    second = stage.keep("big", "a")
    assert len(stage.expected.moves) == 2
    for expected in (first, second):
        stage.expected.forget(expected)
    assert (stage.nominated(), len(stage.expected.moves)) == ({}, 0)


def test_a_nomination_by_preemption_stays_when_a_place_is_given_back(stage: Stage) -> None:
    expected = stage.keep("web-1", "b")
    new = stage.come("web-2")
    stage.state.nominate(new, "a")
    stage.expected.forget(expected)
    assert stage.nominated() == {new.uid: "a"}


def test_pods_that_waited_for_room_are_tried_when_a_place_is_given_back(stage: Stage) -> None:
    expected = stage.keep("web-1", "b")
    queue, now = stage.scheduler.queue, stage.clock()
    queue.add(parse_pod(pod("other", cpu="1")), stage.entry.pipeline, now)
    popped = queue.pop(now)
    assert popped is not None
    queue.add_unschedulable(popped, frozenset({"NodeResourcesFit"}), now)
    while queue.run_hints(now):
        pass
    assert queue.counts()["unschedulable"] == 1
    stage.expected.forget(expected)
    while queue.run_hints(now):
        pass
    assert queue.counts()["unschedulable"] == 0


@pytest.fixture
def under_way() -> UnderWay:
    move = Move(parse_pod(running("web-1", "a")), "a", "b")
    return UnderWay(move, Step(Goal.PACK, (move,), "node a is emptied", 1000), "web", 0.0)


def test_the_replacement_of_a_pod_that_was_moved_is_left_alone(under_way: UnderWay) -> None:
    under_way.replacement = parse_pod(running("web-2", "b"))
    under_way.end(Result.MOVED)
    assert under_way.rests == uid_of("web-2")


@pytest.mark.parametrize("result", [Result.ELSEWHERE, Result.LATE, Result.GONE])
def test_all_pods_of_the_controller_are_left_alone_after_another_end(
    under_way: UnderWay, result: Result
) -> None:
    under_way.replacement = parse_pod(running("web-2", "a"))
    under_way.end(result)
    assert under_way.rests == OWNER["uid"]


def test_one_move_has_one_replacement(under_way: UnderWay) -> None:
    new, leaving = parse_pod(running("web-2", "b")), under_way.move.pod
    assert (under_way.is_for(new), under_way.is_for(leaving)) == (True, False)
    under_way.replacement = new
    assert not under_way.is_for(parse_pod(running("web-3", "b")))
