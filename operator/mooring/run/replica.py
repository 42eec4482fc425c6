"""The composition root: builds the parts of a replica, starts and stops them in order.

Every replica mirrors the cluster, so that a stand-by is ready. It asks for the lease only when it
has seen the whole cluster. kopf and the scheduling loop run only while the replica leads. Losing
the lease ends the process immediately, as in kube-scheduler. A leader that cannot work for too long
releases the lease.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

from mooring import __version__
from mooring.framework.registry import Registry
from mooring.handlers.kopf_objects import ObjectHandlers
from mooring.handlers.profile_handler import ProfileHandler, ProfileStatusWriter
from mooring.handlers.runner import UNSCHEDULED, KopfRunner
from mooring.kube.api_resources import POD, SCHEDULING_PROFILE
from mooring.kube.backoff import Backoff
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.errors import ApiError, explain
from mooring.kube.lease import CERTIFICATE, SERVER, LeaderElector
from mooring.kube.reviews import Reviews
from mooring.kube.status_writer import ProfileSectionWriter
from mooring.mirroring.comparer import CacheComparer, WatchedResource
from mooring.mirroring.mirror import Mirror
from mooring.mirroring.reflectors import Reflectors
from mooring.model.kubernetes_rules import rules_of_server
from mooring.model.pod import Uid
from mooring.observe.collector import StateCollector, largest
from mooring.observe.decision_file import DecisionFile
from mooring.observe.event_loop import HoldTimer, log_long_hold
from mooring.observe.http import Endpoints
from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog
from mooring.observe.tls import ServingTls
from mooring.page.nodes_view import Nodes
from mooring.page.pod_objects import PodObjects
from mooring.page.pod_search import PodSearch
from mooring.page.pods_view import Pods
from mooring.page.policy_view import PolicyView
from mooring.page.queue_view import Queue
from mooring.page.rebalancing_view import PlansView
from mooring.page.routes import Page
from mooring.plugins import SHIPPED
from mooring.process.turn import Turn
from mooring.run.build import Engine, Options
from mooring.run.settings import RunSettings
from mooring.scheduling.cache_dump import cache_dump
from mooring.scheduling.pod_report import PodReportBuilder
from mooring.scheduling.scheduler_state import (
    cache_sizes,
    configuration,
)
from mooring.state.cluster import ClusterState

if TYPE_CHECKING:
    from mooring.observe.traces import Traces
    from mooring.page.trials import WhatIfRunner


logger = logging.getLogger(__name__)

_EVENT_SECONDS: Final = 1.0
"""The maximum seconds for writing events after the last binding; then unwritten events are lost."""
_LAST_SECONDS: Final = 1.0
"""The maximum seconds to wait for cancelled tasks before the lease is released."""
_HEALTH_SECONDS: Final = 1.0
"""The seconds between two checks whether a leader can work."""
_UNABLE_SECONDS: Final = 60.0
"""The seconds after which an unready leader gives the lease up. A leader becomes unready after a
watch has failed for a minute. Both times together are enough for an API server to restart, or for
etcd to elect a leader."""
_ENTITY: Final = ("pod", "pod")
"""The values of the labels `type` and `entity` (from 1.38 on) in queue metrics of pods."""
_MOST_CERTIFICATE: Final = 16 * 1024
"""The most bytes of a certificate in the lease; most certificates have one or two KiB."""


def _new_identity() -> str:
    # As kube-scheduler does.
    return f"{socket.gethostname()}_{uuid4()}"


def spare_the_mirror() -> None:
    """Restrict the garbage collector to young objects until the mirror has its first lists."""
    # Python's thresholds would examine all objects each time their number has grown by a quarter:
    # half a second with 150,000 pods.
    gc.set_threshold(10_000, 3, 100_000)


def calm_the_collector() -> None:
    """Exclude existing objects from garbage collection, and keep later collections short."""
    # The mirror lives long and has no cycles. Examining 100,000 objects takes 50 ms.
    gc.collect()
    gc.freeze()
    spare_the_mirror()


class Kopf(Protocol):
    """Passes pods without a node, profiles and PriorityClasses to handlers; see `KopfRunner`."""

    @property
    def restarts(self) -> int:
        """How often kopf was started again."""

    async def run(self, restore_signals: Callable[[], None]) -> None:
        """Run kopf until cancelled; `restore_signals` sets the replica's signal handlers again."""

    async def until_watchable(self) -> None:
        """Wait until kopf may watch all resources that it needs."""

    async def until_pods_are_listed(self) -> None:
        """Wait until kopf has shown all pods of its first list."""

    def problem(self) -> str | None:
        """Return why kopf is not ready; None if it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The surroundings of a replica, except the API server.

    Attributes:
        clock: Returns monotonic seconds.
        now: Returns the time of day in seconds since the epoch.
        random: Spreads load; it is not used for secrets.
        identity: This replica's name in the lease; every replica has its own.
        registry: The plugins that profiles may name.
        kopf: Makes the part that runs the handlers.
        end_process: Ends the process at once, with the exit code.
        spare_mirror: Is called before the mirror is filled.
        calm_collector: Is called with a complete mirror, before the replica asks for the lease.
    """

    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    random: Random = field(default_factory=Random)
    identity: str = field(default_factory=_new_identity)
    registry: Registry = field(default_factory=lambda: Registry(SHIPPED))
    kopf: Callable[[ObjectHandlers, Connection, ApiClient], Kopf] = KopfRunner
    end_process: Callable[[int], object] = os._exit
    spare_mirror: Callable[[], None] = spare_the_mirror
    calm_collector: Callable[[], None] = calm_the_collector


