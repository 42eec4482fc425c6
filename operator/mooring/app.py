"""The composition root: builds the parts of a replica, starts and stops them in order.

Every replica mirrors the cluster, so that a stand-by is warm; kopf and the scheduling loop run only
while this replica leads. Losing the lease ends the process, as kube-scheduler does.
"""

import asyncio
import gc
import logging
import signal
import socket
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final
from uuid import uuid4

from mooring.engine.api import PluginApi
from mooring.engine.housekeeping import Housekeeping
from mooring.engine.intake import Intake
from mooring.engine.loop import SchedulingLoop
from mooring.engine.preemption_executor import PreemptionExecutor
from mooring.engine.profiles import Profiles
from mooring.engine.reports import Reports
from mooring.engine.scheduler_state import (
    SchedulerState,
    cache_sizes,
    configuration,
)
from mooring.framework.handle import Handle
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
from mooring.kube.writes import PodWriter
from mooring.mirroring.comparer import CacheComparer, Compared
from mooring.mirroring.mirror import Mirror
from mooring.mirroring.reflectors import Reflectors
from mooring.model.events import ClusterEvent, Kind
from mooring.observe.http import Endpoints
from mooring.observe.metrics import Metrics
from mooring.observe.readings import Readings
from mooring.observe.records import DecisionLog
from mooring.observe.tls import ServingTls
from mooring.plugins import SHIPPED
from mooring.queueing.hints import QueueingHints
from mooring.queueing.queue import SchedulingQueue
from mooring.settings import RunSettings
from mooring.state.cluster import ClusterState
from mooring.state.snapshot import Snapshot

__all__ = ["Scheduler"]

logger = logging.getLogger(__name__)

_EVICTION_SECONDS: Final = 5.0
"""How long evictions in flight may take to finish after SIGTERM."""
_BUSY: Final = 16
"""Requests in flight that matter more than events; a server that keeps up has fewer."""
_EVENT_SECONDS: Final = 5.0
"""How long events may then take to be written."""


