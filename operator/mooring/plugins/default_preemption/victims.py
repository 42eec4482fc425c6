"""What is evicted for a pod as one: a pod, or a group that is disrupted as a whole.

See Victim and MoreImportantVictim in framework/preemption of 1.37.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import TypeAlias, TypeVar

import numpy as np

from mooring.model.pod import Pod, Uid
from mooring.policy.profile import Preemption
from mooring.state.cluster_view import ClusterView
from mooring.state.pod_groups import PodGroupState

__all__ = [
    "Victim",
    "WholeGroup",
    "by_importance",
    "key_of",
    "may_be_victims",
    "pods_of",
    "pods_on",
    "started",
    "with_rows",
]


class WholeGroup:
    """The members on nodes of a group that is disrupted as a whole, on whatever nodes they are.

    Those that are being evicted already are left out. `members` has each with its row.
    """

    __slots__ = ("_on", "group", "members", "pods", "priority")

    def __init__(self, group: PodGroupState, cluster: ClusterView) -> None:
        self.group = group
        self.priority = group.priority
        evicting = cluster.evictions.evicting
        self.members = tuple((p.pod, p.row) for p in group.on_nodes if not evicting(p.pod))
        self.pods = tuple(pod for pod, _ in self.members)
        self._on: dict[int, list[Pod]] = {}
        for pod, row in self.members:
            self._on.setdefault(row, []).append(pod)

    @property
    def by_priority(self) -> tuple[Pod, ...]:
        """The pods, those of the highest priority first."""
        return tuple(sorted(self.pods, key=lambda pod: -pod.spec.priority))

    def on(self, row: int) -> Sequence[Pod]:
        """Return the members on the row."""
        return self._on.get(row, ())

    def is_like(self, other: "WholeGroup") -> bool:
        """Return whether the other one has the same members on the same rows, and its priority."""
        return self.priority == other.priority and self.members == other.members


Victim: TypeAlias = Pod | WholeGroup
_Victim = TypeVar("_Victim", bound=Victim)


def key_of(victim: Victim) -> Uid | int:
    """Return what identifies the victim."""
    return victim.group.number if isinstance(victim, WholeGroup) else victim.uid


def pods_of(victim: Victim) -> Sequence[Pod]:
    """Return the pods that are evicted."""
    return victim.pods if isinstance(victim, WholeGroup) else (victim,)


def pods_on(victim: Victim, row: int) -> Sequence[Pod]:
    """Return those of them that are on the row, on which a single pod is."""
    return victim.on(row) if isinstance(victim, WholeGroup) else (victim,)


def with_rows(victim: Victim, row: int) -> Sequence[tuple[Pod, int]]:
    """Return the pods, each with its row; that of a single pod is given."""
    return victim.members if isinstance(victim, WholeGroup) else ((victim, row),)


def by_importance(victims: Iterable[_Victim]) -> list[_Victim]:
    """Return the victims, the most important first (MoreImportantVictim).

    By priority, then groups before pods, then the largest group, then the earliest start.
    """
    return sorted(victims, key=_importance)


def _importance(victim: Victim) -> tuple[int, bool, int, float]:
    if isinstance(victim, WholeGroup):
        return (-victim.priority, False, -len(victim.pods), min(map(started, victim.pods)))
    return (-victim.spec.priority, True, 0, started(victim))


def started(pod: Pod) -> float:
    """Return when the pod started, in seconds since the epoch; infinity if it has not."""
    return inf if pod.started is None else pod.started


def may_be_victims(
    groups: Iterable[PodGroupState], cluster: ClusterView, limits: Preemption, now: float
) -> list[PodGroupState]:
    """Return the groups of which each member on a node may be a victim.

    Its node exists, and it has run for as long as the profile demands.
    """
    left, columns = {group.number: group for group in groups}, cluster.pod_columns
    slots = np.flatnonzero(columns.in_groups(left) & (columns.rows >= 0))
    barred = ~cluster.nodes.present[columns.rows[slots]]
    if limits.min_runtime_seconds:
        barred |= columns.started[slots] > now - limits.min_runtime_seconds
    for number in np.unique(columns.groups[slots[barred]]).tolist():
        del left[number]
    return [*left.values()]
