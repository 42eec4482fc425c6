"""The parts of the engine are connected: events and options reach every part."""

import asyncio

import pytest

from device_builders import allocated, device_claim, device_class
from driving import driven
from engines import PLUGINS, Engine
from kube.api_server import ApiServer
from mooring.framework.plugin_failures import ExtensionPoint
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.observe.metrics import Metrics
from mooring.pausing import pause
from mooring.run.build import Engine as WholeEngine
from mooring.run.build import Options, build_scheduler_state, unschedulable
from mooring.runtime.queued_pod import SubQueue
from mooring.scheduling.outcome import FitError
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.what_if import WhatIf
from mooring.state.cluster import ClusterState
from mooring.testing.builders import node, pod, uid_of
from mooring.testing.fakes import FakeApi
from scheduler_states import put_profile


def put_node(engine: Engine, name: str) -> None:
    """Put the node into the state."""
    engine.scheduler_state.state.put(Kind.NODE, name, parse_node(node(name)))


async def test_a_new_node_reaches_the_queue_and_the_waits_of_plugins(client: ApiClient) -> None:
    engine = Engine(client)
    queue = engine.scheduler_state.queue
    engine.pending(pod("web"))
    queued = queue.pop(engine.clock())
    assert queued is not None
    queue.add_unschedulable(queued, frozenset({"NodeResourcesFit"}), engine.clock())
    names = engine.scheduler_state.state.nodes.row_of
    waits = asyncio.create_task(engine.api.until(lambda: "a" in names, 10.0))
    await asyncio.sleep(0)
    assert not waits.done()
    put_node(engine, "a")
    await waits
    while queue.run_hints(engine.clock()):
        pass
    assert queued.queue is not SubQueue.UNSCHEDULABLE


async def test_no_room_is_made_for_a_pod_that_waits_for_an_autoscaler(client: ApiClient) -> None:
    now = 0.0
    engine = Engine(client, clock=lambda: now, preemption={"delaySeconds": 60})
    queue, scheduler = engine.scheduler_state.queue, engine.scheduler_state
    engine.pending(pod("web"))
    queued = queue.pop(now)
    assert queued is not None
    queued.unschedulable_since = now
    queue.add_unschedulable(queued, frozenset({"NodeResourcesFit"}), now)
    (profile,) = scheduler.profiles.in_force.values()
    now = 59.0
    assert not unschedulable(scheduler, profile)
    now = 60.0
    assert unschedulable(scheduler, profile) == [queued.pod]


async def test_nothing_is_written_for_a_pod_that_is_only_tried(server: ApiServer) -> None:
    """PostFilter runs, because the pod may preempt, and would otherwise deallocate the claim."""
    entry = {"name": "gpu", "resourceClaimName": "mine"}
    wanted = parse_pod(pod("web", cpu="6", spec={"resourceClaims": [entry]}))
    objects = (
        node("a", cpu="4"),
        node("b", cpu="8"),
        device_class(),
        device_claim("mine", allocation=allocated("d0", node="a")),
    )
    async with ApiClient(Connection(server.url)) as connected:
        scheduler = Engine(connected, *objects).scheduler_state
        (profile,) = scheduler.profiles.in_force.values()
        what_if = WhatIf(ResultCache(scheduler.cluster))
        before = len(asyncio.all_tasks())
        with what_if.trial():
            assert isinstance(what_if.decide(wanted, profile.pipeline), FitError)
        assert len(asyncio.all_tasks()) == before
        assert isinstance(what_if.decide(wanted, profile.pipeline), FitError)
        assert (await server.next()).path.endswith("/resourceclaims/mine")


async def test_a_state_has_one_engine(client: ApiClient) -> None:
    state = ClusterState()
    WholeEngine(client, state, PLUGINS, identity="test")
    with pytest.raises(RuntimeError, match="one sink"):
        WholeEngine(client, state, PLUGINS, identity="test")


async def test_an_engine_is_busy_while_a_pod_is_active(client: ApiClient) -> None:
    engine = Engine(client)
    assert not engine.parts.is_busy()
    engine.pending(pod("web"))
    assert engine.parts.is_busy()


async def test_the_queue_is_flushed_and_pods_are_told_why_they_wait(client: ApiClient) -> None:
    """The interval of the flush is kube-scheduler's; the other intervals are short enough."""
    periodic = Engine(client).parts.housekeeping.periodic
    found = {work.__name__: seconds for work, seconds in periodic.items()}
    seconds = {"flush": 30.0, "report": 5.0, "report_new": 1.0, "expire_nominations": 5.0}
    assert found == seconds


async def test_whole_pods_are_kept_for_extenders_alone_and_until_they_leave(
    client: ApiClient,
) -> None:
    extenders = [{"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter"}]
    kept: list[bool] = []
    for called in ([], extenders):
        engine = Engine(client, extenders=called)
        engine.pending(pod("web"))
        kept.append(engine.parts.extender_objects.bytes > 0)
        engine.pod_enqueuer.gone(uid_of("web"))
        assert engine.parts.extender_objects.bytes == 0
    assert kept == [False, True]


def test_the_backoff_is_that_of_the_options() -> None:
    options = Options(initial_backoff=3.0, max_backoff=3.0)
    scheduler = build_scheduler_state(ClusterState(), FakeApi(), PLUGINS, options=options)
    pipeline = put_profile(scheduler, registry=PLUGINS).pipeline
    scheduler.queue.add(parse_pod(pod("web")), pipeline, 0.0)
    queued = scheduler.queue.pop(0.0)
    assert queued is not None
    scheduler.queue.add_after_error(queued, 0.0)
    assert scheduler.queue.next_due() == 3.0


def test_plugins_are_measured_if_there_are_metrics() -> None:
    metrics = Metrics()
    scheduler = build_scheduler_state(ClusterState(), FakeApi(), PLUGINS, metrics=metrics)
    pipeline = put_profile(scheduler, registry=PLUGINS).pipeline
    outer = pipeline.metrics.begin_attempt()
    with pipeline.metrics.extension_point(ExtensionPoint.PRE_FILTER, pipeline.profile):
        pass
    pipeline.metrics.end_attempt(outer)
    name = "scheduler_framework_extension_point_duration_seconds_count"
    labels = {"extension_point": "PreFilter", "status": "Success", "profile": pipeline.profile}
    assert metrics.registry.get_sample_value(name, labels) == 1


async def test_the_log_says_by_which_rules_pods_are_decided(
    client: ApiClient, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(client)
    with caplog.at_level("INFO", "mooring.run.build"):
        engine.parts.follow_server("1.36")
        engine.parts.follow_server("1.39")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_what_others_do_while_a_plugin_pauses_makes_it_not_slow() -> None:
    now = 0.0

    def others_work() -> None:
        nonlocal now
        now += 5.0

    scheduler = build_scheduler_state(
        ClusterState(), FakeApi(), PLUGINS, metrics=Metrics(), clock=lambda: now
    )
    pipeline = put_profile(scheduler, registry=PLUGINS).pipeline

    def call() -> float:
        began = pipeline.failures.clock()
        pause()
        return pipeline.failures.clock() - began

    assert driven(call, others_work, lambda: now) == (0.0, 1)
