"""The scheduling cycle of pod groups: from the queue to the bindings of all members.

The members of a group are taken from the queue together, extenders are called about them, and nodes
for all of them are searched for at once. Without nodes, victims are searched for, or nodes are
reserved. Only one group is decided about at a time; the search pauses, so that other tasks run.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from mooring.engine.assumed import AssumedPod, PodRejected, permit
from mooring.engine.attempts import Attempt, Attempts
from mooring.engine.binding import BindingCycle
from mooring.engine.cycle import tie_break_seed
from mooring.engine.extenders.answers import Answers, Needed, interested
from mooring.engine.extenders.extender_attempts import ExtenderAttempts
from mooring.engine.group_binding import GroupBinding
from mooring.engine.groups.agreement import disagreement
from mooring.engine.groups.calls import lost, needed_about
from mooring.engine.groups.decision import GroupDecision, preempt_for_group
from mooring.engine.groups.members import (
    GroupBackoffs,
    group_of,
    has_same_requirements,
    take_members,
)
from mooring.engine.groups.plan import GroupPlan, GroupPlanner, reserve_members
from mooring.engine.groups.pod_group_status_reporter import PodGroupStatusReporter
from mooring.engine.groups.reservation import GroupReservation
from mooring.engine.pod_status_reporter import PodStatusReporter
from mooring.engine.preemption_executor import PreemptionExecutor
from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.decision import Decision, PodRef
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.framework.post_filter import GroupNomination
from mooring.framework.queued_pod import QueuedPod
from mooring.framework.slow_decisions import SlowDecisions
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod
from mooring.model.pod_group import PodGroup
from mooring.observe.metrics import Metrics
from mooring.pausing import Interrupted, pause, timed
from mooring.state.pod_groups import PodGroupState
from mooring.time_slices import TimeSlices

__all__ = ["GroupCycle"]

logger = logging.getLogger(__name__)

_GANG: Final = frozenset(("GangScheduling",))
_JOIN_SECONDS: Final = 1.0
"""A new member of a group waits so long while extenders are called about the others."""


@dataclass(slots=True, eq=False)
class _GroupAttempt:
    """One attempt about the members of a group that were in the queue when it began.

    They are in flight from its beginning to its end, and `definition` is what was required of the
    group then. `answers` are those of extenders, if any is interested in a member.
    """

    group: PodGroupState
    definition: PodGroup | None
    members: list[Attempt]
    answers: Answers | None = None

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of all members."""
        return self.members[0].pipeline

    @property
    def key(self) -> tuple[int, str]:
        """The number of the group, and the profile of these members."""
        return self.group.number, self.pipeline.profile

    @property
    def queued(self) -> list[QueuedPod]:
        """The members in the queue."""
        return [member.queued for member in self.members]

    @property
    def pods(self) -> list[Pod]:
        """The pods as they are now."""
        return [member.queued.pod for member in self.members]

    @property
    def seed(self) -> int:
        """What breaks ties."""
        first = self.members[0].queued
        return tie_break_seed(first.pod.uid, first.attempts)


