"""A plugin that does wrong costs its attempt and nothing else, wherever it is called.

Three pods are hostile: for them one method of the plugin `Hostile` does wrong. The other pods are
scheduled by the same profile at the same time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import numpy as np
import pytest

import engines
from kube.api_server import ApiServer
from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint
from mooring.framework.plugin import Normalize
from mooring.framework.post_filter import Nomination, PostFilterState
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import SKIP, Explanation, PreFilterResult, Unschedulable, Wait
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.plugins import SHIPPED
from mooring.policy.profile_errors import ProfileInvalid
from mooring.run.build import Options, build_scheduler_state
from mooring.runtime.queued_pod import QueuedPod
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.state.view import NodeView
from mooring.testing.builders import node, pod, uid_of
from mooring.testing.fakes import FakeApi
from scheduler_states import put_profile

SECONDS: Final = 60.0
HOSTILE: Final = [f"hostile-{i}" for i in range(3)]
PLAIN: Final = [f"plain-{i}" for i in range(3)]

ASYNC: Final = {"pre_bind": "PreBind", "bind": "Bind", "post_bind": "PostBind"}
DECIDING: Final = {
    "pre_filter": "PreFilter",
    "filter": "Filter",
    "explain": "Filter",
    "post_filter": "PostFilter",
    "pre_score": "PreScore",
    "score": "Score",
}
SYNCHRONOUS: Final = {
    "pre_enqueue": "PreEnqueue",
    "sort_key": "QueueSort",
    "queueing_hint": "QueueingHint",
    "reserve": "Reserve",
    "unreserve": "Unreserve",
    "permit": "Permit",
    **DECIDING,
}
POINTS: Final = SYNCHRONOUS | ASYNC

LONE_SURROGATE: Final = "\ud800"
WRONG: Final[dict[str, list[Any]]] = {
    "pre_enqueue": [True, Unschedulable(7), Unschedulable(LONE_SURROGATE)],  # type: ignore[arg-type]  # what is tested
    "sort_key": [7, (object(),), (float("nan"),)],
    "queueing_hint": [None, "QueueSkip"],
    "pre_filter": [
        Wait(1.0),
        PreFilterResult(None, frozenset({3})),  # type: ignore[arg-type]  # what is tested
        Unschedulable("x" * 1_000_000),
    ],
    "filter": [None, np.True_, np.ones(9, np.bool_), np.ones((3, 1), np.bool_)],
    "explain": [
        "no",
        Explanation(("no",), np.ones(9, np.uint64), np.ones(9, np.bool_)),
        Explanation(("x" * 1_000_000,), np.ones(3, np.uint64), np.ones(3, np.bool_)),
        Explanation((LONE_SURROGATE,), np.ones(3, np.uint64), np.ones(3, np.bool_)),
    ],
    "post_filter": [
        None,
        Nomination("nowhere", ()),
        Nomination("n0", (parse_pod(pod("elsewhere")),) * 100_000),
        Unschedulable(LONE_SURROGATE),
    ],
    "pre_score": [Unschedulable("no")],
    "score": [np.int64(7), np.ones(9, np.int64), np.ones(3), np.full(3, -1)],
    "reserve": [False, Unschedulable(LONE_SURROGATE)],
    "permit": [1.0, Wait(float("nan")), Wait(-1.0), Wait("soon")],  # type: ignore[arg-type]  # what is tested
    "pre_bind": [True, Unschedulable("no")],
    "bind": [True, Unschedulable("no")],
}
"""Results that are not allowed, by method; the results of unreserve and post_bind are ignored."""


ERRORS: Final[list[BaseException]] = [
    ValueError("broken " + LONE_SURROGATE + "x" * 1_000_000),
    SystemExit(3),
    RecursionError("too deep"),
    MemoryError(),
    asyncio.CancelledError(),
]


class Hostile:
    """Lets every pod pass; for a hostile pod the method `at` does something else."""

    name: ClassVar[str] = "Hostile"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.MAX
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD)}
    )
    at: ClassVar[str] = ""
    does: ClassVar[Callable[[Any], Any]]

    def __init__(self, _args: NoArgs, _handle: Handle) -> None: ...

    def pre_enqueue(self, pod: Pod) -> Any:
        return self._answer("pre_enqueue", pod, None)

    def queueing_hint(self, pod: Pod, _event: ClusterEvent, _cluster: ClusterView) -> Any:
        return self._answer("queueing_hint", pod, QueueingHint.SKIP)

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> Any:
        return self._answer("pre_filter", pod, None)

    def filter(self, pod: Pod, nodes: NodeView, _state: Any) -> Any:
        rejects = self._is_hostile(pod) and self.at in {"explain", "post_filter", "queueing_hint"}
        return self._answer("filter", pod, np.full(len(nodes), not rejects))

    def explain(self, pod: Pod, nodes: NodeView, _state: Any) -> Any:
        why = Explanation.single("hostile", len(nodes), resolvable=True)
        return self._answer("explain", pod, why)

    def post_filter(self, state: PostFilterState) -> Any:
        return self._answer("post_filter", state.pod, Unschedulable("no", resolvable=True))

    def pre_score(self, pod: Pod, _nodes: NodeView, _cluster: ClusterView) -> Any:
        return self._answer("pre_score", pod, None)

    def score(self, pod: Pod, nodes: NodeView, _state: Any) -> Any:
        return self._answer("score", pod, np.zeros(len(nodes), np.int64))

    def reserve(self, pod: Pod, _node: str) -> Any:
        rejects = self._is_hostile(pod) and self.at == "unreserve"
        return self._answer("reserve", pod, Unschedulable("hostile") if rejects else None)

    def unreserve(self, pod: Pod, _node: str) -> Any:
        return self._answer("unreserve", pod, None)

    def permit(self, pod: Pod, _node: str) -> Any:
        return self._answer("permit", pod, None)

    async def pre_bind(self, pod: Pod, _node: str) -> Any:
        return await self._awaited("pre_bind", pod, None)

    async def bind(self, pod: Pod, _node: str) -> Any:
        return await self._awaited("bind", pod, SKIP)

    async def post_bind(self, pod: Pod, _node: str) -> Any:
        return await self._awaited("post_bind", pod, None)

    @staticmethod
    def _is_hostile(pod: Pod) -> bool:
        return pod.name in HOSTILE

    def _answer(self, method: str, pod: Pod, usual: Any) -> Any:
        return type(self).does(usual) if self.at == method and self._is_hostile(pod) else usual

    async def _awaited(self, method: str, pod: Pod, usual: Any) -> Any:
        answer = self._answer(method, pod, usual)
        return await answer if isinstance(answer, Coroutine) else answer


class HostileOrder(Hostile):
    """The same, and sorts the queue."""

    def sort_key(self, queued: QueuedPod) -> Any:
        """Return the key by which pods stay as they come."""
        return self._answer("sort_key", queued.pod, (0,))


class HostileRows(Hostile):
    """The same, with results that are kept per spec."""

    depends_on_node_only: ClassVar[bool] = True


class Clock:
    """The event loop's time, and what the plugins pretend to have taken."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead


