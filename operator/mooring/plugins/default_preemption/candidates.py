"""Selects the victims on one node, and chooses among candidate nodes.

See SelectVictimsOnNode in framework/plugins/defaultpreemption/default_preemption.go, and
pickOneNodeForPreemption in framework/preemption/preemption.go.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from mooring.model.pod import Pod
from mooring.model.workloads import PodDisruptionBudget
from mooring.plugins.default_preemption.victims import (
    PRIORITY_OFFSET,
    Victim,
    WholeGroup,
    by_importance,
    cost_of,
    pods_of,
)
from mooring.state.evictions import Evictions

_Victim = TypeVar("_Victim")
BudgetsOf: TypeAlias = Callable[[_Victim], Iterable[tuple[Sequence[PodDisruptionBudget], int]]]
"""A function that returns the disruption budgets of a victim. Each item has a set of budgets, and
the number of the victim's pods that are matched by all budgets of the set and by no others."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A node on which the pod fits after the eviction of its victims.

    Attributes:
        victims: The pods and groups to evict, the most important first.
        violations: The number of evictions that violate a disruption budget.
        evicting: Other pods on the node that this scheduler is already evicting.
    """

    row: int
    victims: tuple[Victim, ...]
    violations: int = 0
    evicting: tuple[Pod, ...] = ()

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods of all victims; a group's pods may be on other nodes."""
        return tuple(pod for victim in self.victims for pod in pods_of(victim))

    @property
    def all_pods(self) -> tuple[Pod, ...]:
        """The victims' pods and the pods in `evicting`, the most important pod first."""
        return tuple(by_importance((*self.pods, *self.evicting)))

    @property
    def cost(self) -> tuple[int, int, int, int, float]:
        """The criteria of pickOneNodeForPreemption in kube-scheduler's order; smaller is better."""
        if not self.victims:
            return (self.violations, -PRIORITY_OFFSET, 0, 0, 0.0)
        cost = cost_of(self.victims)
        return (self.violations, cost.highest, cost.total, cost.number, -cost.earliest)


class SplitVictims(NamedTuple, Generic[_Victim]):
    """The victims whose eviction violates a disruption budget, and the other victims.

    `violating` has, by victim, the number of its pods whose eviction violates a budget.
    """

    violating: dict[_Victim, int]
    others: list[_Victim]


def select_victims(
    row: int,
    potential: Iterable[Victim],
    reprieve: Callable[[Victim], bool],
    evictions: Evictions,
    budgets_of: BudgetsOf[Victim] | None = None,
    *,
    members_first: bool = False,
    strict: bool = False,
) -> Candidate:
    """Return a candidate: the node of this row, with as few victims as possible.

    The caller has removed all `potential` victims from the node.

    Args:
        row: The row of the node.
        potential: The pods and groups that may be evicted.
        reprieve: Adds a victim back if the pod to schedule still fits; returns whether it fits.
        evictions: The evictions of this scheduler, and the disruption budgets.
        budgets_of: Returns the budgets of a victim's pods; by default, they come from `evictions`.
        members_first: See `by_importance`.
        strict: See `split_by_budgets`.
    """
    evicting: list[Pod] = []
    staying: list[Victim] = []
    for victim in potential:
        if not isinstance(victim, WholeGroup) and evictions.evicting(victim):
            evicting.append(victim)
        else:
            staying.append(victim)
    budgets_of = budgets_of or (lambda victim: evictions.budgets_of_many(pods_of(victim)))
    ordered = by_importance(staying, members_first=members_first)
    split = split_by_budgets(ordered, budgets_of, evictions, strict=strict)
    # Victims whose eviction violates a budget are added back first.
    violating = [victim for victim in split.violating if not reprieve(victim)]
    victims = [victim for victim in split.others if not reprieve(victim)]
    return Candidate(
        row,
        tuple(by_importance((*violating, *victims))),
        sum(split.violating[victim] for victim in violating),
        tuple(evicting),
    )


def select_candidate(candidates: Sequence[Candidate]) -> Candidate:
    """Return the first candidate with the lowest cost."""
    return min(candidates, key=lambda candidate: candidate.cost)


def split_by_budgets(
    victims: Iterable[_Victim],
    budgets_of: BudgetsOf[_Victim],
    evictions: Evictions,
    *,
    strict: bool = False,
) -> SplitVictims[_Victim]:
    """Separate the victims whose eviction violates a disruption budget from the others.

    With `strict`, the eviction of a pod with several budgets is always a violation, because the
    Eviction API never evicts such a pod.
    """
    disruptions: Counter[str] = Counter()
    violating: dict[_Victim, int] = {}
    others: list[_Victim] = []
    for victim in victims:
        violations = 0
        for budgets, pods in budgets_of(victim):
            allowed = 0 if strict and len(budgets) > 1 else pods
            for budget in budgets:
                left = evictions.disruptions_allowed(budget) - disruptions[budget.key]
                allowed = min(allowed, max(left, 0))
                disruptions[budget.key] += pods
            violations += pods - allowed
        if violations:
            violating[victim] = violations
        else:
            others.append(victim)
    return SplitVictims(violating, others)
