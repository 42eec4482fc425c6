"""A search budget counts the steps that are spent."""

from mooring.groups.search.search_budget import SearchBudget


def test_a_budget_is_spent_when_more_steps_were_taken_than_allowed() -> None:
    budget = SearchBudget(2)
    budget.spend(2)
    assert not budget.spent
    budget.spend(1)
    assert budget.spent