def announced(plugin: type[Hostile]) -> Registry:
    """Return a registry that finds the plugin in the distribution acme."""
    entry: Any = SimpleNamespace(
        name="Hostile", value="acme:Hostile", dist=SimpleNamespace(name="acme"), load=lambda: plugin
    )
    return Registry(SHIPPED, {"Hostile": entry})


class Engine(engines.Engine):
    """An engine over three nodes, of which a profile names Hostile."""

    def __init__(self, client: ApiClient, plugin: type[Hostile], clock: Clock) -> None:
        self.point = POINTS.get(plugin.at, "")
        metrics = engines.CountingMetrics()
        self.failures = metrics.failures
        uses = [{"name": "Hostile"}]
        points: dict[str, Any] = {
            "multiPoint": {"enabled": uses},
            "bind": {"disabled": [{"name": "*"}], "enabled": [*uses, {"name": "DefaultBinder"}]},
        }
        if hasattr(plugin, "sort_key"):
            points["queueSort"] = {"disabled": [{"name": "*"}], "enabled": uses}
        super().__init__(
            client,
            *(node(f"n{i}") for i in range(3)),
            clock=clock,
            registry=announced(plugin),
            options=Options(plugin_timeout_seconds=0.01, most_per_attempt=None),
            metrics=metrics,
            plugins=points,
        )
        self.state = self.scheduler_state

    def has_counted(self, failure: tuple[str, str, str], least: int) -> bool:
        """Return whether the failure was counted so many times."""
        return self.failures[failure] >= least

    def settled(self, bound: Collection[str]) -> bool:
        """Return whether each pod is bound, or unassumed and in exactly one queue."""
        queue, pods = self.state.queue, self.state.state.pods
        if self.loop.binding or sum(queue.counts().values()) != len(list(queue)):
            return False
        for name in (*HOSTILE, *PLAIN):
            queued, assumed = queue.get(uid_of(name)), pods.get(uid_of(name))
            if name in bound:
                if queued is not None or assumed is None:
                    return False
            elif queued is None or queued.queue in {None, "active"} or assumed is not None:
                return False
        return set(PLAIN) <= set(bound)


