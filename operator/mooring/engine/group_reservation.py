"""Reserves nodes for a group that has waited too long, so that smaller pods do not starve it.

The members are nominated to nodes on which all of them fit once the pods of lower or equal priority
that run there have ended. As for any nominated pod, pods of lower or equal priority leave them what
they request. At most one group has nodes reserved at a time, and for a limited time, so that no two
groups keep nodes from each other and no node is idle for a group that never fits.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from mooring.engine.group_decision import placements_of
from mooring.engine.group_placement import GroupSearch
from mooring.engine.result_cache import ResultCache
from mooring.framework.pipeline import Pipeline
from mooring.framework.queued_pod import QueuedPod
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod
from mooring.model.pod_group import GroupKey
from mooring.state.cluster import ClusterState
from mooring.state.columns import IntArray
from mooring.state.pod_groups import PodGroupState
from mooring.state.snapshot import Snapshot

__all__ = ["GroupReservation"]

_MOST_SEARCHES: Final = 32
"""Searches for nodes to reserve for one group."""


class GroupReservation:
    """The nodes that are reserved for one group; times are seconds on the caller's clock."""

    def __init__(self, state: ClusterState, cluster: Snapshot, cache: ResultCache) -> None:
        self._state = state
        self._cluster = cluster
        self._cache = cache
        self._group: GroupKey | None = None
        self._since = 0.0
        self._ended: tuple[GroupKey, float] | None = None
        """The group whose reservation ran out last, and when."""

    def holds(self, group: PodGroupState) -> bool:
        """Whether the reservation is this group's."""
        return self._group == group.key

    def update(self, group: PodGroupState, members: Sequence[QueuedPod], now: float) -> None:
        """Reserves nodes for a group without a place, if it has waited long enough, or ends that.

        A reservation ends after as long as the group had to wait for it; then it is another's turn.
        """
        pipeline = members[0].pipeline
        after = pipeline.group_policy.reserve_after_seconds if pipeline.group_policy else None
        evictions = self._cluster.evictions
        if after is None or any(evictions.awaits_victims(member.pod) for member in members):
            return  # the nodes that preemption frees are the members' already
        if self.holds(group):
            if now - self._since >= after:
                self._ended, self._group = (group.key, now), None
                for member in members:
                    self._state.withdraw(member.pod.key)
            return
        since = min(member.initial_attempt_timestamp for member in members)
        if self._ended is not None and self._ended[0] == group.key:
            since = max(since, self._ended[1])
        if now - since < after or self._is_taken():
            return
        pods = [member.pod for member in members]
        rows = self._rows(group, pods, pipeline)
        if rows is not None:
            self._group, self._since = group.key, now
            for pod in pods:
                if pod.uid in rows:
                    self._state.nominate(pod, self._state.nodes.names[rows[pod.uid]])

    def _is_taken(self) -> bool:
        """Whether another group that still waits has nodes reserved."""
        group = self._cluster.pod_groups.get(self._group) if self._group is not None else None
        if group is not None:
            nominations = self._cluster.nominations
            if any(nominations.get(pod.key) for pod in group.unscheduled.values()):
                return True
        self._group = None
        return False

    def _rows(
        self, group: PodGroupState, pods: Sequence[Pod], pipeline: Pipeline
    ) -> Mapping[str, int] | None:
        """A row for each member that the group needs, by uid; None if no nodes are large enough.

        Of the nodes with the most free, as few are taken as are enough.
        """
        needed = max(group.minimum - group.scheduled_pods_count, 1)
        with self._cluster.trial() as trial:
            for pod in pods:
                trial.withdraw(pod.key)
            placements = placements_of(group, pipeline, self._cluster)
            if isinstance(placements, Unschedulable):
                return None
            searches = 0
            for placement in placements:
                for rows in self._growing(placement.rows, needed):
                    searches += 1
                    found = self._placed(group, pods[:needed], pipeline, rows)
                    if found is not None or searches >= _MOST_SEARCHES:
                        return found
        return None

    def _growing(self, rows: IntArray, members: int) -> Iterator[IntArray]:
        """The rows with the most free cpu: as many as there are members, then twice as many..."""
        nodes = self._cluster.nodes.take(rows)
        free = nodes.allocatable("cpu") - nodes.requested("cpu")
        ordered, most = rows[np.argsort(-free, kind="stable")], members
        while most < len(ordered):
            yield np.sort(ordered[:most])
            most *= 2
        yield np.sort(ordered)

    def _placed(
        self, group: PodGroupState, pods: Sequence[Pod], pipeline: Pipeline, rows: IntArray
    ) -> Mapping[str, int] | None:
        """The rows of all these members, if the pods that leave to them what they use had ended."""
        with self._cluster.trial() as trial:
            for row in rows.tolist():
                for placed in tuple(self._cluster.pods_on(row)):
                    pod = placed.pod
                    stays = pod.owner is not None and pod.owner.kind == "DaemonSet"
                    own = self._cluster.pod_groups.key_of(pod) == group.key
                    if pod.shape.priority <= group.priority and not stays and not own:
                        trial.remove(pod.key)
            search = GroupSearch(pods, pipeline, self._cluster, self._cache, seed=0, rejected={})
            assignment = search.place(rows)
            return assignment.rows if assignment.complete else None
