"""The members of a group leave the queue together, get nodes together, and wait together."""

from collections.abc import Callable, Sequence
from typing import Final

from mooring.engine.binding import PodRejected
from mooring.engine.group_decision import GroupDecision, decide_group
from mooring.engine.group_placement import SearchBudget
from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.pipeline import Pipeline
from mooring.framework.queued_pod import QueuedPod
from mooring.model.pod import Pod
from mooring.state.pod_groups import PodGroupState
from mooring.state.snapshot import Snapshot

__all__ = ["group_of", "place_group", "postpone", "take_members"]

_MOST_REJECTIONS: Final = 8
"""A group whose members Reserve or Permit rejected so often is decided about no more for now."""


def group_of(pod: Pod, pipeline: Pipeline, cluster: Snapshot) -> PodGroupState | None:
    """The group with which the pod is scheduled; None if it is scheduled by itself.

    That is so for a pod without a group, in a profile without a plugin for groups, and in a group
    that is neither a gang nor bound to a topology domain.
    """
    if pipeline.group_policy is None:
        return None
    group = cluster.pod_groups.of(pod)
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


def place_group(
    group: PodGroupState,
    members: Sequence[Pod],
    pipeline: Pipeline,
    cluster: Snapshot,
    cache: ResultCache,
    *,
    seed: int,
    assume: Callable[[GroupDecision], None],
) -> GroupDecision:
    """The decision about the group, after `assume` has assumed its members on the rows.

    If `assume` raises PodRejected, the group is decided about again without that row for that
    member. The decision has no rows if nothing is assumed.
    """
    rejected: dict[str, set[int]] = {}
    budget = SearchBudget()
    message, plugins = "", frozenset[str]()
    for _ in range(_MOST_REJECTIONS):
        decision = decide_group(
            group, members, pipeline, cluster, cache, seed=seed, rejected=rejected, budget=budget
        )
        if not decision.rows:
            if not message:
                return decision
            break
        try:
            assume(decision)
        except PodRejected as rejection:
            if rejection.pod is None:
                raise
            uid, plugins = rejection.pod.uid, plugins | {rejection.plugin}
            rejected.setdefault(uid, set()).add(decision.rows[uid])
            message = f"member {rejection.pod.key}: {rejection.message}"
        else:
            return decision
    return GroupDecision({}, message=message, plugins=plugins, bounded=True)
