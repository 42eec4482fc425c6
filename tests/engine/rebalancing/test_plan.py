"""What a plan says of its steps and moves."""

from mooring.engine.rebalancing.plan import Move, Plan, Step
from mooring.model.pod import parse_pod
from mooring.policy.rebalancing import Goal
from mooring.testing.builders import pod


def test_a_plan_has_the_moves_of_its_steps_in_order_and_each_its_gain_per_move() -> None:
    first, second, third = (Move(parse_pod(pod(name)), "a", "b") for name in ("x", "y", "z"))
    pair = Step(Goal.PACK, (first, second), "node a is empty", 1_000, emptied=("a",))
    single = Step(Goal.SPREAD, (third,), "the score is higher", 30)
    plan = Plan((pair, single))
    assert plan.moves == (first, second, third)
    assert [step.gain_per_move for step in plan.steps] == [500.0, 30.0]


def test_a_plan_of_nothing_says_nothing() -> None:
    plan = Plan(())
    assert (plan.moves, plan.message, plan.refused, plan.position) == ((), "", {}, 0)
