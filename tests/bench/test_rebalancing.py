"""The bench of plans, in clusters of a few nodes."""

from bench.rebalancing import hostile, measure, pack, room, spread, violations


def test_each_case_has_the_plan_that_it_is_about() -> None:
    mended = measure(violations(60))
    assert len(mended.plan.moves) == 100
    assert 0 < mended.longest <= mended.seconds
    assert measure(spread(10)).plan.examined == 300
    assert measure(pack(12)).plan.steps
    assert measure(room(4)).plan.steps == ()


def test_a_plan_among_pods_that_all_differ_ends_with_its_budget() -> None:
    cost = measure(hostile(8), steps=60)
    assert cost.plan.spent
    assert (cost.plan.examined or 0) < cost.plan.pods
