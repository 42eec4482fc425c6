"""The loop pops, decides, binds or rejects pods, against an API server on loopback."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, pairwise
from typing import Any, ClassVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engines import PLUGINS, Bindings, Engine, Marked, path_of, until
from extending import Answers, extender
from memory import collections_of_garbage
from mooring.cel.interpreter import Program
from mooring.extenders.verdicts import PodExtenderResults
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import SKIP, Skip
from mooring.kube.client import ApiClient
from mooring.model.events import Kind
from mooring.model.node import ZONE
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.observe.documents import plain
from mooring.observe.records import NotedStep, RecordedStep
from mooring.pausing import Work, pause, pause_now
from mooring.plugins import SHIPPED
from mooring.process.time_slices import TimeSlices
from mooring.run.build import Options
from mooring.runtime.queued_pod import SubQueue
from mooring.scheduling import loop as loop_module
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import node, pod, pod_group, uid_of
from node_selectors import expression, node_selector, term
from scheduler_states import put_profile
from storage_builders import pv, pvc

SECONDS = 60.0
SMALL_BUDGET = Options(most_per_attempt=5_000, initial_backoff=0.01, max_backoff=0.01)


async def test_pods_are_bound_the_most_important_first(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a", cpu="2"))
    engine.pending(pod("low", cpu="1"), pod("high", cpu="1", priority=10))
    with engine.running():
        await until(lambda: len(bindings.made) == 2 and not engine.loop.binding)
    assert engine.decisions.of("default/high")[0].node == "a"
    assert len(engine.scheduler_state.state.pods.assumed) == 2
    assert engine.scheduler_state.queue.get(uid_of("low")) is None


class Gate:
    """A PreEnqueue plugin that pauses, and accepts every pod."""

    name: ClassVar[str] = "Gate"
    depends_on_node_only: ClassVar[bool] = False

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_enqueue(self, _pod: Pod) -> None:
        """Pause, and accept the pod."""
        pause()


GATE = Registry((*SHIPPED, Marked, Gate), {})


def alone(client: ApiClient) -> Engine:
    """Return an engine in which a pod can preempt another pod by a dry run."""
    low = [pod(f"low-{name}", cpu="2", node=name, ports=[80]) for name in "abc"]
    engine = Engine(client, *(node(name, cpu="2") for name in "abc"), *low)
    engine.pending(pod("high", cpu="1", ports=[80], priority=10), pod("other", cpu="1", ports=[80]))
    return engine


def gang(client: ApiClient, minimum: int, **fields: Any) -> Engine:
    """Return an engine with a gang of four; some nodes have a pod of low priority."""
    low = [pod(f"low-{name}", cpu="2", node=name, ports=[80]) for name in "ab"]
    others = low if fields else []
    engine = Engine(
        client, *(node(name, cpu="2") for name in "abcd"), *others, pod_group("g", minimum)
    )
    engine.pending(*(pod(f"g-{i}", cpu="1", group="g", ports=[80], **fields) for i in range(4)))
    return engine


def gated(client: ApiClient) -> Engine:
    """Return an engine with 2,000 pods whose profile (with the plugin Gate) must be found."""
    engine = Engine(client, node("a"), registry=GATE)
    engine.pending(*(pod(f"p-{i}", cpu="1m") for i in range(2000)))
    engine.put_profile(plugins={"preEnqueue": {"enabled": [{"name": "Gate"}]}})
    return engine


def is_at_rest(engine: Engine) -> bool:
    """Return whether no binding and no eviction is running."""
    return not engine.loop.binding and not engine.parts.preemptions.in_flight


@pytest.mark.parametrize(
    "made",
    [
        alone,
        partial(gang, minimum=3),
        partial(gang, minimum=5),
        partial(gang, minimum=4, priority=10),
        gated,
    ],
    ids=["a preemptor", "a gang", "a gang without members", "a gang that preempts", "gated"],
)
async def test_what_is_interrupted_in_any_pause_assumes_nothing_and_leaves_every_pod_known(
    client: ApiClient, made: Callable[[ApiClient], Engine]
) -> None:
    for pauses in count(1):
        engine = made(client)
        scheduler, state = engine.scheduler_state, engine.scheduler_state.state
        known, there = {*scheduler.queue.uids()}, {*(placed.pod.uid for placed in state.pods)}
        turn = partial(engine.loop._work_once, scheduler.clock(), TimeSlices(0.0))
        with Work(turn) as work:
            has_ended = any(work.advance() for _ in range(pauses))
        begun = {*scheduler.being_bound}
        assert {queued.pod.uid for queued in scheduler.queue.in_flight} >= begun
        assert {*scheduler.queue.uids()} == known
        assert {placed.pod.uid for placed in state.pods} == there | begun
        assert not state.is_tried
        await until(partial(is_at_rest, engine))
        await engine.close()
        if has_ended:
            return


def measured(engine: Engine, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric's series by their label values, sorted by label."""
    page, _ = engine.metrics.exposition("")
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name == name
    }