@pytest.fixture
def bindings() -> engines.Bindings:
    return engines.Bindings()


@pytest.fixture
async def client(bindings: engines.Bindings) -> AsyncIterator[ApiClient]:
    async with ApiServer(bindings) as server, ApiClient(Connection(server.url)) as connected:
        yield connected


@pytest.fixture
def clock() -> Clock:
    return Clock()


def plugin_at(method: str, does: Callable[[Any], Any], base: type[Hostile] = Hostile) -> Any:
    if method == "sort_key":
        base = HostileOrder
    return type("Hostile", (base,), {"at": method, "does": staticmethod(does)})


async def run(engine: Engine, bindings: engines.Bindings, kind: str, times: int = 2) -> None:
    """Schedule all pods until each is settled and the failure was counted so many times."""
    point = engine.point
    wanted = ("Hostile", point, kind)
    tasks = [asyncio.create_task(work) for work in (engine.loop.run(), engine.reports.run())]
    try:
        for name in (x for pair in zip(HOSTILE, PLAIN, strict=True) for x in pair):
            # Requests of their own, so that the hostile pods share no results with the others.
            engine.pod_enqueuer.pending(parse_pod(pod(name, cpu="1m" if name in HOSTILE else "2m")))
        await until(lambda: engine.settled(dict(bindings.made)), tasks)
        if point == "QueueingHint":
            for name, least in (("n3", 1), ("n4", times)):
                raw = parse_object(Kind.NODE, node(name))
                engine.state.state.put(Kind.NODE, name, raw)
                await until(partial(engine.has_counted, wanted, least), tasks)
                await until(lambda: engine.settled(dict(bindings.made)), tasks)
        assert engine.failures[wanted] >= times
        assert set(engine.failures) == {wanted}
    finally:
        for task in tasks:
            task.cancel()
    page = engine.metrics.exposition("text/plain")[0].decode()
    sample = f'{{extension_point="{point}",kind="{kind}",plugin="Hostile"}}'
    assert f"mooring_plugin_failures_total{sample}" in page


