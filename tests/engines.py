"""An engine over a cluster of its own, for tests in which it works against an API server."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final

from kube.api_server import Request
from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import SKIP, PluginError, Skip, Unschedulable, Wait
from mooring.kube.client import ApiClient
from mooring.model.pod import Pod, parse_pod
from mooring.observe.documents import plain
from mooring.observe.metrics import Metrics
from mooring.observe.records import DEFAULT_LIMIT, DecisionLog, NotedStep
from mooring.plugins import SHIPPED
from mooring.run.build import Engine as WholeEngine
from mooring.run.build import Options
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster
from scheduler_states import put_profile
from turn_guard import somebody_pauses

SECONDS: Final = 60.0
NO_BUDGET: Final = Options(most_per_attempt=None)
SOON: Final = replace(NO_BUDGET, initial_backoff=0.02)
"""For engines on the event loop's own clock: their tests wait for a pod that is tried again."""


class Marked:
    """A plugin that acts as the pod's label `does` says, for example `fail` or `wait`."""

    name: ClassVar[str] = "Marked"
    depends_on_node_only: ClassVar[bool] = False

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> Skip:
        """Fail if the pod's label `does` is `break`."""
        if pod.labels.get("does") == "break":
            raise PluginError("the plugin is broken")
        return SKIP

    def reserve(self, pod: Pod, _node: str) -> Unschedulable | None:
        """Fail if the pod's label `does` is `fail`; reject the pod if the label is `reject`."""
        if pod.labels.get("does") == "fail":
            raise ValueError("the plugin is broken")
        return (
            Unschedulable("the plugin does not like it")
            if pod.labels.get("does") == "reject"
            else None
        )

    def unreserve(self, _pod: Pod, _node: str) -> None:
        """Do nothing, because `reserve` reserves nothing."""

    async def pre_bind(self, pod: Pod, _node: str) -> None:
        """Fail or wait for ever if the pod's label `does` says so."""
        if pod.labels.get("does") == "fail in pre_bind":
            raise TextlessError
        if pod.labels.get("does") == "wait in pre_bind":
            await asyncio.Event().wait()

    async def post_bind(self, pod: Pod, _node: str) -> None:
        """Wait for ever if the pod's label `does` says so."""
        if pod.labels.get("does") == "wait in post_bind":
            await asyncio.Event().wait()

    def permit(self, pod: Pod, _node: str) -> Wait | None:
        """Return Wait for the seconds in the label `seconds` if the label `does` is `wait`."""
        seconds = float(pod.labels.get("seconds", "3600"))
        return Wait(seconds) if pod.labels.get("does") == "wait" else None


class TextlessError(Exception):
    """An exception with an empty text."""


PLUGINS: Final = Registry((*SHIPPED, Marked), {})
MARKED: Final = {"multiPoint": {"enabled": [{"name": Marked.name}]}}


