"""Finds potential victims on all nodes at once, and computes which of them must leave.

The result may be inexact if a disruption budget matches a potential victim, or if filters other
than the requests reject the pod. Arrays are int64 unless a docstring says otherwise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mooring.groups.model.pod_group import GroupSource
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.plugins.default_preemption.candidates import Candidate
from mooring.plugins.default_preemption.victims import (
    PRIORITY_OFFSET,
    Victim,
    WholeGroup,
)
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray


@dataclass(slots=True, eq=False)
class FreeResources:
    """The amounts and pod slots that stay free on a node once the pod to schedule is there."""

    amounts: dict[str, int]
    slots: int

    def reprieve(self, *pods: Pod) -> bool:
        """Return whether the pods fit into the free amounts; if so, subtract their requests."""
        demands = [pod.spec.demand.resources for pod in pods]
        left = {
            name: free - sum(demand.get(name, 0) for demand in demands)
            for name, free in self.amounts.items()
        }
        if self.slots < len(pods) or any(amount < 0 for amount in left.values()):
            return False
        self.slots -= len(pods)
        self.amounts = left
        return True


@dataclass(frozen=True, slots=True, eq=False)
class VictimSlots:
    """The victims on all nodes, the most important victim of each node first.

    For each victim, `slots` has its slot in the pod columns, and `at` its node's position in
    `PotentialVictims.rows`. `evicting` says whether its eviction has begun.
    """

    slots: IntArray
    at: IntArray
    evicting: BoolArray


class _Costs(NamedTuple):
    """`PreemptionCost` as arrays, for each single pod, and for each group on each node."""

    at: IntArray
    highest: IntArray
    total: IntArray
    number: IntArray
    earliest: npt.NDArray[np.float64]


_NO_GROUPS: Final[Mapping[int, Callable[[], WholeGroup]]] = MappingProxyType({})


class PotentialVictims:
    """The pods that `pod` may preempt on the nodes of `rows`.

    `needs` has the pod's requests. `protected` (bool[pod slots]) is True for pods that may not be
    victims. `groups` has, by number, a function that returns a whole group as a victim.
    """

    def __init__(
        self,
        pod: Pod,
        needs: Mapping[str, int],
        rows: IntArray,
        cluster: ClusterView,
        protected: BoolArray | None = None,
        groups: Mapping[int, Callable[[], WholeGroup]] = _NO_GROUPS,
        *,
        members_first: bool = False,
    ) -> None:
        self._needs = needs
        self._make, self._groups = groups, dict[int, WholeGroup]()
        self._members_first = members_first and any(
            group.key.source is GroupSource.KUBERNETES for group in cluster.pod_groups
        )
        self._columns = columns = cluster.pod_columns
        nodes = cluster.nodes.take(rows)
        self.rows = rows
        position = np.full(len(cluster.nodes), -1, np.int64)
        position[rows] = np.arange(len(rows))
        at = np.where(columns.rows >= 0, position[columns.rows], -1)
        in_group = columns.in_groups(groups)
        lower = (columns.priority < pod.spec.priority) | in_group
        lower &= (at >= 0) & ~columns.nominated
        if protected is not None:
            lower &= ~protected | columns.evicting
        self._slots = np.flatnonzero(lower)
        self._at = at[self._slots]
        self._in_group = (in_group & ~columns.evicting)[self._slots]
        self._numbers = columns.groups[self._slots]
        self.counts = np.bincount(self._at, minlength=len(rows))
        """int64[len(rows)]: the number of potential victims on each node."""
        nominated, nominated_requests = columns.nominated_demand(
            needs, pod.spec.priority, pod.uid, len(cluster.nodes)
        )
        self._free = {
            resource: nodes.allocatable(resource)
            - nodes.requested_wrapped(resource)
            - nominated_requests[resource][rows]
            + _summed(self._at, columns.requests(resource)[self._slots], len(rows))
            - amount
            for resource, amount in needs.items()
        }
        self._free_slots = nodes.pod_slots - nodes.pod_count - nominated[rows] + self.counts - 1

    def may_match_budgets(self, cluster: ClusterView) -> bool:
        """Return whether a potential victim is in a namespace that has a disruption budget."""
        budgets = cluster.objects(Kind.POD_DISRUPTION_BUDGET).values()
        in_namespaces = self._columns.in_namespaces({budget.namespace for budget in budgets})
        return bool(in_namespaces[self._slots].any())

    @property
    def has_groups(self) -> bool:
        """Whether one of the potential victims is a group that is only disrupted as a whole."""
        return bool(self._in_group.any())

    def _group(self, number: int) -> WholeGroup:
        found = self._groups.get(number)
        if found is None:
            found = self._groups[number] = self._make[number]()
        return found

    @cached_property
    def fits(self) -> BoolArray:
        """bool[len(rows)]: True where there are potential victims and `needs` fit without them."""
        fits = (self.counts > 0) & (self._free_slots >= 0)
        for free in self._free.values():
            fits &= free >= 0
        return fits

    def insufficient(self) -> list[tuple[str, BoolArray]]:
        """Return reasons such as `Insufficient cpu` that hold even without the potential victims.

        Each reason has bool[len(rows)]: True for the nodes where it holds.
        """
        reasons = [("Too many pods", self._free_slots < 0)]
        reasons += [(f"Insufficient {name}", free < 0) for name, free in self._free.items()]
        return reasons

    def victims_at(self, position: int) -> list[Victim]:
        """Return the potential victims on the node at this position in `rows`."""
        ends = self._ends
        first = int(ends[position - 1]) if position else 0
        here = self._by_node[first : int(ends[position])]
        if not self.has_groups:
            return list(self._pods(self._slots[here]))
        in_group = self._in_group[here]
        single = (self._all_pods[index] for index in here[~in_group].tolist())
        numbers = np.unique(self._numbers[here[in_group]]).tolist()
        return [*(pod for pod in single if pod is not None), *map(self._group, numbers)]

    @cached_property
    def _all_pods(self) -> list[Pod | None]:
        # This is read early, because a dry run may change the slots.
        pods = self._columns.pods
        return [pods[slot] for slot in self._slots.tolist()]

    @cached_property
    def _by_node(self) -> IntArray:
        return self._columns.by_arrival(self._slots, self._at)

    @cached_property
    def _ends(self) -> IntArray:
        ends: IntArray = np.cumsum(self.counts)
        return ends

    def free_on(self, row: int) -> FreeResources:
        """Return the node's free resources with the pod and without the potential victims."""
        position = int(np.flatnonzero(self.rows == row)[0])
        amounts = {name: int(free[position]) for name, free in self._free.items()}
        return FreeResources(amounts, int(self._free_slots[position]))

    def victims(self) -> VictimSlots:
        """Return the potential victims that cannot stay, on the nodes where `fits` is True.

        Pods that are already being evicted are included.
        """
        columns = self._columns
        on_candidates = self.fits[self._at]
        slots, at = self._slots[on_candidates], self._at[on_candidates]
        # By node, then most important first: the order in which pods are reprieved.
        order = columns.by_importance(slots, at, -columns.priority[slots], self._is_pod(slots))
        slots, at = slots[order], at[order]
        evicting = columns.evicting[slots]
        all_requests = {name: columns.requests(name)[slots] for name in self._needs}
        # What none of them requests is free here, and stays so whichever are reprieved.
        requests = {name: amounts for name, amounts in all_requests.items() if amounts.any()}
        free_amounts = {name: self._free[name].copy() for name in requests}
        free_slots = self._free_slots.copy()
        first = np.searchsorted(at, np.arange(len(self.rows)))
        count = np.bincount(at, minlength=len(self.rows))
        victim = np.zeros(len(slots), np.bool_)
        for k in range(int(count.max(initial=0))):
            nodes = np.flatnonzero(count > k)
            index = first[nodes] + k
            reprieved = (free_slots[nodes] > 0) & ~evicting[index]
            for name, free in free_amounts.items():
                reprieved &= free[nodes] >= requests[name][index]
            free_slots[nodes] -= reprieved
            for name, free in free_amounts.items():
                free[nodes] -= reprieved * requests[name][index]
            victim[index] = ~reprieved
        return VictimSlots(slots[victim], at[victim], evicting[victim])

    def _is_pod(self, slots: IntArray) -> BoolArray:
        is_pod = np.ones(len(slots), np.bool_)
        if self._members_first:
            pods = (self._columns.pods[slot] for slot in slots.tolist())
            named = (pod is None or pod.scheduling_group is None for pod in pods)
            is_pod = np.fromiter(named, np.bool_, len(slots))
        return is_pod

    def ranked(self, victims: VictimSlots) -> IntArray:
        """Return the positions in `rows` of the nodes where the pod fits, the cheapest first.

        The cost is `Candidate.cost` of the node's victims; a group counts with all its members.
        """
        costs = self._costs(victims)
        count = np.zeros(len(self.rows), np.int64)
        np.add.at(count, costs.at, costs.number)
        highest = np.full(len(self.rows), -PRIORITY_OFFSET, np.int64)
        np.maximum.at(highest, costs.at, costs.highest)
        total = np.zeros(len(self.rows), np.int64)
        np.add.at(total, costs.at, costs.total)
        earliest = np.full(len(self.rows), np.inf)
        top = costs.highest == highest[costs.at]
        np.minimum.at(earliest, costs.at[top], costs.earliest[top])
        order = np.lexsort((-earliest, count, total, highest))
        ranked: IntArray = order[self.fits[order]]
        return ranked

    def _costs(self, victims: VictimSlots) -> _Costs:
        numbers = self._columns.groups[victims.slots]
        in_group = np.isin(numbers, [*self._make]) & ~victims.evicting
        single = ~victims.evicting & ~in_group
        at, slots = victims.at[single], victims.slots[single]
        priority, started = self._columns.priority[slots], self._columns.started[slots]
        costs = _Costs(
            at, priority, priority + PRIORITY_OFFSET, np.ones(len(slots), np.int64), started
        )
        if not in_group.any():
            return costs
        pairs = np.unique(np.stack((victims.at[in_group], numbers[in_group])), axis=1)
        groups, which = np.unique(pairs[1], return_inverse=True)
        whole = self._costs_of_groups(groups)
        return _Costs(
            *map(np.concatenate, zip(costs, (pairs[0], *(w[which] for w in whole)), strict=True))
        )

    def _costs_of_groups(
        self, groups: IntArray
    ) -> tuple[IntArray, IntArray, IntArray, npt.NDArray[np.float64]]:
        """Return the last four fields of `_Costs` for each number in `groups`, which is sorted."""
        columns, size = self._columns, len(groups)
        member = columns.in_groups(groups) & (columns.rows >= 0)
        slots = np.flatnonzero(member & ~columns.nominated & ~columns.evicting)
        at, priority = np.searchsorted(groups, columns.groups[slots]), columns.priority[slots]
        highest = np.full(size, -PRIORITY_OFFSET, np.int64)
        np.maximum.at(highest, at, priority)
        total = np.zeros(size, np.int64)
        np.add.at(total, at, priority + PRIORITY_OFFSET)
        earliest = np.full(size, np.inf)
        top = priority == highest[at]
        np.minimum.at(earliest, at[top], columns.started[slots[top]])
        return highest, total, np.bincount(at, minlength=size), earliest

    def candidate(self, position: int, victims: VictimSlots) -> Candidate:
        """Return the candidate for the node at this position in `rows`; the pod must fit there."""
        here = victims.at == position
        new = self._pods(victims.slots[here & ~victims.evicting])
        evicting = self._pods(victims.slots[here & victims.evicting])
        return Candidate(int(self.rows[position]), new, evicting=evicting)

    def _pods(self, slots: IntArray) -> tuple[Pod, ...]:
        pods = (self._columns.pods[slot] for slot in slots.tolist())
        return tuple(pod for pod in pods if pod is not None)


def _summed(at: IntArray, amounts: IntArray, nodes: int) -> IntArray:
    sums = np.zeros(nodes, np.int64)
    np.add.at(sums, at, amounts)
    return sums
