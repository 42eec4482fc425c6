"""The goal MakeRoom, and plans for one pod or group: the fewest moves that make room."""

import pytest

from mooring.framework.decision import PodRef
from mooring.groups.model.pod_group import GroupKey, GroupSource
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.plan import Plan
from mooring.testing.builders import node, pod, pod_group, uid_of
from replanning import Replanning, moves, owned

ROOM = {"goals": ["MakeRoom"]}
WANTED = PodRef.of_key("default/big")
GANGS = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}


def told(plan: Plan) -> str:
    """Return the plan's message for users who may get all pods."""
    return plan.message if isinstance(plan.message, str) else plan.message.text


def test_one_move_makes_room_for_a_pod_that_fits_nowhere() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        owned("a-1", cpu="2", node="a"),
        owned("b-1", cpu="1", node="b"),
        waiting=[pod("big", cpu="4")],
        rebalancing=ROOM,
    )
    plan = replanning.plan()
    assert moves(plan) == [("b-1", "b", "a")]
    (step,) = plan.steps
    assert step.nodes == ("b",)
    assert (step.goal, step.gain, step.fits) == (
        Goal.MAKE_ROOM,
        1_000,
        (PodRef("default", "big", uid_of("big")),),
    )
    replanning.carry_out(plan)
    assert replanning.plan().steps == ()


def test_a_pod_that_has_to_leave_may_need_room_itself() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="3"),
        node("c", cpu="2", labels={"small": "yes"}),
        owned("a-1", cpu="3", node="a"),
        owned("b-1", cpu="1", node="b"),
        waiting=[pod("big", cpu="4")],
        rebalancing=ROOM,
    )
    plan = replanning.plan()
    assert moves(plan) == [("b-1", "b", "c"), ("a-1", "a", "b")]


def test_a_pod_that_fits_needs_no_move_and_keeps_its_place() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        owned("b-1", cpu="2", node="b"),
        waiting=[pod("first", cpu="4", priority=5), pod("second", cpu="4")],
        rebalancing=ROOM,
    )
    assert replanning.plan().steps == ()


def test_a_plan_for_one_pod_says_that_it_fits_or_that_nothing_helps() -> None:
    fits = Replanning(node("a"), waiting=[pod("big", cpu="4")]).plan(WANTED)
    assert told(fits) == "pod default/big fits without any move"
    never = Replanning(node("a"), waiting=[pod("big", cpu="5")]).plan(WANTED)
    assert told(never) == (
        "pod default/big does not fit, and no moves were found that make room for it"
    )
    unknown = Replanning(node("a")).plan(WANTED)
    assert told(unknown) == "pod default/big does not wait"


def test_a_gang_fits_after_moves_and_nobody_is_preempted() -> None:
    members = [pod(f"m{n}", cpu="3", group="train", priority=9) for n in range(3)]
    replanning = Replanning(
        *(node(f"n{n}", cpu="4") for n in range(5)),
        pod_group("train", 3, priority=9),
        *(owned(f"w{n}", cpu="2", node=f"n{n}") for n in range(4)),
        waiting=members,
        rebalancing=ROOM,
        plugins=GANGS,
    )
    key = GroupKey(GroupSource.KUBERNETES, "default", "train")
    for plan in (replanning.plan(), replanning.plan(key)):
        assert len(plan.moves) == 2
        (step,) = plan.steps
        assert len(step.fits) == 3
    replanning.carry_out(plan)
    assert replanning.plan().steps == ()


@pytest.mark.parametrize("kind", ["Job", "Node"])
def test_no_room_is_made_by_pods_that_may_not_move(kind: str) -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        owned("a-1", cpu="2", node="a", kind=kind),
        owned("b-1", cpu="1", node="b", kind=kind),
        waiting=[pod("big", cpu="4")],
        rebalancing=ROOM,
    )
    assert replanning.plan().steps == ()
