"""Wire the parts of the engine; nothing here starts or stops."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from mooring.engine.api import PluginApi
from mooring.engine.extenders.extenders import Extenders, tls_problem
from mooring.engine.extenders.objects import ApiObjects
from mooring.engine.groups.pod_group_status_reporter import PodGroupStatusReporter
from mooring.engine.housekeeping import Housekeeping
from mooring.engine.loop import SchedulingLoop
from mooring.engine.pod_enqueuer import PodEnqueuer
from mooring.engine.pod_status_reporter import PodStatusReporter
from mooring.engine.preemption_executor import PreemptionExecutor
from mooring.engine.profiles import Profiles
from mooring.engine.scheduler_state import SchedulerState
from mooring.engine.shadow import Shadow
from mooring.framework.evaluations import MOST_PER_DECISION
from mooring.framework.handle import Api, Handle
from mooring.framework.plugin_failures import PluginFailures
from mooring.framework.plugin_metrics import PluginMetrics
from mooring.framework.queued_pod import SubQueue
from mooring.framework.registry import Registry
from mooring.framework.waiting_pods import WaitingPods
from mooring.kube.client import ApiClient
from mooring.kube.recorder import EventRecorder
from mooring.kube.resources import Resource
from mooring.kube.writes import PodGroupWriter, PodWriter
from mooring.model.events import ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog
from mooring.queueing.hints import QueueingHints
from mooring.queueing.queue import SchedulingQueue
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView

__all__ = ["Engine", "Options", "build_engine", "build_scheduler_state"]

_BUSY: Final = 16
"""Requests in flight that matter more than events; a server that keeps up has fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may be chosen of an engine; times are in seconds.

    For the fields of the backoff and `namespaces_take_turns` see `SchedulingQueue`, for those of
    plugins `PluginFailures`, for `most_per_decision` `Evaluations`.
    """

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    namespaces_take_turns: bool = False
    plugin_slow_seconds: float = 1.0
    plugin_timeout_seconds: float = 900.0
    most_per_decision: int | None = MOST_PER_DECISION


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """The parts of an engine; what has a method `run` works while that runs."""

    scheduler: SchedulerState
    registry: Registry
    metrics: Metrics
    recorder: EventRecorder
    reports: PodStatusReporter
    group_reports: PodGroupStatusReporter
    preemptions: PreemptionExecutor
    shadow: Shadow
    extender_objects: ApiObjects
    extenders: Extenders
    pod_enqueuer: PodEnqueuer
    loop: SchedulingLoop
    housekeeping: Housekeeping
    api: PluginApi

    def is_busy(self) -> bool:
        """Return whether pods wait to be decided, or for an API server that has fallen behind."""
        if self.loop.requesting + self.preemptions.in_flight >= _BUSY:
            return True
        return bool(self.scheduler.queue.counts()[SubQueue.ACTIVE])

    def on_events(self, events: tuple[ClusterEvent, ...]) -> None:
        """Tell every part what has changed in the cluster."""
        self.group_reports.on_events(events)
        self.pod_enqueuer.on_events(events)
        self.shadow.on_events(events)
        self.api.cluster_changed()


def build_engine(
    client: ApiClient,
    state: ClusterState,
    registry: Registry,
    *,
    identity: str,
    options: Options = Options(),
    metrics: Metrics | None = None,
    decisions: DecisionLog | None = None,
    extender_client: ApiClient | None = None,
    served: Callable[[], Mapping[Kind, Resource]] = dict,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Engine:
    """Return an engine over this state, which hears of every change from now on.

    Args:
        client: Reads and writes for the engine and the plugins.
        state: The cluster; nothing else may listen to its events.
        registry: The plugins that profiles may name.
        identity: Of this replica, for the events that it writes.
        options: What users may choose.
        metrics: Where everything is counted; by default metrics of its own.
        decisions: Keeps the decisions and the paths of pods; by default a log of its own.
        extender_client: Reads what extenders get; by default `client`.
        served: The resources that the API server serves, by kind.
        clock: Monotonic, in seconds.
        sleep: Waits for so many seconds of the clock.
    """
    metrics = metrics or Metrics()
    work = asyncio.Event()
    writer = PodWriter(client)
    api = PluginApi(client, writer)
    scheduler = build_scheduler_state(
        state, api, registry, options=options, metrics=metrics, decisions=decisions, clock=clock
    )

    def is_busy() -> bool:
        return engine.is_busy()  # which is made below

    recorder = EventRecorder(
        client, "mooring", identity, gives_way=is_busy, clock=clock, sleep=sleep
    )
    priority_classes = state.objects.of(Kind.PRIORITY_CLASS)
    reports = PodStatusReporter(writer, recorder, sleep, priority_classes=priority_classes)
    preemptions = PreemptionExecutor(
        scheduler, writer, reports, clock, work.set, metrics.preemption_ended
    )
    shadow = Shadow(scheduler, metrics, wake=work.set, clock=clock)
    extender_objects = ApiObjects(
        extender_client or client, wanted=partial(_has_extenders, scheduler), clock=clock
    )
    extenders = Extenders(
        extender_objects,
        observe=metrics.extender_called,
        may_write=client.may_write,
        bound_node=lambda pod: writer.bound_node(pod.namespace, pod.name, pod.uid),
    )
    group_reports = PodGroupStatusReporter(
        state,
        PodGroupWriter(client),
        recorder,
        owns=partial(_is_scheduled_in_groups, scheduler),
        served=served,
        placed=metrics.pod_group_placed,
        busy=is_busy,
        clock=clock,
        sleep=sleep,
    )

    def not_pending(uid: str) -> None:
        reports.forget(uid)
        extender_objects.forget(uid)
        shadow.forget(uid)

    pod_enqueuer = PodEnqueuer(
        scheduler,
        clock=clock,
        wake=work.set,
        not_pending=not_pending,
        failed=reports.error,
        gated=reports.gated,
        no_profile=reports.no_profile,
        misspelt=reports.misspelt,
    )
    loop = SchedulingLoop(
        scheduler,
        reports=reports,
        metrics=metrics,
        preemptions=preemptions,
        shadow=shadow,
        extenders=extenders,
        group_reports=group_reports,
        settle=pod_enqueuer.settle,
        work=work,
        clock=clock,
    )
    housekeeping = Housekeeping(
        scheduler,
        client,
        flush=pod_enqueuer.flush,
        report=pod_enqueuer.report,
        expire_nominations=loop.expire_nominations,
        unbound=pod_enqueuer.pending,
        clock=clock,
        sleep=sleep,
    )
    engine = Engine(
        scheduler=scheduler,
        registry=registry,
        metrics=metrics,
        recorder=recorder,
        reports=reports,
        group_reports=group_reports,
        preemptions=preemptions,
        shadow=shadow,
        extender_objects=extender_objects,
        extenders=extenders,
        pod_enqueuer=pod_enqueuer,
        loop=loop,
        housekeeping=housekeeping,
        api=api,
    )
    state.on_events(engine.on_events)
    return engine


def build_scheduler_state(
    state: ClusterState,
    api: Api,
    registry: Registry,
    *,
    options: Options = Options(),
    metrics: Metrics | None = None,
    decisions: DecisionLog | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SchedulerState:
    """Return what the parts of an engine share: no profile is in force and no pod waits.

    Without `metrics` nothing is counted.
    """
    cluster, waiting = ClusterView(state), WaitingPods()
    handle = Handle(cluster, waiting, api, state)
    failures = None
    if metrics is not None:
        failures = PluginFailures(
            count=metrics.plugin_failed,
            clock=clock,
            slow_seconds=options.plugin_slow_seconds,
            timeout_seconds=options.plugin_timeout_seconds,
        )
    profiles = Profiles(
        registry,
        handle,
        failures,
        metrics=PluginMetrics(metrics, clock=time.perf_counter) if metrics is not None else None,
        most_per_decision=options.most_per_decision,
        tls_problem=tls_problem,
    )
    queue = SchedulingQueue(
        QueueingHints(handle),
        initial_backoff=options.initial_backoff,
        max_backoff=options.max_backoff,
        namespaces_take_turns=options.namespaces_take_turns,
    )
    log = decisions if decisions is not None else DecisionLog()
    return SchedulerState(state, cluster, queue, profiles, waiting, decisions=log)


def _has_extenders(scheduler: SchedulerState, pod: Pod) -> bool:
    """Return whether the pod is shown to extenders."""
    entry = scheduler.profiles.of(pod, scheduler.cluster)
    return entry is not None and bool(entry.profile.spec.extenders)


def _is_scheduled_in_groups(scheduler: SchedulerState, pod: Pod) -> bool:
    """Return whether the pod's profile has a plugin for pod groups."""
    entry = scheduler.profiles.of(pod, scheduler.cluster)
    return entry is not None and entry.pipeline.group_policy is not None
