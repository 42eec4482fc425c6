"""Sorts the scheduling queue by priority, then by waiting time (queuesort/).

A gang that has members on nodes comes before other pods of its priority: the placed members are
useless until the gang has its minimum.
"""

from math import inf
from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.plugin import QueuedPodInfo, by_priority
from mooring.framework.registry import NoArgs


class PrioritySort:
    """Sorts by priority; at equal priority, incomplete gangs first, then the longest waiting."""

    name: ClassVar[str] = "PrioritySort"
    depends_on_node_only: ClassVar[bool] = True

    def __init__(self, _args: NoArgs, handle: Handle) -> None:
        self._pod_groups = handle.cluster.pod_groups

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, float]:
        """Return the pod's sort key; pods with smaller keys are scheduled first."""
        priority, since = by_priority(queued)
        group = self._pod_groups.of(queued.pod) if len(self._pod_groups) else None
        has_lost = group is not None and group.scheduled_pods_count > 0 and group.lacking > 0
        return priority, -inf if has_lost else since