class Scheduler:
    """One replica: its parts, and the order in which they start and stop.

    Without `elector` the replica always leads.

    Attributes:
        engine: The parts that decide; other code must not change them.
    """

    def __init__(
        self,
        settings: RunSettings,
        connection: Connection,
        client: ApiClient,
        elector: LeaderElector | None = None,
        *,
        environment: Environment | None = None,
    ) -> None:
        self._environment = environment = environment or Environment()
        self._settings = settings
        self._client = client
        self._connection = connection
        self._elector = elector
        self._identity = elector.identity if elector is not None else environment.identity
        self._stop = asyncio.Event()
        self._exit_code = 0
        self._leading = False
        self._published: Callable[[], Mapping[str, str]] = dict
        self._metrics = Metrics()
        state, self._turn = ClusterState(), Turn(environment.clock)
        self._reflectors = self._new_reflectors(state)
        self._decision_file = _decision_file(settings)
        self._traces = _traces(settings, self._identity)
        # A client of its own, so that --qps limits the writes and not what extenders get to read.
        self._extender_client = ApiClient(connection)
        engine = self.engine = self._new_engine(state)
        self._profile_handler = ProfileHandler(
            engine.scheduler.profiles,
            engine.pod_enqueuer,
            found=engine.rebalancer.profile_found,
            now=environment.now,
        )
        self._profile_status = ProfileStatusWriter(
            self._profile_handler,
            engine.profile_writer,
            engine.recorder,
            turn=self._turn,
            clock=environment.clock,
        )
        self._handlers = self._new_handlers(state)
        self._kopf = environment.kopf(self._handlers, connection, client)
        self._comparer = self._new_comparer()
        self._shadow_status = self._new_shadow_status()

    def _new_shadow_status(self) -> ProfileSectionWriter:
        writer, shadow = self.engine.profile_writer, self.engine.shadow
        names, status = shadow.names, shadow.status
        return ProfileSectionWriter(writer, "shadow", names, status, turn=self._turn)

    def _new_reflectors(self, state: ClusterState) -> Reflectors:
        clock, metrics = self._environment.clock, self._metrics
        return Reflectors(
            self._client,
            Mirror(state, handled=metrics.event_handled, clock=clock),
            relisted=metrics.relisted,
            versioned=self._follow_server,
            outdated=self._begin_anew,
            devices_known=state.devices_known,
            turn=self._turn,
            clock=clock,
            random=self._environment.random,
        )

    def _new_engine(self, state: ClusterState) -> Engine:
        environment = self._environment
        return Engine(
            self._client,
            state,
            environment.registry,
            identity=self._identity,
            options=_options(self._settings),
            metrics=self._metrics,
            decisions=self._new_decision_log(),
            extender_client=self._extender_client,
            turn=self._turn,
            served=self._reflectors.served,
            clock=environment.clock,
            now=environment.now,
            random=environment.random,
        )

    def _new_decision_log(self) -> DecisionLog:
        return DecisionLog(
            limit=round(self._settings.decision_record_mib * 2**20),
            append=self._decision_file.append if self._decision_file is not None else None,
            trace=self._traces.note if self._traces is not None else None,
            clock=self._environment.clock,
            wall=self._environment.now,
        )

    def _new_handlers(self, state: ClusterState) -> ObjectHandlers:
        return ObjectHandlers(
            self.engine.pod_enqueuer,
            self._profile_status,
            state,
            turn=self._turn,
            listed=self._compare_soon,
            seen=self.engine.extender_objects.seen,
            handled=self._metrics.event_handled,
            clock=self._environment.clock,
        )

    def _new_comparer(self) -> CacheComparer:
        engine, profiles = self.engine, self._profile_handler
        return CacheComparer(
            self._client,
            (
                WatchedResource(
                    POD,
                    known=engine.pod_enqueuer.known,
                    knows=lambda _, uid: engine.pod_enqueuer.knows(Uid(uid)),
                    gone=lambda uid: engine.pod_enqueuer.gone(Uid(uid)),
                    found=self._handlers.pod_read,
                    gone_meanwhile=engine.scheduler.departures.meanwhile,
                    selectors={"fieldSelector": UNSCHEDULED},
                    in_flight=engine.pod_enqueuer.in_flight,
                ),
                WatchedResource(
                    SCHEDULING_PROFILE,
                    known=profiles.known,
                    knows=profiles.knows,
                    gone=lambda uid: profiles.gone(profiles.known().get(uid, ""), uid),
                    found=self._profile_status.read,
                    gone_meanwhile=profiles.departures.meanwhile,
                ),
            ),
            clock=self._environment.clock,
        )

    async def run(self) -> int:
        """Serve and schedule until told to stop; return the exit code."""
        asyncio.get_running_loop().set_task_factory(HoldTimer(self._note_hold))
        self._catch_signals()
        self._metrics.read_from(self._readings())
        # A client of its own, so that neither --qps nor a queue of bindings holds up a scrape.
        reviews_client = ApiClient(self._connection)
        # And of its own again, so that what the page reads does not hold up a review.
        page_client = ApiClient(self._connection)
        endpoints = self._endpoints(Reviews(reviews_client), page_client)
        try:
            if await self._unless_stopped(self._start_serving(endpoints)):
                await self._schedule()
        finally:
            await endpoints.stop()
            await reviews_client.close()
            await page_client.close()
            await self._close()
        logger.info("stopped")
        return self._exit_code

    async def run_without_endpoints(self) -> int:
        """Run the replica as `run` does, but without endpoints."""
        self._catch_signals()
        try:
            await self._schedule()
        finally:
            await self._close()
        return self._exit_code

    async def _schedule(self) -> None:
        self._environment.spare_mirror()
        followers = [
            self._start(self._reflectors.run()),
            self._start(self.engine.pod_enqueuer.run()),
        ]
        try:
            await self._lead_until_stopped()
        finally:
            for follower in followers:
                await _cancelled(follower)
            # A task of the turn itself may still take in what they have brought.
            await self._turn.until_free()

    async def _close(self) -> None:
        await self.engine.extenders.close()
        await self.engine.extender_objects.close()
        await self._extender_client.close()

    async def _start_serving(self, endpoints: Endpoints) -> None:
        address = self._settings.bind_address
        port = await endpoints.start(address, self._settings.secure_port)
        self._published = partial(_published, endpoints, address, port)
        logger.info("serving health, metrics and decisions", extra={"address": f"{address}:{port}"})

    async def _lead_until_stopped(self) -> None:
        async with AsyncExitStack() as on_the_way_out:
            if not await self._unless_stopped(self._able_to_lead()):
                return
            # Now, because it takes long, and later pods wait for a new leader.
            self._environment.calm_collector()
            started = asyncio.Event()
            if self._elector is not None:
                running = self._elector.run(
                    started.set, self._lost, self.is_current, self._published
                )
                election = self._start(running)
                # This releases the lease, after `_finish` has ended.
                on_the_way_out.push_async_callback(_cancelled, election)
            else:
                started.set()
            if not await self._unless_stopped(started.wait()):
                return
            self._leading = True
            writers, workers = self._start_writers(), self._start_workers()
            on_the_way_out.push_async_callback(self._finish, workers, writers)
            await self._stop.wait()
            logger.info("stopping: %d bindings in flight", self.engine.loop.binding)

    def _start_writers(self) -> "list[asyncio.Task[None]]":
        # They write until the last binding has ended.
        engine = self.engine
        parts = (
            engine.recorder,
            engine.reports,
            engine.group_reports,
            engine.queue_reports,
            self._decision_file,
            self._traces,
        )
        return [self._start(self._turn.between(part.run)) for part in parts if part is not None]

    def _start_workers(self) -> "list[asyncio.Task[None]]":
        work = [
            self._decide(),
            self._kopf.run(self._catch_signals),
            self._profile_status.run(),
            self.engine.housekeeping.run(),
            self._turn.between(self._comparer.run),
            self._shadow_status.run(),
            self.engine.rebalancer.run(),
        ]
        if self._elector is not None:
            work.append(self._give_up_when_unable())
        return [self._start(each) for each in work]

    async def _decide(self) -> None:
        # Later objects may have a higher precedence or priority. kube-scheduler waits, too
        # (WaitForHandlersSync in cmd/kube-scheduler/app/server.go).
        with self._profile_handler.departures.meanwhile() as gone:
            profiles = await self._profiles()
            await self._turn.between(self._handlers.profiles_read, profiles, gone)
        await self._kopf.until_pods_are_listed()
        self._compare_soon()  # a profile that went before kopf listed them is in force
        await self.engine.loop.run()

    async def _profiles(self) -> Sequence[Mapping[str, Any]]:
        backoff, trouble = Backoff(self._environment.random), ""
        while True:
            try:
                return (await self._client.list_all(SCHEDULING_PROFILE)).items
            except ApiError as error:
                if explain(error) != trouble:
                    trouble = explain(error)
                    logger.warning("nothing is decided before profiles are known: %s", trouble)
                await asyncio.sleep(backoff.pause())

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        # When the task ends, this replica stops.
        task.add_done_callback(self._ended)
        return task

    async def _able_to_lead(self) -> None:
        await self._reflectors.synced()
        await self._kopf.until_watchable()

    def is_current(self) -> bool:
        """Return whether this replica may ask for the lease.

        It may not while a watch is broken, because full nodes could look free.
        """
        return self._reflectors.is_current()

    async def _give_up_when_unable(self) -> None:
        able_at = self._environment.clock()
        while True:
            await asyncio.sleep(_HEALTH_SECONDS)
            trouble = self._reflectors.problem() or self._kopf.problem()
            if trouble is None:
                able_at = self._environment.clock()
            elif self._environment.clock() - able_at > _UNABLE_SECONDS:
                logger.error("this replica cannot work and gives the lease up: %s", trouble)
                self._exit_code = 1
                return

    async def _unless_stopped(self, awaited: Coroutine[Any, Any, Any]) -> bool:
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
        engine, now = self.engine, asyncio.get_running_loop().time
        deadline = now() + self._settings.stop_seconds
        engine.loop.halt()
        engine.api.stop()
        for task in workers:
            task.cancel()
        await asyncio.gather(
            engine.preemptions.finish(deadline - now()),
            engine.rebalancer.finish(deadline - now()),
            engine.loop.finish(deadline - now()),
        )
        await engine.api.finish(deadline - now())
        await engine.recorder.drain(max(0.0, min(_EVENT_SECONDS, deadline - now())))
        for task in writers:
            task.cancel()
        await asyncio.wait((*workers, *writers), timeout=_LAST_SECONDS)

    def _ended(self, task: "asyncio.Task[None]") -> None:
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
        self.engine.loop.halt()
        self._leading = False
        self._exit_code = 1
        self._stop.set()
        logger.error("the lease is lost; another replica binds now")
        self._environment.end_process(self._exit_code)

    def _follow_server(self, version: str) -> None:
        scheduler = self.engine.scheduler
        before, has_begun = scheduler.state.server_version, scheduler.profiles.in_force
        is_other = rules_of_server(version) is not scheduler.state.kubernetes
        if is_other and (before or has_begun):
            self._begin_anew(f"the API server is {version}, and was {before or 'not known'}")
        else:
            self.engine.follow_server(version)

    def _begin_anew(self, why: str) -> None:
        logger.warning("%s: the process ends and must be started again", why)
        self._exit_code = 1
        self._stop.set()

    def _compare_soon(self) -> None:
        self._comparer.hint()  # kopf has listed again, and may have missed changes

    def _endpoints(self, reviews: Reviews, page_client: ApiClient) -> Endpoints:
        settings, engine, scheduler = self._settings, self.engine, self.engine.scheduler
        pod_reports = PodReportBuilder(
            scheduler, groups=engine.group_reports.report, unserved=self._reflectors.unserved
        )
        queue = Queue(scheduler, bound=lambda: self._metrics.pods_bound)
        looks_up_ca = not settings.authentication_skip_lookup and settings.client_ca_file is None
        return Endpoints(
            live={
                "ping": lambda: None,
                "leaderElection": self._elector.check if self._elector else lambda: None,
                "scheduling": engine.loop.stuck,
            },
            ready={
                "mirror": self._reflectors.problem,
                "kopf": self._kopf.problem,
                "shutdown": lambda: "the process is shutting down" if self._stop.is_set() else None,
            },
            metrics=self._metrics,
            decisions=scheduler.decisions,
            pod_report=pod_reports.of,
            pod_groups=pod_reports.of_groups,
            queue=queue,
            shadow=engine.shadow.report,
            rebalancing=engine.rebalancer.report,
            cache_dump=partial(cache_dump, scheduler),
            configuration=partial(configuration, scheduler),
            tls=ServingTls(
                cert_file=settings.tls_cert_file,
                key_file=settings.tls_private_key_file,
                client_ca_file=settings.client_ca_file,
                client_ca=reviews.client_ca if looks_up_ca else None,
                names=(socket.gethostname(), "localhost", "127.0.0.1"),
            ),
            reviews=reviews,
            always_allow_paths=settings.authorization_always_allow_paths.split(","),
            page=self._page(pod_reports, queue, page_client),
            turn=self._turn,
        )

    def _page(self, pod_reports: PodReportBuilder, queue: Queue, client: ApiClient) -> Page:
        engine, scheduler = self.engine, self.engine.scheduler

        @cache
        def trials() -> "WhatIfRunner":
            from mooring.page.trials import WhatIfRunner  # noqa: PLC0415 - slow, see `page/routes.py`

            return WhatIfRunner(scheduler, engine.registry)

        return Page(
            nodes=Nodes(scheduler),
            pods=Pods(scheduler, scheduler.decisions, pod_reports.of),
            pod_groups=pod_reports.of_groups,
            policy=PolicyView(scheduler.profiles, self._profile_handler, engine.shadow.report),
            trials=trials,
            plans=PlansView(scheduler, engine.rebalancer.report),
            search=PodSearch(scheduler),
            objects=PodObjects(client, scheduler.uid_of),
            queue=queue,
            leading=lambda: self._leading,
            deciding=lambda: self._leading and engine.loop.has_begun,
        )

    def _note_hold(self, seconds: float, task: str) -> None:
        self._metrics.event_loop_held(seconds)
        log_long_hold(seconds, task)

    def _readings(self) -> StateCollector:
        engine, scheduler = self.engine, self.engine.scheduler
        devices = scheduler.state.dynamic_resources
        return StateCollector(
            pending_pods=scheduler.queue.counts,
            unschedulable_pods=scheduler.queue.unschedulable_counts,
            cache_size=partial(cache_sizes, scheduler),
            watch_lag_seconds=self._reflectors.lags,
            bindings_in_flight=lambda: engine.loop.binding,
            devices_known=lambda: devices.unknown is None,
            devices=lambda: largest(devices.slices.of_driver),
            devices_in_use=lambda: largest(devices.claims.allocated.of_driver),
            events_dropped=lambda: engine.recorder.dropped,
            spans_dropped=lambda: self._traces.dropped if self._traces is not None else 0,
            kopf_restarts=lambda: self._kopf.restarts,
            rebalancing_planned=engine.rebalancer.planned,
            gpu_mismatches=lambda: scheduler.state.devices.mismatches,
            pod_groups=engine.group_reports.phases,
            reserved_nodes=engine.group_reports.reserved_nodes,
            queue_nominal=engine.queue_reports.nominal,
            queue_used=engine.queue_reports.used,
            queue_waiting_pods=engine.queue_reports.waiting,
            queue_incoming_pods=scheduler.queue.incoming,
            queued_entities=lambda: {
                (queue, *_ENTITY): number for queue, number in scheduler.queue.counts().items()
            },
            queue_incoming_entities=lambda: {
                (*key, *_ENTITY): number for key, number in scheduler.queue.incoming().items()
            },
            inflight_events=scheduler.queue.in_flight_events,
            profiles_ready=self._profile_handler.ready,
            leading=lambda: self._leading,
        )


