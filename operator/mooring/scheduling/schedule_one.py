"""Brings a pod, or the members of a group, from the queue to their nodes (schedule_one.go).

The methods of `ScheduleOne` are in the order of the steps. A pod is popped, and the other members
of its group leave the queue with it. A decision chooses nodes for them. Either all members with a
node are assumed, or none is. Each assumed pod is bound in its own task. If no nodes fit, the
scheduler searches for victims. Only one decision is made at a time, but other tasks may run
meanwhile.

While an attempt waits for extenders, other attempts run. When the answers have come, the decision
of the attempt starts again.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from mooring.extenders.extenders import Extenders
from mooring.extenders.verdicts import ExtenderError, Needed, interested
from mooring.framework.decision import PodRef
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.framework.post_filter import GroupNomination
from mooring.framework.verdicts import Unschedulable
from mooring.groups.search.extender_calls import needed_about
from mooring.groups.search.group_decision import (
    GroupDecision,
    disagreement,
    place_group,
    preempt_for_group,
)
from mooring.groups.search.group_search import Devices
from mooring.groups.search.members import (
    GroupBackoffs,
    group_of,
    has_same_requirements,
    take_members,
)
from mooring.groups.search.reservation import GroupReservation
from mooring.groups.state.pod_groups import PodGroupState
from mooring.groups.status.pod_group_status_reporter import PodGroupStatusReporter
from mooring.model.pod import Pod, Uid
from mooring.observe.records import RecordedStep
from mooring.pausing import pause, timed, worked
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.queued_pod import PodState, QueuedPod
from mooring.runtime.slow_decisions import SlowDecisions
from mooring.scheduling.assumed import assume_reserve_and_permit
from mooring.scheduling.attempts import Attempts
from mooring.scheduling.binding import BindingFailed, after_binding, bind
from mooring.scheduling.cycle import decide, tie_break_seed
from mooring.scheduling.extender_attempts import ExtenderAttempts
from mooring.scheduling.group_binding import CalledOff, GroupBinding
from mooring.scheduling.outcome import (
    FitError,
    Outcome,
    PodRejected,
    ScheduleResult,
    decision_of,
    record_of,
)
from mooring.scheduling.pod_enqueuer import PodEnqueuer
from mooring.scheduling.pod_status_reporter import PodStatusReporter
from mooring.scheduling.preemption_executor import PreemptionExecutor
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import AssumedPod, CurrentAttempt, SchedulerState

logger = logging.getLogger(__name__)

_GANG: Final = frozenset(("GangScheduling",))
_JOIN_SECONDS: Final = 1.0
"""The seconds that a new member waits in the queue while extenders are called for its group."""
_RECORDED_NODES: Final = 3
_CONFIRMATION_SECONDS: Final = 60.0
"""The seconds after which a pod is read from the API server if the watch has not shown it bound."""
_CANCELLED_SECONDS: Final = 1.0
"""The seconds after which `finish` no longer waits for cancelled bindings and calls of
extenders."""


@dataclass(eq=False, repr=False)
class ScheduleOne:
    """Makes attempts, one decision at a time, and binds pods in tasks.

    If the scheduler stops, it may interrupt an attempt in a pause. Then nothing is assumed, and the
    pods of the attempt stay in flight.
    """

    scheduler: SchedulerState
    pod_enqueuer: PodEnqueuer
    extenders: Extenders
    preemptions: PreemptionExecutor
    reports: PodStatusReporter
    group_reports: PodGroupStatusReporter

    def __post_init__(self) -> None:
        self._metrics = self.scheduler.metrics
        self._clock, self._now = self.scheduler.clock, self.scheduler.now
        self.attempts = Attempts(self.scheduler, self.reports, self.scheduler.metrics)
        self.extender_attempts = ExtenderAttempts(self.extenders, self.scheduler)
        self.waits = False
        """Whether the loop waits for the end of a binding."""
        self._cache = ResultCache(self.scheduler.cluster)
        self._slow = SlowDecisions()
        self._start = 0
        """The position in the node order where the next search that samples nodes begins."""
        self._backoffs = GroupBackoffs()
        self._reservation = GroupReservation(self.scheduler, self._cache)
        self._calling = set[tuple[int, str]]()
        """The groups for which extenders are called: number of the group, and profile of its
        members."""
        self._tasks: set[asyncio.Task[bool]] = set()

    @property
    def binding(self) -> int:
        """The number of pods between their decision and the end of their binding."""
        return len(self._tasks)

    @property
    def requesting(self) -> int:
        """The number of bindings that run Bind or PostBind now."""
        return len(self._tasks) - len(self.scheduler.waiting) - len(self.scheduler.in_pre_bind)

    def attempt(self, queued: QueuedPod) -> None:
        """Make one attempt about a popped pod and the queued members of its group.

        If extenders must be called first, `go_on` continues the attempt.
        """
        scheduler, pod, now = self.scheduler, queued.pod, self._clock()
        # A former leader may have bound it a moment ago.
        if pod.terminating or scheduler.cluster.is_placed(pod):
            scheduler.queue.done(queued, now)
            return
        if not self.pod_enqueuer.settle(queued):
            return
        pipeline = queued.pipeline
        group = group_of(pod, pipeline, scheduler.cluster)
        if group is None:
            attempt = CurrentAttempt(pipeline, now, {pod.uid: queued})
        elif (group.number, pipeline.profile) in self._calling:
            scheduler.queue.postpone(queued, now + _JOIN_SECONDS, now)
            return
        elif self._backoffs.postpone(group, queued, scheduler, now):
            return
        else:
            members = take_members(group, queued, scheduler, now)
            attempt = CurrentAttempt(pipeline, now, members, group, group.definition)
        if pipeline.extenders and _needs_extenders(attempt):
            if group is not None:
                self._calling.add((group.number, pipeline.profile))
            self.extender_attempts.add(attempt)
        else:
            self._scheduling_cycle(attempt)

    def go_on(self) -> None:
        """Make a decision for the next attempt that is ready in `extender_attempts`.

        The attempt ends, or more extenders are called.
        """
        attempt = self.extender_attempts.pop()
        needed = self._scheduling_cycle(attempt) if self._goes_on(attempt) else ()
        if not needed:
            attempt.answers = None  # the bindings, which may wait for long, keep the attempt
            if (group := attempt.group) is not None:
                self._calling.discard((group.number, attempt.pipeline.profile))
        self.extender_attempts.decided(attempt, needed)

    def _goes_on(self, attempt: CurrentAttempt) -> bool:
        """Return whether the attempt continues after extenders were called."""
        group = attempt.group
        kept = {uid: m for uid, m in attempt.members.items() if self._may_go_on(m, attempt)}
        attempt.members = kept
        if group is not None and not has_same_requirements(group, attempt.definition):
            for queued in kept.values():
                self.scheduler.queue.put_back(queued, self._clock())
            return False
        for queued in kept.values():
            queued.outdated = False  # the decision begins now, with what the pod is now
        return bool(kept)

    def _may_go_on(self, queued: QueuedPod, attempt: CurrentAttempt) -> bool:
        """Return whether the attempt continues for this pod; if not, end it for this pod."""
        scheduler, outdated = self.scheduler, queued.outdated and attempt.group is None
        if self.attempts.has_left(queued) or not self.pod_enqueuer.settle(queued):
            return False
        if queued.pod.terminating:
            scheduler.queue.done(queued, self._clock())
            return False
        group = group_of(queued.pod, queued.pipeline, scheduler.cluster)
        other = queued.pipeline is not attempt.pipeline or group is not attempt.group
        if outdated or other or queued.gated or self.attempts.halted:
            scheduler.queue.put_back(queued, self._clock())
            return False
        return True

    def _scheduling_cycle(self, attempt: CurrentAttempt) -> Sequence[Needed]:
        """Make a decision and carry it out, or return questions that extenders must answer."""
        metrics, group = attempt.pipeline.metrics, attempt.group
        namespace, began = attempt.first.pod.namespace, self._clock()
        outer = metrics.begin_attempt()
        attempt.sampled = metrics.sampled
        if attempt.pipeline.preemption.delay_seconds:
            members = attempt.members.values()
            attempt.unschedulable_seconds = max(m.unschedulable_seconds(began) for m in members)
        try:
            if attempt.answers is not None and attempt.answers.failure:
                self._fail(attempt, attempt.answers.failure)
                return ()
            if group is None:
                return self._schedule_pod(attempt)
            return self._schedule_group(attempt, group)
        except PodRejected as rejection:  # of a group, another plan is made
            self.attempts.reject(attempt, attempt.first, rejection)
        except Exception as error:
            if not isinstance(error, PluginFailed | ExtenderError):
                if group is None:
                    logger.exception("scheduling pod %s failed", attempt.first.pod.key)
                else:
                    logger.exception("scheduling the pod group %s failed", group.key)
            self._fail(attempt, text_of(error))
        finally:
            metrics.end_attempt(outer)
            now = self._clock()
            self.scheduler.queue.attempted(namespace, now - began, now)
        return ()

    def _schedule_pod(self, attempt: CurrentAttempt) -> Sequence[Needed]:
        queued, outcome = attempt.first, self._decide_pod(attempt)
        if isinstance(outcome, Needed):
            return (outcome,)
        if isinstance(outcome, ScheduleResult):
            self._commit(attempt, {queued.pod.uid: outcome.row})
            return ()
        if outcome.nomination is not None:
            self._metrics.preemption_attempted()
            victims = self.preemptions.begin([queued], outcome.nomination)
            self._metrics.preempted(victims, outcome.nomination.violations)
        elif not outcome.keeps_nomination:
            self.scheduler.state.withdraw(queued.pod.uid)
        why, message = outcome.diagnosis, outcome.message
        may_preempt = why.pre_filter is None or why.pre_filter_resolvable
        self.attempts.unschedulable(attempt, queued, why.plugins, message, may_preempt=may_preempt)
        return ()

    def _decide_pod(self, attempt: CurrentAttempt) -> Outcome | Needed:
        scheduler, pipeline, pod = self.scheduler, attempt.pipeline, attempt.first.pod
        answers = None
        if attempt.answers is not None:
            preempts = any(e.preempt_verb for e in interested(pipeline, pod))
            answers = attempt.answers.about(pod, preempts=preempts)
        began = worked(self._clock)
        pipeline.metrics.begin_decision()
        try:
            outcome = decide(
                pod,
                self._slow.pipeline_for(pipeline),
                self._cache,
                seed=_seed(attempt),
                start=self._start,
                now=self._now(),
                answers=answers,
                unschedulable_seconds=attempt.unschedulable_seconds,
            )
        finally:
            pipeline.metrics.end_decision(pipeline.profile)
            took = worked(self._clock) - began
            attempt.took += took
            self._slow.decided(pipeline, pod.key, took)
        if isinstance(outcome, ScheduleResult):
            self._start = (self._start + outcome.evaluated_nodes) % scheduler.cluster.node_count
        if scheduler.decisions.limit and not isinstance(outcome, Needed):
            self._record_pod(pod, pipeline, outcome)
        return outcome

    def _record_pod(self, pod: Pod, pipeline: Pipeline, outcome: Outcome) -> None:
        decided, now = self.scheduler.decisions.decided, self._clock()
        decision = decision_of(pod, pipeline, outcome, _RECORDED_NODES)
        if isinstance(outcome, FitError):
            why = outcome.diagnosis  # at PreFilter, no node is rejected by itself
            rejected = why.total if why.pre_filter is None else 0
            decided(decision, now, cause=outcome.cause, rejected=rejected)
        else:
            decided(decision, now, scored=outcome.feasible_nodes)

    def _schedule_group(self, attempt: CurrentAttempt, group: PodGroupState) -> Sequence[Needed]:
        """Begin to bind the group's members; if no nodes fit, preempt pods and reserve nodes."""
        pipeline, result, obstacle = attempt.pipeline, "unschedulable", group.incomplete
        together = self._binding_of(group)
        called_off = together.called_off if together is not None else None
        if failure := called_off or disagreement(group, attempt.pods, pipeline.kubernetes):
            self._fail(attempt, failure)
            return ()
        asked = partial(needed_about, attempt.pods, pipeline, self._cache, attempt.answers)
        pipeline.metrics.begin_decision()
        pipeline.evaluations.begin_attempt(len(attempt.members))
        try:
            if obstacle is not None:
                for pod in self._reservation.withdraw(group):
                    self.reports.nomination_cleared(pod)
                decision = GroupDecision({}, message=obstacle, plugins=_GANG)
            elif needed := asked():
                return needed
            else:
                decision = self._place(attempt, group)
            if decision.rows:
                result = "scheduled"
            elif obstacle is None:
                if needed := asked(again=True):
                    return needed
                if decision.may_preempt:
                    decision, waits = self._preempt(attempt, group, decision)
                    result = "waiting_on_preemption" if waits else result
                if not decision.over_quota:  # nodes do not help it
                    self._reserve_nodes(attempt, group)
            self.group_reports.decided(group, decision)
            self._group_unschedulable(attempt, group, decision)
            seconds = self._clock() - attempt.began
            self._metrics.pod_group_attempted(result, pipeline.profile, seconds)
        finally:
            pipeline.metrics.end_decision(pipeline.profile, of="podgroup")
        return ()

    def _place(self, attempt: CurrentAttempt, group: PodGroupState) -> GroupDecision:
        pipeline, size = attempt.pipeline, len(attempt.members)
        place = partial(
            place_group,
            group,
            attempt.pods,
            self._slow.pipeline_for(pipeline),
            self._cache,
            partial(self._commit, attempt),
            seed=_seed(attempt),
            answers=attempt.answers,
        )
        decision, took = timed(place, self._clock)
        self._metrics.pod_group_decided(pipeline.profile, took)
        attempt.took = took / size
        self._slow.decided(pipeline, str(group.key), attempt.took)
        return decision

    def _preempt(
        self, attempt: CurrentAttempt, group: PodGroupState, decision: GroupDecision
    ) -> tuple[GroupDecision, bool]:
        """Preempt pods for the group; return the decision, and whether members are nominated."""
        scheduler, members = self.scheduler, attempt.members
        answer = preempt_for_group(
            group,
            attempt.pods,
            attempt.pipeline,
            self._cache,
            seed=_seed(attempt),
            now=self._now(),
            answers=attempt.answers,
            unschedulable_seconds=attempt.unschedulable_seconds,
        )
        if isinstance(answer, GroupNomination):
            victims, now = [*map(PodRef.of, answer.victims)], self._clock()
            for uid in members:
                if (node := answer.nodes.get(uid)) is not None:
                    scheduler.decisions.nominated(uid, node, victims, now)
            evicted = self.preemptions.begin([*members.values()], answer)
            about = answer.violations, answer.disruptions
            self._metrics.pod_group_preempted(evicted, *about)
            return decision.after(answer), True
        if isinstance(answer, Unschedulable) and answer.reason:
            self._metrics.pod_group_cannot_preempt()
        if isinstance(answer, Unschedulable) and not self._reservation.holds(group):
            for uid in members:
                scheduler.state.withdraw(uid)
        return decision.after(answer), False

    def _reserve_nodes(self, attempt: CurrentAttempt, group: PodGroupState) -> None:
        members = [*attempt.members.values()]
        self._reservation.update(group, members, self._clock(), attempt.answers)
        if not any(map(self.scheduler.nominated_node, attempt.pods)):
            self._delete_half_group(group, attempt.pipeline)

    def expire_nominations(self) -> None:
        """End nominations of group members after their maximum time; called periodically."""
        for pod in self._reservation.expire(self._clock()):
            self.reports.nomination_cleared(pod)
            if (group := self.scheduler.cluster.pod_groups.of(pod)) is not None:
                self.group_reports.look_at(group)

    def _group_unschedulable(
        self, attempt: CurrentAttempt, group: PodGroupState, decision: GroupDecision
    ) -> None:
        members, pods = attempt.members.values(), attempt.pods
        are_all = group.unscheduled.keys() == attempt.members.keys() and not decision.rows
        are_all = are_all and not any(map(self.scheduler.nominated_node, pods))
        # All members have the group's backoff.
        count = max((member.unschedulable_count for member in members), default=0)
        for queued in members:
            if not self.attempts.has_left(queued):
                queued.unschedulable_count = count
                queued.decided_by_specs = decision.by_specs and are_all
                # Before the pod is in a queue again: its state says when the attempt began.
                self._record_member(attempt, queued.pod, None, decision.message, decision.cause)
                message, may_preempt = decision.message, decision.may_preempt
                self.attempts.unschedulable(
                    attempt, queued, decision.plugins, message, may_preempt=may_preempt
                )
            pause()

    def _record_member(
        self,
        attempt: CurrentAttempt,
        pod: Pod,
        node: str | None,
        message: str | None,
        cause: str = "",
    ) -> None:
        decision = record_of(pod, attempt.pipeline, node=node, message=message)
        self.scheduler.decisions.decided(decision, self._clock(), cause=cause or message or "")

    def _fail(self, attempt: CurrentAttempt, message: str) -> None:
        group, profile = attempt.group, attempt.pipeline.profile
        if group is not None:
            self.group_reports.failed(group, message)
        for queued in attempt.members.values():
            if not self.attempts.has_left(queued):
                self.attempts.fail(attempt, queued, message)
            pause()
        if group is not None:
            seconds = self._clock() - attempt.began
            self._metrics.pod_group_attempted("error", profile, seconds)

    def _commit(
        self, attempt: CurrentAttempt, rows: Mapping[Uid, int], devices: Devices | None = None
    ) -> None:
        """Assume all pods or none, and begin to bind them."""
        scheduler, group, now = self.scheduler, attempt.group, self._clock()
        together = None
        if group is not None:
            together = self._binding_of(group) or GroupBinding(group)
        assumed = assume_reserve_and_permit(
            attempt, rows, scheduler, now=now, together=together, devices=devices
        )
        if together is not None:
            together.join(one.pod for one in assumed)
        begun = 0
        try:
            for one in assumed:
                if begun:
                    pause()
                scheduler.state.announce(one.pod)
                if group is not None:
                    self._record_member(attempt, one.pod, one.node, None)
                self._begin_binding(one, now)
                begun += 1
        finally:  # if the scheduler stops, the bindings that have begun go on
            for one in assumed[begun:]:
                one.undo.close()
                one.failed("the scheduler is stopping")
                self._leave_group(one)

    def _begin_binding(self, assumed: AssumedPod, now: float) -> None:
        scheduler, queued, pod = self.scheduler, assumed.queued, assumed.pod
        scheduler.queue.assumed(queued, now)
        waiting = scheduler.waiting.get(pod.uid)
        if assumed.permitted is None or waiting is None:
            queued.times.enter(PodState.BINDING, now)
        else:
            queued.times.enter(PodState.PERMIT, now)
            node, plugins = assumed.node, [*waiting.pending]
            scheduler.decisions.note(
                pod.uid, RecordedStep.WAITING_AT_PERMIT, now, node=node, plugins=plugins
            )
        if assumed.permitted is not None:
            assumed.permitted.add_done_callback(partial(self._permitted, queued, now))
        scheduler.being_bound[pod.uid] = assumed
        task = asyncio.create_task(scheduler.turn.between(self._bind, assumed))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, assumed))
        del assumed.attempt.members[pod.uid]

    def _permitted(
        self, queued: QueuedPod, since: float, permitted: "asyncio.Future[None]"
    ) -> None:
        now = self._clock()
        rejected = permitted.cancelled() or permitted.exception() is not None
        result = "Unschedulable" if rejected else "Success"
        self._metrics.permit_waited(result, now - since)
        if not rejected and queued.times.state is PodState.PERMIT:
            queued.times.enter(PodState.BINDING, now)

    async def _bind(self, assumed: AssumedPod) -> bool:
        attempts, attempt, queued = self.attempts, assumed.attempt, assumed.queued
        try:
            self.reports.forget(assumed.pod.uid)
            await bind(assumed, self.scheduler, self.extenders, self.reports.written)
        except PodRejected as rejection:
            assumed.failed(rejection.message)
            attempts.reject(attempt, queued, rejection)
        except CalledOff as called_off:
            if attempts.halted:  # those at Permit; the next leader decides about them anew
                self.scheduler.queue.add_after_error(queued, self._clock())
            else:
                attempts.fail(attempt, queued, str(called_off))
        except BindingFailed as failure:
            assumed.failed(str(failure))
            if failure.gone:
                self._gone(assumed)
            else:
                attempts.fail(attempt, queued, str(failure), failure.condition)
        except asyncio.CancelledError:
            assumed.undo.close()
            assumed.failed("its binding was called off")
            self.scheduler.queue.add_after_error(queued, self._clock())
            raise
        except Exception as error:
            logger.exception("binding pod %s failed", assumed.pod.key)
            assumed.undo.close()
            assumed.failed(text_of(error))
            attempts.fail(attempt, queued, text_of(error))
        else:
            self._bound(assumed)
            await after_binding(assumed)
            return True
        finally:
            self._leave_group(assumed)
        return False

    def _bound(self, assumed: AssumedPod) -> None:
        scheduler, queued, pod, now = self.scheduler, assumed.queued, assumed.pod, self._clock()
        scheduler.state.expect_confirmation(pod, now + _CONFIRMATION_SECONDS)
        scheduler.queue.done(queued, now)
        scheduler.decisions.bound(pod.uid, assumed.node, now)
        self.reports.scheduled(pod, assumed.node)
        self.attempts.count(assumed.attempt, "scheduled")
        seconds = now - queued.initial_attempt_timestamp
        self._metrics.pod_bound(queued.attempts, seconds, flushed=queued.flushed)
        self._leave_group(assumed, bound=True)  # it may be tried again during PostBind

    def _gone(self, assumed: AssumedPod) -> None:
        scheduler, uid, now = self.scheduler, assumed.pod.uid, self._clock()
        scheduler.queue.done(assumed.queued, now)
        scheduler.state.delete_unscheduled(uid)  # the watch may have missed its end
        scheduler.decisions.gone(uid, now)
        self.reports.forget(uid)

    def _ended(self, assumed: AssumedPod, task: "asyncio.Task[bool]") -> None:
        self._tasks.discard(task)
        bound = not task.cancelled() and task.exception() is None and task.result()
        uid, being_bound = assumed.pod.uid, self.scheduler.being_bound
        if being_bound.get(uid) is assumed:  # else the next attempt has begun
            del being_bound[uid]
        unknown = self.attempts.halted and task.cancelled()
        if assumed.left_watch and not bound and not unknown:
            self.scheduler.decisions.gone(uid, self._clock())
        self._leave_group(assumed, bound=bound)
        # Another pod may be popped, this one be tried again, or others of its group.
        if self.waits or not bound or assumed.attempt.group is not None:
            self.scheduler.work.set()

    async def finish(self, seconds: float) -> None:
        """Wait for the bindings, and cancel them after `seconds`.

        Bindings at Permit, and attempts that wait for extenders, are ended immediately.
        """
        await self.extender_attempts.cancel(_CANCELLED_SECONDS)
        for waiting in self.scheduler.waiting:
            self.scheduler.waiting.reject(waiting.pod.uid, "", "the scheduler is stopping")
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_CANCELLED_SECONDS)

    def _binding_of(self, group: PodGroupState) -> GroupBinding | None:
        # By the members' uids, because the group's name or object may be new.
        for uid, assumed in self.scheduler.being_bound.items():
            together = assumed.together
            if together is not None and not together.over and group.has_on_node(uid):
                return together
        return None

    def _leave_group(self, assumed: AssumedPod, *, bound: bool = False) -> None:
        together, assumed.together = assumed.together, None
        if together is None:
            return
        together.ended(assumed.pod if bound else None)
        if together.called_off is not None:
            called_off = partial(self._called_off, together, assumed.attempt.pipeline)
            self.scheduler.turn.post(called_off)

    def _called_off(self, together: GroupBinding, pipeline: Pipeline) -> None:
        group = together.group
        if self.scheduler.state.pod_groups.get(group.key) is not group:
            return  # it has gone; names return
        if not self.attempts.halted:
            self.group_reports.failed(group, together.called_off or "")
        if together.over:
            self._delete_half_group(group, pipeline, together.bound)

    def _delete_half_group(
        self, group: PodGroupState, pipeline: Pipeline, bound: Sequence[Pod] = ()
    ) -> None:
        policy, definition = pipeline.group_policy, group.definition
        if policy is None or not policy.delete_bound_members or definition is None:
            return
        half = {pod.uid: pod for pod in bound}
        has_status = group.key.source.has_status  # otherwise nobody knows whether it was
        if definition.uid and has_status and not definition.initially_scheduled:
            # They were bound earlier, perhaps by a former leader.
            half |= {placed.pod.uid: placed.pod for placed in group.assigned.values()}
        if half and not group.is_enough(half.values()) and self._binding_of(group) is None:
            self.preemptions.delete_members(tuple(half.values()))


def _needs_extenders(attempt: CurrentAttempt) -> bool:
    if attempt.group is not None and attempt.group.incomplete is not None:
        return False
    return any(interested(attempt.pipeline, pod) for pod in attempt.pods)


def _seed(attempt: CurrentAttempt) -> int:
    return tie_break_seed(attempt.first.pod.uid, attempt.first.attempts)
