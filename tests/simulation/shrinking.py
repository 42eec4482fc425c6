"""Finds the shortest history that breaks the same invariant.

It leaves out steps in ever smaller pieces (delta debugging), then reduces the numbers of pods and
the lengths of faults, as long as the same invariant breaks. Runs are cheap, so only their number is
limited.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from simulation.scenario import Scenario, Step
from simulation.world import Outcome, run


def shrunk(outcome: Outcome, most_runs: int = 300) -> Outcome:
    """Return the outcome of the shortest scenario found that breaks the same invariant."""
    budget = _Budget(outcome, most_runs)
    size = len(outcome.scenario.steps) // 2
    while size and budget.left:
        before = len(budget.best.scenario.steps)
        for start in range(0, before, size):
            budget.attempt(_without(budget.best.scenario, start, size))
        if size > 1 or len(budget.best.scenario.steps) == before:
            size //= 2
    if len(budget.best.scenario.replicas) > 1:
        budget.attempt(replace(budget.best.scenario, replicas=outcome.scenario.replicas[:1]))
    for index in range(len(budget.best.scenario.steps)):
        for smaller in _smaller(budget.best.scenario.steps[index]):
            if budget.attempt(_with(budget.best.scenario, index, smaller)):
                break
    return budget.best


class _Budget:
    """The best outcome so far, and the number of remaining runs."""

    def __init__(self, outcome: Outcome, runs: int) -> None:
        self.best = outcome
        self.left = runs
        self._run: Callable[[Scenario], Outcome] = run

    def attempt(self, scenario: Scenario) -> bool:
        """Run a scenario; if it breaks the same invariant, keep it and return True."""
        if not self.left or scenario == self.best.scenario:
            return False
        self.left -= 1
        outcome = self._run(scenario)
        if outcome.rule != self.best.rule:
            return False
        self.best = outcome
        return True


def _without(scenario: Scenario, start: int, count: int) -> Scenario:
    """Return the scenario without `count` steps, from the step at position `start` on."""
    steps = scenario.steps
    return replace(scenario, steps=(*steps[:start], *steps[start + count :]))


def _with(scenario: Scenario, index: int, step: Step) -> Scenario:
    steps: Sequence[Step] = scenario.steps
    return replace(scenario, steps=(*steps[:index], step, *steps[index + 1 :]))


def _smaller(step: Step) -> Iterator[Step]:
    """Yield versions of the step with fewer pods, the smallest first."""
    count = step.args.get("count")
    if isinstance(count, int):
        for fewer in range(1, count):
            yield replace(step, args={**step.args, "count": fewer})
