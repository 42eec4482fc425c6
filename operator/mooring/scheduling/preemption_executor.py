"""Carries out preemptions: nominates the pod immediately, then evicts its victims.

As in kube-scheduler, the last victim is evicted after all others. So the preemptor is not queued
again before every eviction has begun (framework/preemption/executor.go).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mooring.framework.decision import PodRef
from mooring.framework.post_filter import GroupNomination, Nomination
from mooring.kube.errors import (
    ApiError,
    DisruptionBudgetError,
    KubeError,
    NotWantedError,
    UnansweredError,
    UnreachableError,
    explain,
)
from mooring.kube.writes import PodWriter
from mooring.model.pod import Pod, Uid
from mooring.model.wording import listed
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.pod_status_reporter import PodStatusReporter
from mooring.scheduling.scheduler_state import SchedulerState

logger = logging.getLogger(__name__)

_CALLED_OFF = "preempted"
_MOST_AT_ONCE = 64
"""The maximum number of victims that are evicted at the same time. Without it, many victims would
use all connections, so that Bindings and the last victims of earlier preemptions would wait."""
_MOST_NODES = 3
"""The most nodes that the event about a group's preemption names; it counts the others."""


@dataclass(eq=False, repr=False)
class PreemptionExecutor:
    """Carries out nominations: withdraws nominations of lower priority, and evicts the victims.

    It wakes the loop after the evictions, because a pod may have become active.
    """

    scheduler: SchedulerState
    writer: PodWriter
    reports: PodStatusReporter

    def __post_init__(self) -> None:
        self._clock = self.scheduler.clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)

    def begin(self, members: Sequence[QueuedPod], nomination: Nomination | GroupNomination) -> int:
        """Nominate the members, begin to evict the victims, and return the number of evictions.

        Nominations of lower priority to the same nodes are withdrawn.
        """
        state, leader = self.scheduler.state, members[0].pod
        if isinstance(nomination, Nomination):
            preemptor, nodes = "pod", {leader.uid: nomination.node}
        else:
            preemptor, nodes = "podgroup", {**nomination.nodes}
        for queued in members:
            if (node := nodes.get(queued.pod.uid)) is not None:
                row, priority = state.nodes.row_of.get(node), queued.pod.spec.priority
                for pod in state.nominations.below(row, priority):
                    self._withdraw(pod)
                state.nominate(queued.pod, node, victims=nomination.victims)
        victims = state.begin_evictions(leader, nomination.victims)
        if victims:
            self.reports.preempting(leader, victims, _nodes_of(victims))
            evict = partial(self._evict, members, victims, preemptor, strict=nomination.strict)
            self._start(evict)
        return len(victims)

    def delete_members(self, members: Sequence[Pod]) -> None:
        """Begin to delete the bound members of a gang that could not be bound completely.

        If a member has no controller that would create its pod again, nothing is deleted.
        """
        if all(pod.owner is not None for pod in members):
            self._start(partial(self._delete_members, members))

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(self.scheduler.turn.between(work))
        self._tasks.add(task)
        task.add_done_callback(self._evicted)

    async def _delete_members(self, members: Sequence[Pod]) -> None:
        for pod in members:
            try:
                await self.writer.delete_pod(pod.namespace, pod.name, pod.uid)
            except KubeError as error:
                logger.warning("pod %s of a half gang is not deleted: %s", pod.key, explain(error))

    @property
    def in_flight(self) -> int:
        """The number of tasks that evict the victims of a preemption or delete a gang's members."""
        return len(self._tasks)

    async def finish(self, seconds: float) -> None:
        """Wait for the answers to all evictions that have begun; cancel them after `seconds`."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()

    def _evicted(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.scheduler.work.set()

    async def _evict(
        self, members: Sequence[QueuedPod], victims: list[Pod], preemptor: str, *, strict: bool
    ) -> None:
        remaining, failures = {victim.uid: victim for victim in victims}, dict[Uid, Exception]()
        began, leader = self._clock(), members[0]
        nominated = [queued.pod for queued in members]

        cluster, profiles = self.scheduler.cluster, self.scheduler.profiles
        namespace = cluster.namespace_labels(leader.pod.namespace)

        def is_wanted() -> bool:  # its profile may be in mode Shadow or deleted by now
            return not failures and profiles.in_namespace(leader.pod, namespace) is not None

        async def preempt(victim: Pod) -> None:
            try:
                await self._preempt(victim, leader.pod, is_wanted, strict=strict)
            except NotWantedError as error:
                if not failures:  # else it was not sent because another eviction has failed
                    failures[victim.uid] = error
            except Exception as error:  # noqa: BLE001 - the eviction must not stay under way
                failures[victim.uid] = error
                if strict and _is_refusal(error):
                    by_budget = isinstance(error, DisruptionBudgetError)
                    self.scheduler.state.eviction_refused(victim, by_budget=by_budget)
            else:
                del remaining[victim.uid]

        result = "error"
        try:
            *first, last = victims
            between = self.scheduler.turn.between
            in_slots = (between(self._in_slot, partial(preempt, victim)) for victim in first)
            # After a failure no more are sent, but the API server may carry out those in flight.
            await asyncio.gather(*in_slots)
            if not failures:
                await preempt(last)
            if failures:
                self._failed(nominated, remaining, [*failures.values()])
            else:
                result = "success"
        finally:
            seconds = self._clock() - began
            self.scheduler.metrics.preemption_ended(preemptor, result, seconds)

    async def _in_slot(self, preempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._slots:
            await preempt()

    def _failed(
        self, nominated: Sequence[Pod], victims: Mapping[Uid, Pod], failures: Sequence[Exception]
    ) -> None:
        """Abandon and report the evictions of `victims`; retry the pods that wait for them."""
        unexpected = next((error for error in failures if not isinstance(error, KubeError)), None)
        first = unexpected or failures[0]
        if isinstance(first, DisruptionBudgetError):
            why = "a disruption budget allows no more evictions"
        elif isinstance(first, NotWantedError):
            why = "no profile takes the pod any more"
        else:
            why = explain(first) if isinstance(first, KubeError) else str(first)
        text = "preemption for pod %s is abandoned: %s"
        logger.warning(text, nominated[0].key, why, exc_info=unexpected)
        self.reports.preemption_failed(nominated[0], why)
        stay, now = [*map(PodRef.of, victims.values())], self._clock()
        for pod in nominated:
            self.scheduler.decisions.preemption_failed(pod.uid, why, stay, now)
        state, preemptors = self.scheduler.state, dict[Uid, Pod]()
        for victim in victims.values():
            preemptors |= {pod.uid: pod for pod in state.abandon_eviction(victim)}
        waited = any(pod.uid in preemptors for pod in nominated)
        for pod in nominated:
            if waited or state.nominations.get(pod.uid) is None:  # else it preempts elsewhere now
                preemptors[pod.uid] = pod
        self._try_again(preemptors.values())

    async def _preempt(
        self, victim: Pod, preemptor: Pod, wanted: Callable[[], bool], *, strict: bool
    ) -> None:
        scheduler = self.scheduler
        if not scheduler.state.evictions.evicting(victim):
            return  # it has left its node by itself, and may be queued or bound again
        is_gone = False
        why = self._why(preemptor, victim)
        call_off = scheduler.in_pre_bind.get(victim.uid)
        if scheduler.waiting.get(victim.uid) is not None:
            scheduler.waiting.reject(victim.uid, "DefaultPreemption", _CALLED_OFF)
        elif call_off is not None:
            call_off()
        else:  # in a task of its own, which does not wait while a decision has the turn
            requests = self._requests(victim, preemptor, wanted, why, strict=strict)
            is_gone = not await asyncio.create_task(requests)
        if is_gone:
            return  # by itself, or it is another pod by now
        node, by = victim.node_name or "", PodRef.of(preemptor)
        self.scheduler.decisions.preempted(victim.uid, by, node, self._clock(), why)
        self.reports.preempted(victim, preemptor, node, why)

    async def _requests(
        self, victim: Pod, preemptor: Pod, wanted: Callable[[], bool], why: str, *, strict: bool
    ) -> bool:
        # This reads nothing of the cluster, because another task may have the turn.
        named = victim.namespace, victim.name, victim.uid
        if strict:
            return await self.writer.evict_pod(*named, wanted=wanted)
        await self.reports.mark_disrupted(victim, preemptor, wanted, why=why)
        return await self.writer.delete_pod(*named, wanted=wanted)

    def _why(self, preemptor: Pod, victim: Pod) -> str:
        queues = self.scheduler.state.queues
        mine, its = queues.of(preemptor), queues.of(victim)
        if mine is None or its is None or mine is its or mine.root is not its.root:
            return ""
        return f"queue {mine.name} took back what queue {its.name} had borrowed"

    def stays(self, victim: Pod) -> None:
        """Give up the eviction; retry pods that wait for the victim, and end their nominations."""
        self._try_again(self.scheduler.state.abandon_eviction(victim))
        self.scheduler.work.set()

    def _try_again(self, preemptors: Iterable[Pod]) -> None:
        for pod in preemptors:
            self._withdraw(pod)
            self.scheduler.queue.retry(pod.uid, self._clock())

    def _withdraw(self, pod: Pod) -> None:
        self.scheduler.state.withdraw(pod.uid)
        if self.scheduler.queue.get(pod.uid) is not None:  # else it is a place for no pod yet
            self.reports.nomination_cleared(pod)


def _nodes_of(victims: Iterable[Pod]) -> str:
    return listed(sorted({victim.node_name or "" for victim in victims}), _MOST_NODES)


def _is_refusal(error: Exception) -> bool:
    was_sent = isinstance(error, UnansweredError) or not isinstance(error, UnreachableError)
    return isinstance(error, ApiError) and was_sent
