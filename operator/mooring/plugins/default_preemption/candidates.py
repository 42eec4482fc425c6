"""The victims on one node, and the choice among candidate nodes.

See SelectVictimsOnNode in framework/plugins/defaultpreemption/default_preemption.go, and
pickOneNodeForPreemption in framework/preemption/preemption.go.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, NamedTuple, TypeVar

from mooring.model.pod import Pod
from mooring.state.evictions import Evictions

__all__ = [
    "Candidate",
    "SplitVictims",
    "by_importance",
    "select_candidate",
    "select_victims",
    "split_by_budgets",
    "started",
]

_Victim = TypeVar("_Victim")

_PRIORITY_OFFSET = 2**31
"""Makes every priority positive, so that a sum grows with the number of victims."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A node's row where the pod would fit without the victims, most important first.

    `violations` is the number of victims whose eviction violates a disruption budget. `evicting`
    are pods of lower priority on the row that this scheduler is evicting already. They cost nothing
    more, so that the resources they free are used before another pod is evicted. `matches` is how
    often a disruption budget was looked at to find the victims.
    """

    row: int
    victims: tuple[Pod, ...]
    violations: int = 0
    evicting: tuple[Pod, ...] = ()
    matches: int = 0

    @property
    def all_victims(self) -> tuple[Pod, ...]:
        """The victims and the pods being evicted already, most important first."""
        return tuple(by_importance((*self.victims, *self.evicting)))

    @property
    def cost(self) -> tuple[int, int, int, int, float]:
        """kube-scheduler's criteria in its order; smaller is better (pickOneNodeForPreemption)."""
        if not self.victims:
            return (self.violations, -_PRIORITY_OFFSET, 0, 0, 0.0)
        highest = self.victims[0].spec.priority
        earliest = min(started(v) for v in self.victims if v.spec.priority == highest)
        total = sum(v.spec.priority + _PRIORITY_OFFSET for v in self.victims)
        return (self.violations, highest, total, len(self.victims), -earliest)


class SplitVictims(NamedTuple, Generic[_Victim]):
    """Victims by whether their eviction violates a budget, and how often a budget matched one."""

    violating: list[_Victim]
    others: list[_Victim]
    matches: int


def by_importance(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods by priority, highest first, then earliest start first (MoreImportantPod)."""
    return sorted(pods, key=lambda pod: (-pod.spec.priority, started(pod)))


def select_victims(
    row: int, potential: Iterable[Pod], reprieve: Callable[[Pod], bool], evictions: Evictions
) -> Candidate:
    """Reprieve as many of the row's potential victims as possible; the others are its victims.

    All potential victims have been removed from the row before. `reprieve` adds one back, and
    returns False and removes it again if the pod does not fit beside it. Pods whose eviction
    violates a disruption budget are reprieved first, then the others, the most important first.
    Pods that are being evicted already are not reprieved.
    """
    evicting: list[Pod] = []
    staying: list[Pod] = []
    for pod in potential:
        (evicting if evictions.evicting(pod) else staying).append(pod)
    split = split_by_budgets(by_importance(staying), lambda pod: (pod,), evictions)
    violating_victims = [pod for pod in split.violating if not reprieve(pod)]
    victims = [pod for pod in split.others if not reprieve(pod)]
    return Candidate(
        row,
        tuple(by_importance((*violating_victims, *victims))),
        len(violating_victims),
        tuple(evicting),
        split.matches,
    )


def select_candidate(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate that costs least, the first of equals."""
    return min(candidates, key=lambda candidate: candidate.cost)


def split_by_budgets(
    victims: Iterable[_Victim],
    pods_of: Callable[[_Victim], Iterable[Pod]],
    evictions: Evictions,
) -> SplitVictims[_Victim]:
    """Split victims into those whose eviction, in this order, violates a budget, and others."""
    disruptions: Counter[str] = Counter()
    violating: list[_Victim] = []
    others: list[_Victim] = []
    for victim in victims:
        violates = False
        for pod in pods_of(victim):
            for budget in evictions.matching_budgets(pod):
                disruptions[budget.key] += 1
                violates |= disruptions[budget.key] > evictions.disruptions_allowed(budget)
        (violating if violates else others).append(victim)
    return SplitVictims(violating, others, disruptions.total())


def started(pod: Pod) -> float:
    """Return when the pod started, in seconds since the epoch; infinity if it has not."""
    return inf if pod.started is None else pod.started
