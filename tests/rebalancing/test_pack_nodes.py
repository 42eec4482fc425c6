"""The goal Pack: each node is emptied completely or not at all."""

from mooring.policy.rebalancing import Goal
from mooring.testing.builders import node, pod
from replanning import Replanning, moves, owned

PACK = {"goals": ["Pack"]}


def test_half_empty_nodes_are_emptied_onto_others_that_are_in_use() -> None:
    replanning = Replanning(
        *(node(f"n{n}", cpu="4") for n in range(12)),
        *(owned(f"w{n}-{k}", cpu="1", node=f"n{n}") for n in range(12) for k in range(2)),
        rebalancing=PACK,
    )
    plan = replanning.plan()
    assert len(plan.steps) == 6
    assert all(step.goal is Goal.PACK and len(step.moves) == 2 for step in plan.steps)
    emptied = {name for step in plan.steps for name in step.emptied}
    assert {move.source for move in plan.moves} == emptied
    assert emptied.isdisjoint({move.target for move in plan.moves})
    replanning.carry_out(plan)
    assert replanning.plan().steps == ()


def test_a_node_with_a_pod_that_may_not_move_is_filled_and_not_emptied() -> None:
    replanning = Replanning(
        node("a"),
        node("b"),
        pod("bare", cpu="1", node="a"),
        owned("web", cpu="1", node="b"),
        rebalancing=PACK,
    )
    assert moves(replanning.plan()) == [("web", "b", "a")]


def test_pods_that_belong_to_their_node_do_not_keep_it_from_being_empty() -> None:
    replanning = Replanning(
        *(node(name) for name in "abc"),
        *(owned(f"agent-{n}", owner="agent", kind="DaemonSet", node=n) for n in "abc"),
        owned("web-1", cpu="1", node="a"),
        owned("web-2", cpu="1", node="b"),
        rebalancing=PACK,
    )
    ((_, source, target),) = moves(replanning.plan())
    assert {source, target} == {"a", "b"}


def test_a_node_whose_pods_do_not_all_fit_elsewhere_keeps_them_all() -> None:
    replanning = Replanning(
        node("a", cpu="4"),
        node("b", cpu="4"),
        owned("a-1", cpu="2", node="a"),
        owned("a-2", cpu="2", node="a"),
        owned("b-1", cpu="1500m", node="b"),
        owned("b-2", cpu="1", node="b"),
        rebalancing=PACK,
    )
    assert replanning.plan().steps == ()


def test_a_node_to_which_a_pod_is_nominated_is_not_emptied() -> None:
    pods = (owned(f"{name}-1", cpu="1", node=name) for name in "ab")
    replanning = Replanning(node("a"), node("b"), *pods, rebalancing=PACK)
    assert moves(replanning.plan()) == [("a-1", "a", "b")]
    replanning.nominate(pod("first", cpu="1", priority=9), "a")
    assert moves(replanning.plan()) == [("b-1", "b", "a")]


def test_pods_move_past_a_node_that_can_be_emptied_in_the_end() -> None:
    """Node a is the fullest node that fits the pod of b; later a's own pod fits on c."""
    replanning = Replanning(
        node("a", cpu="2"),
        node("b", cpu="4"),
        node("c", cpu="8"),
        owned("a-1", cpu="1", node="a"),
        owned("b-1", cpu="500m", node="b"),
        *(owned(f"c-{n}", cpu="1", node="c") for n in range(2)),
        rebalancing=PACK,
    )
    plan = replanning.plan()
    assert moves(plan) == [("b-1", "b", "c"), ("a-1", "a", "c")]
    assert [step.emptied for step in plan.steps] == [("b",), ("a",)]
    replanning.carry_out(plan)
    assert replanning.plan().steps == ()


def test_a_node_stays_in_use_if_what_moves_to_it_does_not_fit_beside_its_own_pods() -> None:
    """The pod of a fits on c, but not together with the pod that comes from b."""
    replanning = Replanning(
        node("a", cpu="1500m"),
        node("b", cpu="4"),
        node("c", cpu="3"),
        owned("a-1", cpu="1", node="a"),
        owned("b-1", cpu="500m", node="b"),
        *(owned(f"c-{n}", cpu="900m", node="c") for n in range(2)),
        rebalancing=PACK,
    )
    assert moves(replanning.plan()) == [("b-1", "b", "a")]


def test_a_node_is_not_emptied_in_the_end_if_that_needs_more_moves_than_a_plan_may_have() -> None:
    replanning = Replanning(
        node("a", cpu="2"),
        node("b", cpu="4"),
        node("c", cpu="8"),
        owned("a-1", cpu="1", node="a"),
        owned("b-1", cpu="500m", node="b"),
        *(owned(f"c-{n}", cpu="1", node="c") for n in range(2)),
        rebalancing={**PACK, "limits": {"movesPerPlan": 1}},
    )
    assert moves(replanning.plan()) == [("b-1", "b", "a")]
