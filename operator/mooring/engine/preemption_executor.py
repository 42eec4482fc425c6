"""A preemption carried out: the nomination at once, the evictions behind it.

Nothing is evicted before the whole plan is proven, and every eviction counts against its budgets
from the moment it begins. The upstream order is kept: all victims but the last in parallel, then
the last, so that the preemptor is not woken for room that is not complete
(framework/preemption/executor.go).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from mooring.engine.reports import Reports
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.post_filter import Nomination
from mooring.framework.queued_pod import QueuedPod
from mooring.kube.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    TooManyRequestsError,
    explain,
)
from mooring.kube.timestamps import time_now
from mooring.kube.writes import PodWriter
from mooring.model.events import ClusterEvent
from mooring.model.pod import Pod

__all__ = ["PreemptionExecutor"]

logger = logging.getLogger(__name__)

_WAITING_VICTIM = "preempted"


class _BudgetRefusedError(Exception):
    """The Eviction API says that a budget does not allow a victim's disruption."""

    def __init__(self, victim: Pod) -> None:
        super().__init__(victim.key)
        self.victim = victim


class PreemptionExecutor:
    """Carries out nominations; `changed` is told what becomes free, `wake` that pods may retry."""

    def __init__(
        self,
        scheduler: SchedulerState,
        writer: PodWriter,
        reports: Reports,
        changed: Callable[[tuple[ClusterEvent, ...]], None],
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._writer = writer
        self._reports = reports
        self._changed = changed
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, queued: QueuedPod, nomination: Nomination) -> int:
        """The pod is nominated and its victims are on their way out; returns how many are new."""
        state = self._scheduler.state
        self._clear_lower(queued.pod, nomination.node)
        self._changed(state.nominate(queued.pod, nomination.node))
        victims = state.evictions.begun(queued.pod, nomination.victims)
        if victims:
            task = asyncio.create_task(self._evict(queued, victims, nomination))
            self._tasks.add(task)
            self._reports.preempting(queued.pod, victims, nomination.node)
            task.add_done_callback(self._tasks.discard)
        return len(victims)

    @property
    def in_flight(self) -> int:
        """How many plans are being carried out."""
        return len(self._tasks)

    async def finish(self, seconds: float) -> None:
        """Evictions that have begun are complete, or abandoned after `seconds`."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()

    def _clear_lower(self, preemptor: Pod, node: str) -> None:
        """Pods of lower priority that hoped for the node look for another place."""
        state = self._scheduler.state
        row = state.nodes.row_of.get(node)
        for pod in state.nominations.below(row, preemptor.shape.priority):
            self._withdraw(pod)

    async def _evict(self, queued: QueuedPod, victims: list[Pod], nomination: Nomination) -> None:
        preemptor, node, strict = queued.pod, nomination.node, nomination.strict
        try:
            *first, last = victims
            async with asyncio.TaskGroup() as group:
                for victim in first:
                    group.create_task(self._remove(victim, preemptor, node, strict=strict))
            await self._remove(last, preemptor, node, strict=strict)
        except* _BudgetRefusedError as refused:
            for error in refused.exceptions:
                if isinstance(error, _BudgetRefusedError):
                    self._scheduler.state.evictions.refused(error.victim)
            self._abandon(queued, victims, "a disruption budget allows no more evictions")
        except* ApiError as failed:
            first_error = failed.exceptions[0]
            text = explain(first_error) if isinstance(first_error, ApiError) else str(first_error)
            self._abandon(queued, victims, text)

    async def _remove(self, victim: Pod, preemptor: Pod, node: str, *, strict: bool) -> None:
        waiting = self._scheduler.waiting.get(victim.uid)
        call_off = self._scheduler.in_pre_bind.get(victim.uid)
        if waiting is not None:
            self._scheduler.waiting.reject(victim.uid, "DefaultPreemption", _WAITING_VICTIM)
        elif call_off is not None:
            call_off()
        else:
            try:
                await self._delete(victim, preemptor, strict=strict)
            except (NotFoundError, ConflictError):
                return  # it has gone by itself, or is another pod by now
        self._reports.preempted(victim, preemptor, node)

    async def _delete(self, victim: Pod, preemptor: Pod, *, strict: bool) -> None:
        """Marked, then deleted; an eviction is rejected before anything else has happened."""
        if strict:
            try:
                await self._writer.evict_pod(victim.namespace, victim.name, victim.uid)
            except TooManyRequestsError as error:
                raise _BudgetRefusedError(victim) from error
            return
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{preemptor.shape.scheduler_name}: preempting to accommodate a higher "
            "priority pod",
            "lastTransitionTime": time_now(),
        }
        # A mark that lost a race of writers is no reason to keep the victim; if it is another pod
        # by now, the deletion says so too.
        with suppress(ConflictError):
            await self._writer.patch_pod_status(
                victim.namespace, victim.name, victim.uid, {"conditions": [condition]}
            )
        await self._writer.delete_pod(victim.namespace, victim.name, victim.uid)

    def _abandon(self, queued: QueuedPod, victims: list[Pod], why: str) -> None:
        """The plan failed half-way: whoever counted on these victims tries again."""
        logger.warning("preemption for pod %s is abandoned: %s", queued.pod.key, why)
        disappointed = {queued.pod.key: queued.pod}
        for victim in victims:
            disappointed |= {p.key: p for p in self._scheduler.state.evictions.failed(victim)}
        for pod in disappointed.values():
            self._withdraw(pod)
            self._scheduler.queue.retry(pod.key, self._clock())

    def _withdraw(self, pod: Pod) -> None:
        """The pod is nominated no more, and what was kept for it is free for others."""
        self._scheduler.queue.nominate(pod.key, None)
        self._changed(self._scheduler.state.withdraw(pod.key))
        self._reports.nomination_cleared(pod)
