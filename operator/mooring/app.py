"""The composition root: builds the parts of a replica, starts and stops them in order.

Every replica mirrors the cluster, so that a stand-by is warm, and asks for the lease only once it
has seen the whole cluster and can watch what kopf needs. kopf and the scheduling loop run only
while it leads. Losing the lease ends the process at once, as kube-scheduler does. A leader that has
been unable to work for too long stops as it does on SIGTERM, which releases the lease.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from mooring import __version__
from mooring.engine.api import PluginApi
from mooring.engine.cache_dump import cache_dump
from mooring.engine.extenders.extenders import Extenders, tls_problem
from mooring.engine.extenders.objects import ApiObjects
from mooring.engine.groups.reports import GroupReports
from mooring.engine.housekeeping import Housekeeping
from mooring.engine.intake import Intake
from mooring.engine.loop import SchedulingLoop
from mooring.engine.pod_report import PodReports
from mooring.engine.preemption_executor import PreemptionExecutor
from mooring.engine.profiles import InForce, Profiles
from mooring.engine.reports import Reports
from mooring.engine.scheduler_state import (
    SchedulerState,
    cache_sizes,
    configuration,
)
from mooring.engine.shadow import Shadow, ShadowStatusWriter
from mooring.framework.evaluations import MOST_PER_DECISION
from mooring.framework.handle import Handle
from mooring.framework.plugin_failures import PluginFailures
from mooring.framework.plugin_metrics import PluginMetrics
from mooring.framework.queued_pod import SubQueue
from mooring.framework.registry import Registry
from mooring.framework.waiting_pods import WaitingPods
from mooring.handlers.operator import UNSCHEDULED, KopfOperator
from mooring.handlers.profiles import ProfileHandler
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.lease import LeaderElector
from mooring.kube.recorder import EventRecorder
from mooring.kube.resources import POD, SCHEDULING_PROFILE
from mooring.kube.reviews import Reviews
from mooring.kube.writes import PodGroupWriter, PodWriter
from mooring.mirroring.comparer import CacheComparer, Compared
from mooring.mirroring.mirror import Mirror
from mooring.mirroring.reflectors import Reflectors
from mooring.model.events import ClusterEvent, Kind
from mooring.model.pod import Uid
from mooring.observe.decision_file import DecisionFile
from mooring.observe.http import Endpoints
from mooring.observe.metrics import Metrics
from mooring.observe.readings import Readings
from mooring.observe.records import DecisionLog
from mooring.observe.tls import ServingTls
from mooring.page.api import Page
from mooring.page.nodes import Nodes
from mooring.page.pods import Pods
from mooring.page.policy import Policy
from mooring.page.queue import Queue
from mooring.page.trials import Trials
from mooring.plugins import SHIPPED
from mooring.queueing.hints import QueueingHints
from mooring.queueing.queue import SchedulingQueue
from mooring.settings import RunSettings
from mooring.state.cluster import ClusterState
from mooring.state.snapshot import Snapshot

if TYPE_CHECKING:
    from mooring.observe.traces import Traces

__all__ = ["Scheduler", "new_identity"]

logger = logging.getLogger(__name__)

_BUSY: Final = 16
"""Requests in flight that matter more than events; a server that keeps up has fewer."""
_EVENT_SECONDS: Final = 1.0
"""How long events may take to be written after the last binding: the next leader waits for it."""
_LAST_SECONDS: Final = 1.0
"""How long cancelled work, such as kopf, may take to end before the lease is released."""
_HEALTH_SECONDS: Final = 1.0
"""How often a leader looks whether it is able to work."""
_UNABLE_SECONDS: Final = 60.0
"""A leader that has not been ready for longer gives the lease up.

