"""Plans for pods with volumes, devices, rules or other profiles."""

from typing import Any

import pytest

from device_builders import (
    allocated,
    device_claim,
    device_class,
    request,
    resource_slice,
)
from devices.objects import gpu_node, share_pod
from engines import Marked
from mooring.groups.search.search_budget import SearchBudget
from mooring.model.pod import Pod
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.plan import Move, Step
from mooring.rebalancing.planner import in_final_order
from mooring.testing.builders import node, pdb, pod, pod_group, uid_of
from replanning import Replanning, moves, owned
from storage_builders import pv, pvc

ON_SSD = {"disk": "ssd"}
BOTH = {"goals": ["Violations", "Spread"]}
ALL_GOALS = {"goals": ["Violations", "MakeRoom", "Pack"]}
GPU_SHARE = {"multiPoint": {"enabled": [{"name": "GPUShare"}]}}
OWNER = {"kind": "ReplicaSet", "name": "web", "uid": "rs"}
WHOLE = {"pods": {"groups": "Whole", "owners": ["Job"]}}
GANGS = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}


def test_a_pod_whose_volume_is_on_its_node_is_never_moved() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        node("c", cpu="4"),
        pv("local", nodes=("a",), claim="default/data"),
        pvc("data", volume="local"),
        owned("db", cpu="1", node="a", claims=["data"]),
        owned("full", cpu="3", node="a"),
        owned("web", cpu="1", node="b"),
        waiting=[pod("big", cpu="4")],
        rebalancing=BOTH | {"minimumGain": 1},
    )
    assert "db" not in {name for name, _, _ in moves(replanning.plan())}


def test_a_pod_with_a_card_is_moved_to_a_card_that_is_free_in_every_later_step() -> None:
    shares = [
        share_pod(f"s{n}", 6, node="old", card=n % 2, node_selector=ON_SSD, owner=OWNER)
        for n in range(2)
    ]
    replanning = Replanning(
        gpu_node("old", 2, 10),
        gpu_node("new", 1, 10, labels=ON_SSD),
        *shares,
        plugins=GPU_SHARE,
        rebalancing={"goals": ["Violations"]},
    )
    plan = replanning.plan()
    assert len(plan.moves) == 1
    assert plan.refused == {"fits on no other node": 1}


def test_a_claim_is_allocated_anew_where_its_pod_may_run_and_nothing_is_left_of_the_trial() -> None:
    held = allocated("g0", node="a")
    claim = device_claim("mine", request(), allocation=held, reserved_for=["web"])
    objects = [
        node("a"),
        node("b", labels=ON_SSD),
        device_class(),
        resource_slice("on-a", ["g0"], node="a"),
        resource_slice("on-b", ["g1"], node="b"),
        claim,
        owned(
            "web",
            kind="StatefulSet",
            node="a",
            node_selector=ON_SSD,
            spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]},
        ),
    ]
    replanning = Replanning(*objects)
    plan = replanning.plan()
    assert moves(plan) == [("web", "a", "b")]
    assert replanning.plan() == plan


def test_a_plan_has_the_devices_of_all_moves_before_it() -> None:
    """The trial reserves devices for each move."""
    objects = [device_class()]
    for number in range(10):
        claim, name, old, new = f"c{number}", f"web-{number}", f"a{number}", f"b{number}"
        objects += [
            node(old),
            node(new, labels=ON_SSD),
            resource_slice(f"on-{old}", ["d0", "d1"], node=old),
            resource_slice(f"on-{new}", ["d0", "d1"], node=new),
            device_claim(
                claim,
                request(count=1 + number % 2),
                allocation=allocated("d0", node=old),
                reserved_for=[name],
            ),
            owned(
                name,
                kind="StatefulSet",
                node=old,
                node_selector=ON_SSD,
                spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]},
            ),
        ]
    replanning = Replanning(*objects, most_per_attempt=20_000)
    assert len(replanning.plan(budget=SearchBudget(1_000)).moves) == 10


def test_what_is_kept_for_a_nominated_pod_is_not_taken() -> None:
    replanning = Replanning(
        node("a"),
        node("b", cpu="2", labels=ON_SSD),
        owned("web", cpu="1", node="a", node_selector=ON_SSD),
    )
    replanning.nominate(pod("first", cpu="2", priority=9), "b")
    plan = replanning.plan()
    assert (plan.steps, plan.refused) == ((), {"fits on no other node": 1})


