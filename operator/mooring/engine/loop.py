"""The scheduling loop: pop a pod, decide, assume it on the node, hand it over to its binding.

Deciding is synchronous; everything that waits is a task of its own, bounded in number. The loop
yields to the event loop after every slice of work, so that watches and bindings go on meanwhile.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from mooring.engine.binding import (
    AssumedPod,
    BindingFailed,
    PodRejected,
    after_binding,
    assume_reserve_and_permit,
    assume_together,
    bind,
)
from mooring.engine.cycle import decide, tie_break_seed
from mooring.engine.extenders.answers import (
    MOST_CALLS,
    ExtenderAnswers,
    FilterCall,
    PreemptCall,
    interested,
)
from mooring.engine.extenders.client import ExtenderError
from mooring.engine.extenders.extenders import Extenders, PodGone
from mooring.engine.extenders.two_halves import TwoHalves
from mooring.engine.groups.answers import GroupAnswers
from mooring.engine.groups.binding import CalledOff, GroupBinding
from mooring.engine.groups.calls import GroupCalls
from mooring.engine.groups.cycle import (
    GroupBackoffs,
    group_of,
    has_same_requirements,
    is_current,
    is_unchanged,
    place_group,
    take_members,
)
from mooring.engine.groups.decision import GroupDecision, preempt_for_group
from mooring.engine.groups.placement import MemberCheck
from mooring.engine.groups.reports import GroupReports
from mooring.engine.groups.reservation import GroupReservation
from mooring.engine.groups.slices import SearchBudget, Slices
from mooring.engine.outcome import FitError, Outcome, ScheduleResult, decision_of
from mooring.engine.preemption_executor import PreemptionExecutor
from mooring.engine.reports import PodScheduledReason, Reports
from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import BindingUnderWay, SchedulerState
from mooring.engine.shadow import Shadow
from mooring.framework.decision import Decision, PodRef
from mooring.framework.evaluations import StillEvaluating
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.framework.plugin_metrics import PluginMetrics
from mooring.framework.post_filter import GroupNomination
from mooring.framework.queued_pod import PodState, QueuedPod
from mooring.framework.slow_decisions import SlowDecisions
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod
from mooring.model.pod_group import PodGroup
from mooring.observe.metrics import Metrics
from mooring.observe.records import Step
from mooring.policy.extender import Extender
from mooring.state.pod_groups import PodGroupState

__all__ = ["SchedulingLoop"]

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_SLICE_SECONDS: Final = 0.002
_HINT_SECONDS: Final = 0.001
"""How long queueing hints run between two decisions; one hint at least."""
_EVALUATION_SECONDS: Final = 0.001
"""How long values of nodes are evaluated between two decisions, at least one value."""
_PAUSE_SECONDS: Final = 0.002
"""The least time for other tasks between two slices of work about one group."""
_MOST_BINDING: Final = 256
_CONFIRMATION_SECONDS: Final = 60.0
"""How long the watch may take to show a pod bound; then the API server is asked."""
_IDLE_SECONDS: Final = 10.0
"""The loop turns at least so often, which shows that it is alive."""
_STUCK_SECONDS: Final = 60.0
"""A loop that has not turned for longer needs a restart; one decision takes milliseconds."""
_CANCELLED_SECONDS: Final = 1.0
"""How long bindings that are cancelled may take to undo what they did."""
_RECORDED_NODES: Final = 3
_GANG: Final = frozenset(("GangScheduling",))
_CALLING_SECONDS: Final = 300.0
"""How long extenders may be called in one attempt about a group, for all of its members."""
_TURN_SECONDS: Final = 1.0
"""After so long a group begins no more calls if other groups of its profile wait for their turn."""
_JOIN_SECONDS: Final = 1.0
"""A new member of a group waits so long while extenders are called about the others."""


@dataclass(slots=True, eq=False)
class _Attempt:
    """One attempt: when it began and how long deciding took, in seconds.

    It keeps the pipeline that the pod had when it began, even if the pod gets another meanwhile.
    """

    queued: QueuedPod
    pipeline: Pipeline
    began: float
    took: float = 0.0
    binding: bool = False
    """Whether a task binds the pod; it says how the attempt ends."""


@dataclass(slots=True, eq=False)
class _GroupAttempt:
    """One attempt about a group with a member that extenders are interested in.

    Its members are in flight from its beginning to its end, and `definition` is what was required
    of the group then.
    """

    group: PodGroupState
    definition: PodGroup | None
    attempts: list[_Attempt]
    calls: GroupCalls
    left: float = _CALLING_SECONDS
    """Seconds that the calls may still take."""
    failure: str = ""
    """Why the last calls have failed."""

    @property
    def key(self) -> tuple[int, str]:
        """The number of the group, and the profile of these members."""
        return self.group.number, self.attempts[0].pipeline.profile


class _GivenUp(Exception):  # noqa: N818 - says what happened
    """The attempt about a group ends without a result."""


class SchedulingLoop:
    """Schedules pods while `run` runs; call `wake` when the queue may have work.

    `settle` is called with each pod that was popped, and returns whether it may be tried now: its
    profile may have to be found first (`Intake.settle`).
    """

    def __init__(
        self,
        scheduler: SchedulerState,
        *,
        reports: Reports,
        metrics: Metrics,
        preemptions: PreemptionExecutor,
        extenders: Extenders,
        group_reports: GroupReports,
        settle: Callable[[QueuedPod], bool],
        shadow: Shadow | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._reports = reports
        self._metrics = metrics
        self._decisions = scheduler.decisions
        self._preemptions = preemptions
        self._shadow = shadow
        self._extenders = extenders
        self._group_reports = group_reports
        self._settle = settle
        self._two_halves = TwoHalves()
        self._clock = clock
        self._shared = ResultCache(scheduler.state.nodes)
        self._reservation = GroupReservation(scheduler, self._shared, clock)
        self._group_backoffs = GroupBackoffs()
        self._calling = set[tuple[int, str]]()
        """The numbers of groups about which extenders are called, by the profile of the members."""
        self._answered = deque[_GroupAttempt]()
        """Those of them about which all extenders have answered, or failed."""
        self._slow = SlowDecisions()
        self._work = asyncio.Event()
        self._bindings: set[asyncio.Task[bool]] = set()
        self._start = 0
        self._halted = False
        self._turns = 0
        self._paused = 0.0
        """Seconds of all pauses in work about groups."""
        self._turned: float | None = None

    @property
    def binding(self) -> int:
        """How many pods are on their way from a decision to a bound pod."""
        return len(self._bindings)

    @property
    def requesting(self) -> int:
        """How many bindings have a request in flight; those at Permit or PreBind have none."""
        return len(self._bindings) - len(self._scheduler.waiting) - len(self._scheduler.in_pre_bind)

    def wake(self) -> None:
        """There may be something to do."""
        self._work.set()

    def halt(self) -> None:
        """Decide nothing more; bindings that have begun go on."""
        self._halted = True
        self.wake()

    def stuck(self) -> str | None:
        """For how long `run` has not turned, if that is too long; None before and after it runs."""
        if self._turned is None or self._halted:
            return None
        seconds = self._clock() - self._turned
        if seconds <= _STUCK_SECONDS:
            return None
        return f"the scheduling loop has not turned for {seconds:.0f} seconds"

    async def run(self) -> None:
        """Schedule until cancelled or halted."""
        slice_end = self._clock() + _SLICE_SECONDS
        while not self._halted:
            self._turned = now = self._clock()
            more_hints, more_values = self._run_hints(now), self._evaluate()
            if self._answered and self._may_bind():
                await self._decide_answered(self._answered.popleft())
            elif (queued := self._pop(now)) is not None:
                await self._attempt(queued)
            elif not more_hints and not self._compare(slice_end) and not more_values:
                await self._idle(now)
            if self._clock() >= slice_end:
                await asyncio.sleep(0)
                slice_end = self._clock() + _SLICE_SECONDS

    async def finish(self, seconds: float) -> None:
        """Ends all bindings, those at Permit at once; cancels what takes more than `seconds`.

        Attempts that wait for an extender are given up at once.
        """
        await self._two_halves.cancel(_CANCELLED_SECONDS)
        for waiting in self._scheduler.waiting:
            self._scheduler.waiting.reject(waiting.pod.uid, "", "the scheduler is stopping")
        if self._bindings:
            _, late = await asyncio.wait(self._bindings, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_CANCELLED_SECONDS)

    def expire_nominations(self) -> None:
        """Ends nominations of members of groups that no attempt ends; to be called sometimes."""
        for pod in self._reservation.expire(self._clock()):
            self._reports.nomination_cleared(pod)

    def _run_hints(self, now: float) -> bool:
        """Runs queueing hints of unschedulable pods for a moment; True if there are more to run."""
        until = now + _HINT_SECONDS
        while self._scheduler.queue.run_hints(now):
            if self._clock() >= until:
                return True
        return False

    def _evaluate(self) -> bool:
        """Evaluate for a moment the values that decisions wait for; return whether there are more.

        Profiles take turns, so that none waits until all values of another one are there.
        """
        found = self._scheduler.profiles.evaluations
        if not found:
            return False
        self._turns += 1
        first, until = self._turns % len(found), self._clock() + _EVALUATION_SECONDS
        waiting = deque((*found[first:], *found[:first]))
        while waiting:
            evaluations = waiting.popleft()
            if evaluations.advance():
                waiting.append(evaluations)
                if self._clock() >= until:
                    return True
        return False

    def _wait_for_values(self, queued: QueuedPod) -> bool:
        """Postpone the pod if values that its profile needs are still being evaluated.

        Return whether it was postponed. Until it is tried again it holds up no other pod.
        """
        evaluations = queued.pipeline.evaluations
        if evaluations.retry_at is None:
            return False
        now = self._clock()
        if now >= evaluations.retry_at:
            return False
        self._scheduler.queue.postpone(queued, evaluations.retry_at, now)
        return True

    def _pop(self, now: float) -> QueuedPod | None:
        """The next pod to schedule; None if there is none, or too many bindings are in flight."""
        return self._scheduler.queue.pop(now) if self._may_bind() else None

    def _may_bind(self) -> bool:
        """Whether one more binding may be in flight."""
        return self.requesting < _MOST_BINDING

    def _compare(self, until: float) -> bool:
        """Decides for profiles in mode Shadow, because no pod waits; False if there is nothing."""
        return self._shadow is not None and self._may_bind() and self._shadow.compare(until)

    async def _idle(self, now: float) -> None:
        """Wait for work, for the end of a binding or the next backoff; for a while at most."""
        self._work.clear()
        due = self._scheduler.queue.next_due() if self._may_bind() else None
        seconds = _IDLE_SECONDS if due is None else min(max(due - now, 0.0), _IDLE_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._work.wait()
        except TimeoutError:
            return

    async def _attempt(self, queued: QueuedPod) -> None:
        """Runs one attempt: the pod is handed to its binding, or is in a queue again.

        Only an attempt about a group may await; no other pod is popped meanwhile.
        """
        scheduler, pod = self._scheduler, queued.pod
        # A former leader may have bound it a moment ago.
        if pod.terminating or scheduler.cluster.is_placed(pod):
            scheduler.queue.done(queued, self._clock())
            return
        if not self._settle(queued) or self._wait_for_values(queued):
            return
        group = group_of(pod, queued.pipeline, scheduler.cluster)
        if group is not None:
            await self._attempt_group(group, queued)
            return
        attempt = _Attempt(queued, queued.pipeline, self._clock())
        extenders = interested(queued.pipeline, pod)
        if extenders:
            self._two_halves.add(queued, partial(self._call_extenders, attempt, extenders))
        else:
            self._half(attempt, None)

    def _half(
        self, attempt: _Attempt, answers: ExtenderAnswers | None
    ) -> FilterCall | PreemptCall | None:
        """Decides with the answers that extenders have given so far.

        Returns the call that must be made first. Without one, the attempt is decided: the pod is
        handed to its binding, or is in a queue again.
        """
        pod, metrics = attempt.queued.pod, attempt.pipeline.metrics
        outer = metrics.begin_attempt()
        try:
            outcome = self._decide(attempt, answers)
            if isinstance(outcome, FilterCall | PreemptCall):
                return outcome
            if isinstance(outcome, FitError):
                self._unschedulable(attempt, outcome)
            else:
                self._assume(attempt, outcome)
        except PodRejected as rejection:
            self._rejected(attempt, rejection)
        except StillEvaluating:
            attempt.pipeline.evaluations.refused(self._clock())
            self._wait_for_values(attempt.queued)
        except Exception as error:
            if not isinstance(error, PluginFailed):
                logger.exception("scheduling pod %s failed", pod.key)
            self._fail(attempt, text_of(error))
        finally:
            metrics.end_attempt(outer)
        return None

    async def _call_extenders(self, attempt: _Attempt, extenders: tuple[Extender, ...]) -> None:
        """Decides in halves: nothing is held while an extender is called.

        If the pod has gone or another pipeline takes it meanwhile, the attempt is given up.
        """
        scheduler, queued = self._scheduler, attempt.queued
        pod = queued.pod
        answers = ExtenderAnswers(preempts=any(extender.preempt_verb for extender in extenders))
        for _ in range(MOST_CALLS):
            if self._halted or queued.outdated or scheduler.queue.get(pod.uid) is not queued:
                scheduler.queue.put_back(queued, self._clock())
                self.wake()
                return
            call = self._half(attempt, answers)
            if call is None:
                self.wake()
                return
            try:
                answers = await self._extenders.answer(
                    call, extenders, pod, answers, scheduler.cluster
                )
            except PodGone:
                scheduler.queue.done(queued, self._clock())
                return
            except ExtenderError as error:
                self._fail(attempt, str(error))
                self.wake()
                return
            except Exception as error:
                logger.exception("calling the extenders for pod %s failed", pod.key)
                self._fail(attempt, text_of(error))
                self.wake()
                return
        text = "the nodes that extenders passed were taken by other pods each time they were called"
        self._fail(attempt, text)
        self.wake()

    def _decide(
        self, attempt: _Attempt, answers: ExtenderAnswers | None
    ) -> Outcome | FilterCall | PreemptCall:
        scheduler, queued, pipeline = self._scheduler, attempt.queued, attempt.pipeline
        began = self._clock()
        pipeline.metrics.begin_decision()
        try:
            outcome = decide(
                queued.pod,
                self._slow.pipeline_for(pipeline),
                scheduler.cluster,
                self._shared,
                seed=tie_break_seed(queued.pod.uid, queued.attempts),
                start=self._start,
                now=time.time(),
                answers=answers,
            )
        finally:
            pipeline.metrics.end_decision(pipeline.profile)
            took = self._clock() - began
            attempt.took += took
            self._slow.decided(pipeline, queued.pod.key, took)
        if isinstance(outcome, FilterCall | PreemptCall):
            return outcome
        if isinstance(outcome, ScheduleResult):
            self._start = (self._start + outcome.evaluated_nodes) % scheduler.cluster.node_count
        if self._decisions.limit:
            decision = decision_of(queued.pod, pipeline, outcome, _RECORDED_NODES)
            if isinstance(outcome, ScheduleResult):
                self._decisions.decided(decision, self._clock(), scored=outcome.feasible_nodes)
            else:
                why = outcome.diagnosis
                self._decisions.decided(
                    decision, self._clock(), cause=why.main_reason, rejected=why.total
                )
        return outcome

    async def _attempt_group(self, group: PodGroupState, queued: QueuedPod) -> None:
        """Begins one attempt of all members of a group that have no node.

        It has ended when this returns, unless extenders must be called first.
        """
        scheduler, now, pipeline = self._scheduler, self._clock(), queued.pipeline
        if (group.number, pipeline.profile) in self._calling:
            scheduler.queue.postpone(queued, now + _JOIN_SECONDS, now)
            return
        if self._group_backoffs.postpone(group, queued, scheduler, now):
            return
        members = take_members(group, queued, scheduler, now)
        attempts = [_Attempt(member, pipeline, now) for member in members]
        if group.incomplete is None and any(interested(pipeline, m.pod) for m in members):
            definition = group.definition
            wanted = partial(self._is_wanted, group, definition, pipeline)
            about = (self._extenders, pipeline, scheduler.cluster, self._shared, wanted)
            self._begin_calls(_GroupAttempt(group, definition, attempts, GroupCalls(*about)))
        else:
            await self._decide_group(group, attempts)

    def _is_wanted(
        self, group: PodGroupState, definition: PodGroup | None, pipeline: Pipeline, pod: Pod
    ) -> bool:
        """Whether the pod is in flight with its group, of which as much is required as before."""
        queued = self._scheduler.queue.get(pod.uid)
        if queued is None or queued.queue is not None:
            return False
        is_member = self._is_member(queued, group, pipeline)
        return is_member and has_same_requirements(group, definition)

    def _is_member(self, queued: QueuedPod, group: PodGroupState, pipeline: Pipeline) -> bool:
        """Whether the pod is still scheduled with this group, by this pipeline."""
        found = group_of(queued.pod, pipeline, self._scheduler.cluster)
        return queued.pipeline is pipeline and found is group

    def _begin_calls(self, attempt: _GroupAttempt) -> None:
        """Has the extenders called about the members without an answer, in a task of its own."""
        self._calling.add(attempt.key)
        first, run = attempt.attempts[0], partial(self._call_for_group, attempt)
        self._two_halves.add_group(first.pipeline.profile, first.queued, run)

    async def _call_for_group(self, attempt: _GroupAttempt) -> None:
        """Nothing is held meanwhile; the loop decides about the group afterwards.

        A group that needs long gives way to others, and goes on when its next turn comes.
        """
        calls, profile, began = attempt.calls, attempt.attempts[0].pipeline.profile, self._clock()
        pods = (p for p in _pods(attempt.attempts) if calls.lacks(p) and p.uid not in calls.gone)

        def gives_way() -> bool:
            is_over = self._clock() - began >= _TURN_SECONDS
            return is_over and self._two_halves.groups_wait(profile)

        try:
            finished = await calls.run(pods, attempt.left, gives_way)
            attempt.left -= self._clock() - began
            if not finished and not self._halted:
                self._two_halves.give_way(profile, partial(self._call_for_group, attempt))
                return
        except StillEvaluating:
            self._refuse_group(attempt)
            return
        except (ExtenderError, PluginFailed) as error:
            attempt.failure = text_of(error)
        except Exception as error:
            logger.exception("calling the extenders for pod group %s failed", attempt.group.key)
            attempt.failure = text_of(error)
        self._answered.append(attempt)
        self.wake()

    def _refuse_group(self, attempt: _GroupAttempt) -> None:
        """Put the members back until the values that the calls need are evaluated."""
        now, queue = self._clock(), self._scheduler.queue
        attempt.attempts[0].pipeline.evaluations.refused(now)
        self._calling.discard(attempt.key)
        for member in attempt.attempts:
            queue.put_back(member.queued, now)
        self.wake()

    async def _decide_answered(self, attempt: _GroupAttempt) -> None:
        """Decides about a group with what extenders have answered about its members.

        If the group has changed or its members have another pipeline, the attempt is given up. If a
        member has changed, or what the extenders passed was taken, they are called again.
        """
        self._calling.discard(attempt.key)
        group, queue, now = attempt.group, self._scheduler.queue, self._clock()
        gone = attempt.calls.gone
        attempt.attempts = [a for a in attempt.attempts if self._goes_on(a, group, gone)]
        if not attempt.attempts:
            return
        if not has_same_requirements(group, attempt.definition):
            for member in attempt.attempts:
                queue.put_back(member.queued, now)
            return
        members = [member.queued for member in attempt.attempts]
        for queued in members:
            queued.outdated = False  # the decision begins now, with what the pod is now
        lacking = any(attempt.calls.lacks(queued.pod) for queued in members)
        about = (group, attempt.attempts, attempt.calls, attempt.failure)
        if (lacking and not attempt.failure) or not await self._decide_group(*about):
            self._begin_calls(attempt)

    def _goes_on(self, attempt: _Attempt, group: PodGroupState, gone: Container[str]) -> bool:
        """Whether the attempt about the member of a group goes on after extenders were called.

        Otherwise the pod is in a queue again, or in none if it has gone or is on a node.
        """
        queued, queue, now = attempt.queued, self._scheduler.queue, self._clock()
        if self._has_left(attempt) or not self._settle(queued):
            return False
        if queued.pod.terminating or queued.pod.uid in gone:
            queue.done(queued, now)
            return False
        if queued.gated or not self._is_member(queued, group, attempt.pipeline):
            queue.put_back(queued, now)
            return False
        return True

    async def _decide_group(
        self,
        group: PodGroupState,
        attempts: list[_Attempt],
        calls: GroupCalls | None = None,
        failure: str = "",
    ) -> bool:
        """Decides about the members, with the answers that extenders have given in the calls.

        If the calls have failed, the attempt ends with the text in `failure`. Returns False if what
        the extenders passed was taken, so that they must be called again.
        """
        metrics, profile = attempts[0].pipeline.metrics, attempts[0].pipeline.profile
        paused, outer = self._paused, metrics.begin_attempt()
        metrics.begin_decision()
        try:
            result = await self._try_group(group, attempts, calls, failure)
            if result is None:
                return False
            seconds = self._clock() - attempts[0].began - (self._paused - paused)
            self._metrics.pod_group_attempted(result, profile, seconds)
        except (_GivenUp, StillEvaluating) as ended:
            if isinstance(ended, StillEvaluating):
                attempts[0].pipeline.evaluations.refused(self._clock())
            for attempt in attempts:
                if not attempt.binding:
                    self._scheduler.queue.put_back(attempt.queued, self._clock())
        finally:
            metrics.end_decision(profile)
            metrics.end_attempt(outer)
        return True

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
        """Why the binding of the group's members was called off; "" if it was not."""
        together = self._binding_of(group)
        return (together.called_off or "") if together is not None else ""

    async def _group_failed(
        self, group: PodGroupState, attempts: Sequence[_Attempt], message: str
    ) -> None:
        """The attempt ended in an error for all members that no task binds."""
        self._group_reports.failed(group, message)
        left = [attempt for attempt in attempts if not attempt.binding]
        metrics = attempts[0].pipeline.metrics
        await self._in_slices(self._fail_members(left, message), metrics)

    async def _try_group(
        self,
        group: PodGroupState,
        attempts: list[_Attempt],
        calls: GroupCalls | None,
        failure: str,
    ) -> str | None:
        """Decides about the members; each is handed to its binding, or is in a queue again.

        Returns the result as metrics name it. It is None if nothing is decided, because extenders
        must be called again; the members are in flight then.

        Raises:
            _GivenUp: because the group has changed meanwhile; members may still be in flight.
            StillEvaluating: because values are evaluated first; the same.
        """
        members = [attempt.queued for attempt in attempts]
        metrics = attempts[0].pipeline.metrics
        answers = calls.answers if calls is not None else None
        if failure := failure or self._called_off(group):
            await self._group_failed(group, attempts, failure)
            return "error"
        try:
            obstacle, definition = group.incomplete, group.definition
            as_before = partial(is_unchanged, group, definition, members, self._scheduler)
            decision = await self._group_decision(group, attempts, obstacle, answers)
            result = "scheduled" if decision.rows else "unschedulable"
            fails = not decision.rows and obstacle is None
            if fails and calls is not None and as_before() and await self._lost(attempts, calls):
                return None
            if decision.tries and not decision.rows and as_before():
                decision, waits = await self._preempt_for_group(group, attempts, decision, answers)
                result = "waiting_on_preemption" if waits else result
            if fails and as_before():
                await self._in_slices(
                    self._reservation.update(group, members, self._clock(), answers), metrics
                )
                nominated = any(self._nominated_node(attempt) for attempt in attempts)
                if not nominated and as_before():
                    self._delete_half_group(group, attempts[0].pipeline)
            self._group_reports.decided(group, decision)
            left = [a for a in attempts if a.queued.pod.uid not in decision.rows]
            by_shapes = decision.by_shapes and self._are_all(group, attempts)
            steps = self._group_unschedulable(left, decision, by_shapes=by_shapes)
            await self._in_slices(steps, metrics)
        except (_GivenUp, StillEvaluating):
            raise
        except Exception as error:
            if not isinstance(error, PluginFailed):
                logger.exception("scheduling the pod group %s failed", group.key)
            await self._group_failed(group, attempts, text_of(error))
            return "error"
        else:
            return result

    async def _lost(self, attempts: Sequence[_Attempt], calls: GroupCalls) -> bool:
        """Whether a node that extenders passed fits no more; the answers about it are dropped."""
        steps = calls.drop_lost(_pods(attempts), self._clock)
        return await self._in_slices(steps, attempts[0].pipeline.metrics)

    async def _in_slices(self, work: Slices[_Result], metrics: PluginMetrics) -> _Result:
        """The result of work about a group; other tasks run in its pauses.

        Raises:
            _GivenUp: this scheduler decides nothing more.
        """
        with closing(work):
            while True:
                try:
                    next(work)
                except StopIteration as ended:
                    result: _Result = ended.value
                    return result
                paused = self._clock()
                with metrics.suspended():
                    await asyncio.sleep(_PAUSE_SECONDS)
                self._turned = self._clock()
                self._paused += self._turned - paused
                if self._halted:
                    raise _GivenUp

    async def _group_decision(
        self,
        group: PodGroupState,
        attempts: list[_Attempt],
        obstacle: str | None,
        answers: GroupAnswers | None,
    ) -> GroupDecision:
        """The decision, with the members assumed; without one if there is an obstacle to it."""
        if obstacle is None:
            return await self._assume_group(group, attempts, answers)
        for pod in self._reservation.withdraw(group):
            self._reports.nomination_cleared(pod)
        return GroupDecision({}, message=obstacle, plugins=_GANG)

    async def _assume_group(
        self, group: PodGroupState, attempts: list[_Attempt], answers: GroupAnswers | None
    ) -> GroupDecision:
        """The members that fit together are assumed, and tasks that bind them begin.

        Returns the decision; nothing is assumed if it has no rows.
        """
        queued, pipeline = attempts[0].queued, attempts[0].pipeline
        steps = place_group(
            group,
            [attempt.queued.pod for attempt in attempts],
            self._slow.pipeline_for(pipeline),
            self._scheduler.cluster,
            self._shared,
            seed=tie_break_seed(queued.pod.uid, queued.attempts),
            assume=partial(self._assume_together, group, group.definition, attempts),
            clock=self._clock,
            answers=answers,
        )
        began, paused = self._clock(), self._paused
        decision = await self._in_slices(steps, pipeline.metrics)
        took = self._clock() - began - (self._paused - paused)
        self._metrics.pod_group_decided(took)
        self._slow.decided(pipeline, str(group.key), took / len(attempts))
        for attempt in attempts:
            attempt.took = took / len(attempts)
        return decision

    def _assume_together(
        self,
        group: PodGroupState,
        definition: PodGroup | None,
        attempts: list[_Attempt],
        decision: GroupDecision,
        check: MemberCheck,
    ) -> Slices[None]:
        """Assumes the members on their rows, and begins their bindings.

        Raises:
            _GivenUp: in a pause the group or one of these members was changed.
        """
        scheduler, now = self._scheduler, self._clock()
        chosen = [a for a in attempts if a.queued.pod.uid in decision.rows]
        if check.budget.pauses and not _still_wanted(group, definition, len(chosen)):
            raise _GivenUp
        joined = self._binding_of(group)
        together = joined or GroupBinding(group)
        assumed = yield from assume_together(
            [(a.queued, decision.rows[a.queued.pod.uid]) for a in chosen],
            together,
            attempts[0].pipeline,
            scheduler,
            check,
            now=now,
        )
        changed = check.budget.pauses and not (
            all(is_current(a.queued, scheduler) for a in chosen)
            and _still_wanted(group, definition, 0)
        )
        if changed or together.called_off is not None or (joined is not None and joined.over):
            for one in assumed:
                one.undo.close()
            raise _GivenUp
        together.join(len(assumed))
        left = deque(zip(chosen, assumed, strict=True))
        try:
            while left:
                attempt, one = left.popleft()
                if scheduler.queue.get(one.pod.uid) is not attempt.queued:
                    self._give_up(one, "it was deleted")
                    continue
                scheduler.state.announce(one.pod)
                self._record(attempt, one.node, None)
                self._begin_binding(attempt, one, now)
                yield from check.budget.pause()
        finally:
            for _, one in left:
                self._give_up(one, "the scheduler is stopping")

    def _give_up(self, assumed: AssumedPod, reason: str) -> None:
        """Unreserves and forgets a member of a group that no task binds yet."""
        assumed.undo.close()
        self._member_failed(assumed, reason)
        self._member_ended(assumed, None)

    def _has_left(self, attempt: _Attempt) -> bool:
        """Whether the pod was deleted, has no profile any more, or is on a node.

        Nothing is reported about it. If it is still in flight, its attempt has ended.
        """
        scheduler, queued = self._scheduler, attempt.queued
        if scheduler.queue.get(queued.pod.uid) is not queued:
            return True
        if scheduler.cluster.is_placed(queued.pod):
            scheduler.queue.done(queued, self._clock())
            return True
        return False

    async def _preempt_for_group(
        self,
        group: PodGroupState,
        attempts: list[_Attempt],
        decision: GroupDecision,
        answers: GroupAnswers | None,
    ) -> tuple[GroupDecision, bool]:
        """The members are nominated where preemption makes space for all, or nominated no more.

        Nobody is evicted if the group or a member has changed in a pause. Returns the decision
        with its message, and whether the members wait for victims.
        """
        scheduler, queued, pipeline = self._scheduler, attempts[0].queued, attempts[0].pipeline
        definition, waiting = group.definition, [attempt.queued for attempt in attempts]
        steps = preempt_for_group(
            group,
            [member.pod for member in waiting],
            pipeline,
            scheduler.cluster,
            self._shared,
            seed=tie_break_seed(queued.pod.uid, queued.attempts),
            now=time.time(),
            clock=self._clock,
            answers=answers,
        )
        answer = await self._in_slices(steps, pipeline.metrics)
        if not is_unchanged(group, definition, waiting, scheduler):
            return decision, False
        if isinstance(answer, GroupNomination):
            victims, now = [*map(PodRef.of, answer.victims)], self._clock()
            for member in waiting:
                if (node := answer.nodes.get(member.pod.uid)) is not None:
                    self._decisions.nominated(member.pod.uid, node, victims, now)
            self._metrics.preemption_attempted()
            self._metrics.preempted(self._preemptions.begin_group(waiting, answer))
            return decision, True
        if isinstance(answer, Unschedulable) and not self._reservation.holds(group):
            for attempt in attempts:
                scheduler.state.withdraw(attempt.queued.pod.uid)
        return replace(decision, message=f"{decision.message} {answer.reason}".rstrip()), False

    def _fail_members(self, attempts: Iterable[_Attempt], message: str) -> Slices[None]:
        """The attempt ended in an error for each of these members."""
        budget = SearchBudget(clock=self._clock)
        for attempt in attempts:
            if not self._has_left(attempt):
                self._fail(attempt, message)
            yield from budget.pause()

    def _group_unschedulable(
        self, attempts: Sequence[_Attempt], decision: GroupDecision, *, by_shapes: bool
    ) -> Slices[None]:
        """These members have no node; their backoff is that of the group.

        For `by_shapes` see QueuedPod.
        """
        budget = SearchBudget(clock=self._clock)
        count = max((a.queued.unschedulable_count for a in attempts), default=0)
        for attempt in attempts:
            if self._has_left(attempt):
                continue
            self._count(attempt, "unschedulable")
            queued = attempt.queued
            queued.unschedulable_count, queued.decided_by_shapes = count, by_shapes
            # Before the pod is in a queue again: its state says when the attempt began.
            self._record(attempt, None, decision.message)
            self._scheduler.queue.add_unschedulable(queued, decision.plugins, self._clock())
            self._reports.unschedulable(queued.pod, decision.message, self._nominated_node(attempt))
            yield from budget.pause()

    def _are_all(self, group: PodGroupState, attempts: Iterable[_Attempt]) -> bool:
        """Whether these are all members of the group without a node, and none is nominated."""
        without_node = group.unscheduled.keys()
        return without_node == {attempt.queued.pod.uid for attempt in attempts} and not any(
            self._nominated_node(attempt) for attempt in attempts
        )

    def _nominated_node(self, attempt: _Attempt) -> str | None:
        """The node that the pod is nominated to."""
        nominee = self._scheduler.state.nominations.get(attempt.queued.pod.uid)
        return self._scheduler.state.nodes.names[nominee.row] if nominee is not None else None

    def _record(self, attempt: _Attempt, node: str | None, message: str | None) -> None:
        """Keeps the decision about a member of a group, which was not scored by itself."""
        decision = Decision(
            pod=PodRef.of(attempt.queued.pod),
            profile=attempt.pipeline.profile,
            profile_generation=attempt.pipeline.generation,
            node=node,
            nominated_node=None,
            victims=(),
            scores=None,
            rejections={},
            message=message,
        )
        self._decisions.decided(decision, self._clock(), cause=message or "")

    def _unschedulable(self, attempt: _Attempt, outcome: FitError) -> None:
        """No node can take the pod: it is nominated, keeps its nomination, or loses it."""
        self._count(attempt, "unschedulable")
        scheduler, queued, pod = self._scheduler, attempt.queued, attempt.queued.pod
        if outcome.nomination is not None:
            self._metrics.preemption_attempted()
            self._metrics.preempted(self._preemptions.begin(queued, outcome.nomination))
        elif not outcome.keeps_nomination:
            scheduler.state.withdraw(pod.uid)
        scheduler.queue.add_unschedulable(queued, outcome.diagnosis.plugins, self._clock())
        self._reports.unschedulable(pod, outcome.message, self._nominated_node(attempt))

    def _fail(
        self,
        attempt: _Attempt,
        message: str,
        reason: PodScheduledReason = PodScheduledReason.SCHEDULER_ERROR,
    ) -> None:
        """The attempt ended in an error, which also ends a nomination, as in kube-scheduler."""
        self._count(attempt, "error")
        self._decisions.note(attempt.queued.pod.uid, Step.ERROR, self._clock(), message)
        self._scheduler.state.withdraw(attempt.queued.pod.uid)
        self._scheduler.queue.add_after_error(attempt.queued, self._clock())
        self._reports.error(attempt.queued.pod, message, reason)

    def _rejected(self, attempt: _Attempt, rejection: PodRejected) -> None:
        """A Reserve or Permit plugin rejected the pod.

        A scheduler that stops has rejected those at Permit itself, and the next one decides anew:
        nothing is written about them, because it would ask a cluster autoscaler for nodes. The same
        is true of a pod that has left the queue, because it was deleted or no profile takes it.
        """
        self._count(attempt, "unschedulable")
        queued, queue = attempt.queued, self._scheduler.queue
        details = rejection.plugin, rejection.reason
        self._decisions.note(queued.pod.uid, Step.REJECTED, self._clock(), *details)
        queue.add_unschedulable(queued, frozenset((rejection.plugin,)), self._clock())
        if not self._halted and queue.get(queued.pod.uid) is queued:
            self._reports.unschedulable(queued.pod, rejection.message)

    def _assume(self, attempt: _Attempt, chosen: ScheduleResult) -> None:
        """The pod is assumed on the chosen node, and a task that binds it begins."""
        queued, pipeline, now = attempt.queued, attempt.pipeline, self._clock()
        assumed = assume_reserve_and_permit(queued, chosen.row, pipeline, self._scheduler, now=now)
        self._begin_binding(attempt, assumed, now)

    def _begin_binding(self, attempt: _Attempt, assumed: AssumedPod, now: float) -> None:
        """A task that binds the assumed pod begins."""
        attempt.binding = True
        queued = attempt.queued
        self._scheduler.queue.assumed(queued, now)
        waiting = self._scheduler.waiting.get(assumed.pod.uid)
        if assumed.permitted is None or waiting is None:
            queued.times.enter(PodState.BINDING, now)
        else:
            queued.times.enter(PodState.PERMIT, now)
            details = assumed.node, *waiting.pending
            self._decisions.note(assumed.pod.uid, Step.WAITING_AT_PERMIT, now, *details)
        if assumed.permitted is not None:
            assumed.permitted.add_done_callback(partial(self._permitted, queued, now))
        under_way = self._scheduler.being_bound[assumed.pod.uid] = BindingUnderWay(assumed.together)
        task = asyncio.create_task(self._bind(attempt, assumed))
        self._bindings.add(task)
        task.add_done_callback(partial(self._bound, assumed, under_way))

    def _permitted(
        self, queued: QueuedPod, since: float, permitted: "asyncio.Future[None]"
    ) -> None:
        now = self._clock()
        rejected = permitted.cancelled() or permitted.exception() is not None
        result = "Unschedulable" if rejected else "Success"
        self._metrics.permit_waited(result, now - since)
        if not rejected and queued.times.state is PodState.PERMIT:
            queued.times.enter(PodState.BINDING, now)

    def _bound(
        self, assumed: AssumedPod, under_way: BindingUnderWay, task: "asyncio.Task[bool]"
    ) -> None:
        self._bindings.discard(task)
        bound = not task.cancelled() and task.exception() is None and task.result()
        pod, being_bound = assumed.pod, self._scheduler.being_bound
        if being_bound.get(pod.uid) is under_way:  # else the next attempt has begun
            del being_bound[pod.uid]
        unknown = self._halted and task.cancelled()
        if under_way.left_watch and not bound and not unknown:
            self._decisions.gone(pod.uid, self._clock())
        self._member_ended(assumed, assumed.pod if bound else None)
        self.wake()

    def _member_failed(self, assumed: AssumedPod, reason: str) -> None:
        """If the pod was assumed with its group, the others may be called off."""
        together = assumed.together
        if together is None:
            return
        together.failed(f"member {assumed.pod.key} failed: {reason}")
        if together.called_off is not None and not self._halted:
            self._report_called_off(together, together.called_off)

    def _member_called_off(self, attempt: _Attempt, assumed: AssumedPod, reason: str) -> None:
        """End the attempt of a member, because others of the group failed.

        A scheduler that stops calls off the members at Permit and writes nothing about them,
        because its successor decides about them anew.
        """
        if self._halted:
            self._scheduler.queue.add_after_error(attempt.queued, self._clock())
            return
        if assumed.together is not None:
            self._report_called_off(assumed.together, reason)
        self._fail(attempt, reason)

    def _report_called_off(self, together: GroupBinding, reason: str) -> None:
        """Report why the group failed, unless it has gone; another group may have its name."""
        if self._is_known(together.group):
            self._group_reports.failed(together.group, reason)

    def _is_known(self, group: PodGroupState) -> bool:
        """Whether the group still has a definition or a member."""
        return self._scheduler.state.pod_groups.get(group.key) is group

    def _member_ended(self, assumed: AssumedPod, bound: Pod | None) -> None:
        """Note that the pod is bound, or (None) will not be; it may be the last one of its group.

        Only the first call about a member counts.
        """
        together, assumed.together = assumed.together, None
        if together is None:
            return
        half = together.ended(bound)
        if together.over and together.called_off is not None and self._is_known(together.group):
            self._delete_half_group(together.group, assumed.pipeline, half)

    def _delete_half_group(
        self, group: PodGroupState, pipeline: Pipeline, bound: Sequence[Pod] = ()
    ) -> None:
        """Deletes the members that are bound though the group could not be, if the profile says so.

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

    async def _bind(self, attempt: _Attempt, assumed: AssumedPod) -> bool:
        """Binds the pod, or puts it in a queue again; whether it is bound."""
        scheduler, queued, pod = self._scheduler, attempt.queued, assumed.pod
        try:
            self._reports.forget(pod.uid)
            await bind(assumed, scheduler, self._extenders, self._reports.written)
        except PodRejected as rejection:
            self._member_failed(assumed, rejection.message)
            self._rejected(attempt, rejection)
        except CalledOff as called_off:
            self._member_called_off(attempt, assumed, str(called_off))
        except BindingFailed as failure:
            self._member_failed(assumed, str(failure))
            if failure.gone:
                scheduler.queue.done(queued, self._clock())
                self._decisions.gone(pod.uid, self._clock())
                self._reports.forget(pod.uid)
            else:
                self._fail(attempt, str(failure), failure.condition)
        except asyncio.CancelledError:
            assumed.undo.close()
            self._member_failed(assumed, "its binding was called off")
            scheduler.queue.add_after_error(queued, self._clock())
            raise
        except Exception as error:
            logger.exception("binding pod %s failed", pod.key)
            assumed.undo.close()
            self._member_failed(assumed, text_of(error))
            self._fail(attempt, text_of(error))
        else:
            now = self._clock()
            scheduler.state.expect_confirmation(pod, now + _CONFIRMATION_SECONDS)
            scheduler.queue.done(queued, now)
            self._decisions.bound(pod.uid, assumed.node, now)
            self._reports.scheduled(pod, assumed.node)
            self._count(attempt, "scheduled")
            seconds = now - queued.initial_attempt_timestamp
            self._metrics.pod_bound(queued.attempts, seconds, flushed=queued.flushed)
            self._member_ended(assumed, pod)  # its group may be tried again during PostBind
            await after_binding(assumed)
            return True
        return False

    def _count(self, attempt: _Attempt, result: str) -> None:
        seconds = self._clock() - attempt.began
        self._metrics.for_profile(attempt.pipeline.profile).attempt(result, attempt.took, seconds)


def _pods(attempts: Iterable[_Attempt]) -> list[Pod]:
    """The pods as they are now."""
    return [attempt.queued.pod for attempt in attempts]


def _still_wanted(group: PodGroupState, before: PodGroup | None, more: int) -> bool:
    """Whether the group has its minimum with so many more members on nodes.

    Its definition must be what it was before, but for the status.
    """
    enough = group.minimum <= group.scheduled_pods_count + more
    return enough and has_same_requirements(group, before)