It becomes unready after a watch has been dead for a minute; together that is longer than an API
server needs to restart, or etcd to elect a leader.
"""


def new_identity() -> str:
    """A name for this process that no other replica has, as kube-scheduler makes it."""
    return f"{socket.gethostname()}_{uuid4()}"


class Scheduler:
    """One replica: its parts, and the order in which they start and stop.

    Without `elector` it leads always. `end_process` ends the process at once, with the exit code.
    """

    def __init__(
        self,
        settings: RunSettings,
        connection: Connection,
        client: ApiClient,
        elector: LeaderElector | None = None,
        *,
        end_process: Callable[[int], object] = os._exit,
    ) -> None:
        self._settings = settings
        self._client = client
        self._connection = connection
        self._elector = elector
        self._end_process = end_process
        self._identity = elector.identity if elector is not None else new_identity()
        self._stop = asyncio.Event()
        self._exit_code = 0
        self._leading = False
        self._metrics = Metrics()
        writer = PodWriter(client)
        self._recorder = EventRecorder(client, "mooring", self._identity, gives_way=self._is_busy)
        state = ClusterState()
        priority_classes = state.objects.of(Kind.PRIORITY_CLASS)
        self._reports = Reports(writer, self._recorder, priority_classes=priority_classes)
        cluster, waiting = Snapshot(state), WaitingPods()
        registry = self._registry = Registry(SHIPPED)
        self._api = PluginApi(client, writer)
        handle = Handle(cluster, waiting, self._api, state)
        failures = PluginFailures(
            count=self._metrics.plugin_failed,
            clock=time.monotonic,
            slow_seconds=settings.plugin_slow_seconds,
            timeout_seconds=settings.plugin_timeout_seconds,
        )
        plugin_metrics = PluginMetrics(self._metrics, clock=time.perf_counter)
        profiles = Profiles(
            registry,
            handle,
            failures,
            metrics=plugin_metrics,
            most_per_decision=MOST_PER_DECISION,
            tls_problem=tls_problem,
        )
        queue = SchedulingQueue(
            QueueingHints(handle),
            initial_backoff=settings.initial_backoff,
            max_backoff=settings.max_backoff,
            namespaces_take_turns=settings.queue_fairness == "namespace",
        )
        self._decision_file: DecisionFile | None = None
        if settings.decision_log is not None:
            size = round(settings.decision_log_mib * 2**20)
            self._decision_file = DecisionFile(Path(settings.decision_log), size)
        self._traces = _traces(settings, self._identity)
        decisions = DecisionLog(
            limit=round(settings.decision_record_mib * 2**20),
            append=self._decision_file.append if self._decision_file is not None else None,
            trace=self._traces.note if self._traces is not None else None,
        )
        self._scheduler = SchedulerState(
            state, cluster, queue, profiles, waiting, decisions=decisions
        )
        self._preemptions = PreemptionExecutor(
            self._scheduler,
            writer,
            self._reports,
            clock=time.monotonic,
            wake=lambda: self._loop.wake(),  # noqa: PLW0108 - the loop is made below
            ended=self._metrics.preemption_ended,
        )
        self._shadow = Shadow(
            self._scheduler,
            self._metrics,
            wake=lambda: self._loop.wake(),  # noqa: PLW0108 - the loop is made below
        )
        # A client of its own, so that --qps limits the writes and not what extenders get to read.
        self._extender_client = ApiClient(connection)
        self._extender_objects = ApiObjects(
            self._extender_client,
            wanted=lambda pod: _has_extenders(profiles.of(pod, cluster)),
        )
        self._extenders = Extenders(
            self._extender_objects,
            observe=self._metrics.extender_called,
            may_write=client.may_write,
            bound_node=lambda pod: writer.bound_node(pod.namespace, pod.name, pod.uid),
        )
        mirror = Mirror(state, handled=self._metrics.event_handled)
        self._reflectors = Reflectors(client, mirror, relisted=self._metrics.relisted)
        self._group_reports = GroupReports(
            state,
            PodGroupWriter(client),
            self._recorder,
            owns=lambda pod: _groups_are_scheduled(profiles.of(pod, cluster)),
            served=self._reflectors.served,
            placed=self._metrics.pod_group_placed,
            busy=self._is_busy,
        )
        self._loop = SchedulingLoop(
            self._scheduler,
            reports=self._reports,
            metrics=self._metrics,
            preemptions=self._preemptions,
            shadow=self._shadow,
            extenders=self._extenders,
            group_reports=self._group_reports,
            settle=lambda queued: self._intake.settle(queued),  # noqa: PLW0108 - it is made below
        )
        self._intake = Intake(
            self._scheduler,
            clock=time.monotonic,
            wake=self._loop.wake,
            left=self._pod_left,
            failed=self._reports.error,
            gated=self._reports.gated,
            no_profile=self._reports.no_profile,
        )
        profile_handler = self._profile_handler = ProfileHandler(profiles, self._intake)
        self._kopf = KopfOperator(
            self._intake,
            profile_handler,
            state,
            connection,
            client,
            listed=self._compare_soon,
            seen=self._extender_objects.seen,
            handled=self._metrics.event_handled,
        )
        self._comparer = CacheComparer(
            client,
            (
                Compared(
                    POD,
                    known=self._intake.known,
                    knows=lambda _, uid: self._intake.knows(Uid(uid)),
                    gone=lambda _, uid: self._intake.gone(Uid(uid)),
                    found=self._kopf.pod_found,
                    gone_meanwhile=self._scheduler.departures.meanwhile,
                    selectors={"fieldSelector": UNSCHEDULED},
                ),
                Compared(
                    SCHEDULING_PROFILE,
                    known=profile_handler.known,
                    knows=profile_handler.knows,
                    gone=profile_handler.gone,
                    found=self._kopf.profile_found,
                    gone_meanwhile=profile_handler.departures.meanwhile,
                ),
            ),
        )
        self._shadow_status = ShadowStatusWriter(self._shadow, client)
        self._housekeeping = Housekeeping(
            self._scheduler,
            client,
            flush=self._intake.flush,
            report=self._intake.report,
            expire_nominations=self._loop.expire_nominations,
            unbound=self._intake.pending,
        )
        state.on_events(self._on_events)

    async def run(self) -> int:
        """Serve until told to stop; the exit code."""
        self._catch_signals()
        self._metrics.read_from(self._readings())
        # A client of its own, so that neither --qps nor a queue of bindings holds up a scrape.
        reviews_client = ApiClient(self._connection)
        endpoints = self._endpoints(Reviews(reviews_client))
        try:
            if await self._unless_stopped(self._start_serving(endpoints)):
                reflectors = self._start(self._reflectors.run())
                try:
                    await self._lead_until_stopped()
                finally:
                    await _cancelled(reflectors)
        finally:
            await endpoints.stop()
            await reviews_client.close()
            await self._extenders.close()
            await self._extender_objects.close()
            await self._extender_client.close()
        logger.info("stopped")
        return self._exit_code

    async def _start_serving(self, endpoints: Endpoints) -> None:
        """Start the endpoints, which first wait for the CA of client certificates."""
        address = self._settings.bind_address
        port = await endpoints.start(address, self._settings.secure_port)
        logger.info("serving health, metrics and decisions", extra={"address": f"{address}:{port}"})

    async def _lead_until_stopped(self) -> None:
        """Wait for the lease, lead, finish what is in flight, and only then release the lease."""
        async with AsyncExitStack() as on_the_way_out:
            if not await self._unless_stopped(self._able_to_lead()):
                return
            _calm_the_collector()  # now, because it takes long, and pods wait for a new leader
            started = asyncio.Event()
            if self._elector is not None:
                election = self._start(self._elector.run(started.set, self._lost, self._is_able))
                on_the_way_out.push_async_callback(_cancelled, election)
            else:
                started.set()
            if not await self._unless_stopped(started.wait()):
                return
            self._leading = True
            writers = [
                self._start(part.run())
                for part in (
                    self._recorder,
                    self._reports,
                    self._group_reports,
                    self._decision_file,
                    self._traces,
                )
                if part is not None
            ]
            workers = [
                self._start(work)
                for work in (
                    self._loop.run(),
                    self._intake.run(),
                    self._kopf.run(self._catch_signals),
                    self._kopf.keep_statuses(),
                    self._housekeeping.run(),
                    self._comparer.run(),
                    self._shadow_status.run(),
                )
            ]
            if self._elector is not None:
                workers.append(self._start(self._give_up_when_unable()))
            on_the_way_out.push_async_callback(self._finish, workers, writers)
            await self._stop.wait()
            logger.info("stopping: %d bindings in flight", self._loop.binding)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task without which this replica cannot go on."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    async def _able_to_lead(self) -> None:
        """This replica has seen the whole cluster, and kopf may watch what it needs."""
        await self._reflectors.synced()
        await self._kopf.until_watchable()

    def _is_able(self) -> bool:
        """Return whether this replica may ask for the lease.

        What the last leader has bound may be missing in a watch that is broken; without it, full
        nodes look free.
        """
        return self._reflectors.is_current()

    async def _give_up_when_unable(self) -> None:
        """Ends when this replica leads, and has been unable to do its work for too long."""
        able_at = time.monotonic()
        while True:
            await asyncio.sleep(_HEALTH_SECONDS)
            trouble = self._reflectors.lacking() or self._kopf.lacking()
            if trouble is None:
                able_at = time.monotonic()
            elif time.monotonic() - able_at > _UNABLE_SECONDS:
                logger.error("this replica cannot work and gives the lease up: %s", trouble)
                self._exit_code = 1
                return

    async def _unless_stopped(self, awaited: Coroutine[Any, Any, Any]) -> bool:
        """True once it is done, False if this replica is told to stop first."""
        task, stop = asyncio.create_task(awaited), asyncio.create_task(self._stop.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            task.result()
            return True
        await _cancelled(task)
        return False

    async def _finish(
        self,
        workers: "Sequence[asyncio.Task[None]]",
        writers: "Sequence[asyncio.Task[None]]",
    ) -> None:
        """Nothing is in flight any more, after --stop-seconds at the latest.

        What a leader runs has been told to end; whatever has not ended by then may write nothing
        once the lease is released.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + self._settings.stop_seconds
        self._loop.halt()
        for task in workers:
            task.cancel()
        await asyncio.gather(
            self._preemptions.finish(deadline - now()), self._loop.finish(deadline - now())
        )
        await self._recorder.drain(max(0.0, min(_EVENT_SECONDS, deadline - now())))
        for task in writers:
            task.cancel()
        await asyncio.wait((*workers, *writers), timeout=_LAST_SECONDS)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """A part that should run as long as we lead has ended: nothing works without it."""
        if not task.cancelled():
            if task.exception() is not None:
                logger.error("a part of the scheduler failed", exc_info=task.exception())
                self._exit_code = 1
            self._stop.set()

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    def _lost(self) -> None:
        """The lease is lost: no decision and no write from here on, and the process ends at once.

        The elector has already ended the leadership that every write checks.
        """
        self._loop.halt()
        self._leading = False
        self._exit_code = 1
        self._stop.set()
        logger.error("the lease is lost; another replica binds now")
        self._end_process(self._exit_code)

    def _on_events(self, events: tuple[ClusterEvent, ...]) -> None:
        self._group_reports.on_events(events)
        self._intake.on_events(events)
        self._shadow.on_events(events)
        self._api.cluster_changed()

    def _pod_left(self, uid: str) -> None:
        """The pod is not without a node any more."""
        self._reports.forget(uid)
        self._extender_objects.forget(uid)
        self._shadow.left(uid)

    def _compare_soon(self) -> None:
        """Called when kopf has listed objects again and may have missed a deletion."""
        self._comparer.hint()

    def _endpoints(self, reviews: Reviews) -> Endpoints:
        settings = self._settings
        pod_reports = PodReports(self._scheduler)
        looks_up_ca = not settings.authentication_skip_lookup and settings.client_ca_file is None
        return Endpoints(
            live={
                "ping": lambda: None,
                "leaderElection": self._elector.check if self._elector else lambda: None,
                "scheduling": self._loop.stuck,
            },
            ready={
                "mirror": self._reflectors.lacking,
                "kopf": self._kopf.lacking,
                "shutdown": self._stopping,
            },
            metrics=self._metrics,
            decisions=self._scheduler.decisions,
            pod_report=pod_reports.of,
            pod_groups=self._group_reports.report,
            shadow=self._shadow.report,
            cache_dump=partial(cache_dump, self._scheduler),
            configuration=partial(configuration, self._scheduler),
            tls=ServingTls(
                cert_file=settings.tls_cert_file,
                key_file=settings.tls_private_key_file,
                client_ca_file=settings.client_ca_file,
                client_ca=reviews.client_ca if looks_up_ca else None,
                names=(socket.gethostname(), "localhost", "127.0.0.1"),
            ),
            reviews=reviews,
            always_allow_paths=settings.authorization_always_allow_paths.split(","),
            page=self._page(pod_reports),
        )

    def _page(self, pod_reports: PodReports) -> Page:
        return Page(
            nodes=Nodes(self._scheduler),
            pods=Pods(self._scheduler, self._scheduler.decisions, pod_reports.of),
            policy=Policy(self._scheduler.profiles, self._profile_handler, self._shadow.report),
            trials=Trials(self._scheduler, self._registry),
            queue=Queue(
                self._scheduler,
                bound=lambda: self._metrics.pods_bound,
                cause=self._scheduler.decisions.cause,
            ),
            leading=lambda: self._leading,
        )

    def _is_busy(self) -> bool:
        """Whether pods wait to be decided, or for an API server that has fallen behind."""
        if self._loop.requesting + self._preemptions.in_flight >= _BUSY:
            return True
        return bool(self._scheduler.queue.counts()[SubQueue.ACTIVE])

    def _stopping(self) -> str | None:
        return "the process is shutting down" if self._stop.is_set() else None

    def _readings(self) -> Readings:
        scheduler = self._scheduler
        return Readings(
            pending_pods=scheduler.queue.counts,
            unschedulable_pods=scheduler.queue.unschedulable_counts,
            cache_size=partial(cache_sizes, scheduler),
            watch_lag_seconds=self._reflectors.lags,
            bindings_in_flight=lambda: self._loop.binding,
            events_dropped=lambda: self._recorder.dropped,
            spans_dropped=lambda: self._traces.dropped if self._traces is not None else 0,
            kopf_restarts=lambda: self._kopf.restarts,
            gpu_mismatches=lambda: scheduler.state.devices.mismatches,
            pod_groups=self._group_reports.phases,
            queue_incoming_pods=scheduler.queue.incoming,
            inflight_events=scheduler.queue.in_flight_events,
            profiles_ready=self._profile_handler.ready,
            leading=lambda: self._leading,
        )


def _traces(settings: RunSettings, identity: str) -> "Traces | None":
    """Sends traces of pods, if --otlp-endpoint is given."""
    if settings.otlp_endpoint is None:
        return None
    from mooring.observe.traces import Traces  # noqa: PLC0415 - its packages are optional

    return Traces(settings.otlp_endpoint, version=__version__, instance=identity)


def _calm_the_collector() -> None:
    """The mirror is long-lived and free of cycles: not worth walking again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


def _has_extenders(entry: InForce | None) -> bool:
    """Whether the pods of this profile are shown to extenders."""
    return entry is not None and bool(entry.profile.spec.extenders)


def _groups_are_scheduled(profile: InForce | None) -> bool:
    """Whether the profile has a plugin for pod groups."""
    return profile is not None and profile.pipeline.group_policy is not None


async def _cancelled(task: "asyncio.Task[None]") -> None:
    """The task has ended, however; what it raised has been told by `_ended`."""
    task.cancel()
    await asyncio.wait([task])
