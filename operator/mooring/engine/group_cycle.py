"""The members of a group leave the queue together, and wait together."""

from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.queued_pod import QueuedPod
from mooring.state.pod_groups import PodGroupState

__all__ = ["group_of", "postpone", "take_members"]


def group_of(queued: QueuedPod, scheduler: SchedulerState) -> PodGroupState | None:
    """The group with which the pod is scheduled; None if it is scheduled by itself.

    That is so for a pod without a group, in a profile without a plugin for groups, and in a group
    that is neither a gang nor bound to a topology domain.
    """
    if queued.pipeline.group_policy is None:
        return None
    group = scheduler.state.pod_groups.of(queued.pod)
    if group is None or group.definition is None:
        return group
    definition = group.definition
    return group if definition.gang or definition.topology.keys else None


def take_members(
    group: PodGroupState, queued: QueuedPod, scheduler: SchedulerState
) -> list[QueuedPod]:
    """The members in flight from now on: this one first, then the others of its profile.

    They are in the order of priority, then age. Gated members stay where they are.
    """
    members = list[QueuedPod]()
    for pod in group.unscheduled.values():
        other = scheduler.queue.get(pod.key)
        if other is None or other is queued or other.pod.uid != pod.uid:
            continue
        if other.pipeline is queued.pipeline:
            member = scheduler.queue.pop_specific(pod.key)
            if member is not None:
                members.append(member)
    members.sort(key=lambda m: (-m.pod.shape.priority, m.initial_attempt_timestamp))
    return [queued, *members]


def postpone(members: list[QueuedPod], scheduler: SchedulerState, now: float) -> bool:
    """Whether the backoff of any member has not ended; all go back to the backoff queue until then.

    The backoff is the group's: a member that was added later, or is popped early because no other
    pod is active, does not end it.
    """
    until = max(member.backoff_expiration for member in members)
    if until <= now:
        return False
    for member in members:
        scheduler.queue.postpone(member, until)
    return True
