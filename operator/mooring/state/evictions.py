"""Evictions under way, and what they leave of every disruption budget.

The disruption controller needs a moment to see that a pod is being deleted. Until then a budget's
status still allows what has been spent already, so every eviction of ours counts against the
budgets that cover its victim until the victim is seen terminating or gone and the budget's status
has been written anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.model.workloads import PodDisruptionBudget
from mooring.state.objects import Objects
from mooring.state.pod_columns import PodColumns
from mooring.state.pods import PodTable

__all__ = ["Evictions"]

_FEW: Final = 64


@dataclass(slots=True, eq=False)
class _Spent:
    victim: Pod
    budget: PodDisruptionBudget
    """As it stood when the eviction began; another object in its place means a new status."""


@dataclass(slots=True, eq=False)
class _Wait:
    preemptor: Pod
    victims: list[Pod]


class Evictions:
    """What budgets allow now, with our own evictions taken off."""

    def __init__(self, objects: Objects, pods: PodTable, columns: PodColumns) -> None:
        self._objects = objects
        self._pods = pods
        self._columns = columns
        self._spent: dict[str, list[_Spent]] = {}
        self._exhausted: dict[str, PodDisruptionBudget] = {}
        self._waits: dict[str, _Wait] = {}
        self._under_way: dict[str, Pod] = {}
        self._kept = _FEW
        """How many of them were left when those gone were last forgotten."""

    def covering(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that a disruption of the pod would be charged to (preemption.go).

        None for a pod that is being evicted already: it is charged.
        """
        if not pod.labels or self.under_way(pod):
            return []
        budgets: Mapping[str, PodDisruptionBudget] = self._objects.of(Kind.POD_DISRUPTION_BUDGET)
        return [
            budget
            for budget in budgets.values()
            if budget.namespace == pod.namespace
            and budget.selector is not None
            and not budget.selector.empty
            and budget.selector.matches(pod.labels)
            and pod.name not in budget.disrupted_pods
        ]

    def allowed(self, budget: PodDisruptionBudget) -> int:
        """How many more disruptions the budget allows."""
        self._settle(budget)
        if budget.key in self._exhausted:
            return 0
        return budget.disruptions_allowed - len(self._spent.get(budget.key, ()))

    def under_way(self, pod: Pod) -> bool:
        """Whether this scheduler is evicting the pod."""
        return pod.uid in self._under_way

    def begun(self, preemptor: Pod, victims: Sequence[Pod]) -> list[Pod]:
        """The preemptor waits for the victims; returns those that nobody is evicting yet."""
        self._waits[preemptor.uid] = _Wait(preemptor, list(victims))
        if len(self._under_way) > 2 * self._kept:
            self._under_way = {u: v for u, v in self._under_way.items() if self._present(v)}
            self._kept = max(len(self._under_way), _FEW)
        new = [v for v in victims if not v.terminating and not self.under_way(v)]
        for victim in new:
            for budget in self.covering(victim):
                self._spent.setdefault(budget.key, []).append(_Spent(victim, budget))
            self._under_way[victim.uid] = victim
            self._columns.mark(victim, evicted=True)
        return new

    def leaving(self, preemptor: Pod) -> bool:
        """Whether a pod that was evicted for this one still holds its place."""
        wait = self._waits.get(preemptor.uid)
        if wait is None:
            return False
        wait.victims = [v for v in wait.victims if self._present(v)]
        if not wait.victims:
            del self._waits[preemptor.uid]
        return bool(wait.victims)

    def forget(self, preemptor: Pod) -> None:
        """Nobody asks for this preemptor's victims any more."""
        self._waits.pop(preemptor.uid, None)

    def failed(self, victim: Pod) -> list[Pod]:
        """The victim stays, and nobody waits for it any more; returns the preemptors that did."""
        if self._under_way.pop(victim.uid, None) is not None:
            self._columns.mark(victim, evicted=False)
        for spent in self._spent.values():
            spent[:] = [entry for entry in spent if entry.victim.uid != victim.uid]
        disappointed = list[Pod]()
        for wait in self._waits.values():
            left = [v for v in wait.victims if v.uid != victim.uid]
            if len(left) < len(wait.victims):
                wait.victims = left
                disappointed.append(wait.preemptor)
        return disappointed

    def refused(self, victim: Pod) -> None:
        """The API server says a budget allows no more; it is believed until the next status."""
        self.failed(victim)
        for budget in self.covering(victim):
            self._exhausted[budget.key] = budget

    def _settle(self, budget: PodDisruptionBudget) -> None:
        if self._exhausted.get(budget.key, budget) is not budget:
            del self._exhausted[budget.key]
        spent = self._spent.get(budget.key)
        if spent is not None:
            spent[:] = [e for e in spent if e.budget is budget or not self._left(e.victim)]
            if not spent:
                del self._spent[budget.key]

    def _left(self, victim: Pod) -> bool:
        """Whether the victim is seen terminating or gone."""
        placed = self._pods.get(victim.key)
        return placed is None or placed.pod.uid != victim.uid or placed.pod.terminating

    def _present(self, victim: Pod) -> bool:
        placed = self._pods.get(victim.key)
        return placed is not None and placed.pod.uid == victim.uid
