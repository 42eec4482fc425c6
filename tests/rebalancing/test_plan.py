"""The properties of plans, steps and moves."""

from mooring.model.pod import parse_pod
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.plan import Move, Plan, Step, about
from mooring.testing.builders import pod
from rebalancing_stage import running


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


def test_a_text_about_pods_names_none_to_who_may_not_get_them() -> None:
    pods = parse_pod(running("web-1", "a")), parse_pod(running("web-2", "b"))
    text = about("{}, the replacement of {}, has gone", *pods)
    assert text.text == "pod default/web-1, the replacement of pod default/web-2, has gone"
    assert text.otherwise == "a pod, the replacement of a pod, has gone"
    assert [each.key for each in text.pods] == ["default/web-1", "default/web-2"]
