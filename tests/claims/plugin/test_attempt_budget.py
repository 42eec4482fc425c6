import pytest

from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.attempt_budget import Budget
from mooring.framework.evaluations import Evaluations
from mooring.framework.plugin_failures import PluginFailed


def test_a_node_may_take_so_many_steps_and_the_next_one_as_many_again() -> None:
    budget = Budget(steps=250, steps_on_node=100)
    for _ in range(2):
        budget.begin_node()
        budget.spend(100)
    budget.begin_node()
    budget.spend(50)
    with pytest.raises(AllocationError, match="takes too many steps") as caught:
        budget.spend(1)
    assert caught.value.on_node


def test_each_node_has_a_few_steps_when_those_of_all_nodes_are_used_up() -> None:
    budget = Budget(steps=100, steps_on_node=100, least_on_node=10)
    budget.begin_node()
    budget.spend(100)
    budget.begin_node()
    budget.spend(10)
    with pytest.raises(AllocationError, match="takes too many steps"):
        budget.spend(1)


def test_steps_and_other_work_are_charged_to_the_attempt() -> None:
    evaluations = Evaluations(1_000)
    for steps, units in ((25, 0), (0, 1_000), (10, 600)):
        evaluations.begin_attempt()
        budget = Budget(evaluations=evaluations)
        budget.begin_node()
        budget.pause()
        budget.spend(steps)
        budget.work(units)
        with pytest.raises(PluginFailed, match="searching for devices"):
            budget.pause()


def test_nothing_ends_where_nothing_waits_for_an_attempt() -> None:
    for budget in (Budget(), Budget(evaluations=Evaluations())):
        budget.work(10**12)
        budget.pause()
