"""Plans from manifests, for a pod, a group or all profiles, and their messages."""

from collections.abc import Iterable
from typing import Any

import pytest

from mooring.framework.registry import Registry
from mooring.plugins import SHIPPED
from mooring.policy.rebalancing import Goal
from mooring.simulate.inputs import inputs_of
from mooring.simulate.manifests import InputError, Manifest
from mooring.simulate.offline_plan import PlannedProfile, Rebalance, Wanted, WantedPlan
from mooring.testing.builders import api_object, node, pod, pod_group
from planning import placed_pod

REGISTRY = Registry(SHIPPED, {})
NOW = 2e9
Raw = dict[str, Any]


def rebalance(*objects: Raw, **arguments: Any) -> Rebalance:
    manifests = (Manifest(f"object {number}", raw) for number, raw in enumerate(objects))
    planning = Rebalance(inputs_of(manifests, REGISTRY), REGISTRY, now=NOW, **arguments)
    for _ in planning.place_pending():
        pass
    return planning


def planned(planning: Rebalance) -> list[PlannedProfile]:
    return [planning.plan(*each) for each in planning.profiles()]


def found(planning: Rebalance, name: str, **fields: Any) -> WantedPlan:
    return planning.plan_for(Wanted(name, **fields))


def profile(name: str, **spec: Any) -> Raw:
    return api_object("SchedulingProfile", name, spec=spec)


def moves(plans: Iterable[PlannedProfile]) -> list[tuple[str, str, str]]:
    every = (move for each in plans for move in each.plan.moves)
    return [(move.pod.name, move.source, move.target) for move in every]


LABELLED = [node("n1", cpu="4"), node("n2", cpu="4", labels={"disk": "ssd"})]


def misplaced(name: str = "web", **fields: Any) -> Raw:
    """Return a pod on n1 that requires a node like n2."""
    raw = placed_pod(name, "n1")
    raw["spec"] |= {"nodeSelector": {"disk": "ssd"}, **fields}
    return raw


def test_without_a_profile_all_pods_of_the_default_scheduler_may_be_moved() -> None:
    (only,) = plans = planned(rebalance(*LABELLED, misplaced()))
    assert moves(plans) == [("web", "n1", "n2")]
    assert (only.profile, only.section.goals) == (
        "default-scheduler",
        (Goal.VIOLATIONS, Goal.SPREAD),
    )


def test_a_pending_pod_that_fits_does_not_count_as_a_running_one() -> None:
    (only,) = planned(rebalance(*LABELLED, misplaced(), pod("waits", cpu="1")))
    assert only.plan.pods == 1


def test_only_profiles_with_a_section_are_planned_for_if_there_are_any() -> None:
    plans = planned(
        rebalance(
            *LABELLED,
            profile("plain"),
            profile("moved", rebalancing={"goals": ["Violations"]}),
            misplaced("left", schedulerName="plain"),
            misplaced("taken", schedulerName="moved"),
        )
    )
    assert [each.profile for each in plans] == ["moved"]
    assert moves(plans) == [("taken", "n1", "n2")]


def test_goals_that_are_given_take_the_place_of_the_profiles() -> None:
    section = {"goals": ["Violations"], "minimumGain": 50}
    planning = rebalance(
        *LABELLED, profile("default-scheduler", rebalancing=section), goals=(Goal.SPREAD,)
    )
    ((_, chosen),) = planning.profiles()
    assert (chosen.goals, chosen.minimum_gain) == ((Goal.SPREAD,), 50)


def test_one_profile_may_decide_about_all_pods_whatever_they_name() -> None:
    objects = (*LABELLED, profile("moved"), misplaced(schedulerName="another"))
    assert moves(planned(rebalance(*objects))) == []
    assert moves(planned(rebalance(*objects, profile="moved"))) == [("web", "n1", "n2")]


def test_a_profile_in_mode_shadow_plans_for_the_pods_it_would_take() -> None:
    shadow = profile("trial", mode="Shadow", match={"schedulerNames": ["another"]}, rebalancing={})
    objects = (*LABELLED, shadow, misplaced(schedulerName="another"))
    assert moves(planned(rebalance(*objects))) == [("web", "n1", "n2")]


def test_pods_that_wait_and_fit_take_their_place_before_others_are_moved_there() -> None:
    waiting = pod("first", cpu="3500m", node_selector={"disk": "ssd"})
    planning = rebalance(*LABELLED, waiting, misplaced())
    assert planning.placed == 1
    assert moves(planned(planning)) == []