async def test_every_extension_point_that_a_pod_passes_is_measured_once(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"), node("b"))
    engine.pending(*(pod(f"web-{i}", cpu="100m") for i in range(3)))
    with engine.running():
        await until(lambda: len(bindings.made) == 3 and not engine.loop.binding)
    points = measured(engine, "scheduler_framework_extension_point_duration_seconds_count")
    passed = ["PreEnqueue", "PreFilter", "Filter", "PreScore", "Score"]
    passed += ["Reserve", "Permit", "PreBind", "Bind", "PostBind"]
    assert points == {(point, "default-scheduler", "Success"): 3 for point in passed}
    evaluations = measured(engine, "scheduler_plugin_evaluation_total")
    assert evaluations["Filter", "NodeResourcesFit", "default-scheduler"] == 3
    assert evaluations["Score", "NodeResourcesBalancedAllocation", "default-scheduler"] == 3


async def test_how_an_extension_point_ends_is_measured(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"))
    marks = {"reject": "reject", "break": "break", "fail": "fail in pre_bind"}
    for name, mark in marks.items():
        engine.pending(pod(name, labels={"does": mark}))
    engine.pending(pod("large", cpu="1000"))
    with engine.running():
        await until(lambda: not engine.loop.binding and not bindings.made and _tried(engine))
    points = measured(engine, "scheduler_framework_extension_point_duration_seconds_count")
    for key in (("Reserve", "UnschedulableAndUnresolvable"), ("PreFilter", "Error")):
        assert points[key[0], "default-scheduler", key[1]] >= 1
    assert points["PreBind", "default-scheduler", "Error"] >= 1
    assert points["PostFilter", "default-scheduler", "Unschedulable"] >= 1
    assert points["Unreserve", "default-scheduler", "Success"] >= 2


def _tried(engine: Engine) -> bool:
    """Return whether every pod has had an attempt."""
    queue = engine.scheduler_state.queue
    return all(queued.attempts and queued.queue is not None for queued in queue)


async def test_attempts_of_a_pod_group_are_measured(client: ApiClient, bindings: Bindings) -> None:
    engine = Engine(client, node("a", cpu="4"), pod_group("gang", minimum=2))
    engine.pending(*(pod(f"g-{i}", cpu="1", group="gang") for i in range(2)))
    with engine.running():
        await until(
            lambda: (
                len(bindings.made) == 2
                and not engine.loop.binding
                and measured(engine, "scheduler_podgroup_schedule_attempts_total")
            )
        )
    attempts = measured(engine, "scheduler_podgroup_schedule_attempts_total")
    assert attempts == {("podgroup", "default-scheduler", "scheduled"): 1}
    decided = "scheduler_podgroup_scheduling_algorithm_duration_seconds_count"
    assert measured(engine, decided) == {("podgroup", "default-scheduler"): 1}
    tried = measured(engine, "scheduler_placement_evaluations_total")
    assert tried == {("podgroup", "default-scheduler", "feasible"): 1}


async def test_shadow_profiles_decide_when_no_pod_is_active(
    client: ApiClient, bindings: Bindings
) -> None:
    active: list[int] = []

    class Watching:
        """A plugin that records the number of active pods at each call."""

        name: ClassVar[str] = "Watching"
        depends_on_node_only: ClassVar[bool] = False

        def __init__(self, args: NoArgs, handle: Handle) -> None: ...

        def pre_filter(self, _pod: Pod, _cluster: ClusterView) -> Skip:
            active.append(engine.scheduler_state.queue.counts()[SubQueue.ACTIVE])
            return SKIP

    registry = Registry((*SHIPPED, Marked, Watching), {})
    engine = Engine(client, node("a"), registry=registry)
    match = {"schedulerNames": ["theirs"]}
    watching = {"multiPoint": {"enabled": [{"name": Watching.name}]}}
    spec = {"mode": "Shadow", "match": match, "plugins": watching}
    put_profile(engine.scheduler_state, "candidate", registry=registry, **spec)
    for number in range(3):
        raw = pod(f"theirs-{number}", node="a", spec={"schedulerName": "theirs"})
        bound = parse_pod(raw)
        engine.shadow.forget(bound.uid)
        engine.scheduler_state.state.put(Kind.POD, bound.uid, bound)
    engine.pending(*(pod(f"own-{number}") for number in range(3)))
    with engine.running():
        await until(lambda: len(engine.shadow.report()["pods"]) == 3 and len(bindings.made) == 3)
    assert active == [0, 0, 0]
    assert {name for name, _ in bindings.made} == {"own-0", "own-1", "own-2"}


async def test_a_pod_that_a_former_leader_bound_is_not_decided_about(
    client: ApiClient, bindings: Bindings
) -> None:
    """One watch may show the pod on its node before the other shows that it left."""
    engine = Engine(client, node("a"), node("b"))
    engine.pending(pod("bound"), pod("other"))
    state, bound = engine.scheduler_state.state, parse_pod(pod("bound", node="b"))
    state.put(Kind.POD, bound.uid, bound)
    with engine.running():
        await until(lambda: bindings.made and not engine.loop.binding)
    assert [name for name, _ in bindings.made] == ["other"]
    placed = state.pods.get(uid_of("bound"))
    assert placed is not None
    assert placed.pod is bound


async def test_a_halted_loop_decides_nothing_more(client: ApiClient, bindings: Bindings) -> None:
    engine = Engine(client, node("a"))
    engine.pending(pod("web"))
    engine.loop.halt()
    async with asyncio.timeout(SECONDS):
        await engine.loop.run()
    assert engine.scheduler_state.queue.counts()[SubQueue.ACTIVE] == 1
    assert bindings.made == []


async def test_halting_ends_a_loop_that_waits_for_work(client: ApiClient) -> None:
    engine = Engine(client, node("a"))
    running = asyncio.create_task(engine.loop.run())
    await asyncio.sleep(0)
    engine.loop.halt()
    async with asyncio.timeout(SECONDS):
        await running


async def test_waiting_for_work_does_not_end_a_slice_of_work(client: ApiClient) -> None:
    """Garbage is collected between some slices, which takes longer than a decision."""
    now = 0.0
    engine = Engine(client, node("a"), clock=lambda: now)
    with engine.running(), collections_of_garbage() as collected:
        for _ in range(30):
            await asyncio.sleep(0)
            now += 1.0
            engine.scheduler_state.work.set()
    assert collected == []


async def test_a_loop_that_has_not_turned_for_long_is_stuck(client: ApiClient) -> None:
    now = 1000.0
    engine = Engine(client, node("a"), clock=lambda: now)
    assert engine.loop.stuck() is None
    running = asyncio.create_task(engine.loop.run())
    await asyncio.sleep(0)
    now += 60.0
    assert engine.loop.stuck() is None
    now += 1.0
    assert engine.loop.stuck() == "the scheduling loop has not turned for 61 seconds"
    engine.scheduler_state.work.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert engine.loop.stuck() is None
    engine.loop.halt()
    await running


async def test_an_unschedulable_pod_waits_until_a_node_comes(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("small", cpu="1"))
    engine.pending(pod("big", cpu="4"))
    with engine.running():
        await until(lambda: engine.scheduler_state.queue.counts()["unschedulable"] == 1)
        raw = node("large", cpu="8")
        engine.scheduler_state.state.put(Kind.NODE, "large", parse_object(Kind.NODE, raw))
        await until(lambda: bindings.made)
    assert bindings.made == [("big", "large")]


async def test_a_pod_that_comes_in_a_turn_without_work_is_tried_at_once(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch's event waits for the end of a turn that has found no pod."""
    monkeypatch.setattr(loop_module, "_IDLE_SECONDS", 2 * SECONDS)
    engine = Engine(client, node("a"))
    turn, brought = engine.scheduler_state.turn, list[asyncio.Task[None]]()

    def compare(_until: float) -> bool:
        if not brought:
            bring = turn.deliver(lambda: engine.pending(pod("new")), 0, TimeSlices())
            brought.append(asyncio.get_running_loop().create_task(bring))
            pause_now()
        return False

    monkeypatch.setattr(engine.shadow, "compare", compare)
    with engine.running():
        await until(lambda: bindings.made)


@pytest.mark.parametrize("fits", [True, False])
async def test_a_relabelled_pod_is_tried_again_where_its_labels_may_matter(
    client: ApiClient, bindings: Bindings, *, fits: bool
) -> None:
    """A pod whose own affinity term selects it may be the first of a series."""
    engine = Engine(client, node("a", cpu="2", labels={"rack": "1"}))
    selector = {"matchLabels": {"app": "web"}}
    terms = [{"labelSelector": selector, "topologyKey": "rack"}]
    together = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    fields: dict[str, Any] = {"affinity": together, "cpu": "1"} if fits else {"cpu": "4"}
    engine.pending(pod("waits", labels={"app": "api"}, **fields))
    queue = engine.scheduler_state.queue
    with engine.running():
        await until(lambda: queue.counts()["unschedulable"] == 1)
        queued = queue.named("default/waits")
        assert queued is not None
        engine.pending(pod("waits", labels={"app": "web"}, **fields))
        if not fits:
            assert queued.pod.labels == {"app": "web"}
            assert (queue.counts()["unschedulable"], queued.attempts) == (1, 1)
            raw = node("large", cpu="8")
            engine.scheduler_state.state.put(Kind.NODE, "large", parse_object(Kind.NODE, raw))
        await until(lambda: bindings.made)


def only_in(zone: str) -> dict[str, object]:
    """Return the part of a PersistentVolume's spec that restricts it to the zone."""
    return {"nodeAffinity": {"required": node_selector(term(expression(ZONE, "In", zone)))}}


async def test_the_hints_of_an_event_do_not_hold_up_a_decision(client: ApiClient) -> None:
    """The clock advances by half a millisecond at each reading, which follows each hint."""
    ticks = count()
    engine = Engine(client, node("small", cpu="1"), clock=lambda: next(ticks) * 0.0005)
    queue = engine.scheduler_state.queue
    engine.pending(*(pod(f"big-{number}", cpu=f"{number + 4}") for number in range(50)))
    with engine.running():
        await until(lambda: queue.counts()["unschedulable"] == 50 and not queue.run_hints(0.0))
        raw = node("small", cpu="2")
        engine.scheduler_state.state.put(Kind.NODE, "small", parse_object(Kind.NODE, raw))
        engine.pending(pod("web", cpu="3"))
        await until(lambda: engine.decisions.of("default/web"))
        assert queue.run_hints(0.0)
        await until(lambda: not queue.run_hints(0.0))
    assert queue.counts()["unschedulable"] == 51


async def test_a_pod_is_tried_though_another_of_its_group_waits_for_another_zone(
    client: ApiClient, bindings: Bindings
) -> None:
    nodes = [node(zone, cpu="1", zone=zone) for zone in "ab"]
    full = [pod(f"full-{zone}", cpu="1", node=zone) for zone in "ab"]
    volumes = [pv(f"pv-{zone}", claim=f"default/data-{zone}", spec=only_in(zone)) for zone in "ab"]
    claims = [pvc(f"data-{zone}", volume=f"pv-{zone}") for zone in "ab"]
    engine = Engine(client, *nodes, *full, *volumes, *claims)
    engine.pending(*(pod(f"web-{zone}", cpu="1", claims=[f"data-{zone}"]) for zone in "ab"))
    queue = engine.scheduler_state.queue
    with engine.running():
        await until(lambda: queue.counts()["unschedulable"] == 2)
        engine.scheduler_state.state.delete(Kind.POD, uid_of("full-b"))
        await until(lambda: bindings.made)
    assert bindings.made == [("web-b", "b")]


async def test_a_group_that_lacks_members_keeps_no_nominated_nodes(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a", cpu="1"), node("b", cpu="1"), pod_group("g", 2))
    state = engine.scheduler_state.state
    members = [parse_pod(pod(f"g{i}", cpu="1", group="g")) for i in range(2)]
    engine.pending(*(pod(f"g{i}", cpu="1", group="g") for i in range(2)))
    for member, name in zip(members, "ab", strict=True):
        state.nominate(member, name)
    engine.pod_enqueuer.gone(members[1].uid)
    with engine.running():
        await until(lambda: bindings.statuses)
    assert not len(state.nominations)
    assert bindings.statuses[0]["nominatedNodeName"] is None


async def test_an_attempt_that_may_not_preempt_keeps_the_nomination_of_a_former_leader(
    client: ApiClient, bindings: Bindings
) -> None:
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    leaving = pod("victim", cpu="1", node="a", terminating=True, status={"conditions": [mark]})
    engine = Engine(client, node("a", cpu="1"), leaving)
    engine.pending(pod("web", cpu="1", priority=10, nominated="a"))
    with engine.running():
        await until(lambda: bindings.statuses)
        (status,) = bindings.statuses
        assert "preemption: not eligible" in status["conditions"][0]["message"]
        assert "nominatedNodeName" not in status
        engine.scheduler_state.state.delete(Kind.POD, uid_of("victim"))
        await until(lambda: bindings.made)


async def test_a_pod_whose_nominated_node_is_deleted_preempts_on_another(
    client: ApiClient, bindings: Bindings
) -> None:
    full = (pod("low", cpu="1", node="a"), pod("mid", cpu="1", node="b", priority=1))
    engine = Engine(client, node("a", cpu="1"), node("b", cpu="1"), *full)
    state = engine.scheduler_state.state
    engine.pending(pod("web", cpu="1", priority=10))

    def nominated_to(name: str) -> bool:
        return [state.nodes.names[n.row] for n in state.nominations] == [name]

    with engine.running():
        await until(lambda: nominated_to("a") and bindings.deleted == ["low"])
        state.delete(Kind.NODE, "a")
        await until(lambda: nominated_to("b") and bindings.deleted == ["low", "mid"])
        state.delete(Kind.POD, uid_of("mid"))
        await until(lambda: bindings.made)
    assert bindings.made == [("web", "b")]


async def test_other_tasks_run_while_victims_are_searched_on_many_nodes(
    client: ApiClient, bindings: Bindings
) -> None:
    seconds, seen = count(0.0, 0.01), list[bool]()
    full = [pod(f"on-{name}", cpu="1", node=name, priority=1) for name in "abc"]
    nodes = (node(name, cpu="1") for name in "abc")
    engine = Engine(client, *nodes, *full, clock=lambda: next(seconds))
    engine.pending(pod("web", cpu="1", priority=10, ports=[80]))

    async def look() -> None:
        while not bindings.deleted:
            seen.append(engine.scheduler_state.turn.holder is not None)
            await asyncio.sleep(0)

    with engine.running():
        async with asyncio.timeout(SECONDS):
            await look()
    assert seen.count(True) >= 3


async def test_an_error_ends_a_nomination_in_the_status_and_in_the_state(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"))
    engine.pending(pod("web", nominated="a", labels={"does": "break"}))
    with engine.running():
        await until(lambda: bindings.statuses)
    (status,) = bindings.statuses
    assert status["nominatedNodeName"] is None
    assert len(engine.scheduler_state.state.nominations) == 0


async def test_a_failed_binding_forgets_the_pod_and_backs_off(
    client: ApiClient, bindings: Bindings
) -> None:
    bindings.refuse["web"] = 403
    engine = Engine(client, node("a"))
    engine.pending(pod("web", cpu="1"))
    with engine.running():
        await until(lambda: engine.scheduler_state.queue.counts()["backoff"] == 1)
    waiting = engine.scheduler_state.queue.get(uid_of("web"))
    assert waiting is not None
    assert (waiting.queue, waiting.consecutive_errors_count) == (SubQueue.BACKOFF, 1)
    assert len(engine.scheduler_state.state.pods) == 0


async def test_a_pod_that_has_gone_while_it_was_bound_leaves_nothing_behind(
    client: ApiClient, bindings: Bindings
) -> None:
    bindings.refuse["web"] = 404
    engine = Engine(client, node("a"))
    engine.pending(pod("web", cpu="1"))
    with engine.running():
        await until(lambda: engine.scheduler_state.queue.get(uid_of("web")) is None)
        await until(lambda: not engine.loop.binding)
    assert len(engine.scheduler_state.state.pods) == 0
    assert engine.scheduler_state.state.unscheduled == {}


async def test_the_path_of_a_bound_pod_has_its_node(client: ApiClient, bindings: Bindings) -> None:
    engine = Engine(client, node("a"))
    engine.pending(pod("web"))
    with engine.running():
        await until(lambda: bindings.made and not engine.loop.binding)
    assert path_of(engine, "web") == [
        {"step": "seen"},
        {"step": "queued"},
        {"step": "assumed", "node": "a"},
        {"step": "bound", "node": "a"},
    ]


@pytest.mark.parametrize(
    ("refused", "steps"), [(None, ["bound"]), (404, ["gone"]), (403, ["error", "gone"])]
)
@pytest.mark.parametrize("taken", [True, False], ids=["with a profile", "without a profile"])
async def test_the_answer_to_a_binding_says_how_a_pod_ended_that_had_left_its_watch(
    client: ApiClient,
    bindings: Bindings,
    refused: int | None,
    steps: list[str],
    *,
    taken: bool,
) -> None:
    traced: list[NotedStep] = []
    engine = Engine(client, node("a"), trace=traced.append)

    def leave() -> None:
        if not taken:
            engine.decisions.without_profile("default/web", uid_of("web"), 1.0)
        engine.pod_enqueuer.gone(uid_of("web"))

    bindings.before_answer = leave
    if refused is not None:
        bindings.refuse["web"] = refused
    engine.pending(pod("web"))
    with engine.running():
        await until(lambda: traced and traced[-1].step in (RecordedStep.BOUND, RecordedStep.GONE))
        await until(lambda: not engine.scheduler_state.being_bound)
    found = [step["step"] for step in path_of(engine, "web") if step["step"] != "noProfile"]
    assert found == ["seen", "queued", "assumed", *steps]
    assert [noted.step.value for noted in traced][-len(steps) :] == steps


@pytest.mark.parametrize("does", ["wait", "wait in pre_bind"])
async def test_a_pod_that_goes_before_its_binding_is_sent_is_gone_at_once(
    client: ApiClient, bindings: Bindings, does: str
) -> None:
    engine = Engine(client, node("a"))
    engine.pending(pod("web", labels={"does": does}))
    state = engine.scheduler_state
    with engine.running():
        await until(lambda: state.in_pre_bind or len(state.waiting))
        engine.pod_enqueuer.gone(uid_of("web"))
        assert path_of(engine, "web")[-1] == {"step": "gone"}
        await until(lambda: not engine.loop.binding)
    assert bindings.made == []
    assert path_of(engine, "web")[-1] == {"step": "gone"}
    assert state.being_bound == {}


async def test_a_pod_that_goes_just_when_it_is_permitted_is_not_bound(
    client: ApiClient, bindings: Bindings
) -> None:
    """Otherwise it would keep its node until PreBind ends, because nothing calls it off."""
    engine = Engine(client, node("a"))
    engine.pending(pod("web", labels={"does": "wait"}))
    state = engine.scheduler_state
    with engine.running():
        await until(lambda: len(state.waiting))
        state.waiting.allow("pod-default-web", Marked.name)
        engine.pod_enqueuer.gone(uid_of("web"))
        await until(lambda: not engine.loop.binding)
    assert bindings.made == []
    assert not state.state.pods.assumed
    assert path_of(engine, "web")[-1] == {"step": "gone"}


async def test_the_path_of_a_pod_at_permit_says_which_plugin_it_waits_for(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"))
    engine.pending(pod("web", labels={"does": "wait"}))
    waiting = engine.scheduler_state.waiting
    with engine.running():
        await until(lambda: len(waiting))
        path = plain(engine.decisions.path("default/web"))
        assert path is not None
        assert path["state"] == "waiting at Permit"
        (one,) = waiting
        waiting.reject(one.pod.uid, "Marked", "not now")
        await until(lambda: engine.scheduler_state.queue.counts()["unschedulable"])
    assert path_of(engine, "web")[3:] == [
        {"step": "waitingAtPermit", "node": "a", "plugins": ["Marked"]},
        {"step": "rejected", "plugins": ["Marked"], "cause": "not now"},
    ]
    assert bindings.made == []


async def test_the_path_of_a_preemptor_has_its_cause_and_victims_and_the_victims_path_both(
    client: ApiClient, bindings: Bindings
) -> None:
    victim = pod("low", cpu="2", node="a", priority=1)
    engine = Engine(client, node("a", cpu="2"), victim)
    engine.decisions.seen("default/low", uid_of("low"), engine.clock())
    engine.decisions.bound(uid_of("low"), "a", engine.clock())
    engine.pending(pod("high", cpu="2", priority=10))
    with engine.running():
        await until(lambda: bindings.deleted == ["low"] and not engine.loop.binding)
        await until(lambda: len(path_of(engine, "low")) == 3)
    assert path_of(engine, "high")[2:] == [
        {"step": "unschedulable", "cause": "Insufficient cpu"},
        {"step": "nominated", "node": "a", "victims": ["default/low"], "victimsInAll": 1},
    ]
    assert path_of(engine, "low")[-1] == {"step": "preempted", "by": "default/high", "node": "a"}


async def test_the_path_of_a_pod_whose_binding_fails_has_the_error(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"))
    engine.pending(pod("web", labels={"does": "fail in pre_bind"}))
    with engine.running():
        await until(lambda: bindings.statuses and not engine.loop.binding)
    assumed, failed = path_of(engine, "web")[2:4]
    assert assumed == {"step": "assumed", "node": "a"}
    assert failed["step"] == "error"
    assert failed["cause"].startswith('running PreBind plugin "Marked": TextlessError (')


async def test_without_memory_for_the_record_pods_are_bound_all_the_same(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"), records=0)
    engine.pending(pod("web"))
    with engine.running():
        await until(lambda: bindings.made and not engine.loop.binding)
    assert (path_of(engine, "web"), engine.decisions.bytes) == ([], 0)


async def test_a_terminating_pod_is_not_scheduled(client: ApiClient, bindings: Bindings) -> None:
    engine = Engine(client, node("a"))
    engine.pending(pod("leaving", terminating=True), pod("staying"))
    with engine.running():
        await until(lambda: bindings.made)
    assert bindings.made == [("staying", "a")]


async def test_a_pod_whose_profile_went_before_its_turn_waits_for_another(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"))
    engine.pending(pod("web"))
    engine.scheduler_state.profiles.remove("default-scheduler")
    engine.pod_enqueuer.profiles_changed()
    with engine.running():
        assert engine.scheduler_state.without_profile
        assert engine.scheduler_state.queue.get(uid_of("web")) is None
        put_profile(engine.scheduler_state)
        engine.pod_enqueuer.profiles_changed()
        await until(lambda: bindings.made)


async def test_no_pod_is_decided_by_a_profile_that_went_while_there_were_many(
    client: ApiClient, bindings: Bindings
) -> None:
    """The pod enqueuer's task, which finds profiles in slices, does not run in this test."""
    engine = Engine(client, node("a"))
    engine.pending(*(pod(f"web-{number}") for number in range(250)))
    engine.scheduler_state.profiles.remove("default-scheduler")
    engine.pod_enqueuer.profiles_changed()
    assert len([*engine.scheduler_state.queue]) == 150
    with engine.running():
        await until(lambda: len(engine.scheduler_state.without_profile) == 250)
    assert bindings.made == []
    assert len(engine.scheduler_state.state.pods) == 0


async def test_a_plugin_that_breaks_fails_one_attempt_and_nothing_else(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"))
    engine.pending(pod("marked", labels={"does": "fail"}, priority=1), pod("plain"))
    with engine.running():
        await until(lambda: bindings.made and bindings.statuses)
    assert bindings.made == [("plain", "a")]
    assert engine.scheduler_state.queue.counts()["backoff"] == 1
    assert engine.scheduler_state.state.pods.get(uid_of("marked")) is None
    (status,) = bindings.statuses
    message = status["conditions"][0]["message"]
    assert message.startswith('running Reserve plugin "Marked": the plugin is broken (engines.py:')


async def test_an_unexpected_error_of_a_binding_leaves_nothing_assumed(
    client: ApiClient, bindings: Bindings, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(client, node("a"))
    engine.pending(pod("web", labels={"does": "fail in pre_bind"}))
    with engine.running():
        await until(lambda: bindings.statuses and not engine.loop.binding)
    assert engine.scheduler_state.queue.counts()["backoff"] == 1
    assert len(engine.scheduler_state.state.pods) == 0
    (message,) = caplog.messages
    assert message.partition(" (engines.py:")[0] == (
        "plugin Marked of mooring-scheduler: failed at PreBind: TextlessError: TextlessError"
    )


async def test_pods_rejected_at_reserve_do_not_move_one_another(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"))
    rejected = [pod(f"m{i}", labels={"does": "reject", "i": str(i)}) for i in range(3)]
    engine.pending(*rejected)
    with engine.running():
        await until(lambda: engine.scheduler_state.queue.counts()["unschedulable"] == 3)
        engine.pending(pod("last"))
        await until(lambda: bindings.made)
    attempts = {queued.pod.name: queued.attempts for queued in engine.scheduler_state.queue}
    # One of their own, and one because "last" was added, which might have helped them.
    assert all(attempts[f"m{i}"] <= 2 for i in range(3))


async def test_the_end_of_a_binding_lets_the_next_pod_be_decided_where_no_more_may_be_bound(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_MOST_BINDING", 1)
    monkeypatch.setattr(loop_module, "_IDLE_SECONDS", 3600.0)
    engine = Engine(client, node("a"))
    engine.pending(*(pod(f"p{i}") for i in range(3)))
    with engine.running():
        await until(lambda: len(bindings.made) == 3)


async def test_the_end_of_a_binding_that_began_as_the_loop_waited_for_its_turn_wakes_it(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_MOST_BINDING", 1)
    monkeypatch.setattr(loop_module, "_IDLE_SECONDS", 3600.0)
    engine = Engine(client, node("a"))
    scheduler = engine.scheduler_state
    engine.pending(pod("first", labels={"does": "wait"}))
    with engine.running():
        await until(lambda: len(scheduler.waiting) and not scheduler.work.is_set())
        bindings.hold.add("first")
        async with scheduler.turn:
            engine.pending(pod("second"))
            await until(lambda: not scheduler.work.is_set())  # the loop waits for the turn
            scheduler.waiting.allow(uid_of("first"), Marked.name)
        await until(lambda: "first" in bindings.held)
        bindings.answer("first")
        await until(lambda: len(bindings.made) == 2)


async def test_a_binding_that_fails_wakes_the_loop_for_the_end_of_the_backoff(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_IDLE_SECONDS", 3600.0)
    engine = Engine(client, node("a"), options=Options(initial_backoff=0.01))
    bindings.refuse["web"] = 403
    engine.pending(pod("web"))
    with engine.running():
        await until(lambda: bindings.statuses)
        del bindings.refuse["web"]
        await until(lambda: bindings.made)


async def test_pods_that_wait_at_permit_do_not_block_other_bindings(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_MOST_BINDING", 2)
    engine = Engine(client, node("a"))
    waiting = [pod(f"w{i}", labels={"does": "wait"}, priority=1) for i in range(5)]
    engine.pending(*waiting, *(pod(f"p{i}") for i in range(5)))
    with engine.running():
        await until(lambda: len(bindings.made) == 5)
        assert len(engine.scheduler_state.waiting) == 5
        first = next(iter(engine.scheduler_state.waiting)).pod.uid
        engine.scheduler_state.waiting.allow(first, Marked.name)
        await until(lambda: len(bindings.made) == 6)
    await engine.loop.finish(SECONDS)
    waits = "scheduler_permit_wait_duration_seconds_count"
    assert engine.metrics.registry.get_sample_value(waits, {"result": "Success"}) == 1
    assert engine.metrics.registry.get_sample_value(waits, {"result": "Unschedulable"}) == 4
    assert len(engine.scheduler_state.state.pods) == 6


async def test_a_pod_at_permit_is_called_off_when_its_profile_goes_and_runs_when_it_returns(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a", cpu="1"))
    scheduler = engine.scheduler_state
    engine.pending(pod("w", cpu="1", labels={"does": "wait"}))
    with engine.running():
        await until(lambda: len(scheduler.waiting))
        scheduler.profiles.remove("default-scheduler")
        engine.pod_enqueuer.profiles_changed()
        await until(lambda: not engine.loop.binding)
        assert not scheduler.state.pods.assumed
        assert [*scheduler.without_profile] == [uid_of("w")]
        assert (
            bindings.statuses == []
        )  # that no node fits would be wrong; PodEnqueuer.report tells why
        put_profile(scheduler, registry=PLUGINS)
        engine.pod_enqueuer.profiles_changed()
        await until(lambda: bindings.made)
    assert bindings.made == [("w", "a")]


async def test_a_scheduler_that_stops_writes_nothing_about_pods_at_permit(
    client: ApiClient, bindings: Bindings
) -> None:
    """A cluster autoscaler would add nodes for pods that are reported as unschedulable."""
    engine = Engine(client, node("a"))
    engine.pending(pod("w", labels={"does": "wait"}))
    with engine.running():
        await until(lambda: len(engine.scheduler_state.waiting))
        engine.loop.halt()
        await engine.loop.finish(SECONDS)
        engine.reports.error(parse_pod(pod("marker")), "the marker")
        await until(lambda: bindings.statuses)
    (status,) = bindings.statuses
    assert status["conditions"][0]["message"] == "the marker"


async def test_a_denied_binding_is_retried_with_growing_delay_and_says_why(
    client: ApiClient, bindings: Bindings
) -> None:
    now = 0.0
    bindings.refuse["web"] = 403
    engine = Engine(client, node("a"), clock=lambda: now)
    engine.pending(pod("web", cpu="1"))
    backoffs = list[float]()
    with engine.running():
        for _ in range(5):
            await until(lambda: engine.scheduler_state.queue.counts()["backoff"] == 1)
            waiting = engine.scheduler_state.queue.get(uid_of("web"))
            assert waiting is not None
            backoffs.append(waiting.backoff_expiration - now)
            now = waiting.backoff_expiration
            engine.scheduler_state.work.set()
            await until(lambda: engine.scheduler_state.queue.counts()["backoff"] == 0)
    assert backoffs == [1.0, 2.0, 4.0, 8.0, 10.0]
    (condition,) = bindings.statuses[0]["conditions"]
    assert (condition["reason"], condition["message"].split(": ")[-1]) == (
        "AdmissionDenied",
        "no (403 Refused)",
    )


async def test_bindings_in_flight_are_finished_at_the_end(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"))
    engine.pending(*(pod(f"p{i}") for i in range(20)))
    with engine.running():
        await until(lambda: engine.loop.binding)
    began = engine.loop.binding
    await engine.loop.finish(SECONDS)
    assert len(bindings.made) >= began
    assert engine.loop.binding == 0


async def test_attempts_are_counted_by_their_result(client: ApiClient, bindings: Bindings) -> None:
    engine = Engine(client, node("a", cpu="1"))
    engine.pending(pod("fits", cpu="1", priority=1), pod("waits", cpu="1"))
    with engine.running():
        await until(lambda: engine.scheduler_state.queue.counts()["unschedulable"])
        await until(lambda: bindings.made and not engine.loop.binding)
    page, _ = engine.metrics.exposition("text/plain")
    for result in ("scheduled", "unschedulable"):
        line = f'scheduler_schedule_attempts_total{{profile="default-scheduler",result="{result}"}}'
        assert f"{line} 1.0" in page.decode()


SERIALS = tuple(node(f"n{i}", labels={"serial": f"n{i}"}) for i in range(40))
REGEX = "!node.labels.serial.matches('^x(abc){60}')"
"""About 1,000 units for each node."""


@contextmanager
def interpretations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield a list of the numbers of CEL evaluations in each turn of the event loop."""
    made, turns, run = 0, [0], Program.run

    def counted(program: Program, variables: Any, *limits: int) -> Any:
        nonlocal made
        made += 1
        return run(program, variables, *limits)

    async def note() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(made)

    monkeypatch.setattr(Program, "run", counted)
    task = asyncio.create_task(note())
    try:
        yield turns
    finally:
        task.cancel()


def ticking(seconds: float = 0.00025) -> Callable[[], float]:
    """Return a clock that advances by `seconds` at each reading."""
    ticks = count()
    return lambda: next(ticks) * seconds


async def test_other_tasks_run_while_the_values_of_rules_are_evaluated(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [{"name": f"r{n}", "filter": REGEX.replace("x", f"x{n}")} for n in range(3)]
    engine = Engine(client, *SERIALS, clock=ticking(), rules=rules)
    engine.pending(pod("ruled"))
    with interpretations(monkeypatch) as turns, engine.running():
        await until(lambda: len(bindings.made) == 1 and not engine.loop.binding)
    assert turns[-1] == 3 * len(SERIALS)
    assert max(after - before for before, after in pairwise(turns)) <= 10, "a slice of 2 ms"


async def test_after_a_long_attempt_a_pod_of_another_namespace_is_next(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each evaluation of the rule takes one second of the clock."""
    passed, run = 0.0, Program.run

    def slow(program: Program, variables: Any, *limits: int) -> Any:
        nonlocal passed
        passed += 1.0
        return run(program, variables, *limits)

    monkeypatch.setattr(Program, "run", slow)
    rules = [{"name": "own", "filter": "pod.labels.own.matches('^[a-z0-9]+$')"}]
    engine = Engine(client, node("a"), clock=lambda: passed, rules=rules)
    engine.pending(*(pod(f"slow-{n}", labels={"own": f"x{n}"}) for n in range(3)))
    engine.pending(pod("plain", namespace="other", labels={"own": "x0"}))
    with engine.running():
        await until(lambda: len(bindings.made) >= 2)
    assert [name for name, _ in bindings.made[:2]] == ["slow-0", "plain"]


async def test_an_attempt_that_evaluates_for_too_long_ends_with_a_reason_and_others_go_on(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, *SERIALS, options=SMALL_BUDGET, rules=[{"name": "a", "filter": REGEX}])
    engine.pending(pod("web"))
    with engine.running():
        await until(lambda: len(bindings.made) == 1 and not engine.loop.binding)
    attempts = measured(engine, "scheduler_schedule_attempts_total")
    assert attempts["default-scheduler", "error"] > 1
    assert attempts["default-scheduler", "unschedulable"] == 0
    assert engine.decisions.of("default/web")[0].node is not None


async def test_a_gang_whose_rules_need_many_values_is_placed_when_they_are_there(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(
        client,
        *SERIALS,
        pod_group("gang", minimum=3),
        options=SMALL_BUDGET,
        rules=[{"name": "a", "filter": REGEX}],
    )
    engine.pending(*(pod(f"g-{i}", cpu="1", group="gang") for i in range(3)))
    with engine.running():
        await until(lambda: len(bindings.made) == 3 and not engine.loop.binding)
    attempts = measured(engine, "scheduler_podgroup_schedule_attempts_total")
    assert attempts["podgroup", "default-scheduler", "scheduled"] == 1


APART = [{"name": "apart", "filter": 'node.pods({"app": pod.labels.app}) == 0'}]


async def test_a_rule_counts_many_pods_over_several_attempts_and_places_a_gang(
    client: ApiClient, bindings: Bindings
) -> None:
    """Each placed pod has unique labels, so that no two pods are counted together."""
    gang = [node(name, cpu="4", pods=999) for name in "abc"] + [pod_group("gang", minimum=3)]
    others = [pod(f"o{n}", node="a", labels={"app": "x", "n": str(n)}) for n in range(300)]
    engine = Engine(client, *gang, *others, options=SMALL_BUDGET, rules=APART)
    engine.pending(*(pod(f"g-{i}", cpu="1", group="gang", labels={"app": "g"}) for i in range(3)))
    engine.pending(pod("x", labels={"app": "x"}))
    with engine.running():
        await until(lambda: len(bindings.made) == 4 and not engine.loop.binding)
    placed = dict(bindings.made)
    assert {placed[f"g-{i}"] for i in range(3)} == {"a", "b", "c"}
    assert placed["x"] != "a"


async def test_a_pod_that_a_count_rejects_is_tried_again_when_a_counted_pod_leaves(
    client: ApiClient, bindings: Bindings
) -> None:
    old = pod("old", node="a", labels={"app": "old"})
    engine = Engine(client, node("a"), old, rules=APART)
    engine.pending(pod("new", labels={"app": "old"}))
    with engine.running():
        await until(lambda: _tried(engine))
        assert not bindings.made
        engine.scheduler_state.state.delete(Kind.POD, uid_of("old"))
        await until(lambda: bindings.made == [("new", "a")] and not engine.loop.binding)


@pytest.mark.parametrize("group", [None, "gang"])
async def test_with_extenders_the_values_are_evaluated_before_they_are_called(
    group: str | None, client: ApiClient, bindings: Bindings
) -> None:
    answers = Answers(filter=lambda arguments: {"NodeNames": arguments["NodeNames"]})
    async with answers.serving() as port:
        gang = pod_group("gang", minimum=3)
        engine = Engine(client, *SERIALS, gang, options=SMALL_BUDGET, clock=ticking())
        match, rules = {"schedulerNames": ["extended"]}, [{"name": "a", "filter": REGEX}]
        called = [extender(port, "filter")]
        put_profile(
            engine.scheduler_state, registry=PLUGINS, match=match, rules=rules, extenders=called
        )
        of = {"schedulerName": "extended"}
        engine.pending(*(pod(f"g-{i}", cpu="1", group=group, spec=of) for i in range(3)))
        with engine.running():
            await until(lambda: len(bindings.made) == 3 and not engine.loop.binding)
    assert {len(arguments["NodeNames"]) for _, arguments in answers.asked} == {len(SERIALS)}


@pytest.mark.parametrize("size", [1, 2])
async def test_no_pod_whose_extender_is_being_called_is_bound_by_a_profile_that_is_removed(
    client: ApiClient, bindings: Bindings, size: int
) -> None:
    """There are more pods, alone or in groups of `size`, than one slice handles."""
    go, count = asyncio.Event(), 130

    async def answer(arguments: dict[str, Any]) -> object:
        await go.wait()
        return {"NodeNames": arguments["NodeNames"]}

    answers = Answers(filter=answer)
    async with answers.serving() as port:
        groups = [pod_group(f"g-{number}", size) for number in range(count // size)]
        engine = Engine(client, node("a", pods=500), *(groups if size > 1 else ()))
        called, spec = [extender(port, "filter")], {"schedulerName": "extended"}
        match = {"schedulerNames": ["extended"]}
        scheduler = engine.scheduler_state
        put_profile(scheduler, "extended", registry=PLUGINS, match=match, extenders=called)
        for number in range(count):
            group = f"g-{number // size}" if size > 1 else None
            engine.pending(pod(f"web-{number}", group=group, spec=spec))
        with engine.running():
            await until(lambda: len(answers.asked) >= 8)
            scheduler.profiles.remove("extended")
            engine.pod_enqueuer.profiles_changed()
            go.set()
            await until(lambda: len(scheduler.without_profile) == count)
        await engine.close()  # attempts of groups without members may still wait for their turn
    assert bindings.made == []


async def test_a_preemptor_is_bound_when_its_last_victim_was_called_off_before_it_was_bound(
    client: ApiClient, bindings: Bindings
) -> None:
    """No pod is deleted in this case, so no watch event follows; kubernetes #139162."""
    engine = Engine(client, node("a", cpu="2"))
    victims = (pod(f"w{n}", cpu="1", labels={"does": "wait"}, priority=1) for n in range(2))
    engine.pending(*victims)
    with engine.running():
        await until(lambda: len(engine.scheduler_state.waiting) == 2)
        engine.pending(pod("high", cpu="2", priority=10))
        engine.scheduler_state.work.set()
        await until(lambda: bindings.made)
    assert bindings.made == [("high", "a")]
    assert bindings.deleted == []


@pytest.mark.parametrize("group", [None, "gang"])
async def test_what_extenders_answered_is_not_kept_while_a_pod_waits_at_permit(
    group: str | None, client: ApiClient, bindings: Bindings
) -> None:
    answers = Answers(filter=lambda arguments: {"NodeNames": arguments["NodeNames"]})
    async with answers.serving() as port:
        engine = Engine(
            client, node("a"), pod_group("gang", 1), extenders=[extender(port, "filter")]
        )
        engine.pending(pod("web", group=group, labels={"does": "wait"}))
        with engine.running():
            await until(lambda: len(engine.scheduler_state.waiting) == 1)
            await until(lambda: not engine.loop.schedule_one.extender_attempts.ready)
            gc.collect()
            assert not [kept for kept in gc.get_objects() if isinstance(kept, PodExtenderResults)]
    assert (len(answers.asked), bindings.made) == (1, [])
