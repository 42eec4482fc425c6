"""The members of a group leave the queue together, get nodes together, and wait together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from mooring.engine.assumed import AssumedPod, PodRejected, assume_and_reserve, permit
from mooring.engine.group_binding import GroupBinding
from mooring.engine.groups.answers import GroupAnswers
from mooring.engine.groups.decision import GroupDecision, decide_group
from mooring.engine.groups.placement import (
    DecisionOutdated,
    GroupSearch,
    MemberCheck,
    without_node,
)
from mooring.engine.groups.slices import SearchBudget, Slices
from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.pipeline import Pipeline
from mooring.framework.queued_pod import QueuedPod, SubQueue
from mooring.model.pod import Pod
from mooring.model.pod_group import GroupKey, PodGroup
from mooring.state.pod_groups import PodGroupState
from mooring.state.snapshot import Snapshot

__all__ = [
    "GroupBackoffs",
    "assume_together",
    "group_of",
    "has_same_requirements",
    "is_current",
    "is_unchanged",
    "place_group",
    "take_members",
]

_MOST_DECISIONS: Final = 8
"""In one attempt: Reserve or Permit may reject a member, or the cluster may change in pauses."""
_ALWAYS_OUTDATED: Final = "the cluster changed each time while nodes were searched for"
_ALL_ON_NODES: Final = "all members are on nodes"


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
    group: PodGroupState, queued: QueuedPod, scheduler: SchedulerState, now: float
) -> list[QueuedPod]:
    """The members in flight from now on: this one first, then the others of its profile.

    They are in the order of priority, then age. Gated members stay where they are.
    """
    members = list[QueuedPod]()
    for other in _others(group, queued, scheduler):
        member = scheduler.queue.pop_specific(other.pod.uid, now)
        if member is not None:
            members.append(member)
    members.sort(key=lambda m: (-m.pod.shape.priority, m.initial_attempt_timestamp))
    return [queued, *members]


def is_current(queued: QueuedPod, scheduler: SchedulerState) -> bool:
    """Whether the pod is still in flight and as it was when the attempt began."""
    in_flight = scheduler.queue.get(queued.pod.uid) is queued
    return in_flight and not queued.outdated and not queued.gated


def is_unchanged(
    group: PodGroupState,
    before: PodGroup | None,
    members: Iterable[QueuedPod],
    scheduler: SchedulerState,
) -> bool:
    """Whether the group and these members are as they were when the attempt began, on no node.

    Nothing may be evicted or reserved otherwise: nothing would end such a nomination. `before` is
    the definition of the group then.
    """
    if group.incomplete is not None or not has_same_requirements(group, before):
        return False
    pods = scheduler.state.pods
    return all(pods.get(m.pod.uid) is None and is_current(m, scheduler) for m in members)


def has_same_requirements(group: PodGroupState, before: PodGroup | None) -> bool:
    """Whether nothing but the status of the group's definition differs from what it was before."""
    after = group.definition
    if before is None or after is None:
        return before is after
    return replace(before, status=after.status) == after


class GroupBackoffs:
    """The backoff of a group: the longest of its members'.

    A member that was added later, or is popped early because no other pod is active, does not end
    it. Such a member is moved alone: a group may have ten thousand members, and get more all the
    time.
    """

    def __init__(self) -> None:
        self._latest: WeakValueDictionary[tuple[GroupKey, str], QueuedPod] = WeakValueDictionary()
        """By group and profile the member whose backoff ended last of all when this was looked up.

        It only saves the search: a member that has left, or whose backoff ended, is not used, and
        one that is gone is not kept.
        """

    def postpone(
        self, group: PodGroupState, queued: QueuedPod, scheduler: SchedulerState, now: float
    ) -> bool:
        """Whether the group's backoff has not ended; the pod is in the backoff queue until then."""
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
    """The other members of the pod's profile in the queue, without those gated or in flight."""
    for pod in group.unscheduled.values():
        other = scheduler.queue.get(pod.uid)
        if (
            other is not None
            and other.pipeline is queued.pipeline
            and other.queue not in (None, SubQueue.GATED)
        ):
            yield other


