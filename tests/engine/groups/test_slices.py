"""A budget says when to pause, and counts what is spent."""

from mooring.engine.groups.slices import Pausing, SearchBudget, run_whole


def test_a_budget_without_a_clock_never_pauses() -> None:
    budget = SearchBudget()
    assert not budget.pause_due
    assert list(budget.pause()) == []
    assert budget.pauses == 0


def test_a_slice_ends_after_a_time_and_the_next_begins_after_the_pause() -> None:
    now = 0.0
    budget = SearchBudget(clock=lambda: now)
    assert not budget.pause_due
    now = 1.0
    pause = budget.pause()
    next(pause)
    now = 2.0
    assert list(pause) == []
    assert not budget.pause_due
    assert budget.pauses == 1


def test_a_slice_after_an_expensive_pause_lasts_as_long_as_the_pause_cost() -> None:
    now = 0.0
    budget = SearchBudget(clock=lambda: now)
    budget.resumed(2.0)
    now = 1.9
    assert not budget.pause_due
    now = 2.0
    assert budget.pause_due


def test_a_budget_is_spent_when_more_steps_were_taken_than_allowed() -> None:
    budget = SearchBudget(2)
    budget.spend(2)
    assert not budget.spent
    budget.spend(1)
    assert budget.spent


def test_work_that_is_run_whole_returns_its_result() -> None:
    def work() -> Pausing[int]:
        yield
        yield
        return 3

    assert run_whole(work()) == 3
