"""Plans for a group: made again until one can be committed."""

from typing import Any

from deciding import Deciding
from mooring.engine.assumed import PodRejected
from mooring.engine.groups.decision import GroupDecision
from mooring.engine.groups.plan import GroupPlan, GroupPlanner, reserve_members
from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod, pod_group
from mooring.testing.storage_builders import pv, pvc, storage_class

Raw = dict[str, Any]


def planner_for(deciding: Deciding, *raws: Raw) -> GroupPlanner:
    """Return the planner of one attempt about the group of these pods."""
    pods = [parse_pod(raw) for raw in raws]
    for member in pods:
        deciding.state.put_unscheduled(member)
    group = deciding.state.pod_groups.of(pods[0])
    assert group is not None
    return GroupPlanner(group, pods, deciding.pipeline, deciding.cluster, deciding.shared, seed=0)


def planner_of_two() -> GroupPlanner:
    """Return the planner of one attempt about a group of two that fit."""
    raws = (pod(f"g-{i}", group="g") for i in range(2))
    return planner_for(Deciding(node("a"), pod_group("g", 2)), *raws)


def test_a_plan_that_is_made_again_has_what_is_left_of_the_budget() -> None:
    planner, left = planner_of_two(), list[int]()
    for _ in range(3):
        plan = planner.plan()
        assert isinstance(plan, GroupPlan)
        assert plan.decision.rows
        left.append(planner.budget.remaining)
        planner.rejected(PodRejected("Limits", "no", "b", plan.members[0]))
    assert left[0] > left[1] > left[2]


def test_a_group_is_planned_eight_times_at_most() -> None:
    planner = planner_of_two()
    for _ in range(8):
        plan = planner.plan()
        assert isinstance(plan, GroupPlan)
        planner.rejected(PodRejected("Limits", "no", "b", plan.members[0]))
    assert isinstance(planner.plan(), GroupDecision)


def test_a_node_that_rejects_a_member_may_go_before_the_group_is_planned_again() -> None:
    deciding = Deciding(node("small", cpu="1"), node("large"), pod_group("g", 1))
    raw = pod("m", cpu="2", group="g")
    planner = planner_for(deciding, raw)
    assert isinstance(planner.plan(), GroupPlan)
    planner.rejected(PodRejected("Limits", "no", "large", parse_pod(raw)))
    deciding.state.delete(Kind.NODE, "large")
    decision = planner.plan()
    assert isinstance(decision, GroupDecision)
    assert not decision.rows
    assert decision.message == "member default/m: 0/1 nodes are available: 1 no."


def test_members_with_local_volumes_are_reserved_by_the_first_plan() -> None:
    """All prefer the largest node; each plan that fails would tell of one member and node."""
    nodes = [node(f"n{i}", cpu=str(64 - i)) for i in range(6)]
    volumes = [pv(f"v{i}", nodes=(f"n{i}",), storage_class="static") for i in range(6)]
    claims = [pvc(f"data-{i}", storage_class="static") for i in range(6)]
    deciding = Deciding(*nodes, storage_class("static"), *volumes, *claims, pod_group("g", 6))
    raws = (pod(f"m{i}", group="g", cpu="10m", claims=[f"data-{i}"]) for i in range(6))
    plan = planner_for(deciding, *raws).plan()
    assert isinstance(plan, GroupPlan)
    reserved = reserve_members(plan, deciding.pipeline, deciding.state)
    assert len({name for _, name, _ in reserved}) == 6