def _waits(member: QueuedPod, group: PodGroupState, scheduler: SchedulerState, now: float) -> bool:
    """Whether this is still a queued member of the group, and its backoff has not ended."""
    return (
        member.backoff_expiration > now
        and member.queue not in (None, SubQueue.GATED)
        and member.pod.uid in group.unscheduled
        and scheduler.queue.get(member.pod.uid) is member
    )


def place_group(
    group: PodGroupState,
    members: Sequence[Pod],
    pipeline: Pipeline,
    cluster: Snapshot,
    cache: ResultCache,
    *,
    seed: int,
    assume: Callable[[GroupDecision, MemberCheck], Iterable[None]],
    clock: Callable[[], float] | None = None,
    answers: GroupAnswers | None = None,
) -> Slices[GroupDecision]:
    """The decision about the group, after `assume` has assumed its members on the rows.

    With a `clock` (seconds) there are pauses; `assume` pauses each time it yields. If it raises
    PodRejected, the group is decided about again without that node for that member. It raises
    DecisionOutdated if a member does not fit any more, which the MemberCheck says, and the group is
    decided about again. All these decisions share one budget. The decision has no rows if nothing
    is assumed. `answers` are those of extenders about the members that they filter or score nodes
    for.
    """
    rejected: dict[str, set[str]] = {}
    budget = SearchBudget(clock=clock)
    message, plugins = _ALWAYS_OUTDATED, frozenset(pipeline.resource_filters)
    for _ in range(_MOST_DECISIONS):
        members = without_node(members, cluster)
        if not members:
            return GroupDecision({}, message=_ALL_ON_NODES)
        about = (members, pipeline, cluster, cache)
        extended = answers.on(cluster) if answers is not None else {}
        check = MemberCheck(
            GroupSearch(*about, seed=seed, rejected=rejected, budget=budget, extended=extended)
        )
        try:
            decision = yield from decide_group(
                group, *about, seed=seed, rejected=rejected, budget=budget, extended=extended
            )
            if not decision.rows:
                if rejected:
                    break
                return decision
            yield from assume(decision, check)
        except DecisionOutdated:
            if budget.spent:
                break
        except PodRejected as rejection:
            if rejection.pod is None:
                raise
            uid = rejection.pod.uid
            plugins = (plugins if rejected else frozenset()) | {rejection.plugin}
            rejected.setdefault(uid, set()).add(rejection.node)
            message = f"member {rejection.pod.key}: {rejection.message}"
        else:
            return decision
    return GroupDecision({}, message=message, plugins=plugins, bounded=True)


def assume_together(
    members: Sequence[tuple[QueuedPod, int]],
    together: GroupBinding,
    pipeline: Pipeline,
    scheduler: SchedulerState,
    check: MemberCheck,
    *,
    now: float,
) -> Slices[list[AssumedPod]]:
    """All members are assumed on their rows and reserved, and permitted or waiting to be.

    They must join `together`, and each must be announced when its binding begins. If this is closed
    in a pause, no member is assumed any more.

    Raises:
        PodRejected: by a Reserve or Permit plugin; no member is assumed any more, and no event
            about any was delivered.
        PluginFailed: if one of them fails; the same.
        DecisionOutdated: a member does not fit any more; the same.
    """
    assumed = list[AssumedPod]()
    with ExitStack() as undo:
        for queued, row in members:
            if not check.fits(queued.pod, row):
                raise DecisionOutdated
            stack = assume_and_reserve(queued.pod, row, pipeline, scheduler.state)
            undo.callback(stack.close)
            node = scheduler.state.nodes.names[row]
            one = AssumedPod(queued, queued.pod, node, pipeline, stack, together=together)
            one.sampled = pipeline.metrics.sampled
            assumed.append(one)
            yield from check.budget.pause()
        for one in assumed:
            one.permitted = permit(one, scheduler.waiting, now)
        undo.pop_all()
    return assumed
