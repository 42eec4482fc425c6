"""The scheduling loop: pop a pod, decide, assume it on the node, hand it over to its binding.

Deciding is synchronous; everything that waits is a task of its own, bounded in number. The loop
yields to the event loop after every slice of work, so that watches and bindings go on meanwhile.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mooring.engine.assumed import PodRejected, assume_reserve_and_permit
from mooring.engine.attempts import Attempt, Attempts
from mooring.engine.binding import BindingCycle
from mooring.engine.cycle import decide, tie_break_seed
from mooring.engine.extenders.answers import (
    Answers,
    ExtenderError,
    Needed,
    PodAnswers,
    interested,
)
from mooring.engine.extenders.extender_attempts import ExtenderAttempts
from mooring.engine.extenders.extenders import Extenders
from mooring.engine.groups.cycle import GroupCycle
from mooring.engine.groups.members import group_of
from mooring.engine.groups.pod_group_status_reporter import PodGroupStatusReporter
from mooring.engine.outcome import FitError, Outcome, ScheduleResult, decision_of
from mooring.engine.pod_status_reporter import PodStatusReporter
from mooring.engine.preemption_executor import PreemptionExecutor
from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.engine.shadow import Shadow
from mooring.framework.plugin_failures import PluginFailed, text_of
from mooring.framework.queued_pod import QueuedPod
from mooring.framework.slow_decisions import SlowDecisions
from mooring.observe.metrics import Metrics
from mooring.pausing import Interrupted, worked
from mooring.time_slices import TimeSlices

__all__ = ["SchedulingLoop"]

logger = logging.getLogger(__name__)

_HINT_SECONDS: Final = 0.001
"""How long queueing hints run between two decisions; one hint at least."""
_MOST_BINDING: Final = 256
_IDLE_SECONDS: Final = 10.0
"""The loop turns at least so often, which shows that it is alive."""
_STUCK_SECONDS: Final = 60.0
"""A loop that has not turned for longer needs a restart; one decision takes milliseconds."""
_CANCELLED_SECONDS: Final = 1.0
"""How long attempts that wait for an extender may take to end when they are cancelled."""
_RECORDED_NODES: Final = 3


class SchedulingLoop:
    """Schedules pods while `run` runs; set `work` or call `wake` when the queue may have work.

    `settle` is called with each pod that was popped, and returns whether it may be tried now: its
    profile may have to be found first (`PodEnqueuer.settle`).
    """

    _alarm: asyncio.TimerHandle | None = None
    """Wakes the loop at the latest when it has to look for work again."""

    def __init__(
        self,
        scheduler: SchedulerState,
        *,
        reports: PodStatusReporter,
        metrics: Metrics,
        preemptions: PreemptionExecutor,
        extenders: Extenders,
        group_reports: PodGroupStatusReporter,
        settle: Callable[[QueuedPod], bool],
        work: asyncio.Event,
        shadow: Shadow | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._scheduler = scheduler
        self._metrics = metrics
        self._preemptions = preemptions
        self._shadow = shadow
        self._settle = settle
        self._extender_attempts = ExtenderAttempts(extenders, scheduler.cluster, self.wake)
        self._clock, self._now = clock, now
        self._shared = ResultCache(scheduler.state.nodes)
        self._slow = SlowDecisions()
        self._work = work
        self._start = 0
        self._turned: float | None = None
        self._attempts = Attempts(scheduler, reports, metrics, clock, now)
        self._bindings = BindingCycle(
            scheduler,
            self._attempts,
            extenders=extenders,
            reports=reports,
            metrics=metrics,
            wake=self.wake,
            clock=clock,
        )
        self._groups = GroupCycle(
            scheduler,
            self._attempts,
            self._bindings,
            self._shared,
            slow=self._slow,
            extender_attempts=self._extender_attempts,
            preemptions=preemptions,
            reports=reports,
            group_reports=group_reports,
            metrics=metrics,
            settle=settle,
            clock=clock,
            now=now,
        )

    @property
    def binding(self) -> int:
        """How many pods are on their way from a decision to a bound pod."""
        return len(self._bindings)

    @property
    def requesting(self) -> int:
        """How many bindings have a request in flight; those at Permit or PreBind have none."""
        return self._bindings.requesting

    def wake(self) -> None:
        """Have `run` look for work now."""
        self._work.set()

    def halt(self) -> None:
        """Decide nothing more; bindings that have begun go on."""
        self._attempts.halted = True
        self.wake()

    def stuck(self) -> str | None:
        """Return for how long `run` has not turned, if too long; None if it does not run."""
        if self._turned is None or self._attempts.halted:
            return None
        seconds = self._clock() - self._turned
        if seconds <= _STUCK_SECONDS:
            return None
        return f"the scheduling loop has not turned for {seconds:.0f} seconds"

    async def run(self) -> None:
        """Schedule until cancelled or halted."""
        slices = TimeSlices(clock=self._clock)
        try:
            while not self._attempts.halted:
                await self._turn(slices)
        finally:
            self._set_alarm(None)

    async def _turn(self, slices: TimeSlices) -> None:
        """Do what is to be done next, and wait if that is nothing."""
        self._turned = now = self._clock()
        async with self._scheduler.turn:
            has_worked = await self._work_once(now, slices)
        if not has_worked:
            await self._idle(now)
            slices.begin()
        await slices.pause()

    async def _work_once(self, now: float, slices: TimeSlices) -> bool:
        """Make one attempt, or do what is less urgent; return whether there was anything to do."""
        more_hints = await slices.run(partial(self._run_hints, now))
        if goes_on := self._extender_attempts.ready and self._may_bind():
            await self._extender_attempts.go_on()
        if (queued := await slices.run(partial(self._pop, now))) is not None:
            await self._attempt(queued, slices)
            return True
        return goes_on or more_hints or await slices.run(partial(self._compare, slices.end))

    async def finish(self, seconds: float) -> None:
        """End all bindings, those at Permit at once; cancel what takes more than `seconds`.

        Attempts that wait for an extender are given up at once.
        """
        await self._extender_attempts.cancel(_CANCELLED_SECONDS)
        await self._bindings.finish(seconds)

    def expire_nominations(self) -> None:
        """End nominations of members of groups that no attempt ends; to be called sometimes."""
        self._groups.expire_nominations()

    def _run_hints(self, now: float) -> bool:
        """Run queueing hints of unschedulable pods for a moment; return whether there are more."""
        until = now + _HINT_SECONDS
        while self._scheduler.queue.run_hints(now):
            if self._clock() >= until:
                return True
        return False

    def _pop(self, now: float) -> QueuedPod | None:
        """Return the next pod to schedule; None without one, or while many are being bound."""
        return self._scheduler.queue.pop(now) if self._may_bind() else None

    def _may_bind(self) -> bool:
        """Return whether one more binding may be in flight."""
        return self.requesting < _MOST_BINDING

    def _compare(self, until: float) -> bool:
        """Decide for profiles in mode Shadow while no pod waits; return whether there was work."""
        return self._shadow is not None and self._may_bind() and self._shadow.compare(until)

    async def _idle(self, now: float) -> None:
        """Wait for work, for the end of a binding or the next backoff; for a while at most."""
        self._work.clear()
        may_bind = self._may_bind()
        self._bindings.waits = not may_bind
        due = self._scheduler.queue.next_due() if may_bind else None
        seconds = _IDLE_SECONDS if due is None else min(max(due - now, 0.0), _IDLE_SECONDS)
        self._set_alarm(asyncio.get_running_loop().time() + seconds)
        await self._work.wait()

    def _set_alarm(self, at: float | None) -> None:
        """Have the loop woken at this time of the event loop or sooner; None: not at all.

        An alarm that is due sooner stays, and wakes the loop for nothing: to set one for each pod
        would cost more.
        """
        if self._alarm is not None:
            if at is not None and self._alarm.when() <= at:
                return
            self._alarm.cancel()
        self._alarm = None if at is None else asyncio.get_running_loop().call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.wake()

    async def _attempt(self, queued: QueuedPod, slices: TimeSlices) -> None:
        """Run one attempt: the pod is handed to its binding, or is in a queue again."""
        scheduler, pod = self._scheduler, queued.pod
        # A former leader may have bound it a moment ago.
        if pod.terminating or scheduler.cluster.is_placed(pod):
            scheduler.queue.done(queued, self._clock())
            return
        if not self._settle(queued):
            return
        group = group_of(pod, queued.pipeline, scheduler.cluster)
        if group is not None:
            await self._groups.attempt(group, queued, slices)
            return
        attempt = Attempt(queued, queued.pipeline, self._clock())
        if interested(queued.pipeline, pod):
            self._extender_attempts.add(queued, partial(self._with_answers, attempt, slices))
        else:
            await self._in_slices(attempt, None, slices)

    async def _with_answers(
        self, attempt: Attempt, slices: TimeSlices, answers: Answers
    ) -> Sequence[Needed]:
        """Decide with what extenders have answered; return what is still needed, if anything is.

        If the pod has gone or another pipeline takes it meanwhile, the attempt is given up.
        """
        if self._is_given_up(attempt):
            return ()
        if answers.failure:
            self._attempts.fail(attempt, answers.failure)
            return ()
        pod = attempt.queued.pod
        preempts = any(e.preempt_verb for e in interested(attempt.pipeline, pod))
        needed = await self._in_slices(attempt, answers.about(pod, preempts=preempts), slices)
        return (needed,) if needed is not None else ()

    async def _in_slices(
        self, attempt: Attempt, answers: PodAnswers | None, slices: TimeSlices
    ) -> Needed | None:
        """Decide as `_half` does, and let other tasks run in its pauses."""
        queue, began = self._scheduler.queue, self._clock()
        try:
            return await slices.run(partial(self._half, attempt, answers), self._attempts.go_on)
        except Interrupted:
            queue.put_back(attempt.queued, self._clock())
            return None
        finally:
            now = self._clock()
            queue.attempted(attempt.queued.pod.namespace, now - began, now)

    def _is_given_up(self, attempt: Attempt) -> bool:
        """Return whether the attempt must not go on; then the pod is in a queue again, or gone."""
        queue, queued = self._scheduler.queue, attempt.queued
        if self._scheduler.cluster.is_placed(queued.pod):
            queue.done(queued, self._clock())
            return True
        has_left = queue.get(queued.pod.uid) is not queued
        if self._attempts.halted or queued.outdated or has_left:
            queue.put_back(queued, self._clock())
            return True
        return False

    def _half(self, attempt: Attempt, answers: PodAnswers | None) -> Needed | None:
        """Decide with the answers that extenders have given so far.

        Return what is needed first. If nothing is, the attempt is decided: the pod is handed to its
        binding, or is in a queue again.
        """
        pod, metrics = attempt.queued.pod, attempt.pipeline.metrics
        outer = metrics.begin_attempt()
        try:
            outcome = self._decide(attempt, answers)
            if isinstance(outcome, Needed):
                return outcome
            if isinstance(outcome, FitError):
                self._unschedulable(attempt, outcome)
            else:
                self._assume(attempt, outcome)
        except PodRejected as rejection:
            self._attempts.reject(attempt, rejection)
        except Exception as error:
            if not isinstance(error, PluginFailed | ExtenderError):
                logger.exception("scheduling pod %s failed", pod.key)
            self._attempts.fail(attempt, text_of(error))
        finally:
            metrics.end_attempt(outer)
        return None

    def _decide(self, attempt: Attempt, answers: PodAnswers | None) -> Outcome | Needed:
        scheduler, queued, pipeline = self._scheduler, attempt.queued, attempt.pipeline
        began = worked(self._clock)
        pipeline.metrics.begin_decision()
        try:
            outcome = decide(
                queued.pod,
                self._slow.pipeline_for(pipeline),
                scheduler.cluster,
                self._shared,
                seed=tie_break_seed(queued.pod.uid, queued.attempts),
                start=self._start,
                now=self._now(),
                answers=answers,
            )
        finally:
            pipeline.metrics.end_decision(pipeline.profile)
            took = worked(self._clock) - began
            attempt.took += took
            self._slow.decided(pipeline, queued.pod.key, took)
        if isinstance(outcome, Needed):
            return outcome
        if isinstance(outcome, ScheduleResult):
            self._start = (self._start + outcome.evaluated_nodes) % scheduler.cluster.node_count
        if self._scheduler.decisions.limit:
            self._record(attempt, outcome)
        return outcome

    def _record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Keep the decision for `mooring explain`."""
        pod, now = attempt.queued.pod, self._clock()
        decision = decision_of(pod, attempt.pipeline, outcome, _RECORDED_NODES)
        if isinstance(outcome, ScheduleResult):
            self._scheduler.decisions.decided(decision, now, scored=outcome.feasible_nodes)
        else:
            why, total = outcome.cause, outcome.diagnosis.total
            self._scheduler.decisions.decided(decision, now, cause=why, rejected=total)

    def _unschedulable(self, attempt: Attempt, outcome: FitError) -> None:
        """End the attempt about a pod that fits on no node, and nominate it if preemption helps."""
        self._attempts.count(attempt, "unschedulable")
        scheduler, queued, pod = self._scheduler, attempt.queued, attempt.queued.pod
        if outcome.nomination is not None:
            self._metrics.preemption_attempted()
            victims = self._preemptions.begin(queued, outcome.nomination)
            self._metrics.preempted(victims, outcome.nomination.violations)
        elif not outcome.keeps_nomination:
            scheduler.state.withdraw(pod.uid)
        self._attempts.unschedulable(attempt, outcome.diagnosis.plugins, outcome.message)

    def _assume(self, attempt: Attempt, chosen: ScheduleResult) -> None:
        """Assume the pod on the chosen node, and begin the task that binds it."""
        queued, pipeline, now = attempt.queued, attempt.pipeline, self._clock()
        assumed = assume_reserve_and_permit(queued, chosen.row, pipeline, self._scheduler, now=now)
        self._bindings.begin(attempt, assumed, now)