class Scheduler:
    """One replica: its parts, and the order in which they start and stop."""

    def __init__(self, settings: RunSettings, connection: Connection, client: ApiClient) -> None:
        self._settings = settings
        self._client = client
        self._connection = connection
        self._identity = f"{socket.gethostname()}_{uuid4()}"
        self._stop = asyncio.Event()
        self._exit_code = 0
        self._leading = False
        self._metrics = Metrics()
        self._decisions = DecisionLog()
        writer = PodWriter(client)
        self._recorder = EventRecorder(client, "mooring", self._identity, gives_way=self._is_busy)
        state = ClusterState()
        priority_classes = state.objects.of(Kind.PRIORITY_CLASS)
        self._reports = Reports(writer, self._recorder, priority_classes=priority_classes)
        cluster, waiting, registry = Snapshot(state), WaitingPods(), Registry(SHIPPED)
        self._api = PluginApi(client, writer)
        handle = Handle(cluster, waiting, self._api, state)
        profiles = Profiles(registry, handle)
        queue = SchedulingQueue(
            QueueingHints(handle),
            initial_backoff=settings.initial_backoff,
            max_backoff=settings.max_backoff,
        )
        self._scheduler = SchedulerState(state, cluster, queue, profiles, waiting)
        self._preemptions = PreemptionExecutor(
            self._scheduler, writer, self._reports, time.monotonic
        )
        self._loop = SchedulingLoop(
            self._scheduler,
            reports=self._reports,
            metrics=self._metrics,
            decisions=self._decisions,
            preemptions=self._preemptions,
        )
        self._intake = Intake(
            self._scheduler,
            clock=time.monotonic,
            wake=self._loop.wake,
            left=self._reports.forget,
            failed=self._reports.error,
        )
        profile_handler = ProfileHandler(profiles, registry, self._intake)
        self._kopf = KopfOperator(
            self._intake,
            profile_handler,
            state,
            connection,
            client,
            listed=self._compare_soon,
        )
        self._comparer = CacheComparer(
            client,
            (
                Compared(
                    POD,
                    known=self._intake.known,
                    knows=self._intake.knows,
                    gone=self._intake.gone,
                    found=self._kopf.pod_found,
                    selectors={"fieldSelector": UNSCHEDULED},
                ),
                Compared(
                    SCHEDULING_PROFILE,
                    known=profile_handler.known,
                    knows=profile_handler.knows,
                    gone=profile_handler.gone,
                    found=self._kopf.profile_found,
                ),
            ),
        )
        self._housekeeping = Housekeeping(self._scheduler, client, flush=self._intake.flush)
        state.on_events(self._on_events)
        self._reflectors = Reflectors(client, Mirror(state), relisted=self._metrics.relisted)

    async def run(self) -> int:
        """Serve until told to stop; the exit code."""
        self._catch_signals()
        self._metrics.read_from(self._readings())
        # A client of its own, so that neither --qps nor a queue of bindings holds up a scrape.
        reviews_client = ApiClient(self._connection)
        endpoints = self._endpoints(Reviews(reviews_client))
        address = self._settings.bind_address
        try:
            port = await endpoints.start(address, self._settings.secure_port)
            logger.info(
                "serving health, metrics and decisions", extra={"address": f"{address}:{port}"}
            )
            async with asyncio.TaskGroup() as group:
                background = [
                    group.create_task(work)
                    for work in (self._reflectors.run(), self._recorder.run(), self._reports.run())
                ]
                await self._lead_until_stopped()
                await self._recorder.drain(_EVENT_SECONDS)
                for task in background:
                    task.cancel()
        finally:
            await endpoints.stop()
            await reviews_client.close()
        logger.info("stopped")
        return self._exit_code

    async def _lead_until_stopped(self) -> None:
        """Wait for the lease, lead, and on the way out finish what is in flight."""
        async with AsyncExitStack() as on_the_way_out:
            started = asyncio.Event()
            if self._settings.leader_elect:
                election = asyncio.create_task(self._elector().run(started.set, self._lost))
                on_the_way_out.push_async_callback(_cancelled, election)
                election.add_done_callback(self._ended)
            else:
                started.set()
            if not await self._unless_stopped(self._may_begin(started)):
                return
            self._leading = True
            _calm_the_collector()
            on_the_way_out.push_async_callback(self._finish)
            for work in (
                self._loop.run(),
                self._kopf.run(self._catch_signals),
                self._housekeeping.run(),
                self._comparer.run(),
            ):
                task = asyncio.create_task(work)
                task.add_done_callback(self._ended)
                on_the_way_out.push_async_callback(_cancelled, task)
            await self._stop.wait()
            logger.info("stopping: %d bindings in flight", self._loop.binding)

    async def _may_begin(self, leading: asyncio.Event) -> None:
        """This replica leads and has seen the whole cluster."""
        await leading.wait()
        await self._reflectors.synced()

    async def _unless_stopped(self, awaited: Coroutine[Any, Any, None]) -> bool:
        """True once it is done, False if this replica is told to stop first."""
        task, stop = asyncio.create_task(awaited), asyncio.create_task(self._stop.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        task.cancel()
        return task.done()

    async def _finish(self) -> None:
        """Nothing is in flight any more; without the lease nothing more may be finished."""
        leads = self._leading
        await self._preemptions.finish(_EVICTION_SECONDS if leads else 0.0)
        await self._loop.finish(self._settings.stop_seconds if leads else 0.0)

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
        logger.error("the lease is lost; another replica binds now")
        self._leading = False
        self._exit_code = 1
        self._stop.set()

    def _on_events(self, events: tuple[ClusterEvent, ...]) -> None:
        self._intake.on_events(events)
        self._api.cluster_changed()

    def _compare_soon(self) -> None:
        """Called when kopf has listed objects again and may have missed a deletion."""
        self._comparer.hint()

    def _elector(self) -> LeaderElector:
        settings = self._settings
        return LeaderElector(
            self._client,
            name=settings.lease_name,
            namespace=settings.lease_namespace,
            identity=self._identity,
            lease_duration=settings.lease_duration,
            renew_deadline=settings.renew_deadline,
            retry_period=settings.retry_period,
        )

    def _endpoints(self, reviews: Reviews) -> Endpoints:
        settings = self._settings
        looks_up_ca = not settings.authentication_skip_lookup and settings.client_ca_file is None
        return Endpoints(
            live={"ping": lambda: None},
            ready={
                "mirror": self._reflectors.lacking,
                "kopf": self._kopf.lacking,
                "shutdown": self._stopping,
            },
            metrics=self._metrics,
            decisions=self._decisions,
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
            kopf_restarts=lambda: self._kopf.restarts,
            gpu_mismatches=lambda: scheduler.state.devices.mismatches,
            leading=lambda: self._leading,
        )


def _calm_the_collector() -> None:
    """The mirror is long-lived and free of cycles: not worth walking again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    """The task has ended, however; what it raised has been told by `_ended`."""
    task.cancel()
    await asyncio.wait([task])
