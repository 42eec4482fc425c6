"""Connects the parts of the engine; this module starts and stops nothing."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from heapq import nsmallest
from random import Random
from typing import Final

from mooring.extenders.extenders import Extenders, tls_problem
from mooring.extenders.full_objects import ApiObjects
from mooring.framework.evaluations import MOST_PER_ATTEMPT
from mooring.framework.handle import Api, DeviceMetrics, Handle
from mooring.framework.plugin_failures import PluginFailures
from mooring.framework.registry import Registry
from mooring.framework.waiting_pods import WaitingPods
from mooring.groups.search.search_budget import TURN_SECONDS, SearchBudget
from mooring.groups.status.pod_group_status_reporter import PodGroupStatusReporter
from mooring.kube.api_resources import Resource
from mooring.kube.client import ApiClient
from mooring.kube.recorder import EventRecorder
from mooring.kube.writes import PodGroupWriter, PodWriter, ProfileWriter
from mooring.model.events import ClusterEvent, Kind
from mooring.model.kubernetes_rules import unknown_server
from mooring.model.pod import Pod, Uid
from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog
from mooring.pausing import worked
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.process.turn import Turn
from mooring.quota.status.queue_status_reporter import QueueStatusReporter
from mooring.rebalancing.plan import Plan
from mooring.rebalancing.plan_state import Planning
from mooring.rebalancing.profile_rebalancing import MakePlan, Parts
from mooring.rebalancing.rebalancer import Rebalancer
from mooring.rebalancing.record import Rests
from mooring.rebalancing.under_way import ExpectedReplacements
from mooring.runtime.plugin_metrics import PluginMetrics
from mooring.runtime.queued_pod import SubQueue
from mooring.scheduling.housekeeping import Housekeeping
from mooring.scheduling.loop import SchedulingLoop
from mooring.scheduling.plugin_api import BindAttempt, PluginApi
from mooring.scheduling.pod_enqueuer import PodEnqueuer
from mooring.scheduling.pod_status_reporter import PodStatusReporter
from mooring.scheduling.preemption_executor import PreemptionExecutor
from mooring.scheduling.profiles_in_force import ActiveProfile, Profiles
from mooring.scheduling.queue.queue import SchedulingQueue
from mooring.scheduling.queue.run_hints import QueueingHints
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.schedule_one import ScheduleOne
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.scheduling.shadow_profiles import Shadow
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView

logger = logging.getLogger(__name__)


_MOST_DECISIONS: Final = 20_000
"""The most decisions about single pods in a plan of rebalancing; the next plan continues."""
_MOST_PENDING: Final = 1_000
"""The most unschedulable pods, the highest priority first, for which a plan makes room."""
_BUSY: Final = 16
"""The number of requests in flight from which on the engine is busy (`Engine.is_busy`)."""
_FLUSH_SECONDS: Final = 30.0
"""The seconds between two calls of the queue's `flush_unschedulable` (scheduling_queue.go)."""
_REPORT_SECONDS: Final = 5.0
_NEW_SECONDS: Final = 1.0
_NOMINATION_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of an engine; times are in seconds.

    See `SchedulingQueue` for the backoff and `namespaces_take_turns`, `PluginFailures` for the
    fields `plugin_...`, and `Evaluations` for `most_per_attempt`.
    """

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    namespaces_take_turns: bool = False
    plugin_slow_seconds: float = 1.0
    plugin_timeout_seconds: float = 900.0
    most_per_attempt: int | None = MOST_PER_ATTEMPT


class Engine:
    """The parts of a scheduler that share one state; the caller runs each part that has `run`.

    The engine receives every event of the state from now on.

    Args:
        client: Reads and writes for the engine and the plugins.
        state: The cluster; it must have no other receiver of events.
        registry: The plugins that profiles may name.
        identity: The name of this replica, for the events that it writes.
        options: The settings of users.
        metrics: Gets all measurements; by default new metrics.
        decisions: Keeps the decisions and the paths of pods; by default a new log.
        extender_client: Reads the objects that extenders get; by default `client`.
        turn: The lock for the use of the state; by default a new one.
        served: Returns the resources that the API server serves, by kind.
        make_plan: Makes the plans of rebalancing; by default the function `_make_plan`.
        clock: Returns monotonic seconds.
        now: Returns the time of day in seconds since the epoch.
        sleep: Waits for a number of seconds of the clock.
        random: Gives random delays to retries.
    """

    def __init__(
        self,
        client: ApiClient,
        state: ClusterState,
        registry: Registry,
        *,
        identity: str,
        options: Options = Options(),
        metrics: Metrics | None = None,
        decisions: DecisionLog | None = None,
        extender_client: ApiClient | None = None,
        turn: Turn | None = None,
        served: Callable[[], Mapping[Kind, Resource]] = dict,
        make_plan: MakePlan | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        self.registry, self.metrics = registry, metrics or Metrics()
        writer, turn = PodWriter(client, random=random, sleep=sleep), turn or Turn(clock)
        at_bind: dict[Uid, BindAttempt] = {}
        self.api = PluginApi(
            client,
            writer,
            at_bind,
            turn=turn,
            now=now,
            sleep=sleep,
            random=random,
            is_tried=lambda: state.is_tried,
        )
        self.scheduler = build_scheduler_state(
            state,
            self.api,
            registry,
            at_bind=at_bind,
            options=options,
            metrics=self.metrics,
            decisions=decisions,
            turn=turn,
            clock=clock,
            now=now,
            sleep=sleep,
        )
        self._make_reports(client, writer, identity, served)
        self._make_loop(client, extender_client or client, writer)
        self._make_rest(client, writer, make_plan or partial(_make_plan, self.scheduler))
        state.on_events(self.on_events)

    def _make_reports(
        self,
        client: ApiClient,
        writer: PodWriter,
        identity: str,
        served: Callable[[], Mapping[Kind, Resource]],
    ) -> None:
        scheduler, sleep = self.scheduler, self.scheduler.sleep
        self.recorder = self.api.recorder = EventRecorder(
            client,
            "mooring",
            identity,
            gives_way=self.is_busy,
            now=lambda: datetime.fromtimestamp(scheduler.now(), UTC),
            clock=scheduler.clock,
            sleep=sleep,
        )
        self.profile_writer = ProfileWriter(client)
        classes = scheduler.state.objects.of(Kind.PRIORITY_CLASS)
        self.reports = PodStatusReporter(
            writer, self.recorder, sleep, priority_classes=classes, now=scheduler.now
        )
        self.group_reports = PodGroupStatusReporter(
            scheduler,
            PodGroupWriter(client),
            self.recorder,
            served=served,
            busy=self.is_busy,
        )
        self.queue_reports = QueueStatusReporter(scheduler, client, served)

    def _make_loop(self, client: ApiClient, extender_client: ApiClient, writer: PodWriter) -> None:
        scheduler, metrics = self.scheduler, self.metrics
        self.preemptions = PreemptionExecutor(scheduler, writer, self.reports)
        self.shadow = Shadow(scheduler)
        self.extender_objects = ApiObjects(extender_client, wanted=self._has_extenders)
        self.extenders = Extenders(
            self.extender_objects,
            observe=metrics.extender_called,
            may_write=client.may_write,
            bound_node=lambda pod: writer.bound_node(pod.namespace, pod.name, pod.uid),
            turn=scheduler.turn,
            clock=scheduler.clock,
        )
        self.expected = ExpectedReplacements(scheduler.state)
        self.pod_enqueuer = PodEnqueuer(
            scheduler,
            self.reports,
            not_pending=self._not_pending,
            arrived=self.expected.arrived,
        )
        schedule_one = ScheduleOne(
            scheduler,
            pod_enqueuer=self.pod_enqueuer,
            extenders=self.extenders,
            preemptions=self.preemptions,
            reports=self.reports,
            group_reports=self.group_reports,
        )
        self.loop = SchedulingLoop(scheduler, schedule_one, self.shadow)

    def _make_rest(
        self,
        client: ApiClient,
        writer: PodWriter,
        make_plan: MakePlan,
    ) -> None:
        periodic: dict[Callable[[], object], float] = {
            self.pod_enqueuer.flush: _FLUSH_SECONDS,
            self.pod_enqueuer.report: _REPORT_SECONDS,
            self.reports.report_new: _NEW_SECONDS,
            self.loop.schedule_one.expire_nominations: _NOMINATION_SECONDS,
        }
        unbound = self.pod_enqueuer.pending
        self.housekeeping = Housekeeping(self.scheduler, client, periodic=periodic, unbound=unbound)
        parts = Parts(
            self.scheduler,
            self.expected,
            make_plan,
            pods=writer,
            preemptions=self.preemptions,
            profiles=self.profile_writer,
            recorder=self.recorder,
            rests=Rests(self.scheduler.clock),
            busy=self.is_busy,
        )
        self.rebalancer = Rebalancer(parts)

    def follow_server(self, version: str) -> None:
        """Apply the rules of an API server of this version, for example "1.37".

        If a profile is in force, the new version must have the same rules as the former.
        """
        self.scheduler.state.follow_server(version)
        if (unknown := unknown_server(version)) is not None:
            logger.warning("%s", unknown)
        else:
            logger.info("the API server is %s, whose rules apply", version)

    def is_busy(self) -> bool:
        """Return whether pods wait for a decision, or many requests wait for the API server."""
        if self.loop.schedule_one.requesting + self.preemptions.in_flight >= _BUSY:
            return True
        return self.scheduler.queue.has_active

    def on_events(self, events: tuple[ClusterEvent, ...]) -> None:
        """Pass the changes of the cluster to the parts that need them."""
        self.group_reports.on_events(events)
        self.pod_enqueuer.on_events(events)
        self.expected.on_events(events)
        self.shadow.on_events(events)
        self.api.cluster_changed()

    def _has_extenders(self, pod: Pod) -> bool:
        entry = self.scheduler.profiles.of(pod, self.scheduler.cluster)
        return entry is not None and bool(entry.profile.spec.extenders)

    def _not_pending(self, uid: str) -> None:
        # They store this only about pods without a node.
        self.reports.forget(uid)
        self.extender_objects.forget(uid)
        self.shadow.forget(uid)


def build_scheduler_state(
    state: ClusterState,
    api: Api,
    registry: Registry,
    *,
    at_bind: dict[Uid, BindAttempt] | None = None,
    options: Options = Options(),
    metrics: Metrics | None = None,
    decisions: DecisionLog | None = None,
    turn: Turn | None = None,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> SchedulerState:
    """Return the parts that the engine shares, without profiles in force and without pods.

    `at_bind` has, by pod uid, the attempts in which plugins may bind pods. Without `metrics`, calls
    of plugins are not counted.
    """
    cluster, waiting = ClusterView(state), WaitingPods()
    device_metrics = metrics if metrics is not None else DeviceMetrics()
    handle = Handle(cluster, waiting, api, state, device_metrics=device_metrics)
    failures, working = None, partial(worked, clock)
    if metrics is not None:
        failures = PluginFailures(
            count=metrics.plugin_failed,
            clock=working,  # in a pause others work, and no plugin is slow for that
            slow_seconds=options.plugin_slow_seconds,
            timeout_seconds=options.plugin_timeout_seconds,
        )
    profiles = Profiles(
        registry,
        handle,
        failures,
        metrics=PluginMetrics(metrics, clock=working) if metrics is not None else None,
        most_per_attempt=options.most_per_attempt,
        tls_problem=tls_problem,
    )
    queue = SchedulingQueue(
        QueueingHints(handle),
        initial_backoff=options.initial_backoff,
        max_backoff=options.max_backoff,
        namespaces_take_turns=options.namespaces_take_turns,
        queues=lambda: state.queues,
    )
    return SchedulerState(
        state,
        cluster,
        queue,
        profiles,
        waiting,
        at_bind=at_bind if at_bind is not None else {},
        decisions=decisions if decisions is not None else DecisionLog(),
        turn=turn if turn is not None else Turn(clock),
        metrics=metrics if metrics is not None else Metrics(),
        clock=clock,
        now=now,
        sleep=sleep,
    )


def _make_plan(
    scheduler: SchedulerState,
    entry: ActiveProfile,
    section: Rebalancing,
    resting: Collection[str],
    position: int,
) -> Plan:
    from mooring.rebalancing.planner import (  # noqa: PLC0415 - few profiles plan moves
        make_plan,
        takes_of,
    )

    until = scheduler.clock() + TURN_SECONDS
    planning = Planning(
        ResultCache(scheduler.cluster),
        entry.pipeline,
        section,
        takes_of(scheduler.profiles, entry, scheduler.cluster),
        now=scheduler.now,
        budget=SearchBudget(_MOST_DECISIONS, lambda: scheduler.clock() >= until),
        pending=unschedulable(scheduler, entry) if Goal.MAKE_ROOM in section.goals else (),
        position=position,
        resting=resting,
    )
    return make_plan(planning)


def unschedulable(scheduler: SchedulerState, entry: ActiveProfile) -> list[Pod]:
    """Return up to `_MOST_PENDING` unschedulable pods of the profile, by descending priority.

    Pods that may not preempt yet are left out, because a cluster autoscaler may help them first.
    """
    now, delay = scheduler.clock(), entry.pipeline.preemption.delay_seconds
    waiting = (
        queued
        for queued in scheduler.queue
        if queued.queue is SubQueue.UNSCHEDULABLE
        and queued.pipeline is entry.pipeline
        and queued.unschedulable_seconds(now) >= delay
    )
    first = nsmallest(_MOST_PENDING, waiting, key=lambda q: (-q.pod.spec.priority, q.pod.created))
    return [queued.pod for queued in first]
