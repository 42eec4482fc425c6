"""Whom to evict on one node, and which node costs least (framework/preemption/preemption.go)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from mooring.model.pod import Pod
from mooring.state.evictions import Evictions

__all__ = ["Candidate", "by_importance", "select_candidate", "select_victims"]

_PRIORITY_OFFSET = 2**31
"""Makes every priority positive, so that a sum grows with the number of victims."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Making room on one row: the victims, most important first, and budgets broken by it.

    `leaving` are pods of lower priority on the row that are being evicted already. They cost
    nothing more: what they leave is used before anybody else has to go.
    """

    row: int
    victims: tuple[Pod, ...]
    violations: int = 0
    leaving: tuple[Pod, ...] = ()

    @property
    def gone(self) -> tuple[Pod, ...]:
        """Everybody for whose end the pod waits, most important first."""
        return tuple(by_importance((*self.victims, *self.leaving)))

    @property
    def cost(self) -> tuple[int, int, int, int, float]:
        """Smaller is better: upstream's criteria in their order (pickOneNodeForPreemption)."""
        if not self.victims:
            return (self.violations, -_PRIORITY_OFFSET, 0, 0, 0.0)
        highest = self.victims[0].shape.priority
        earliest = min(_started(v) for v in self.victims if v.shape.priority == highest)
        total = sum(v.shape.priority + _PRIORITY_OFFSET for v in self.victims)
        return (self.violations, highest, total, len(self.victims), -earliest)


def by_importance(pods: Iterable[Pod]) -> list[Pod]:
    """Higher priority first, then who has run longer (util.MoreImportantPod)."""
    return sorted(pods, key=lambda pod: (-pod.shape.priority, _started(pod)))


def select_victims(
    row: int, candidates: Iterable[Pod], reprieve: Callable[[Pod], bool], evictions: Evictions
) -> Candidate:
    """Who of the candidates, all gone for now, must go for good.

    Pods whose disruption would break a budget are put back first, then the others, the most
    important first; `reprieve` puts one back and says whether the pod still fits beside it. Pods
    that are being evicted are not put back.
    """
    leaving: list[Pod] = []
    staying: list[Pod] = []
    for pod in candidates:
        (leaving if evictions.under_way(pod) else staying).append(pod)
    violating, others = _split_by_budgets(by_importance(staying), evictions)
    broken = [pod for pod in violating if not reprieve(pod)]
    gone = [pod for pod in others if not reprieve(pod)]
    return Candidate(row, tuple(by_importance((*broken, *gone))), len(broken), tuple(leaving))


def select_candidate(candidates: Sequence[Candidate]) -> Candidate:
    """The plan that costs least, the first of equals."""
    return min(candidates, key=lambda candidate: candidate.cost)


def _split_by_budgets(pods: Iterable[Pod], evictions: Evictions) -> tuple[list[Pod], list[Pod]]:
    """Those whose disruption a budget does not allow after those before them, and the rest."""
    spent: Counter[str] = Counter()
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        breaks = False
        for budget in evictions.covering(pod):
            spent[budget.key] += 1
            breaks |= spent[budget.key] > evictions.allowed(budget)
        (violating if breaks else others).append(pod)
    return violating, others


def _started(pod: Pod) -> float:
    return inf if pod.started is None else pod.started
