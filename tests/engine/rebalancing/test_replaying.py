"""The steps of a plan in their final order."""

from mooring.engine.rebalancing.plan import Move, Step
from mooring.engine.rebalancing.replaying import in_order
from mooring.model.pod import Pod
from mooring.policy.rebalancing import Goal
from mooring.testing.builders import node, uid_of
from replanning import Replanning, owned


def pod_of(replanning: Replanning, name: str) -> Pod:
    """Return the running pod of this name."""
    placed = replanning.cluster.pod(uid_of(name))
    assert placed is not None
    return placed.pod


def replayed(replanning: Replanning, *steps: tuple[str, str, str, int]) -> list[str]:
    """Return the pods of the steps that are left, in order; a step is a move and its gain."""
    planning = replanning.planning()
    for name, source, target, gain in steps:
        moved = pod_of(replanning, name)
        planning.steps.append(Step(Goal.PACK, (Move(moved, source, target),), "because", gain))
    with planning.trial.undone():
        return [step.moves[0].pod.name for step in in_order(planning)]


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
