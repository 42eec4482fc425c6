"""Shows one pod in the view Pod: its history, and its present results of filters and scores."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mooring.framework.plugin_failures import PluginFailed
from mooring.groups.search.members import group_of
from mooring.model.pod import Pod, Uid
from mooring.observe.records import DecisionLog
from mooring.page.full_decision import DecisionInFull, decision_in_full
from mooring.process.time_slices import REST, TimeSlices
from mooring.runtime.pipeline import Pipeline
from mooring.scheduling.pod_report import PodReport
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.scheduling.what_if import WhatIf, without_preemption


@dataclass(eq=False, repr=False)
class Pods:
    """Reads all information about a pod.

    `report` returns the report about the pod with a key "namespace/name". `now` is in seconds since
    the epoch, `clock` is monotonic.
    """

    scheduler: SchedulerState
    decisions: DecisionLog
    report: Callable[[str], Awaitable[PodReport | None]]
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    # So that many users take only a limited share of time.
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def of(self, key: str) -> dict[str, Any] | None:
        """Return the document about the pod "namespace/name"; None if the pod is not known.

        The field `now` is a new decision without preemption, as if the pod had no node. It is None
        for gated pods, members of pod groups, and pods without a profile.
        """
        report, decisions = await self.report(key), self.decisions.of(key)
        path = self.decisions.path(key)
        if report is None and path is None:
            return None
        return {
            "pod": key,
            "report": report,
            "path": path,
            "decisions": decisions,
            "now": await self._decided_in_turn(key),
        }

    async def _decided_in_turn(self, key: str) -> DecisionInFull | None:
        async with self._one_at_a_time:
            slices = TimeSlices(0.0, rest=REST, clock=self.clock)
            decision = await self.scheduler.turn.run(partial(self._decided_now, key), slices)
            await slices.pause()
        return decision

    def _decided_now(self, key: str) -> DecisionInFull | None:
        scheduler = self.scheduler
        uid = scheduler.uid_of(key)
        decided = self._decided_alone(uid) if uid is not None else None
        if uid is None or decided is None:
            return None
        pod, pipeline = decided
        # The arrays of a cache are large, so it is not kept.
        what_if = WhatIf(ResultCache(scheduler.cluster), now=self.now)
        try:
            with what_if.trial() as trial:
                trial.remove(uid)
                return decision_in_full(pod, without_preemption(pipeline), what_if)[1]
        except PluginFailed:
            return None  # it is counted and logged where it failed

    def _decided_alone(self, uid: Uid) -> tuple[Pod, Pipeline] | None:
        """Return the pod without its node, and its pipeline; None if it is not decided alone."""
        scheduler = self.scheduler
        queued, placed = scheduler.queue.get(uid), scheduler.cluster.pod(uid)
        if queued is not None:
            pod, pipeline = queued.pod, queued.pipeline
        elif placed is not None:
            pod = replace(placed.pod, node_name=None)
            profile = scheduler.profiles.of(pod, scheduler.cluster)
            profile = profile or scheduler.profiles.shadow_of(pod, scheduler.cluster)
            if profile is None:
                return None
            pipeline = profile.pipeline
        else:
            return None
        gated = pod.limit_exceeded is not None or (queued is not None and queued.gated)
        alone = group_of(pod, pipeline, scheduler.cluster) is None
        return (pod, pipeline) if alone and not gated else None