def test_a_pod_is_no_violation_where_only_a_nominated_pod_keeps_it_out() -> None:
    replanning = Replanning(node("a", cpu="2"), node("b"), owned("web", cpu="1", node="a"))
    replanning.nominate(pod("first", cpu="2", priority=9), "a")
    assert replanning.plan().steps == ()


def test_pods_of_other_profiles_are_counted_and_not_moved() -> None:
    replanning = Replanning(
        node("a"),
        node("b", labels=ON_SSD),
        owned("mine", node="a", node_selector=ON_SSD),
        owned("other", node="a", node_selector=ON_SSD, spec={"schedulerName": "other"}),
    )
    plan = replanning.plan()
    assert moves(plan) == [("mine", "a", "b")]
    assert plan.pods == 1


def test_a_profile_in_mode_shadow_plans_for_the_pods_that_it_would_take() -> None:
    replanning = Replanning(
        node("a"),
        node("b", labels=ON_SSD),
        owned("web", node="a", node_selector=ON_SSD),
        mode="Shadow",
    )
    assert moves(replanning.plan()) == [("web", "a", "b")]


def test_members_of_groups_are_counted_and_stay() -> None:
    replanning = Replanning(
        node("a"),
        node("b", labels=ON_SSD),
        owned("m", node="a", node_selector=ON_SSD, group="train"),
        rebalancing=ALL_GOALS,
    )
    plan = replanning.plan()
    assert (plan.steps, plan.refused) == ((), {"is a member of a pod group": 1})


def test_moves_of_one_budget_follow_one_another() -> None:
    replanning = Replanning(
        node("a"),
        node("b", labels=ON_SSD),
        pdb("web", {"app": "web"}, allowed=1),
        *(owned(f"w{n}", labels={"app": "web"}, node="a", node_selector=ON_SSD) for n in range(3)),
    )
    assert len(replanning.plan().moves) == 3


def test_a_plan_that_costs_too_much_goes_on_where_it_ended() -> None:
    objects = [
        node("a"),
        node("b", labels=ON_SSD),
        *(
            owned(f"w{n}", owner=f"o{n}", cpu=f"{n + 1}m", node="a", node_selector=ON_SSD)
            for n in range(40)
        ),
    ]
    replanning, position, moved = Replanning(*objects), 0, set[str]()
    for _ in range(40):
        plan = replanning.plan(budget=SearchBudget(12), position=position)
        assert (plan.examined or 0) < plan.pods
        assert plan.spent
        replanning.carry_out(plan)
        position = plan.position
        moved |= {move.pod.uid for move in plan.moves}
    assert len(moved) == 40


def test_a_plugin_that_fails_for_a_pod_keeps_no_other_from_moving() -> None:
    bad = owned("bad", node="a", labels={"does": "break"}, node_selector=ON_SSD)
    replanning = Replanning(
        node("a"),
        node("b", labels=ON_SSD),
        bad,
        owned("good", node="a", node_selector=ON_SSD),
        extra=(Marked,),
        plugins={"multiPoint": {"enabled": [{"name": "Marked"}]}},
    )
    plan = replanning.plan()
    assert moves(plan) == [("good", "a", "b")]
    assert plan.refused == {"is one that a plugin fails for": 1}


def test_steps_that_gain_most_per_move_come_first() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4", labels=ON_SSD),
        node("c", cpu="4"),
        owned("web", cpu="1", node="a", node_selector=ON_SSD),
        *(owned(f"c{n}", cpu="500m", node="c", labels={"app": "c"}) for n in range(2)),
        rebalancing=ALL_GOALS,
    )
    plan = replanning.plan()
    gains = [step.gain_per_move for step in plan.steps]
    assert gains == sorted(gains, reverse=True)
    assert {step.goal for step in plan.steps} == {Goal.VIOLATIONS, Goal.PACK}


@pytest.mark.parametrize("goals", [["Violations"], ["Spread"], ["Violations", "Spread"]])
def test_each_pod_that_was_looked_at_is_counted_once(goals: list[str]) -> None:
    replanning = Replanning(
        node("a"),
        node("b", labels=ON_SSD),
        owned("own", kind="DaemonSet", node="a"),
        owned("m", node="a", group="train"),
        *(owned(f"w{n}", node="a", node_selector=ON_SSD) for n in range(6)),
        rebalancing={"goals": goals, "pods": {"groups": "Whole"}},
    )
    plan = replanning.plan()
    assert (plan.pods, plan.examined, plan.spent) == (8, 8, False)