class CountingMetrics(Metrics):
    """Metrics that also count the failures of plugins, by plugin, point and kind."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: Counter[tuple[str, str, str]] = Counter()

    def plugin_failed(self, plugin: str, point: str, kind: str) -> None:
        self.failures[plugin, point, kind] += 1
        super().plugin_failed(plugin, point, kind)


class Engine:
    """An engine and its parts, with one profile in force; `spec` is the spec that a user writes.

    By default the profile has the plugin Marked. `records` and `trace` are arguments of
    `DecisionLog`, which always uses the event loop's time; `clock` is for all other parts.
    """

    def __init__(
        self,
        client: ApiClient,
        *objects: dict[str, Any],
        clock: Callable[[], float] | None = None,
        records: int = DEFAULT_LIMIT,
        trace: Callable[[NotedStep], None] | None = None,
        registry: Registry = PLUGINS,
        options: Options | None = None,
        metrics: Metrics | None = None,
        **spec: Any,
    ) -> None:
        loop_time = asyncio.get_running_loop().time
        self.clock = clock or loop_time
        parts = self.parts = WholeEngine(
            client,
            cluster(*objects),
            registry,
            identity="test",
            options=options or (NO_BUDGET if clock is not None else SOON),
            metrics=metrics,
            decisions=DecisionLog(limit=records, clock=loop_time, trace=trace),
            clock=self.clock,
        )
        self.scheduler_state, self.decisions = parts.scheduler, parts.scheduler.decisions
        self.metrics, self.reports, self.api = parts.metrics, parts.reports, parts.api
        self.loop, self.pod_enqueuer, self.shadow = parts.loop, parts.pod_enqueuer, parts.shadow
        self.group_reports, self.extenders = parts.group_reports, parts.extenders
        self._registry = registry
        self.put_profile(**{"plugins": MARKED, **spec})

    def put_profile(self, **spec: Any) -> None:
        """Put a profile with this spec in force; waiting pods get it, too."""
        put_profile(self.scheduler_state, registry=self._registry, **spec)
        self.pod_enqueuer.profiles_changed()

    def pending(self, *pods: dict[str, Any]) -> None:
        """Show these pods, which have no node, to the engine."""
        for raw in pods:
            pod = parse_pod(raw)
            self.parts.extender_objects.seen(pod, raw)
            self.pod_enqueuer.pending(pod)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the loop and the writer of reports inside this context."""
        works = self.loop.run(), self.reports.run(), self._report_new()
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    async def _report_new(self) -> None:
        """Report new unschedulable pods every 10 ms; the housekeeping does this once per second."""
        while True:
            await asyncio.sleep(0.01)
            self.reports.report_new()

    async def close(self) -> None:
        """Halt the loop, end its bindings, and close the extenders' connections."""
        self.loop.halt()
        await self.loop.finish(1.0)
        await self.extenders.close()
        await self.parts.extender_objects.close()


class Bindings:
    """Answers Bindings as its attributes say; keeps the Bindings and the written statuses.

    Attributes:
        hold: The names of pods for which the next write waits in `held` until `answer`.
        sent: The name of the pod of each Binding, whatever the answer was.
    """

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []
        self.sent: list[str] = []
        self.hold = set[str]()
        self.held: dict[str, Request] = {}
        self.refuse: dict[str, int] = {}
        self.before_answer: Callable[[], object] = lambda: None
        self.statuses: list[dict[str, Any]] = []
        self.deleted: list[str] = []

    def __call__(self, request: Request) -> None:
        """Answer one request, or keep it in `held`."""
        name = request.path.split("/")[-2]
        if request.path.endswith("/binding"):
            self.sent.append(name)
        if request.method != "GET" and name in self.hold and name not in self.held:
            self.held[name] = request
        else:
            self._answer(request, name)

    def answer(self, name: str) -> None:
        """Answer the held request about the pod, and no longer hold its later requests."""
        self.hold.discard(name)
        self._answer(self.held.pop(name), name)

    def _answer(self, request: Request, name: str) -> None:
        if request.method == "PATCH":
            self.statuses.append(request.body["status"])
            request.reply({})
            return
        if request.method == "GET":
            name = request.path.split("/")[-1]
            request.reply({"metadata": {"name": name, "uid": f"pod-default-{name}"}, "spec": {}})
            return
        if request.method == "DELETE":
            self.deleted.append(request.path.split("/")[-1])
            request.reply({})
            return
        self.before_answer()
        if name in self.refuse:
            request.refuse(self.refuse[name], "Refused", "no")
            return
        self.made.append((name, request.body["target"]["name"]))
        request.reply({}, 201)


async def until(holds: Callable[[], object], *, in_pauses: bool = False) -> None:
    """Wait until `holds` returns True; unless `in_pauses`, also until no work pauses."""
    async with asyncio.timeout(SECONDS):
        while (somebody_pauses() and not in_pauses) or not holds():  # noqa: ASYNC110 - the parts have no event for every state
            await asyncio.sleep(0)


def path_of(engine: Engine, name: str) -> list[dict[str, Any]]:
    """Return the steps of the path of the pod of this name, without their times."""
    path = plain(engine.decisions.path(f"default/{name}"))
    hidden = ("time", "until", "count")
    return [
        {field: value for field, value in step.items() if field not in hidden}
        for step in (path["steps"] if path is not None else ())
    ]
