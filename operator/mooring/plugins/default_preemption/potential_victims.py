"""What evictions would free, counted for all nodes at once.

Exact where only requests stand in the pod's way and no disruption budget is involved; a good guess
of the order of the candidates elsewhere. All arrays are int64 unless said otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.plugins.default_preemption.candidates import Candidate
from mooring.state.columns import IntArray
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray

__all__ = ["FreeResources", "PotentialVictims", "VictimSlots"]

_OFFSET = 2**31


@dataclass(slots=True, eq=False)
class FreeResources:
    """What is left of a node: amounts by resource, and pod slots."""

    amounts: dict[str, int]
    slots: int

    def take(self, pod: Pod) -> bool:
        """The pod is put back, if there is room for it."""
        demand = pod.shape.demand.resources
        if self.slots < 1 or any(left < demand.get(name, 0) for name, left in self.amounts.items()):
            return False
        self.slots -= 1
        for name in self.amounts:
            self.amounts[name] -= demand.get(name, 0)
        return True


@dataclass(frozen=True, slots=True, eq=False)
class VictimSlots:
    """Who must go: pod slots, most important first on each node, and each one's position in `rows`.

    `leaving` (bool) tells of those that are being evicted already.
    """

    slots: IntArray
    at: IntArray
    leaving: BoolArray


class PotentialVictims:
    """The nodes at `rows` without the pods that may be evicted from them.

    `protected` tells of pod slots (bool) that must not be touched although their priority is lower.
    """

    def __init__(
        self,
        pod: Pod,
        needs: Mapping[str, int],
        rows: IntArray,
        cluster: Snapshot,
        protected: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self._needs = needs
        self._columns = columns = cluster.pod_columns
        nodes = cluster.nodes.take(rows)
        self.rows = rows
        position = np.full(len(cluster.nodes), -1, np.int64)
        position[rows] = np.arange(len(rows))
        at = np.where(columns.rows >= 0, position[columns.rows], -1)
        lower = (at >= 0) & ~columns.nominated & (columns.priority < pod.shape.priority)
        if protected is not None:
            lower &= ~protected | columns.evicted
        self._slots = np.flatnonzero(lower)
        self._at = at[self._slots]
        self.candidates = np.bincount(self._at, minlength=len(rows))
        rivals, promised = columns.nominated_demand(
            needs, pod.shape.priority, pod.key, len(cluster.nodes)
        )
        self._free = {
            resource: nodes.allocatable(resource)
            - nodes.requested(resource)
            - promised[resource][rows]
            + _summed(self._at, columns.requests(resource)[self._slots], len(rows))
            - amount
            for resource, amount in needs.items()
        }
        self._free_slots = nodes.pod_slots - nodes.pod_count - rivals[rows] + self.candidates - 1

    def meets_budgets(self, cluster: Snapshot) -> bool:
        """Whether a disruption budget may cover a candidate, so that counting is not enough."""
        budgets = cluster.objects(Kind.POD_DISRUPTION_BUDGET).values()
        covered = self._columns.in_namespaces({budget.namespace for budget in budgets})
        return bool(covered[self._slots].any())

    @cached_property
    def suffices(self) -> BoolArray:
        """True where the pod fits once every candidate is gone, and there is one at all."""
        fits = (self.candidates > 0) & (self._free_slots >= 0)
        for left in self._free.values():
            fits &= left >= 0
        return fits

    def lacking(self) -> list[tuple[str, BoolArray]]:
        """Per reason, where it keeps the pod out even when every candidate is gone."""
        reasons = [("Too many pods", self._free_slots < 0)]
        reasons += [(f"Insufficient {name}", left < 0) for name, left in self._free.items()]
        return reasons

    def candidates_at(self, position: int) -> list[Pod]:
        """The pods that may be evicted from one of the rows."""
        return list(self._pods(self._slots[self._at == position]))

    def left(self, position: int) -> "FreeResources":
        """What one of the rows has left beside the pod when every candidate is gone."""
        amounts = {name: int(free[position]) for name, free in self._free.items()}
        return FreeResources(amounts, int(self._free_slots[position]))

    def victims(self) -> VictimSlots:
        """Who must go from the rows that suffice, once everybody else has been put back.

        Those that are being evicted are not put back.
        """
        columns = self._columns
        there = self.suffices[self._at]
        slots, at = self._slots[there], self._at[there]
        # By node, then most important first: the order in which pods are put back.
        order = np.lexsort((columns.started[slots], -columns.priority[slots], at))
        slots, at = slots[order], at[order]
        leaving = columns.evicted[slots]
        requests = {name: columns.requests(name)[slots] for name in self._needs}
        left = {name: free.copy() for name, free in self._free.items()}
        slots_left = self._free_slots.copy()
        first = np.searchsorted(at, np.arange(len(self.rows)))
        count = np.bincount(at, minlength=len(self.rows))
        gone = np.zeros(len(slots), np.bool_)
        for k in range(int(count.max(initial=0))):
            nodes = np.flatnonzero(count > k)
            index = first[nodes] + k
            back = (slots_left[nodes] > 0) & ~leaving[index]
            for name, free in left.items():
                back &= free[nodes] >= requests[name][index]
            slots_left[nodes] -= back
            for name, free in left.items():
                free[nodes] -= back * requests[name][index]
            gone[index] = ~back
        return VictimSlots(slots[gone], at[gone], leaving[gone])

    def ranked(self, victims: VictimSlots) -> IntArray:
        """Positions in `rows` of the nodes that suffice, best first (as `Candidate.cost`)."""
        new = ~victims.leaving
        at, slots = victims.at[new], victims.slots[new]
        priority, started = self._columns.priority[slots], self._columns.started[slots]
        count = np.bincount(at, minlength=len(self.rows))
        highest = np.full(len(self.rows), -_OFFSET, np.int64)
        np.maximum.at(highest, at, priority)
        total = np.zeros(len(self.rows), np.int64)
        np.add.at(total, at, priority + _OFFSET)
        earliest = np.full(len(self.rows), np.inf)
        top = priority == highest[at]
        np.minimum.at(earliest, at[top], started[top])
        order = np.lexsort((-earliest, count, total, highest))
        ranked: IntArray = order[self.suffices[order]]
        return ranked

    def candidate(self, position: int, victims: VictimSlots) -> Candidate:
        """The plan for one of the rows that suffice."""
        here = victims.at == position
        new = self._pods(victims.slots[here & ~victims.leaving])
        leaving = self._pods(victims.slots[here & victims.leaving])
        return Candidate(int(self.rows[position]), new, leaving=leaving)

    def _pods(self, slots: IntArray) -> tuple[Pod, ...]:
        pods = (self._columns.pods[slot] for slot in slots.tolist())
        return tuple(pod for pod in pods if pod is not None)


def _summed(at: IntArray, amounts: IntArray, nodes: int) -> IntArray:
    sums = np.zeros(nodes, np.int64)
    np.add.at(sums, at, amounts)
    return sums