def test_a_pod_that_runs_or_fits_already_needs_no_moves() -> None:
    planning = rebalance(node("n1"), placed_pod("web", "n1"), pod("new", namespace="shop"))
    assert found(planning, "web").message == "pod shop/web runs on n1 already"
    answer = found(planning, "new")
    assert answer.fits
    assert answer.message == "pod shop/new fits on n1 already: no pod has to move"


def test_a_pod_that_is_gated_waits_for_something_else() -> None:
    answer = found(rebalance(node("n1"), pod("held", gates=["example.com/quota"])), "held")
    assert not answer.fits
    assert answer.message.startswith("pod default/held waits for something else: ")


def test_a_pod_that_no_profile_takes_is_told_so() -> None:
    answer = found(rebalance(node("n1"), pod("web", spec={"schedulerName": "none"})), "web")
    assert not answer.fits
    assert 'no profile takes pods of schedulerName "none"' in answer.message


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Wanted("weeb"), "there is no pod weeb, did you mean web?"),
        (Wanted("web", "bank"), "there is no pod bank/web, did you mean web?"),
        (Wanted("twin"), "there are 2 of pod twin, in one, two: choose one with -n"),
        (Wanted("x", is_group=True), "there is no podgroup x among the objects that were read"),
    ],
)
def test_a_name_that_is_not_known_or_not_clear_is_one_line(wanted: Wanted, words: str) -> None:
    pods = (placed_pod("web", "n1"), pod("twin", namespace="one"), pod("twin", namespace="two"))
    planning = rebalance(node("n1"), *pods)
    with pytest.raises(InputError) as error:
        planning.plan_for(wanted)
    assert str(error.value) == words


def test_a_group_that_fits_needs_no_moves_and_one_that_lacks_members_waits_for_them() -> None:
    group = pod_group("train", 2, namespace="ml")
    members = [pod(f"train-{n}", namespace="ml", group="train", cpu="1") for n in range(2)]
    answer = found(rebalance(node("n1"), group, *members), "train", is_group=True)
    assert answer.message == "podgroup ml/train fits already: no pod has to move"
    answer = found(rebalance(node("n1"), group, members[0]), "train", is_group=True)
    assert not answer.fits
    assert answer.message.startswith("podgroup ml/train waits for something else: ")


FULL = [node("n1", cpu="4"), node("n2", cpu="4")]
HALF = [placed_pod("a", "n1", cpu="2"), placed_pod("b", "n2", cpu="2")]
"""Two pods, of which one has to go to the other for one of 4 cpu to fit."""


def test_a_pod_that_fits_nowhere_fits_after_the_fewest_moves() -> None:
    answer = found(rebalance(*FULL, *HALF, pod("big", namespace="ml", cpu="4")), "big")
    assert answer.fits
    assert answer.message == "pod ml/big fits after 1 move, and nothing is preempted"
    assert answer.planned is not None
    (step,) = answer.planned.plan.steps
    assert [each.key for each in step.fits] == ["ml/big"]
    assert len(step.moves) == 1


def test_a_member_of_a_gang_is_answered_as_its_whole_group_is() -> None:
    group = pod_group("train", 2, namespace="ml")
    members = [pod(f"train-{cpu}", namespace="ml", group="train", cpu=cpu) for cpu in ("4", "2")]
    small = [placed_pod("a", "n1"), placed_pod("b", "n2")]
    objects = (*FULL, *small, group, *members)
    for name, is_group in (("train-2", False), ("train", True)):
        answer = found(rebalance(*objects), name, is_group=is_group)
        assert answer.message == "podgroup ml/train fits after 1 move, and nothing is preempted"


def test_a_goal_to_make_room_plans_for_pods_that_wait_but_not_for_gated_ones() -> None:
    waiting = [pod(name, cpu="4", gates=gates) for name, gates in (("w", []), ("g", ["x.y/z"]))]
    (only,) = planned(rebalance(*FULL, *HALF, *waiting, goals=(Goal.MAKE_ROOM,)))
    assert [each.name for step in only.plan.steps for each in step.fits] == ["w"]


def test_room_is_made_for_the_highest_priority_first() -> None:
    waiting = [
        pod(name, cpu="4", priority=priority) for name, priority in (("low", 0), ("high", 9))
    ]
    (only,) = planned(rebalance(*FULL, *HALF, *waiting, goals=(Goal.MAKE_ROOM,)))
    assert [each.name for step in only.plan.steps for each in step.fits] == ["high"]