async def until(holds: Callable[[], object], tasks: list["asyncio.Task[None]"]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            assert not any(task.done() for task in tasks), "a part of the scheduler ended"
            await asyncio.sleep(0)


def blames(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged; all of it must be about Hostile and name its distribution."""
    found = [r for r in caplog.records if r.name != "mooring.runtime.slow_decisions"]
    assert all(record.levelno == logging.ERROR for record in found)
    assert all("\n" not in r.getMessage() and len(r.getMessage()) < 2000 for r in found)
    assert all(not record.exc_info for record in found)
    messages = [record.getMessage() for record in found]
    assert all(m.startswith("plugin Hostile of acme: ") for m in messages), messages
    return messages


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("method", POINTS)
async def test_a_plugin_that_raises_costs_its_attempt_alone(
    method: str,
    error: BaseException,
    client: ApiClient,
    bindings: engines.Bindings,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def does(_usual: Any) -> Any:
        raise error

    await run(Engine(client, plugin_at(method, does), clock), bindings, "error")
    (message,) = blames(caplog)
    assert f"failed at {POINTS[method]}: {type(error).__name__}: " in message


@pytest.mark.parametrize(
    ("method", "answer"),
    [(method, answer) for method, answers in WRONG.items() for answer in answers],
    ids=lambda value: value if isinstance(value, str) and value in POINTS else type(value).__name__,
)
async def test_a_plugin_that_returns_the_wrong_thing_costs_its_attempt_alone(
    method: str,
    answer: Any,
    client: ApiClient,
    bindings: engines.Bindings,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugin = plugin_at(method, lambda _usual: answer)
    await run(Engine(client, plugin, clock), bindings, "invalid")
    (message,) = blames(caplog)
    assert method in message


@pytest.mark.parametrize("base", [Hostile, HostileRows])
@pytest.mark.parametrize("method", SYNCHRONOUS)
async def test_a_synchronous_call_that_is_slow_is_found_and_its_result_is_used(
    method: str,
    base: type[Hostile],
    client: ApiClient,
    bindings: engines.Bindings,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def does(usual: Any) -> Any:
        clock.ahead += 5.0
        return usual

    engine = Engine(client, plugin_at(method, does, base), clock)
    await run(engine, bindings, "slow", times=1)
    (message,) = blames(caplog)
    assert f"took longer than 1 s at {POINTS[method]}" in message
    unschedulable = {"explain", "post_filter", "queueing_hint", "unreserve"}
    assert (len(bindings.made) == len(PLAIN)) == (method in unschedulable)


async def for_ever(_usual: Any = None) -> None:
    await asyncio.Event().wait()


async def for_ever_whatever_comes(_usual: Any = None) -> None:
    """Ignore the scheduler's cancellation; the one at the end of the test ends it."""
    for _ in range(2):
        try:
            await asyncio.sleep(3600.0)  # a timer keeps the task from being collected as garbage
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("method", ASYNC)
@pytest.mark.parametrize("does", [for_ever, for_ever_whatever_comes])
async def test_an_asynchronous_call_that_is_slow_is_cancelled_and_the_pod_forgotten(
    method: str,
    does: Callable[[Any], Any],
    client: ApiClient,
    bindings: engines.Bindings,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mooring.scheduling.binding._TO_END_SECONDS", 0.01)
    await run(Engine(client, plugin_at(method, does), clock), bindings, "slow")
    (message,) = blames(caplog)
    assert f"was cancelled at {POINTS[method]} after 0.01 s" in message


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_a_constructor_that_raises_costs_its_profile_alone(error: BaseException) -> None:
    class Broken(Hostile):
        def __init__(self, _args: NoArgs, _handle: Handle) -> None:
            raise error

    uses = {"multiPoint": {"enabled": [{"name": "Hostile"}]}}
    registry, metrics = announced(Broken), engines.CountingMetrics()
    state = build_scheduler_state(ClusterState(), FakeApi(), registry, metrics=metrics)
    with pytest.raises(ProfileInvalid, match=f"Hostile cannot be built: {type(error).__name__}"):
        put_profile(state, registry=registry, plugins=uses)
    assert metrics.failures == {("Hostile", "Constructor", "error"): 1}
