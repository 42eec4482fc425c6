"""Attempts to schedule pods, and what is noted and reported when one ends without a bound pod."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from mooring.engine.assumed import PodRejected
from mooring.engine.pod_status_reporter import PodScheduledReason, PodStatusReporter
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.pipeline import Pipeline
from mooring.framework.queued_pod import QueuedPod
from mooring.observe.metrics import Metrics
from mooring.observe.records import Step
from mooring.state.evictions import OLDER_SECONDS

__all__ = ["Attempt", "Attempts"]


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt: when it began and how long deciding took, in seconds.

    It keeps the pipeline that the pod had when it began, even if the pod gets another meanwhile.
    """

    queued: QueuedPod
    pipeline: Pipeline
    began: float
    took: float = 0.0
    binding: bool = False
    """Whether a task binds the pod; it says how the attempt ends."""


class Attempts:
    """Ends attempts about pods, alone or in a group: counts them, and puts pods back in a queue."""

    def __init__(
        self,
        scheduler: SchedulerState,
        reports: PodStatusReporter,
        metrics: Metrics,
        clock: Callable[[], float],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.halted = False
        """Whether nothing more is decided, because the scheduler stops."""
        self._scheduler = scheduler
        self._reports = reports
        self._metrics = metrics
        self._clock, self._now = clock, now

    def go_on(self) -> bool:
        """Return whether anything more is decided."""
        return not self.halted

    def count(self, attempt: Attempt, result: str) -> None:
        """Count the attempt in the metrics with this result."""
        seconds = self._clock() - attempt.began
        self._metrics.for_profile(attempt.pipeline.profile).attempt(result, attempt.took, seconds)

    def fail(
        self,
        attempt: Attempt,
        message: str,
        reason: PodScheduledReason = PodScheduledReason.SCHEDULER_ERROR,
    ) -> None:
        """End the attempt in an error, and the pod's nomination too, as in kube-scheduler.

        Nothing is written about a pod that has left the queue: it may be bound although a plugin
        that binds took too long, and no watch would tell later that the report can be forgotten.
        """
        self.count(attempt, "error")
        scheduler, pod, now = self._scheduler, attempt.queued.pod, self._clock()
        scheduler.decisions.note(pod.uid, Step.ERROR, now, cause=message)
        scheduler.state.withdraw(pod.uid)
        scheduler.queue.add_after_error(attempt.queued, now)
        if scheduler.queue.get(pod.uid) is attempt.queued:
            self._reports.error(pod, message, reason)

    def reject(self, attempt: Attempt, rejection: PodRejected) -> None:
        """End the attempt about a pod that a Reserve or Permit plugin rejected.

        A scheduler that stops has rejected those at Permit itself, and the next one decides anew:
        nothing is written about them, because it would ask a cluster autoscaler for nodes. The same
        is true of a pod that has left the queue, because it was deleted or no profile takes it.
        """
        self.count(attempt, "unschedulable")
        queued, queue, now = attempt.queued, self._scheduler.queue, self._clock()
        plugins, cause = [*filter(None, (rejection.plugin,))], rejection.reason
        decisions = self._scheduler.decisions
        decisions.note(queued.pod.uid, Step.REJECTED, now, plugins=plugins, cause=cause)
        queue.add_unschedulable(queued, frozenset((rejection.plugin,)), now)
        if not self.halted and queue.get(queued.pod.uid) is queued:
            self._reports.unschedulable(queued.pod, rejection.message)

    def unschedulable(self, attempt: Attempt, plugins: frozenset[str], message: str) -> None:
        """Put the pod among the unschedulable ones, which these plugins rejected, and report it."""
        queued, now = attempt.queued, self._clock()
        retry_at = now + self._spared_seconds(attempt)
        self._scheduler.queue.add_unschedulable(queued, plugins, now, retry_at)
        self._reports.unschedulable(queued.pod, message, self.nominated_node(attempt))

    def _spared_seconds(self, attempt: Attempt) -> float:
        """Return how soon preemption may find a victim that a limit of the profile spares now.

        Infinity if there is none. No event tells that a pod has run for long enough, nor that a
        refusal of the Eviction API or the charge of a budget counts no more.
        """
        spec, limits = attempt.queued.pod.spec, attempt.pipeline.preemption
        cluster, least, seconds = self._scheduler.cluster, limits.min_runtime_seconds, inf
        if least and spec.preempts:
            columns, now = cluster.pod_columns, self._now()
            young = np.flatnonzero(columns.started > now - least)
            may_be = (columns.rows[young] >= 0) & ~columns.nominated[young]
            may_be &= columns.priority[young] < spec.priority
            left = np.minimum(columns.started[young[may_be]], now) + least - now
            seconds = float(left.min(initial=inf))
        if limits.strict and spec.preempts and cluster.evictions.has_ageing:
            seconds = min(seconds, OLDER_SECONDS)
        return seconds

    def nominated_node(self, attempt: Attempt) -> str | None:
        """Return the name of the node that the pod is nominated to."""
        nominee = self._scheduler.state.nominations.get(attempt.queued.pod.uid)
        return self._scheduler.state.nodes.names[nominee.row] if nominee is not None else None

    def has_left(self, attempt: Attempt) -> bool:
        """Return whether the pod was deleted, has no profile any more, or is on a node.

        Nothing is reported about it. If it is still in flight, its attempt has ended.
        """
        queue, queued = self._scheduler.queue, attempt.queued
        if queue.get(queued.pod.uid) is not queued:
            return True
        if self._scheduler.cluster.is_placed(queued.pod):
            queue.done(queued, self._clock())
            return True
        return False