@pytest.mark.parametrize("goal", ["Pack", "MakeRoom"])
def test_a_plan_that_compares_no_pods_counts_none_and_says_if_its_decisions_were_spent(
    goal: str,
) -> None:
    replanning = Replanning(
        *(node(f"n{n}", cpu="4") for n in range(6)),
        *(owned(f"w{n}", cpu="1500m", node=f"n{n}") for n in range(6)),
        waiting=[pod("big", cpu="4")],
        rebalancing={"goals": [goal]},
    )
    whole = replanning.plan()
    assert (whole.examined, whole.spent, bool(whole.steps)) == (None, False, True)
    little = replanning.plan(budget=SearchBudget(0))
    assert (little.examined, little.spent) == (None, True)


def test_a_plan_that_is_as_long_as_it_may_be_has_not_spent_its_decisions() -> None:
    replanning = Replanning(
        node("a"),
        node("b", labels=ON_SSD),
        *(owned(f"w{n}", node="a", node_selector=ON_SSD) for n in range(6)),
        rebalancing={"goals": ["Violations"], "limits": {"movesPerPlan": 1}},
    )
    plan = replanning.plan()
    assert (len(plan.moves), plan.spent) == (1, False)


def test_a_plan_of_a_profile_without_pods_says_so() -> None:
    plan = Replanning(node("a")).plan()
    assert (plan.steps, plan.message) == ((), "no running pod is of this profile")


def test_a_plan_can_be_made_of_nothing() -> None:
    assert Replanning().plan().steps == ()
    waits = Replanning(waiting=[pod("big")], rebalancing=ALL_GOALS)
    assert waits.plan().steps == ()


def pod_of(replanning: Replanning, name: str) -> Pod:
    placed = replanning.cluster.pod(uid_of(name))
    assert placed is not None
    return placed.pod


def replayed(replanning: Replanning, *steps: tuple[str, str, str, int]) -> list[str]:
    """Return the pods of the remaining steps in order; `steps` are moves with their gains."""
    planning = replanning.planning()
    for name, source, target, gain in steps:
        moved = pod_of(replanning, name)
        planning.steps.append(Step(Goal.PACK, (Move(moved, source, target),), "because", gain))
    with planning.undone():
        return [step.moves[0].pod.name for step in in_final_order(planning)]


def three_nodes() -> Replanning:
    return Replanning(
        *(node(name, cpu="2") for name in "abc"),
        owned("a-1", cpu="2", node="a"),
        owned("b-1", cpu="2", node="b"),
    )


def test_steps_that_gain_most_come_first_if_that_is_possible() -> None:
    replanning = Replanning(*(node(n) for n in "abc"), *(owned(f"w{n}", node="a") for n in "xy"))
    steps = ("wx", "a", "b", 1), ("wy", "a", "c", 2)
    assert replayed(replanning, *steps) == ["wy", "wx"]


def test_steps_that_need_one_another_keep_their_order() -> None:
    steps = ("a-1", "a", "c", 1), ("b-1", "b", "a", 2)
    assert replayed(three_nodes(), *steps) == ["a-1", "b-1"]


def test_what_is_possible_in_no_order_is_left_out() -> None:
    replanning = three_nodes()
    assert replayed(replanning, ("a-1", "a", "b", 1), ("b-1", "b", "c", 2)) == ["b-1", "a-1"]
    assert replayed(replanning, ("a-1", "a", "b", 1)) == []
    assert replayed(replanning, ("a-1", "b", "c", 1)) == []


def member(number: int, **fields: Any) -> dict[str, Any]:
    """Return a member of a group of three; each needs half of a node with an SSD."""
    given = {"cpu": "2", "node_selector": ON_SSD, "group": "train", "labels": {"app": "train"}}
    return owned(f"m{number}", owner="train", kind="Job", **given | fields)


def replanning(*objects: dict[str, Any], section: dict[str, Any] | None = None) -> Replanning:
    """Return a cluster in which one of three members is on a node without an SSD."""
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
