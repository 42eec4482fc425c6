"""Plans for a group: made again until one can be committed, and checked after pauses."""

from typing import Any

import pytest

from deciding import Deciding
from engine.groups.test_placement import pausing, search_for
from mooring.engine.assumed import PodRejected
from mooring.engine.groups.decision import GroupDecision
from mooring.engine.groups.placement import DecisionOutdated
from mooring.engine.groups.plan import GroupPlan, GroupPlanner
from mooring.engine.groups.slices import run_whole
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.testing.builders import node, pod, pod_group

Raw = dict[str, Any]


def planner_for(deciding: Deciding, *raws: Raw) -> GroupPlanner:
    """The planner of one attempt about the group of these pods."""
    pods = [parse_pod(raw) for raw in raws]
    for member in pods:
        deciding.state.put_unscheduled(member)
    group = deciding.state.pod_groups.of(pods[0])
    assert group is not None
    about = (group, pods, deciding.pipeline, deciding.cluster, deciding.shared)
    return GroupPlanner(*about, seed=0)


def planner_of_two() -> GroupPlanner:
    """The planner of one attempt about a group of two that fit."""
    raws = (pod(f"g-{i}", group="g") for i in range(2))
    return planner_for(Deciding(node("a"), pod_group("g", 2)), *raws)


def test_a_plan_that_is_made_again_has_what_is_left_of_the_budget_and_knows_the_pauses() -> None:
    planner, left = planner_of_two(), list[int]()
    for pauses in range(3):
        plan = run_whole(planner.plan())
        assert isinstance(plan, GroupPlan)
        assert plan.decision.rows
        assert plan.budget.pauses == pauses
        left.append(plan.budget.left)
        plan.budget.resumed()
        planner.failed(DecisionOutdated())
    assert left[0] > left[1] > left[2]


def test_no_plan_is_made_again_once_the_budget_is_spent() -> None:
    planner = planner_of_two()
    assert isinstance(run_whole(planner.plan()), GroupPlan)
    planner.budget.spend(planner.budget.left + 1)
    planner.failed(DecisionOutdated())
    decision = run_whole(planner.plan())
    assert isinstance(decision, GroupDecision)
    assert decision.message == "the cluster changed each time while nodes were searched for"
    assert not decision.rows


def test_a_group_is_planned_eight_times_at_most() -> None:
    planner = planner_of_two()
    for _ in range(8):
        assert isinstance(run_whole(planner.plan()), GroupPlan)
        planner.failed(DecisionOutdated())
    assert isinstance(run_whole(planner.plan()), GroupDecision)


def test_a_node_that_rejects_a_member_may_go_before_the_group_is_planned_again() -> None:
    deciding = Deciding(node("small", cpu="1"), node("large"), pod_group("g", 1))
    raw = pod("m", cpu="2", group="g")
    planner = planner_for(deciding, raw)
    assert isinstance(run_whole(planner.plan()), GroupPlan)
    planner.failed(PodRejected("Limits", "no", "large", parse_pod(raw)))
    deciding.state.delete(Kind.NODE, "large")
    decision = run_whole(planner.plan())
    assert isinstance(decision, GroupDecision)
    assert not decision.rows
    assert decision.message == "member default/m: 0/1 nodes are available: 1 no."


def planned(deciding: Deciding, members: list[Raw]) -> tuple[GroupPlan, list[Pod]]:
    """The plan that was made for these members before a pause."""
    budget = pausing()
    plan = GroupPlan(GroupDecision({}), search_for(deciding, members, budget=budget))
    budget.resumed()
    return plan, [parse_pod(raw) for raw in members]


def test_members_that_are_counted_are_checked_beside_those_before_them() -> None:
    deciding = Deciding(node("a", cpu="2"))
    plan, pods = planned(deciding, [pod(f"m{i}", cpu="1") for i in range(3)])
    row = deciding.state.nodes.row_of["a"]
    fits = []
    for member in pods:
        fits.append(plan.still_fits(member, row))
        if fits[-1]:
            deciding.state.assume(member, row)
    assert fits == [True, True, False]


def test_a_member_with_a_port_is_checked_against_the_pods_of_now() -> None:
    deciding = Deciding(node("a"), node("b"))
    plan, pods = planned(deciding, [pod(f"m{i}", ports=(80,)) for i in range(2)])
    deciding.place(pod("other", ports=(80,)), "a")
    rows = deciding.state.nodes.row_of
    assert [plan.still_fits(pods[0], rows["a"]), plan.still_fits(pods[1], rows["b"])] == [
        False,
        True,
    ]


@pytest.mark.parametrize("ports", [(), (80,)])
def test_what_another_pod_is_nominated_to_is_not_free_but_what_a_member_is(
    ports: tuple[int, ...],
) -> None:
    deciding = Deciding(node("a", cpu="1"), node("b", cpu="1"))
    raws = [pod(f"m{i}", cpu="1", ports=ports) for i in range(2)]
    deciding.nominate(raws[1], "a")
    deciding.nominate(pod("other", cpu="1"), "b")
    plan, pods = planned(deciding, raws)
    rows = deciding.state.nodes.row_of
    assert [plan.still_fits(pods[0], rows["a"]), plan.still_fits(pods[1], rows["b"])] == [
        True,
        False,
    ]


def test_no_member_fits_any_more_when_the_labels_of_a_node_changed() -> None:
    deciding = Deciding(node("a", labels={"rack": "r1"}))
    plan, pods = planned(deciding, [pod("m")])
    raw = node("a", labels={"rack": "r2"})
    deciding.state.put(Kind.NODE, "a", parse_object(Kind.NODE, raw))
    assert not plan.still_fits(pods[0], deciding.state.nodes.row_of["a"])


def test_a_member_that_another_scheduler_bound_does_not_fit_any_more() -> None:
    deciding = Deciding(node("a"), node("b"))
    plan, pods = planned(deciding, [pod("m")])
    deciding.place(pod("m"), "b")
    assert not plan.still_fits(pods[0], deciding.state.nodes.row_of["a"])