def _published(endpoints: Endpoints, address: str, port: int) -> dict[str, str]:
    """Return the lease's annotations with the address of a leader outside the cluster."""
    # Clients reach a leader in a pod by a port-forward.
    certificate = endpoints.certificate
    if "KUBERNETES_SERVICE_HOST" in os.environ or not 0 < len(certificate) <= _MOST_CERTIFICATE:
        return {}
    bound = ip_address(address)
    loopback = "127.0.0.1" if bound.version == 4 else "::1"
    host = loopback if bound.is_unspecified else str(bound)
    netloc = f"[{host}]" if bound.version == 6 else host
    return {SERVER: f"https://{netloc}:{port}", CERTIFICATE: certificate}


def _options(settings: RunSettings) -> Options:
    return Options(
        initial_backoff=settings.initial_backoff,
        max_backoff=settings.max_backoff,
        namespaces_take_turns=settings.queue_fairness == "namespace",
        plugin_slow_seconds=settings.plugin_slow_seconds,
        plugin_timeout_seconds=settings.plugin_timeout_seconds,
    )


def _decision_file(settings: RunSettings) -> DecisionFile | None:
    if settings.decision_log is None:
        return None
    return DecisionFile(Path(settings.decision_log), round(settings.decision_log_mib * 2**20))


def _traces(settings: RunSettings, identity: str) -> "Traces | None":
    if settings.otlp_endpoint is None:
        return None
    from mooring.observe.traces import Traces  # noqa: PLC0415 - its packages are optional

    return Traces(settings.otlp_endpoint, version=__version__, instance=identity)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
