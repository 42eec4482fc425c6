"""Records the evictions of this scheduler, and the remaining disruptions of every budget.

An eviction begins with a preemption, or a move of rebalancing, and ends in one of these ways:

    the victim is deleted or finishes        no preemptor waits for the victim any more
    the victim's binding is given up         the same; the victim never ran: no budget is charged
    the eviction fails (`abandon`)           the victim stays; its budgets are not charged any more

The disruption controller needs a moment to see that a pod is being deleted. Until then a budget's
status still allows evictions that were used already. Therefore every eviction is charged to the
budgets that select its victim. The charge ends when the victim has been seen terminating or gone,
and the budget's status has been written since the eviction began. If a victim is not ready, its end
changes no budget's status: its charge ends as soon as it is terminating or gone.

A status may never be written again, because it stays equal if another pod becomes ready at the same
time. Therefore `grow_older`, which is called every OLDER_SECONDS, ends a charge when it sees for
the second time that the victim is gone. It forgets a refusal of the Eviction API in the same way.
Both last for two minutes at most, as long as the disruption controller waits for an evicted pod
(DeletionTimeout).

The Eviction API and kube-scheduler do not agree about which budgets apply to a pod. For the
Eviction API and the disruption controller an empty selector selects all pods of the namespace, and
a selector may select pods without labels. kube-scheduler up to 1.37 ignores both
(FilterVictimsWithPDBViolation in framework/preemption/util.go). The Eviction API checks no budget
for a pod that has not started. It checks none for a pod that is not ready, if its only budget
allows that or has as many healthy pods as it wants (registry/core/pod/storage/eviction.go).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeVar

from mooring.model.events import Kind
from mooring.model.indexes import drop_item
from mooring.model.kubernetes_rules import NEWEST
from mooring.model.pod import Pod, Uid
from mooring.model.workloads import PodDisruptionBudget
from mooring.state.objects import Objects
from mooring.state.pod_columns import PodColumns
from mooring.state.pods import PodTable
from mooring.state.topology.pod_selection import PodSelector, Selection, SelectionIndex, selection

_Key = TypeVar("_Key")
OLDER_SECONDS: Final = 60.0
"""The seconds between two calls of `Evictions.grow_older`."""


@dataclass(slots=True)
class _Charge:
    """A disruption that a budget must allow, until the budget's status shows it."""

    victim_left: bool = False
    """Whether the watch has shown the victim terminating or gone."""
    status_written: bool = False
    """Whether the budget's status has been written since the eviction began."""
    is_counted: bool = True
    """Whether the victim was ready; only the end of a ready victim changes the budget's status."""
    is_old: bool = False
    """Whether `grow_older` was called once since the victim left."""


@dataclass(frozen=True, slots=True)
class _Records:
    evicting: dict[str, list[PodDisruptionBudget]] = field(default_factory=dict)
    """The budgets that an eviction is charged to, by the victim's uid."""
    awaited_by: dict[str, dict[str, Pod]] = field(default_factory=dict)
    """The preemptors that wait for a victim, by uid of the victim, then by uid of the preemptor."""
    victims: dict[str, set[str]] = field(default_factory=dict)
    """The uids of the victims that a preemptor waits for, by the preemptor's uid."""
    charges: dict[str, dict[str, _Charge]] = field(default_factory=dict)
    """The charges by namespace/name of the budget, then by uid of the victim."""
    exhausted: dict[str, bool] = field(default_factory=dict)
    """The budgets that refused an eviction, by namespace/name. The value becomes True at the next
    call of `grow_older`."""
    refused: dict[Uid, bool] = field(default_factory=dict)
    """The pods that the Eviction API refused to evict, by uid. The value becomes True at the next
    call of `grow_older`."""
    by_pods: SelectionIndex[str] = field(default_factory=SelectionIndex)
    """Finds the namespace/name of the budgets that select a pod."""
    selections: dict[str, Selection] = field(default_factory=dict)
    """Maps the namespace/name of a budget to the selection of its pods."""

    def selecting(self, objects: Objects, pod: Pod) -> list[PodDisruptionBudget]:
        budgets: Mapping[str, PodDisruptionBudget] = objects.of(Kind.POD_DISRUPTION_BUDGET)
        keys = self.by_pods.selecting(pod.namespace, None, pod.labels)
        return [budgets[key] for key in keys]


