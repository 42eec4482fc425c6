"""Takes all members of a group from the scheduling queue at once, and delays them together."""

from collections.abc import Iterator
from dataclasses import replace
from weakref import WeakValueDictionary

from mooring.groups.model.pod_group import GroupKey, PodGroup
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.queued_pod import QueuedPod, SubQueue
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.state.cluster_view import ClusterView


def group_of(pod: Pod, pipeline: Pipeline, cluster: ClusterView) -> PodGroupState | None:
    """Return the group with which the pod is scheduled; None if the pod is scheduled alone."""
    if pipeline.group_policy is None:
        return None
    group = cluster.pod_groups.of(pod)
    return group if group is not None and group.is_scheduled_together else None


def take_members(
    group: PodGroupState, queued: QueuedPod, scheduler: SchedulerState, now: float
) -> dict[Uid, QueuedPod]:
    """Take the other members of the group from the queue; return `queued` and these members by uid.

    Members with scheduling gates or another profile stay in the queue. After `queued`, the result
    is sorted by priority and age.
    """
    others = list[QueuedPod]()
    pause()  # there may be 50,000 others
    for other in tuple(_others(group, queued, scheduler)):
        member = scheduler.queue.pop_specific(other.pod.uid, now)
        if member is not None:
            others.append(member)
        pause()
    others.sort(key=lambda m: (-m.pod.spec.priority, m.initial_attempt_timestamp))
    pause()
    return {member.pod.uid: member for member in (queued, *others)}


def has_same_requirements(group: PodGroupState, before: PodGroup | None) -> bool:
    """Return whether the group's definition equals `before`, apart from the status."""
    after = group.definition
    if before is None or after is None:
        return before is after
    return replace(before, status=after.status) == after


class GroupBackoffs:
    """Keeps the backoff of each group: the longest backoff of its members.

    If a member's own backoff ends earlier, `postpone` puts only this member back into the backoff
    queue, because a group may have ten thousand members.
    """

    def __init__(self) -> None:
        self._latest: WeakValueDictionary[tuple[GroupKey, str], QueuedPod] = WeakValueDictionary()
        """Caches the member with the longest backoff, by group and profile. An entry is stale if
        its member has left the queue or its backoff has ended."""

    def postpone(
        self, group: PodGroupState, queued: QueuedPod, scheduler: SchedulerState, now: float
    ) -> bool:
        """Put the pod into the backoff queue, and return True, if its group is in backoff."""
        key = group.key, queued.pipeline.profile
        latest = self._latest.get(key)
        if latest is None or not _waits(latest, group, scheduler, now):
            members = (*_others(group, queued, scheduler), queued)
            latest = max(members, key=lambda member: member.backoff_expiration)
            if latest.backoff_expiration <= now:
                self._latest.pop(key, None)
                return False
            self._latest[key] = latest
        scheduler.queue.postpone(queued, latest.backoff_expiration, now)
        return True


def _others(
    group: PodGroupState, queued: QueuedPod, scheduler: SchedulerState
) -> Iterator[QueuedPod]:
    for pod in group.unscheduled.values():
        other = scheduler.queue.get(pod.uid)
        if (
            other is not None
            and other.pipeline is queued.pipeline
            and other.queue not in (None, SubQueue.GATED)
        ):
            yield other


def _waits(member: QueuedPod, group: PodGroupState, scheduler: SchedulerState, now: float) -> bool:
    return (
        member.backoff_expiration > now
        and member.queue not in (None, SubQueue.GATED)
        and member.pod.uid in group.unscheduled
        and scheduler.queue.get(member.pod.uid) is member
    )
