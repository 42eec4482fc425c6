"""Reserves nodes for a group that has waited too long, because smaller pods took its room.

The profile must enable it. The search finds nodes where all members fit once the pods of lower or
equal priority have ended, and nominates the members to these nodes. Pods of lower priority must
leave room (`Reservation`).

Only one group at a time has reserved nodes, on a limited share of the nodes and for a limited time.
So groups cannot block each other, and a group that never fits cannot block the cluster. A
reservation ends with the leader; a new leader reads an old reservation from the group's status and
does not renew it (`PodGroups.reservation_of`).

Backfill: a pod may run on a reserved node if it ends before the node can be free for the group.
Both times follow from `activeDeadlineSeconds`. A running pod without a deadline may end at any
moment, so beside such pods no backfill is possible.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from mooring.extenders.verdicts import ExtenderResults
from mooring.framework.verdicts import Unschedulable
from mooring.groups.model.pod_group import Reservation
from mooring.groups.search.group_decision import placements_of
from mooring.groups.search.group_search import Assignment, SearchedMembers
from mooring.groups.search.members import group_of
from mooring.groups.search.placement import GroupSearch
from mooring.groups.search.search_budget import SearchBudget
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.state.columns import IntArray
from mooring.state.pods import PlacedPod
from mooring.state.view import BoolArray

_MOST_REMOVED: Final = 5_000
"""The most pods that a search removes in its trials; then it ends without a result. Removing a pod
takes about 40 microseconds."""
_NOMINATED_SECONDS: Final = 300.0
"""If the profile reserves no nodes, a group keeps its nominations for at most this many seconds
after its members have stopped waiting for victims."""
_PODS: Final = "pods"
_SEARCHES: Final = 10
"""After a failed search, the next one follows after `reserveAfter`. If nodes have changed, this
pause is divided by `_SEARCHES`."""


class GroupReservation:
    """The reservation of nodes for one group; times are seconds on the caller's clock."""

    def __init__(self, scheduler: SchedulerState, cache: ResultCache) -> None:
        self._until = 0.0
        """When the present or last reservation ends, in epoch seconds; 0 before the first one."""
        self._scheduler = scheduler
        self._state = scheduler.state
        self._cluster = scheduler.cluster
        self._cache = cache
        self._group: PodGroupState | None = None
        self._since = 0.0
        self._nominated_since: dict[PodGroupState, float] = {}
        """By group, the time since which members are nominated and no member waits for victims."""
        self._ended: tuple[int, float] | None = None
        """The `number` of the group with the last expired reservation, and the time of its end."""
        self._not_found: dict[PodGroupState, tuple[float, int]] = {}
        """By group, the time of the last failed search, and the `topology_version` at that time."""
        self._backfill_until = -math.inf

    def holds(self, group: PodGroupState) -> bool:
        """Return whether the present reservation is for this group."""
        return self._group is group

    def update(
        self,
        group: PodGroupState,
        members: Sequence[QueuedPod],
        now: float,
        answers: ExtenderResults | None = None,
    ) -> None:
        """Reserve nodes for a group that has waited for `reserveAfter`, or end its reservation.

        A reservation, too, lasts for `reserveAfter`. Nodes that extenders filtered out (`answers`)
        are not reserved.
        """
        pipeline = members[0].pipeline
        after = _after(pipeline)
        evictions = self._cluster.evictions
        if after is None or any(evictions.awaits_victims(member.pod) for member in members):
            return  # the nodes that preemption frees are the members' already
        if self.holds(group):
            if now - self._since >= after:
                self._ended = (group.number, now)
                self.withdraw(group)
            else:
                self._update_backfill(group)
            return
        since = min(member.initial_attempt_timestamp for member in members)
        if self._ended is not None and self._ended[0] == group.number:
            since = max(since, self._ended[1])
        if now - since < after or not self._is_due(group, after, now) or self._is_taken():
            return
        pods = [member.pod for member in members]
        rows = self._rows(group, pods, pipeline, answers)
        if rows is None:
            self._not_found[group] = now, self._cluster.nodes.topology_version
            return
        self._not_found.pop(group, None)
        self._group, self._since, self._until = group, now, self._scheduler.now() + after
        reserved = [(pod, rows[pod.uid]) for pod in pods if pod.uid in rows]
        self._reserve(group, reserved, self._busy_until(group, reserved))

    def _reserve(
        self, group: PodGroupState, reserved: Sequence[tuple[Pod, int]], backfill_until: float
    ) -> None:
        self._backfill_until = backfill_until
        kept = Reservation(group.key, self._until, group.priority, backfill_until)
        for pod, row in reserved:
            self._state.nominate(pod, self._state.nodes.names[row], reservation=kept)

    def _update_backfill(self, group: PodGroupState) -> None:
        nominations = self._cluster.nominations
        nominees = map(nominations.get, group.unscheduled)
        reserved = [(nominee.pod, nominee.row) for nominee in nominees if nominee is not None]
        until = self._busy_until(group, reserved)
        if until != self._backfill_until:
            self._reserve(group, reserved, until)

    def _is_due(self, group: PodGroupState, after: float, now: float) -> bool:
        """Return whether to search now; `after` is the wait in seconds after a failed search."""
        if group not in self._not_found:
            return True
        at, version = self._not_found[group]
        changed = version != self._cluster.nodes.topology_version
        return now - at >= (after / _SEARCHES if changed else after)

    def _busy_until(self, group: PodGroupState, reserved: Sequence[tuple[Pod, int]]) -> float:
        """Return when all reserved nodes may have room, in seconds since the epoch."""
        by_row = defaultdict[int, list[Pod]](list)
        for pod, row in reserved:
            by_row[row].append(pod)
        busy = (self._row_busy_until(group, row, pods) for row, pods in by_row.items())
        return max(busy, default=-math.inf)

    def _row_busy_until(self, group: PodGroupState, row: int, pods: Sequence[Pod]) -> float:
        """Return when the node may have room for the pods; minus infinity means now."""
        nodes = self._cluster.nodes
        missing = Counter[str]()
        for pod in pods:
            missing.update(pod.spec.demand.resources)
        for name in missing:
            missing[name] -= int(nodes.allocatable(name)[row] - nodes.requested(name)[row])
        missing[_PODS] = len(pods) - int(nodes.pod_slots[row] - nodes.pod_count[row])
        leaving = [placed for placed in self._cluster.pods_on(row) if self._leaves(placed, group)]
        free_at = -math.inf
        for placed in sorted(leaving, key=self._earliest_end):
            if max(missing.values()) <= 0:
                return free_at
            free_at = self._earliest_end(placed)
            missing.subtract({**placed.pod.spec.demand.resources, _PODS: 1})
        return free_at if max(missing.values()) <= 0 else -math.inf

    def _leaves(self, placed: PlacedPod, group: PodGroupState) -> bool:
        pod = placed.pod
        member = pod.uid in group.assumed or pod.uid in group.assigned
        return pod.spec.priority <= group.priority and not _of_daemon_set(pod) and not member

    def _earliest_end(self, placed: PlacedPod) -> float:
        pod, columns = placed.pod, self._cluster.pod_columns
        slot = columns.slot(pod.uid, nominated=False)
        evicting = slot is None or columns.evicting[slot]
        if pod.active_deadline_seconds is None or pod.terminating or evicting:
            # It may end at any time.
            return -math.inf
        since = pod.created if pod.started is None else pod.started
        return since + pod.active_deadline_seconds

    def expire(self, now: float) -> list[Pod]:
        """Withdraw nominations that are too old or whose group is incomplete; return their members.

        Call this method periodically, because no attempt withdraws these nominations.
        """
        self._forget_gone()
        nominated, known = self._nominated_groups(), self._nominated_since
        since = self._nominated_since = {group: known.get(group, now) for group in nominated}
        if self._group in since:
            since[self._group] = self._since
        withdrawn = list[Pod]()
        for group, pipeline in nominated.items():
            after = _after(pipeline)
            if any(map(self._cluster.evictions.awaits_victims, group.unscheduled.values())):
                since[group] = now
                if self.holds(group):
                    self._group = None  # the nodes that preemption frees are the members' now
            if after is None:  # a reservation ends if the profile reserves no nodes any more
                after = 0.0 if self.holds(group) else _NOMINATED_SECONDS
            ran_out = now - since[group] >= after
            if ran_out and self.holds(group):
                self._ended = (group.number, now)
            if ran_out or group.incomplete is not None:
                withdrawn += self.withdraw(group)
        return withdrawn

    def _forget_gone(self) -> None:
        groups = self._cluster.pod_groups
        self._not_found = {
            group: last
            for group, last in self._not_found.items()
            if groups.get(group.key) is group and group.unscheduled
        }
        if self._group is not None and groups.get(self._group.key) is not self._group:
            self._group = None

    def _nominated_groups(self) -> dict[PodGroupState, Pipeline]:
        found: dict[PodGroupState, Pipeline] = {}
        for nominee in self._cluster.nominations:
            queued = self._scheduler.queue.get(nominee.pod.uid)
            if queued is not None:
                group = group_of(queued.pod, queued.pipeline, self._cluster)
                if group is not None:
                    found[group] = queued.pipeline
        return found

    def withdraw(self, group: PodGroupState) -> list[Pod]:
        """End the group's reservation and nominations; return the members that were nominated."""
        if self.holds(group):
            self._group = None
        nominations = self._cluster.nominations
        nominated = [pod for pod in group.unscheduled.values() if nominations.get(pod.uid)]
        for pod in nominated:
            self._state.withdraw(pod.uid)
        return nominated

    def _is_taken(self) -> bool:
        if self._group is not None:
            nominations = self._cluster.nominations
            if any(map(nominations.get, self._group.unscheduled)):
                return True
        self._group = None
        return False

    def _rows(
        self,
        group: PodGroupState,
        pods: Sequence[Pod],
        pipeline: Pipeline,
        answers: ExtenderResults | None,
    ) -> Mapping[Uid, int] | None:
        """Return nodes (rows) for the members that the group's minimums need, by their uids."""
        needed, others = group.needed_of(pods)
        searched = SearchedMembers(
            needed,
            pipeline,
            self._cache,
            seed=0,
            others=others,
            extended=answers.on(self._cluster, not_sent=True) if answers is not None else {},
        )
        search = GroupSearch(searched)
        with search.searched.trial():
            placements = placements_of(group, pipeline, self._cluster)
        if isinstance(placements, Unschedulable):
            return None
        removals, policy = SearchBudget(_MOST_REMOVED), pipeline.group_policy
        percent = policy.reserved_nodes_percent if policy is not None else 0
        most = max(self._cluster.node_count * percent // 100, 1)
        for placement in placements:
            # If all rows of a placement are not enough, no part of them is.
            if self._promising(search, group, placement.rows) is None:
                continue
            # The members share few nodes.
            for rows in self._growing(placement.rows, len(needed), most):
                found = self._placed(search, group, rows, removals)
                if found is not None and found.complete:
                    return found.rows
                if search.searched.budget.spent or removals.spent:
                    return None
        return None

    def _placed(
        self, search: GroupSearch, group: PodGroupState, rows: IntArray, removals: SearchBudget
    ) -> Assignment | None:
        found = self._promising(search, group, rows)
        counted = search.is_counted()
        if found is None or counted:
            return found
        leaving = self._pods_on(rows, self._leaving(group))
        # This limits how many pods trials remove.
        removals.spend(len(leaving))
        if removals.spent or search.searched.budget.spent:
            return None
        return search.without(leaving).place(rows)

    def _promising(
        self, search: GroupSearch, group: PodGroupState, rows: IntArray
    ) -> Assignment | None:
        """Place the members by counting; return None if some certainly do not fit."""
        counted = search.is_counted()
        slots = np.flatnonzero(self._leaving(group))
        found = search.place_once_ended(slots, rows)
        return found if (found.complete if counted else not found.impossible) else None

    def _leaving(self, group: PodGroupState) -> BoolArray:
        """Return bool[slots of `pod_columns`]: True for pods whose end makes room for the group."""
        columns = self._cluster.pod_columns
        leaving = (columns.rows >= 0) & ~columns.nominated & (columns.priority <= group.priority)
        for slot in np.flatnonzero(leaving).tolist():
            pod = columns.pods[slot]
            if pod is None or _of_daemon_set(pod):
                leaving[slot] = False
        for member in (*group.assumed.values(), *group.assigned.values()):
            own = columns.slot(member.pod.uid, nominated=False)
            if own is not None:
                leaving[own] = False
        return leaving

    def _pods_on(self, rows: IntArray, leaving: BoolArray) -> list[Pod]:
        columns = self._cluster.pod_columns
        slots = np.flatnonzero(leaving & np.isin(columns.rows, rows))
        return [pod for slot in slots.tolist() if (pod := columns.pods[slot]) is not None]

    def _growing(self, rows: IntArray, members: int, limit: int) -> Iterator[IntArray]:
        """Yield growing sets of rows; the first set has the nodes with the most free cpu."""
        nodes = self._cluster.nodes.take(rows)
        free = nodes.allocatable("cpu") - nodes.requested("cpu")
        ordered, most = rows[np.argsort(-free, kind="stable")][:limit], members
        while most < len(ordered):
            yield ordered[:most]
            most *= 2
        yield ordered


def _of_daemon_set(pod: Pod) -> bool:
    return pod.owner is not None and pod.owner.kind == "DaemonSet"


def _after(pipeline: Pipeline) -> float | None:
    policy = pipeline.group_policy
    return policy.reserve_after_seconds if policy is not None else None
