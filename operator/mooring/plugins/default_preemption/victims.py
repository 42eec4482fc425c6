"""A victim of a preemption: a single pod, or a group that is only disrupted as a whole.

See Victim and MoreImportantVictim in framework/preemption of 1.37.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid
from mooring.policy.profile import Preemption
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray

DELAYED: Final = "not eligible yet due to delaySeconds={}."
PRIORITY_OFFSET: Final = 2**31
"""An offset that makes every priority positive, so that each victim increases the sum."""


class WholeGroup:
    """A group that is only evicted as a whole.

    `members` has its members on all nodes, each with its node's row, without those that are
    already being evicted.
    """

    def __init__(self, group: PodGroupState, cluster: ClusterView) -> None:
        self.group = group
        self.priority = group.priority
        evicting = _evicting(group, cluster)
        staying = [placed for placed in group.on_nodes if placed.pod.uid not in evicting]
        self.members = tuple([(placed.pod, placed.row) for placed in staying])
        self.pods = tuple([placed.pod for placed in staying])
        self._on: dict[int, list[Pod]] = {}
        for pod, row in self.members:
            self._on.setdefault(row, []).append(pod)
        starts = [started(pod) for pod in self.pods]
        priorities = [pod.spec.priority for pod in self.pods]
        self.importance = (-self.priority, False, -len(starts), min(starts))
        highest, total = max(priorities), sum(priorities) + PRIORITY_OFFSET * len(starts)
        both = zip(priorities, starts, strict=True)
        earliest = min(start for priority, start in both if priority == highest)
        self.cost = PreemptionCost(highest, total, len(starts), earliest)

    def on(self, row: int) -> Sequence[Pod]:
        """Return the group's pods on the node of this row."""
        return self._on.get(row, ())


def _evicting(group: PodGroupState, cluster: ClusterView) -> AbstractSet[Uid]:
    among = cluster.evictions.among
    return among(group.assumed.keys()) | among(group.assigned.keys())


Victim: TypeAlias = Pod | WholeGroup
_Victim = TypeVar("_Victim", bound=Victim)


def pods_of(victim: Victim) -> Sequence[Pod]:
    """Return all pods that are evicted with the victim, on any node."""
    return victim.pods if isinstance(victim, WholeGroup) else (victim,)


def pods_on(victim: Victim, row: int) -> Sequence[Pod]:
    """Return the victim's pods on the node of this row; a single pod must be there."""
    return victim.on(row) if isinstance(victim, WholeGroup) else (victim,)


def with_rows(victim: Victim, row: int) -> Sequence[tuple[Pod, int]]:
    """Return the victim's pods with their nodes' rows; `row` is used only for a single pod."""
    return victim.members if isinstance(victim, WholeGroup) else ((victim, row),)


def by_importance(victims: Iterable[_Victim], *, members_first: bool = False) -> list[_Victim]:
    """Return the victims, the most important first (MoreImportantVictim).

    With `members_first`, a pod that names a PodGroup of scheduling.k8s.io is ordered like a group
    of one pod.
    """

    def importance(victim: Victim) -> tuple[int, bool, int, float]:
        if isinstance(victim, WholeGroup):
            return victim.importance
        is_pod = not members_first or victim.scheduling_group is None
        return (-victim.spec.priority, is_pod, -1, started(victim))

    return sorted(victims, key=importance)


class PreemptionCost(NamedTuple):
    """The cost of evicting pods, by kube-scheduler's criteria (pickOneNodeForPreemption).

    `total` is the sum of all priorities, with PRIORITY_OFFSET added to each. `earliest` is the
    earliest start among the pods of the highest priority.
    """

    highest: int
    total: int
    number: int
    earliest: float


def cost_of(victims: Iterable[Victim]) -> PreemptionCost:
    """Return the cost of evicting all pods of the victims; ValueError if there is no victim."""
    costs = [v.cost if isinstance(v, WholeGroup) else _cost_of_pod(v) for v in victims]
    highest = max(cost.highest for cost in costs)
    return PreemptionCost(
        highest,
        sum(cost.total for cost in costs),
        sum(cost.number for cost in costs),
        min(cost.earliest for cost in costs if cost.highest == highest),
    )


def _cost_of_pod(pod: Pod) -> PreemptionCost:
    priority = pod.spec.priority
    return PreemptionCost(priority, priority + PRIORITY_OFFSET, 1, started(pod))


def started(pod: Pod) -> float:
    """Return when the pod started, in seconds since the epoch; infinity if it has not."""
    return inf if pod.started is None else pod.started


def leaves_for(victim: Pod, priority: int, limits: Preemption) -> bool:
    """Return whether the victim terminates, perhaps because a pod of `priority` preempted it."""
    # The pod's status does not say for which pod it was preempted.
    preempted = victim.disrupted or (limits.strict and victim.evicted)
    return victim.terminating and preempted and victim.spec.priority < priority


def protected(cluster: ClusterView, limits: Preemption, now: float) -> BoolArray:
    """Return bool[pod slots]: True for pods that the profile's limits protect.

    With `disruptionBudgets: Strict`, these are also pods that the Eviction API refused to evict a
    short time ago.
    """
    columns, least = cluster.pod_columns, limits.min_runtime_seconds
    found = np.asarray(columns.started > (now - least if least else inf))
    for uid in cluster.evictions.refused if limits.strict else ():
        if (slot := columns.slot(uid, nominated=False)) is not None:
            found[slot] = True
    return found


def may_be_victims(
    groups: Iterable[PodGroupState], cluster: ClusterView, limits: Preemption, now: float
) -> list[PodGroupState]:
    """Return the groups that may be evicted as a whole, the oldest group first.

    The nodes of all members must exist, and the profile's limits must protect no member.
    """
    left, columns = {group.number: group for group in groups}, cluster.pod_columns
    slots = np.flatnonzero(columns.in_groups(left) & (columns.rows >= 0))
    barred = ~cluster.nodes.present[columns.rows[slots]]
    barred |= protected(cluster, limits, now)[slots]
    for number in np.unique(columns.groups[slots[barred]]).tolist():
        del left[number]
    return [left[number] for number in sorted(left)]
