"""What the scheduler knows about one pod now: where it is, and what would make it fit."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.engine.result_cache import ResultCache
from mooring.engine.scheduler_state import SchedulerState
from mooring.engine.suggestions import Suggestion, suggestions
from mooring.framework.plugin import by_priority
from mooring.framework.plugin_failures import PluginFailed
from mooring.framework.queued_pod import QueuedPod, SubQueue

__all__ = ["PodReports"]

_MOST_SUGGESTIONS: Final = 5
_REST: Final = 3.0
"""After each step the event loop is free for so many times the step's duration."""


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
        queued = self._scheduler.queue.get(key)
        if queued is None:
            return self._not_queued(key)
        report = self._queued(queued)
        if queued.queue is SubQueue.UNSCHEDULABLE or (
            queued.queue is SubQueue.BACKOFF and queued.unschedulable_plugins
        ):
            found = await self._suggestions(queued)
            report["suggestions"] = [
                {
                    "change": suggestion.change,
                    "cause": suggestion.cause,
                    "nodes": suggestion.nodes,
                    "examples": list(suggestion.examples),
                    "ended": list(suggestion.ended),
                }
                for suggestion in found
            ]
        return report

    def _not_queued(self, key: str) -> Mapping[str, Any] | None:
        scheduler = self._scheduler
        if key in scheduler.without_profile:
            return {"state": "without a profile"}
        placed = scheduler.cluster.pod(key)
        if placed is None:
            return None
        node = scheduler.cluster.nodes.name(placed.row)
        return {"state": "being bound" if placed.assumed else "bound", "node": node}

    def _queued(self, queued: QueuedPod) -> dict[str, Any]:
        now = self._clock()
        report: dict[str, Any] = {
            "state": queued.queue.value if queued.queue is not None else "in flight",
            "profile": queued.pipeline.profile,
            "attempts": queued.attempts,
            "pendingSeconds": round(max(now - queued.initial_attempt_timestamp, 0.0), 1),
            "plugins": sorted(queued.unschedulable_plugins),
        }
        waiting = self._scheduler.waiting.get(queued.pod.uid)
        placed = self._scheduler.cluster.pod(queued.pod.key)
        if waiting is not None:
            report["state"] = "waiting at Permit"
            report["node"] = waiting.node
            report["waitsFor"] = {
                plugin: round(max(deadline - now, 0.0), 1)
                for plugin, deadline in waiting.pending.items()
            }
        elif placed is not None and placed.assumed:
            report["state"] = "being bound"
            report["node"] = self._scheduler.cluster.nodes.name(placed.row)
        if queued.queue is SubQueue.BACKOFF:
            report["backoffSeconds"] = round(max(queued.backoff_expiration - now, 0.0), 1)
        if queued.queue is SubQueue.ACTIVE:
            report["ahead"] = self._ahead(queued)
        return report

    def _ahead(self, queued: QueuedPod) -> int:
        """How many active pods have a higher priority, or the same and have waited longer."""
        key = by_priority(queued)
        return sum(
            other.queue is SubQueue.ACTIVE and by_priority(other) < key
            for other in self._scheduler.queue
        )

    async def _suggestions(self, queued: QueuedPod) -> list[Suggestion]:
        """The suggestions with the smallest changes; fewer if a plugin fails meanwhile."""
        scheduler, found = self._scheduler, list[Suggestion]()
        async with self._one_at_a_time:
            cache = ResultCache(scheduler.state.nodes)
            steps = suggestions(queued.pod, queued.pipeline, scheduler.cluster, cache)
            try:
                began = self._clock()
                for suggestion in steps:
                    if suggestion is not None:
                        found.append(suggestion)
                    if scheduler.queue.get(queued.pod.key) is not queued:
                        break
                    await asyncio.sleep(_REST * (self._clock() - began))
                    began = self._clock()
            except PluginFailed:
                pass  # it is counted and logged where it failed; the other suggestions are true
        return sorted(found, key=lambda suggestion: suggestion.cost)[:_MOST_SUGGESTIONS]
