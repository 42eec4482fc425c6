"""Ends attempts: records and reports the results for single pods and for members of groups."""

from math import inf

import numpy as np

from mooring.observe.metrics import Metrics
from mooring.observe.records import RecordedStep
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.outcome import PodRejected
from mooring.scheduling.pod_status_reporter import PodScheduledReason, PodStatusReporter
from mooring.scheduling.scheduler_state import CurrentAttempt, SchedulerState
from mooring.state.evictions import OLDER_SECONDS


class Attempts:
    """Ends and counts attempts that bind no pod; puts the pods back into the scheduling queue."""

    def __init__(
        self, scheduler: SchedulerState, reports: PodStatusReporter, metrics: Metrics
    ) -> None:
        self.halted = False
        """Whether the scheduler is stopping and makes no more decisions."""
        self._scheduler = scheduler
        self._reports = reports
        self._metrics = metrics
        self._clock, self._now = scheduler.clock, scheduler.now

    def count(self, attempt: CurrentAttempt, result: str) -> None:
        """Count the attempt under this result in the metrics of its profile."""
        seconds = self._clock() - attempt.began
        self._metrics.for_profile(attempt.pipeline.profile).attempt(result, attempt.took, seconds)

    def fail(
        self,
        attempt: CurrentAttempt,
        queued: QueuedPod,
        message: str,
        reason: PodScheduledReason = PodScheduledReason.SCHEDULER_ERROR,
    ) -> None:
        """End the pod's attempt with an error, and withdraw its nomination."""
        self.count(attempt, "error")
        scheduler, pod, now = self._scheduler, queued.pod, self._clock()
        scheduler.decisions.note(pod.uid, RecordedStep.ERROR, now, cause=message)
        scheduler.state.withdraw(pod.uid)
        scheduler.queue.add_after_error(queued, now)
        # Otherwise a slow Bind plugin may have bound it, and no event would remove the report.
        if scheduler.queue.get(pod.uid) is queued:
            self._reports.error(pod, message, reason)

    def reject(self, attempt: CurrentAttempt, queued: QueuedPod, rejection: PodRejected) -> None:
        """End the attempt for a pod that a Reserve or Permit plugin has rejected."""
        self.count(attempt, "unschedulable")
        queue, now = self._scheduler.queue, self._clock()
        plugins, cause = [*filter(None, (rejection.plugin,))], rejection.reason
        decisions = self._scheduler.decisions
        decisions.note(queued.pod.uid, RecordedStep.REJECTED, now, plugins=plugins, cause=cause)
        queue.add_unschedulable(queued, frozenset((rejection.plugin,)), now)
        # A scheduler that stops rejects all waiting pods; they need no new nodes.
        if not self.halted and queue.get(queued.pod.uid) is queued:
            self._reports.unschedulable(queued.pod, rejection.message)

    def unschedulable(
        self,
        attempt: CurrentAttempt,
        queued: QueuedPod,
        plugins: frozenset[str],
        message: str,
        *,
        may_preempt: bool,
    ) -> None:
        """Report the pod as unschedulable, and put it back into the queue.

        `plugins` names the plugins that rejected the pod. `may_preempt` is True if the pod might
        fit after evictions of other pods.
        """
        self.count(attempt, "unschedulable")
        now, delayed = self._clock(), 0.0
        if may_preempt:
            queued.unschedulable_since = min(queued.unschedulable_since, now)
            delayed = _delayed_seconds(attempt, queued)
        queued.is_delayed = delayed > 0.0
        retry_at = now + (delayed or self._spared_seconds(attempt, queued))
        self._scheduler.queue.add_unschedulable(queued, plugins, now, retry_at)
        self._reports.unschedulable(queued.pod, message, self._scheduler.nominated_node(queued.pod))

    def _spared_seconds(self, attempt: CurrentAttempt, queued: QueuedPod) -> float:
        """Return the seconds until the pod may evict more pods; `inf` if no time is known."""
        spec, limits = queued.pod.spec, attempt.pipeline.preemption
        cluster, least, seconds = self._scheduler.cluster, limits.min_runtime_seconds, inf
        if least and spec.preempts:  # no event tells that the protection of a pod has ended
            columns, now = cluster.pod_columns, self._now()
            young = np.flatnonzero(columns.started > now - least)
            may_be = (columns.rows[young] >= 0) & ~columns.nominated[young]
            if cluster.queues.of(queued.pod) is None:  # else priority need not matter
                may_be &= columns.priority[young] < spec.priority
            left = np.minimum(columns.started[young[may_be]], now) + least - now
            seconds = float(left.min(initial=inf))
        # Budgets protect pods after recent evictions and refusals.
        if limits.strict and spec.preempts and cluster.evictions.has_ageing:
            seconds = min(seconds, OLDER_SECONDS)
        return seconds

    def has_left(self, queued: QueuedPod) -> bool:
        """Return whether the pod was deleted, lost its profile, or is on a node.

        If the pod is on a node, end its attempt.
        """
        queue = self._scheduler.queue
        if queue.get(queued.pod.uid) is not queued:
            return True
        if self._scheduler.cluster.is_placed(queued.pod):
            queue.done(queued, self._clock())
            return True
        return False


def _delayed_seconds(attempt: CurrentAttempt, queued: QueuedPod) -> float:
    if not queued.pod.spec.preempts:
        return 0.0
    return max(attempt.pipeline.preemption.delay_seconds - attempt.unschedulable_seconds, 0.0)
