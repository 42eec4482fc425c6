"""What the scheduler knows about one pod now: where it is, and what would make it fit."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.engine.suggestions import Suggestion, suggestions
from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin import by_priority
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.queued_pod import PodState, QueuedPod
from mooring.model.pod import Pod, Uid
from mooring.state.snapshot import Snapshot

__all__ = ["REST", "PodReports", "pod_state", "smallest_suggestions"]

_MOST_SUGGESTIONS: Final = 5
REST: Final = 3.0
"""After each step of work for a viewer the event loop is free for so many times its duration."""


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


class PodReports:
    """Makes reports of pods on request, one at a time, so that they cost a bounded share of time.

    `clock` is the scheduler's monotonic clock, in seconds.
    """

    def __init__(
        self, scheduler: SchedulerState, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def of(self, key: str) -> Mapping[str, Any] | None:
        """The report of the pod "namespace/name" as JSON values; None if the pod is not known.

        `state` is a word of kube-scheduler's metric pending_pods, or where the pod is else. An
        unschedulable pod has `suggestions`, the smallest change first.
        """
        uid = self._scheduler.uid_of(key)
        state = pod_state(self._scheduler, uid) if uid is not None else None
        if uid is None or state is None:
            return None
        report: dict[str, Any] = {"state": state}
        placed = self._scheduler.cluster.pod(uid)
        if placed is not None:
            report["node"] = placed.pod.node_name
        queued = self._scheduler.queue.get(uid)
        if queued is None:
            return report
        report |= self._queued(queued, state)
        if state is PodState.UNSCHEDULABLE or (
            state is PodState.BACKOFF and queued.unschedulable_plugins
        ):
            report["suggestions"] = await self._suggestions(queued)
        return report

    def _queued(self, queued: QueuedPod, state: PodState) -> dict[str, Any]:
        now = self._clock()
        report: dict[str, Any] = {
            "profile": queued.pipeline.profile,
            "attempts": queued.attempts,
            "pendingSeconds": round(max(now - queued.initial_attempt_timestamp, 0.0), 1),
            "plugins": sorted(queued.unschedulable_plugins),
        }
        waiting = self._scheduler.waiting.get(queued.pod.uid)
        if waiting is not None:
            report["waitsFor"] = {
                plugin: round(max(deadline - now, 0.0), 1)
                for plugin, deadline in waiting.pending.items()
            }
        if state is PodState.BACKOFF:
            report["backoffSeconds"] = round(max(queued.backoff_expiration - now, 0.0), 1)
        if state is PodState.ACTIVE:
            report["ahead"] = self._ahead(queued)
        return report

    def _ahead(self, queued: QueuedPod) -> int:
        """How many active pods have a higher priority, or the same and have waited longer."""
        key = by_priority(queued)
        return sum(
            other.times.state is PodState.ACTIVE and by_priority(other) < key
            for other in self._scheduler.queue
        )

    async def _suggestions(self, queued: QueuedPod) -> list[dict[str, Any]]:
        scheduler = self._scheduler
        async with self._one_at_a_time:
            return await smallest_suggestions(
                queued.pod,
                queued.pipeline,
                scheduler.cluster,
                ResultCache(scheduler.state.nodes),
                self._clock,
                wanted=lambda: scheduler.queue.get(queued.pod.uid) is queued,
            )


async def smallest_suggestions(
    pod: Pod,
    pipeline: Pipeline,
    cluster: Snapshot,
    cache: ResultCache,
    clock: Callable[[], float],
    wanted: Callable[[], bool] = lambda: True,
) -> list[dict[str, Any]]:
    """The suggestions with the smallest changes, as JSON values, the smallest first.

    They are fewer if a plugin fails meanwhile, or if `wanted` returns False after a step. The event
    loop is free between two steps; `clock` is in seconds.
    """
    found = list[Suggestion]()
    try:
        began = clock()
        for suggestion in suggestions(pod, pipeline, cluster, cache):
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
        {
            "change": suggestion.change,
            "cause": suggestion.cause,
            "nodes": suggestion.nodes,
            "examples": list(suggestion.examples),
            "ended": list(suggestion.ended),
        }
        for suggestion in found[:_MOST_SUGGESTIONS]
    ]
