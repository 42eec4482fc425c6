"""Groups that are moved whole or not at all."""

from typing import Any

from mooring.policy.rebalancing import Goal
from mooring.testing.builders import node, pdb, pod, pod_group
from replanning import Replanning, moves, owned

ON_SSD = {"disk": "ssd"}
WHOLE = {"pods": {"groups": "Whole", "owners": ["Job"]}}
GANGS = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}


def member(number: int, **fields: Any) -> dict[str, Any]:
    """Return a member of a group of three, of which each needs half a node with an SSD."""
    given = {"cpu": "2", "node_selector": ON_SSD, "group": "train", "labels": {"app": "train"}}
    return owned(f"m{number}", owner="train", kind="Job", **given | fields)


def replanning(*objects: dict[str, Any], section: dict[str, Any] | None = None) -> Replanning:
    """Return a cluster where one of three members is on a node that has lost its SSD."""
    return Replanning(
        node("lost", cpu="4"),
        *(node(f"n{n}", cpu="4", labels=ON_SSD) for n in range(3)),
        pod_group("train", 3),
        member(0, node="lost"),
        member(1, node="n0"),
        member(2, node="n1"),
        *objects,
        rebalancing=WHOLE if section is None else section,
        plugins=GANGS,
    )


def test_all_members_move_together_if_the_node_of_one_rejects_it() -> None:
    stage = replanning()
    plan = stage.plan()
    (step,) = plan.steps
    assert (step.goal, step.group, step.gain) == (Goal.VIOLATIONS, "default/train", 1_000)
    assert [name for name, _, _ in moves(plan)] == ["m0", "m1", "m2"]
    assert "lost" not in {move.target for move in plan.moves}
    stage.carry_out(plan)
    assert stage.plan().steps == ()


def test_a_group_stays_unless_groups_may_be_moved() -> None:
    plan = replanning(section={"pods": {"owners": ["Job"]}}).plan()
    assert (plan.steps, plan.refused) == ((), {"is a member of a pod group": 1})


def test_a_group_stays_if_one_of_its_members_may_not_move() -> None:
    plan = replanning(pdb("b", {"app": "train"}, allowed=2)).plan()
    why = "is in a group whose disruption budgets do not allow to evict all members"
    assert plan.steps == ()
    assert why in plan.refused
    assert len(replanning(pdb("b", {"app": "train"}, allowed=3)).plan().moves) == 3


def test_a_group_stays_if_not_all_its_members_fit_elsewhere() -> None:
    full = [pod(f"full-{n}", cpu="2", node=f"n{n}") for n in range(2)]
    plan = replanning(*full, pod("full", cpu="3", node="n2")).plan()
    assert plan.steps == ()
    assert "fits on no other node" in plan.refused


def test_a_group_of_which_a_member_waits_stays() -> None:
    plan = replanning(member(3)).plan()
    assert plan.steps == ()
    assert "is in a group of which not all members are on nodes" in plan.refused


def test_a_group_is_not_moved_beyond_the_length_of_a_plan() -> None:
    section = WHOLE | {"limits": {"movesPerPlan": 2}}
    assert replanning(section=section).plan().steps == ()
