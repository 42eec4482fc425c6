"""What the scheduler knows about one pod now: where it is, and what would make it fit."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.engine.suggestions import Suggestion, suggestions
from mooring.engine.what_if import WhatIf
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin import by_priority
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.queued_pod import PodState, QueuedPod
from mooring.model.pod import Pod, Uid
from mooring.time_slices import REST

__all__ = [
    "PodReport",
    "PodReportBuilder",
    "SuggestedChange",
    "pod_state",
    "smallest_suggestions",
]

_MOST_SUGGESTIONS: Final = 5


def pod_state(scheduler: SchedulerState, uid: Uid) -> PodState | None:
    """Return where the pod is on its way to a node; None if the pod is not known."""
    queued = scheduler.queue.get(uid)
    if queued is not None:
        return queued.times.state
    if uid in scheduler.without_profile:
        return PodState.NO_PROFILE
    placed = scheduler.cluster.pod(uid)
    if placed is None:
        return None
    return PodState.BINDING if placed.assumed else PodState.BOUND


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """A suggestion as it is shown, see `mooring.engine.suggestions.Suggestion`."""

    change: str | TextAboutPods
    cause: str
    nodes: int
    examples: Sequence[str]
    ended: Sequence[PodRef]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReport:
    """What is known of a pod; what does not apply to it is None.

    `ahead` counts the active pods that are before it, `waits_for` has the seconds that each Permit
    plugin may still take. An unschedulable pod has `suggestions`, the smallest change first.
    """

    state: PodState
    node: str | None = None
    profile: str | None = None
    attempts: int | None = None
    pending_seconds: float | None = None
    plugins: Sequence[str] | None = None
    waits_for: Mapping[str, float] | None = None
    backoff_seconds: float | None = None
    ahead: int | None = None
    suggestions: Sequence[SuggestedChange] | None = None


class PodReportBuilder:
    """Makes reports of pods on request, one at a time, so that they cost a bounded share of time.

    `clock` is the scheduler's monotonic clock, in seconds.
    """

    def __init__(
        self, scheduler: SchedulerState, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def of(self, key: str) -> PodReport | None:
        """Return the report of the pod "namespace/name"; None if the pod is not known."""
        uid = self._scheduler.uid_of(key)
        state = pod_state(self._scheduler, uid) if uid is not None else None
        if uid is None or state is None:
            return None
        placed = self._scheduler.cluster.pod(uid)
        report = PodReport(state=state, node=placed.pod.node_name if placed is not None else None)
        queued = self._scheduler.queue.get(uid)
        if queued is None:
            return report
        report = self._queued(report, queued)
        if state is PodState.UNSCHEDULABLE or (
            state is PodState.BACKOFF and queued.unschedulable_plugins
        ):
            return replace(report, suggestions=await self._suggestions(queued))
        return report

    def _queued(self, report: PodReport, queued: QueuedPod) -> PodReport:
        """Return the report with what the queue knows of the pod."""
        now, state = self._clock(), report.state
        waiting = self._scheduler.waiting.get(queued.pod.uid)
        pending = waiting.pending if waiting is not None else None
        backoff = queued.backoff_expiration if state is PodState.BACKOFF else None
        return replace(
            report,
            profile=queued.pipeline.profile,
            attempts=queued.attempts,
            pending_seconds=_seconds(now - queued.initial_attempt_timestamp),
            plugins=sorted(queued.unschedulable_plugins),
            waits_for={plugin: _seconds(until - now) for plugin, until in pending.items()}
            if pending is not None
            else None,
            backoff_seconds=_seconds(backoff - now) if backoff is not None else None,
            ahead=self._ahead(queued) if state is PodState.ACTIVE else None,
        )

    def _ahead(self, queued: QueuedPod) -> int:
        """Count the active pods that have a higher priority, or the same and have waited longer."""
        key = by_priority(queued)
        return sum(
            other.times.state is PodState.ACTIVE and by_priority(other) < key
            for other in self._scheduler.queue
        )

    async def _suggestions(self, queued: QueuedPod) -> list[SuggestedChange]:
        scheduler = self._scheduler
        async with self._one_at_a_time:
            return await smallest_suggestions(
                queued.pod,
                queued.pipeline,
                WhatIf(scheduler.cluster, ResultCache(scheduler.state.nodes)),
                self._clock,
                wanted=lambda: scheduler.queue.get(queued.pod.uid) is queued,
            )


async def smallest_suggestions(
    pod: Pod,
    pipeline: Pipeline,
    what_if: WhatIf,
    clock: Callable[[], float],
    wanted: Callable[[], bool] = lambda: True,
) -> list[SuggestedChange]:
    """Return the suggestions with the smallest changes, the smallest first, found by `what_if`.

    They are fewer if a plugin fails meanwhile, or if `wanted` returns False after a step. The event
    loop is free between two steps; `clock` is in seconds.
    """
    found = list[Suggestion]()
    try:
        began = clock()
        for suggestion in suggestions(pod, pipeline, what_if):
            if suggestion is not None:
                found.append(suggestion)
            if not wanted():
                break
            await asyncio.sleep(REST * (clock() - began))
            began = clock()
    except PluginFailed:
        pass  # it is counted and logged where it failed; the other suggestions are true
    found.sort(key=lambda suggestion: suggestion.cost)
    return [
        SuggestedChange(each.change, each.cause, each.nodes, each.examples, each.ended)
        for each in found[:_MOST_SUGGESTIONS]
    ]


def _seconds(value: float) -> float:
    return round(max(value, 0.0), 1)