class Evictions:
    """The running evictions, and the disruptions that budgets allow; only ClusterState writes."""

    def __init__(self, objects: Objects, pods: PodTable, columns: PodColumns) -> None:
        self._objects = objects
        self._pods = pods
        self._columns = columns
        self._records = _Records()
        self.kubernetes = NEWEST
        """The rules of the API server's version of Kubernetes, by which budgets select pods."""

    def evicting(self, pod: Pod) -> bool:
        """Return whether this scheduler is evicting the pod, and the pod is still on its node."""
        return pod.uid in self._records.evicting

    def among(self, uids: AbstractSet[Uid]) -> AbstractSet[Uid]:
        """Return the subset of `uids` that belongs to pods that this scheduler is evicting."""
        return uids & self._records.evicting.keys()

    def awaits_victims(self, preemptor: Pod) -> bool:
        """Return whether the preemptor still waits for a victim to leave its node."""
        return preemptor.uid in self._records.victims

    def awaited_by(self, preemptors: AbstractSet[Uid]) -> Iterator[Uid]:
        """Yield the uids of the victims that these preemptors wait for; a uid may come twice."""
        for uid in preemptors & self._records.victims.keys():
            yield from map(Uid, self._records.victims[uid])

    @property
    def refused(self) -> AbstractSet[Uid]:
        """The uids of the pods that the Eviction API recently refused to evict."""
        return self._records.refused.keys()

    @property
    def has_ageing(self) -> bool:
        """Whether there are charges or refusals, which later calls of `grow_older` may end."""
        records = self._records
        return bool(records.refused or records.exhausted or records.charges)

    def matching_budgets(
        self, pod: Pod, *, by_eviction_api: bool = False
    ) -> list[PodDisruptionBudget]:
        """Return the budgets that must allow the eviction of the pod.

        The rules are kube-scheduler's, or the Eviction API's if `by_eviction_api` is set. The list
        is empty for a pod that is being evicted.
        """
        if self.evicting(pod):
            # Its budgets are charged already.
            return []
        found = self._records.selecting(self._objects, pod)
        return _needed(found, pod) if by_eviction_api else self._regarded(found, pod)

    def budgets_of_many(
        self, pods: Iterable[Pod], *, by_eviction_api: bool = False
    ) -> list[tuple[list[PodDisruptionBudget], int]]:
        """Return each distinct list of matching budgets, and the number of pods with this list.

        All pods must be in one namespace. Pods without a budget, and pods that are being evicted,
        are left out.
        """
        selecting: dict[int, list[PodDisruptionBudget]] = {}
        alike: Counter[tuple[str, ...]] = Counter()
        found: dict[tuple[str, ...], list[PodDisruptionBudget]] = {}
        for pod in pods:
            # Equal pods share one labels object: search once for each such object.
            budgets = selecting.get(id(pod.labels))
            if budgets is None:
                budgets = self._records.selecting(self._objects, pod)
                selecting[id(pod.labels)] = budgets
            left = _needed(budgets, pod) if by_eviction_api else self._regarded(budgets, pod)
            if left and not self.evicting(pod):
                keys = tuple(budget.key for budget in left)
                alike[keys] += 1
                found[keys] = left
        return [(found[keys], number) for keys, number in alike.items()]

    def disruptions_allowed(self, budget: PodDisruptionBudget) -> int:
        """Return how many more disruptions the budget allows; may be negative."""
        if budget.key in self._records.exhausted:
            return 0
        return budget.disruptions_allowed - len(self._records.charges.get(budget.key, ()))

    def exhausted_budget(self, pods: Iterable[Pod]) -> str | None:
        """Return namespace/name of a budget that forbids evicting these pods together, or None."""
        # The Eviction API never evicts a pod that several budgets select.
        charged = Counter[str]()
        for pod in pods:
            budgets = self.matching_budgets(pod, by_eviction_api=True)
            for budget in budgets:
                charged[budget.key] += 1
                if len(budgets) > 1 or self.disruptions_allowed(budget) < charged[budget.key]:
                    return budget.key
        return None

    def begin(self, preemptor: Pod, victims: Iterable[Pod]) -> list[Pod]:
        """Let the preemptor wait for the `victims` that are on a node, and for no other pod.

        Return the victims that are neither terminating nor being evicted yet, and charge their
        budgets.
        """
        self.stop_waiting(preemptor)
        new: list[Pod] = []
        for victim in self._on_nodes(victims):
            self._records.awaited_by.setdefault(victim.uid, {})[preemptor.uid] = preemptor
            self._records.victims.setdefault(preemptor.uid, set()).add(victim.uid)
            if victim.terminating or self.evicting(victim):
                continue
            selecting = self._records.selecting(self._objects, victim)
            budgets = [each for each in selecting if victim.name not in each.disrupted_pods]
            for budget in budgets:
                charge = _Charge(is_counted=victim.ready)
                self._records.charges.setdefault(budget.key, {})[victim.uid] = charge
            self._records.evicting[victim.uid] = budgets
            self._columns.mark_evicting(victim, evicting=True)
            new.append(victim)
        return new

    def abandon(self, victim: Pod) -> list[Pod]:
        """End the eviction of a victim that stays; return the preemptors that waited for it."""
        budgets = self._records.evicting.pop(victim.uid, None)
        if budgets is not None:
            self._columns.mark_evicting(victim, evicting=False)
            self._drop_charges(victim, budgets)
        return self._awaited_no_more(victim)

    def victim_terminating(self, pod: Pod) -> None:
        """Update the charges of a pod that the watch shows terminating; it need not be a victim."""
        for budget in self._records.evicting.get(pod.uid, ()):
            self._update_charge(budget.key, pod.uid, victim_left=True)

    def victim_removed(self, pod: Pod, *, assumed: bool) -> None:
        """End the eviction of a pod that has left its node; the pod need not be a victim.

        Its budgets stay charged until their status is written, unless the pod was only assumed.
        """
        self._records.refused.pop(pod.uid, None)
        budgets = self._records.evicting.pop(pod.uid, [])
        if assumed:
            # The pod has never run, so no status will show its end.
            self._drop_charges(pod, budgets)
        for budget in budgets:
            self._update_charge(budget.key, pod.uid, victim_left=True)
        self._awaited_no_more(pod)

    def stop_waiting(self, preemptor: Pod) -> None:
        """Let the preemptor wait for no victim any more; running evictions are not stopped."""
        for victim in self._records.victims.pop(preemptor.uid, ()):
            drop_item(self._records.awaited_by, victim, preemptor.uid)

    def eviction_refused(self, victim: Pod, *, by_budget: bool) -> None:
        """Add the victim to `refused`: the Eviction API refused to evict it, for any reason.

        With `by_budget`, every budget that selects the victim allows no eviction until its status
        is written again.
        """
        self._records.refused[victim.uid] = False
        for budget in self._records.selecting(self._objects, victim) if by_budget else ():
            charge = self._records.charges.get(budget.key, {}).get(victim.uid)
            # A status that was written since the eviction began is as new as this answer.
            if charge is None or not charge.status_written:
                self._records.exhausted[budget.key] = False

    def grow_older(self) -> None:
        """Forget old refusals, and end old charges; see the docstring of this module."""
        records = self._records
        _end_old(records.exhausted)
        _end_old(records.refused)
        left = [
            (key, victim, charge)
            for key, charges in records.charges.items()
            for victim, charge in charges.items()
            if charge.victim_left
        ]
        for key, victim, charge in left:
            if charge.is_old:
                drop_item(self._records.charges, key, victim)
            charge.is_old = True

    def budget_written(self, key: str, budget: PodDisruptionBudget | None) -> None:
        """Use the new version of the budget `key` (namespace/name); None if it was deleted.

        The budget is no longer exhausted, and each of its charges ends if its victim has left.
        """
        records = self._records
        records.exhausted.pop(key, None)
        selects = None
        if budget is not None and budget.selector is not None:
            part = PodSelector(budget.selector, frozenset((budget.namespace,)))
            selects = selection((part,), terminating=True)
        known = records.selections.get(key)
        if selects is not known and known is not None:
            records.by_pods.remove(key, known)
            del records.selections[key]
        if selects is not known and selects is not None:
            records.by_pods.add(key, selects)
            records.selections[key] = selects
        for victim in tuple(self._records.charges.get(key, ())):
            self._update_charge(key, victim, status_written=True)

    def _regarded(
        self, budgets: Iterable[PodDisruptionBudget], pod: Pod
    ) -> list[PodDisruptionBudget]:
        """Return those of the pod's budgets that kube-scheduler applies."""
        # Up to 1.37, an empty selector selects no pod, and no budget applies to a pod without
        # labels.
        all_count = self.kubernetes.empty_budget_counts
        return [
            budget
            for budget in (budgets if pod.labels or all_count else ())
            if budget.selector is not None
            and (all_count or not budget.selector.empty)
            and pod.name not in budget.disrupted_pods
        ]

    def _on_nodes(self, victims: Iterable[Pod]) -> Iterable[Pod]:
        for victim in victims:
            placed = self._pods.get(victim.uid)
            if placed is not None:
                yield placed.pod

    def _update_charge(
        self, key: str, victim: str, *, victim_left: bool = False, status_written: bool = False
    ) -> None:
        charge = self._records.charges.get(key, {}).get(victim)
        if charge is None:
            return
        charge.victim_left |= victim_left
        charge.status_written |= status_written
        if charge.victim_left and (charge.status_written or not charge.is_counted):
            drop_item(self._records.charges, key, victim)

    def _drop_charges(self, victim: Pod, budgets: Iterable[PodDisruptionBudget]) -> None:
        for budget in budgets:
            drop_item(self._records.charges, budget.key, victim.uid)

    def _awaited_no_more(self, victim: Pod) -> list[Pod]:
        preemptors = self._records.awaited_by.pop(victim.uid, {})
        for preemptor in preemptors:
            drop_item(self._records.victims, preemptor, victim.uid)
        return list(preemptors.values())


def _needed(budgets: list[PodDisruptionBudget], pod: Pod) -> list[PodDisruptionBudget]:
    """Return those of the pod's budgets that the Eviction API checks."""
    is_allowed = len(budgets) == 1 and not pod.ready and budgets[0].allows_unhealthy
    return [] if pod.phase == "Pending" or is_allowed else budgets


def _end_old(ages: dict[_Key, bool]) -> None:
    for key, is_old in [*ages.items()]:
        if is_old:
            del ages[key]
        else:
            ages[key] = True