class GroupCycle:
    """Runs attempts about groups; `settle` is that of the scheduling loop."""

    def __init__(
        self,
        scheduler: SchedulerState,
        attempts: Attempts,
        bindings: BindingCycle,
        cache: ResultCache,
        *,
        slow: SlowDecisions,
        extender_attempts: ExtenderAttempts,
        preemptions: PreemptionExecutor,
        reports: PodStatusReporter,
        group_reports: PodGroupStatusReporter,
        metrics: Metrics,
        settle: Callable[[QueuedPod], bool],
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._attempts = attempts
        self._bindings = bindings
        self._cache = cache
        self._slow = slow
        self._extender_attempts = extender_attempts
        self._preemptions = preemptions
        self._reports = reports
        self._group_reports = group_reports
        self._metrics = metrics
        self._settle = settle
        self._clock = clock
        self._now = now
        self._reservation = GroupReservation(scheduler, cache, now)
        self._backoffs = GroupBackoffs()
        self._calling = set[tuple[int, str]]()
        """The numbers of groups about which extenders are called, by the profile of the members."""

    def expire_nominations(self) -> None:
        """End nominations of members that no attempt ends; to be called sometimes."""
        for pod in self._reservation.expire(self._clock()):
            self._reports.nomination_cleared(pod)
            if (group := self._scheduler.cluster.pod_groups.of(pod)) is not None:
                self._group_reports.look_at(group)

    async def attempt(self, group: PodGroupState, queued: QueuedPod, slices: TimeSlices) -> None:
        """Begin one attempt about all members of a group that have no node.

        It has ended when this returns, unless extenders must be called first.
        """
        scheduler, now, pipeline = self._scheduler, self._clock(), queued.pipeline
        if (group.number, pipeline.profile) in self._calling:
            scheduler.queue.postpone(queued, now + _JOIN_SECONDS, now)
            return
        if self._backoffs.postpone(group, queued, scheduler, now):
            return
        take = partial(take_members, group, queued, scheduler, now)
        try:
            members = await slices.run(take, self._attempts.go_on)
        except Interrupted:
            return
        attempts = [Attempt(member, pipeline, now) for member in members]
        attempt = _GroupAttempt(group, group.definition, attempts)
        complete = group.incomplete is None
        if complete and any(interested(pipeline, member.pod) for member in members):
            self._calling.add(attempt.key)
            self._extender_attempts.add(queued, partial(self._with_answers, attempt, slices))
        else:
            await self._decide(attempt, slices)

    def _is_member(self, queued: QueuedPod, group: PodGroupState, pipeline: Pipeline) -> bool:
        """Return whether the pod is still scheduled with this group, by this pipeline."""
        found = group_of(queued.pod, pipeline, self._scheduler.cluster)
        return queued.pipeline is pipeline and found is group

    def _put_back(self, attempt: _GroupAttempt) -> None:
        """Put the members that no task binds back in the queue."""
        now = self._clock()
        for member in attempt.members:
            if not member.binding:
                self._scheduler.queue.put_back(member.queued, now)

    async def _with_answers(
        self, attempt: _GroupAttempt, slices: TimeSlices, answers: Answers
    ) -> Sequence[Needed]:
        """Decide with what extenders have answered; return what is still needed, if anything is.

        If the group has changed or its members have another pipeline, the attempt is given up.
        """
        attempt.answers, key = answers, attempt.key
        attempt.members = [member for member in attempt.members if self._goes_on(member, attempt)]
        needed: Sequence[Needed] = ()
        if not has_same_requirements(attempt.group, attempt.definition):
            self._put_back(attempt)
        elif attempt.members:
            for queued in attempt.queued:
                queued.outdated = False  # the decision begins now, with what the pod is now
            needed = await self._decide(attempt, slices)
        if not needed:
            self._calling.discard(key)
        return needed

    def _goes_on(self, member: Attempt, attempt: _GroupAttempt) -> bool:
        """Return whether the attempt about the member goes on after extenders were called.

        Otherwise the pod is in a queue again, or in none if it has gone or is on a node.
        """
        queued, queue, now = member.queued, self._scheduler.queue, self._clock()
        if self._attempts.has_left(member) or not self._settle(queued):
            return False
        if queued.pod.terminating:
            queue.done(queued, now)
            return False
        if queued.gated or not self._is_member(queued, attempt.group, member.pipeline):
            queue.put_back(queued, now)
            return False
        return True

    async def _decide(self, attempt: _GroupAttempt, slices: TimeSlices) -> Sequence[Needed]:
        """Decide about the members, or return what is needed from extenders first."""
        metrics, profile = attempt.pipeline.metrics, attempt.pipeline.profile
        outer, began = metrics.begin_attempt(), self._clock()
        metrics.begin_decision()
        attempt.pipeline.evaluations.begin_attempt(len(attempt.members))
        try:
            result = await slices.run(partial(self._try_group, attempt), self._attempts.go_on)
            if not isinstance(result, str):
                return result
            seconds = self._clock() - attempt.members[0].began
            self._metrics.pod_group_attempted(result, profile, seconds)
        except Interrupted:
            self._put_back(attempt)
        finally:
            metrics.end_decision(profile, of="podgroup")
            metrics.end_attempt(outer)
            now = self._clock()
            self._scheduler.queue.attempted(attempt.group.key.namespace, now - began, now)
        return ()

    def _binding_of(self, group: PodGroupState) -> GroupBinding | None:
        """Return the binding of members of the group that is not over; None if there is none.

        It is found by the uids of the members: the name of a group returns, and a group that is
        named by labels is known anew when the profile that knows the label returns.
        """
        for uid, under_way in self._scheduler.being_bound.items():
            together = under_way.together
            if together is not None and not together.over and group.has_on_node(uid):
                return together
        return None

    def _called_off(self, group: PodGroupState) -> str:
        """Return why the binding of the group's members was called off; "" if it was not."""
        together = self._binding_of(group)
        return (together.called_off or "") if together is not None else ""

    def _failed(self, attempt: _GroupAttempt, message: str) -> None:
        """End the attempt in an error for all members that no task binds."""
        self._group_reports.failed(attempt.group, message)
        left = [member for member in attempt.members if not member.binding]
        self._fail_members(left, message)

    def _try_group(self, attempt: _GroupAttempt) -> str | Sequence[Needed]:
        """Decide about the members; each is handed to its binding, or is in a queue again.

        Return the result as metrics name it; or what is needed from extenders first, and then the
        members are in flight.
        """
        differs = disagreement(attempt.group, attempt.pods, attempt.pipeline.kubernetes)
        failed = attempt.answers.failure if attempt.answers is not None else ""
        if failure := failed or self._called_off(attempt.group) or differs:
            self._failed(attempt, failure)
            return "error"
        try:
            return self._place_or_wait(attempt)
        except Exception as error:
            if not isinstance(error, PluginFailed):
                logger.exception("scheduling the pod group %s failed", attempt.group.key)
            self._failed(attempt, text_of(error))
            return "error"

    def _place_or_wait(self, attempt: _GroupAttempt) -> str | Sequence[Needed]:
        """Place the members, or have them wait until there is space; see `_try_group`."""
        result, obstacle = "unschedulable", attempt.group.incomplete
        if obstacle is None and (needed := self._needed(attempt)):
            return needed
        decision = self._group_decision(attempt, obstacle)
        if decision.rows:
            result = "scheduled"
        elif obstacle is None:
            if needed := self._needed(attempt, again=True):
                return needed
            if decision.tries:
                decision, waits = self._preempt(attempt, decision)
                result = "waiting_on_preemption" if waits else result
            self._reserve(attempt)
        self._group_reports.decided(attempt.group, decision)
        self._unschedulable(attempt, decision)
        return result

    def _needed(self, attempt: _GroupAttempt, *, again: bool = False) -> Sequence[Needed]:
        """Return what is needed from extenders; `again` where what they passed was taken."""
        if attempt.answers is None:
            return ()
        about = attempt.pipeline, self._scheduler.cluster, self._cache, attempt.answers
        if again and not lost(attempt.pods, *about):
            return ()
        return needed_about(attempt.pods, *about)

    def _reserve(self, attempt: _GroupAttempt) -> None:
        """Reserve nodes if the group has waited long; if none are, delete a group half bound."""
        group, pipeline = attempt.group, attempt.pipeline
        self._reservation.update(group, attempt.queued, self._clock(), attempt.answers)
        if not any(map(self._attempts.nominated_node, attempt.members)):
            self._delete_half_group(group, pipeline)

    def _group_decision(self, attempt: _GroupAttempt, obstacle: str | None) -> GroupDecision:
        """Return the decision, with the members assumed; without one if there is an obstacle."""
        if obstacle is None:
            return self._place(attempt)
        for pod in self._reservation.withdraw(attempt.group):
            self._reports.nomination_cleared(pod)
        return GroupDecision({}, message=obstacle, plugins=_GANG)

    def _place(self, attempt: _GroupAttempt) -> GroupDecision:
        """Decide about the group, and have the members bound that get nodes."""
        group, pipeline = attempt.group, attempt.pipeline
        planner = GroupPlanner(
            group,
            attempt.pods,
            self._slow.pipeline_for(pipeline),
            self._scheduler.cluster,
            self._cache,
            seed=attempt.seed,
            answers=attempt.answers,
        )
        decision, took = timed(lambda: self._plan_and_commit(attempt, planner), self._clock)
        self._metrics.pod_group_decided(took)
        self._slow.decided(pipeline, str(group.key), took / len(attempt.members))
        for member in attempt.members:
            member.took = took / len(attempt.members)
        return decision

    def _plan_and_commit(self, attempt: _GroupAttempt, planner: GroupPlanner) -> GroupDecision:
        """Return the decision whose plan was committed, or why there is none."""
        while True:
            plan = planner.plan()
            if isinstance(plan, GroupDecision):
                return plan
            try:
                self._commit(plan, attempt)
            except PodRejected as rejection:
                planner.rejected(rejection)
            else:
                return plan.decision

    def _commit(self, plan: GroupPlan, attempt: _GroupAttempt) -> None:
        """Assume the members on their nodes, and begin their bindings; or change nothing.

        Raises:
            PodRejected: by a Reserve or Permit plugin.
            PluginFailed: if one of them fails.
        """
        group, pipeline = attempt.group, attempt.pipeline
        scheduler, now = self._scheduler, self._clock()
        together = self._binding_of(group) or self._new_binding(group)
        reserved = reserve_members(plan, pipeline, scheduler.state)
        members = {member.queued.pod.uid: member for member in attempt.members}
        chosen = [members[pod.uid] for pod, _, _ in reserved]
        with ExitStack() as undo:
            for _, _, stack in reserved:
                undo.callback(stack.close)
            assumed = [
                AssumedPod(member.queued, pod, node, pipeline, stack, together=together)
                for member, (pod, node, stack) in zip(chosen, reserved, strict=True)
            ]
            for one in assumed:
                one.sampled = pipeline.metrics.sampled
                one.permitted = permit(one, scheduler.waiting, now)
            undo.pop_all()
        together.join(len(assumed))
        self._begin_bindings(zip(chosen, assumed, strict=True), now)

    def _begin_bindings(self, assumed: Iterable[tuple[Attempt, AssumedPod]], now: float) -> None:
        """Begin the bindings of all these members; undo what is left if this is cancelled."""
        left = deque(assumed)
        try:
            while left:
                attempt, one = left.popleft()
                self._scheduler.state.announce(one.pod)
                self._record(attempt, one.node, None)
                self._bindings.begin(attempt, one, now)
                pause()
        finally:
            for _, one in left:
                _give_up(one, "the scheduler is stopping")

    def _new_binding(self, group: PodGroupState) -> GroupBinding:
        return GroupBinding(
            group, on_called_off=self._report_called_off, on_half_bound=self._half_bound
        )

    def _preempt(
        self, attempt: _GroupAttempt, decision: GroupDecision
    ) -> tuple[GroupDecision, bool]:
        """Nominate the members where preemption makes space for all, or withdraw what they have.

        Return the decision with its message, and whether the members wait for victims.
        """
        scheduler, group, members = self._scheduler, attempt.group, attempt.queued
        answer = preempt_for_group(
            group,
            attempt.pods,
            attempt.pipeline,
            scheduler.cluster,
            self._cache,
            seed=attempt.seed,
            now=self._now(),
            answers=attempt.answers,
        )
        if isinstance(answer, GroupNomination):
            victims, now = [*map(PodRef.of, answer.victims)], self._clock()
            for member in members:
                if (node := answer.nodes.get(member.pod.uid)) is not None:
                    scheduler.decisions.nominated(member.pod.uid, node, victims, now)
            evicted = self._preemptions.begin_group(members, answer)
            self._metrics.pod_group_preempted(evicted, answer.violations)
            return decision, True
        if isinstance(answer, Unschedulable) and answer.reason:
            self._metrics.pod_group_cannot_preempt()
        if isinstance(answer, Unschedulable) and not self._reservation.holds(group):
            for member in members:
                scheduler.state.withdraw(member.pod.uid)
        return replace(decision, message=f"{decision.message} {answer.reason}".rstrip()), False

    def _fail_members(self, attempts: Iterable[Attempt], message: str) -> None:
        """End the attempt in an error for each of these members."""
        for attempt in attempts:
            if not self._attempts.has_left(attempt):
                self._attempts.fail(attempt, message)
            pause()

    def _unschedulable(self, attempt: _GroupAttempt, decision: GroupDecision) -> None:
        """End the attempt for the members that get no node; their backoff is that of the group."""
        members = [m for m in attempt.members if m.queued.pod.uid not in decision.rows]
        by_specs = decision.by_specs and self._are_all(attempt)
        count = max((member.queued.unschedulable_count for member in members), default=0)
        for member in members:
            if self._attempts.has_left(member):
                continue
            self._attempts.count(member, "unschedulable")
            queued = member.queued
            queued.unschedulable_count, queued.decided_by_specs = count, by_specs
            # Before the pod is in a queue again: its state says when the attempt began.
            self._record(member, None, decision.message, decision.cause)
            self._attempts.unschedulable(member, decision.plugins, decision.message)
            pause()

    def _are_all(self, attempt: _GroupAttempt) -> bool:
        """Return whether these are all members of the group without a node, and none nominated."""
        return attempt.group.unscheduled.keys() == {pod.uid for pod in attempt.pods} and not any(
            map(self._attempts.nominated_node, attempt.members)
        )

    def _record(
        self, attempt: Attempt, node: str | None, message: str | None, cause: str = ""
    ) -> None:
        """Keep the decision about a member of a group, which was not scored by itself."""
        decision = Decision(
            pod=PodRef.of(attempt.queued.pod),
            profile=attempt.pipeline.profile,
            profile_generation=attempt.pipeline.generation,
            kubernetes_version=attempt.pipeline.kubernetes.version,
            node=node,
            nominated_node=None,
            victims=(),
            scores=None,
            rejections={},
            message=message,
        )
        self._scheduler.decisions.decided(decision, self._clock(), cause=cause or message or "")

    def _report_called_off(self, group: PodGroupState, reason: str) -> None:
        """Report why the group failed, unless the scheduler stops or the group has gone."""
        if not self._attempts.halted and self._is_known(group):
            self._group_reports.failed(group, reason)

    def _is_known(self, group: PodGroupState) -> bool:
        """Return whether the group still has a definition or a member; names of groups return."""
        return self._scheduler.state.pod_groups.get(group.key) is group

    def _half_bound(self, group: PodGroupState, pipeline: Pipeline, bound: Sequence[Pod]) -> None:
        """Delete these members, unless the group has gone."""
        if self._is_known(group):
            self._delete_half_group(group, pipeline, bound)

    def _delete_half_group(
        self, group: PodGroupState, pipeline: Pipeline, bound: Sequence[Pod] = ()
    ) -> None:
        """Delete the members that are bound though the group could not be, if the profile says so.

        They are those that were `bound` just now, and if the group was never bound whole, those
        that were bound before, maybe by a former leader.
        """
        policy, definition = pipeline.group_policy, group.definition
        if policy is None or not policy.delete_bound_members or definition is None:
            return
        half = {pod.uid: pod for pod in bound}
        if definition.uid and not definition.initially_scheduled:
            half |= {placed.pod.uid: placed.pod for placed in group.assigned.values()}
        if half and len(half) < group.minimum and self._binding_of(group) is None:
            self._preemptions.delete_members(tuple(half.values()))


def _give_up(assumed: AssumedPod, reason: str) -> None:
    """Unreserve and forget a member of a group that no task binds yet."""
    assumed.undo.close()
    assumed.failed(reason)
    assumed.ended(None)
