"""The scheduling loop over a cluster of its own, with extenders on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

from extending import Answers, GivenObjects, extender
from kube.api_server import ApiServer, Request
from mooring.engine.api import PluginApi
from mooring.engine.extenders.extenders import Extenders
from mooring.engine.intake import Intake
from mooring.engine.loop import SchedulingLoop
from mooring.engine.preemption_executor import PreemptionExecutor
from mooring.engine.profiles import Profiles
from mooring.engine.reports import Reports
from mooring.engine.scheduler_state import SchedulerState
from mooring.framework.handle import Handle
from mooring.framework.registry import Registry
from mooring.framework.waiting_pods import WaitingPods
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.recorder import EventRecorder
from mooring.kube.writes import PodWriter
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.observe.metrics import Metrics
from mooring.plugins import SHIPPED
from mooring.queueing.hints import QueueingHints
from mooring.queueing.queue import SchedulingQueue
from mooring.state.snapshot import Snapshot
from mooring.testing.builders import cluster
from scheduler_states import group_reports, put_profile

__all__ = ["ApiAnswers", "Engine", "Held", "Stage", "all_pass", "staged", "until"]

SECONDS: Final = 60.0


class ApiAnswers:
    """Answers of an API server: carries out bindings and deletions, and remembers statuses."""

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        self.statuses: dict[str, dict[str, Any]] = {}
        self.deleted: list[str] = []

    def __call__(self, request: Request) -> None:
        """Answers one request."""
        parts = request.path.split("/")
        if request.method == "PATCH":
            self.statuses[parts[-2]] = request.body["status"]
            request.reply({})
        elif request.method == "DELETE":
            self.deleted.append(parts[-1])
            request.reply({})
        elif request.method == "POST" and parts[-1] == "binding":
            self.bound[parts[-2]] = request.body["target"]["name"]
            request.reply({}, 201)
        elif request.method == "GET":
            spec = {"nodeName": self.bound[parts[-1]]} if parts[-1] in self.bound else {}
            request.reply({"metadata": {"uid": f"pod-default-{parts[-1]}"}, "spec": spec})
        else:
            request.reply({}, 201)

    def message(self, name: str) -> str:
        """The message of the pod's condition; "" without one."""
        conditions = self.statuses.get(name, {}).get("conditions", [{"message": ""}])
        message: str = conditions[0]["message"]
        return message


class Engine:
    """The loop, its queue and its cluster; a profile with these extenders takes every pod."""

    def __init__(
        self, client: ApiClient, *objects: dict[str, Any], extenders: list[dict[str, Any]]
    ) -> None:
        state = cluster(*objects)
        snapshot, waiting, writer = Snapshot(state), WaitingPods(), PodWriter(client)
        handle = Handle(snapshot, waiting, PluginApi(client, writer), state)
        registry = Registry(SHIPPED, {})
        queue = SchedulingQueue(QueueingHints(handle), initial_backoff=0.01, max_backoff=0.01)
        self.state = SchedulerState(state, snapshot, queue, Profiles(registry, handle), waiting)
        self.metrics, self.decisions = Metrics(), self.state.decisions
        self.reports = Reports(writer, EventRecorder(client, "mooring", "test"))
        clock = asyncio.get_running_loop().time
        self.objects = GivenObjects(*objects)
        self.extenders = Extenders(
            self.objects,
            observe=self.metrics.extender_called,
            bound_node=lambda pod: writer.bound_node(pod.namespace, pod.name, pod.uid),
        )
        self.loop = SchedulingLoop(
            self.state,
            reports=self.reports,
            metrics=self.metrics,
            preemptions=PreemptionExecutor(
                self.state,
                writer,
                self.reports,
                clock,
                wake=lambda: self.loop.wake(),  # noqa: PLW0108 - the loop is being made
            ),
            extenders=self.extenders,
            group_reports=group_reports(state, client),
            settle=lambda queued: self.intake.settle(queued),  # noqa: PLW0108 - see above
            clock=clock,
        )
        self.intake = Intake(
            self.state,
            clock=clock,
            wake=self.loop.wake,
            left=self.reports.forget,
            failed=self.reports.error,
            gated=self.reports.gated,
            no_profile=self.reports.no_profile,
        )
        state.on_events(self.intake.on_events)
        self.profile(extenders=extenders)

    def profile(self, **spec: Any) -> None:
        """The profile is put in force, also for the pods that wait."""
        put_profile(self.state, **spec)
        self.intake.profiles_changed()

    def pending(self, *pods: dict[str, Any]) -> None:
        """The pods wait for a node."""
        for raw in pods:
            self.intake.pending(parse_pod(raw))

    def put(self, raw: dict[str, Any]) -> None:
        """The watch shows the node or assigned pod."""
        kind = Kind.NODE if "allocatable" in raw.get("status", {}) else Kind.POD
        value = parse_object(kind, raw)
        self.state.state.put(kind, value.key if kind is Kind.POD else value.name, value)

    def unschedulable(self) -> int:
        """How many pods are unschedulable."""
        return self.state.queue.counts()["unschedulable"]

    @contextmanager
    def running(self) -> Iterator[None]:
        """The loop and the reports run inside."""
        tasks = [asyncio.create_task(work) for work in (self.loop.run(), self.reports.run())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Nothing goes on."""
        self.loop.halt()
        await self.loop.finish(1.0)
        await self.extenders.close()


async def until(holds: Callable[[], object]) -> None:
    """Returns as soon as it holds."""
    async with asyncio.timeout(SECONDS):
        while not holds():  # noqa: ASYNC110 - the parts have no event for every state
            await asyncio.sleep(0)


class Stage:
    """An API server, and engines that talk to it."""

    def __init__(self, stack: AsyncExitStack, client: ApiClient, api: ApiAnswers) -> None:
        self._stack = stack
        self._client = client
        self.api = api

    async def engine(self, *objects: dict[str, Any], answers: Answers, **fields: Any) -> Engine:
        """An engine that runs, with one extender; `fields` are fields of the extender."""
        verbs = fields.pop("verbs", tuple(answers.by_verb))
        port = await self._stack.enter_async_context(answers.serving())
        engine = Engine(self._client, *objects, extenders=[extender(port, *verbs, **fields)])
        self._stack.push_async_callback(engine.close)
        self._stack.enter_context(engine.running())
        return engine


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    """An API server; inside, engines may be made, which end with it."""
    api = ApiAnswers()
    async with (
        ApiServer(api) as server,
        ApiClient(Connection(server.url)) as client,
        AsyncExitStack() as stack,
    ):
        yield Stage(stack, client, api)


def all_pass(arguments: dict[str, Any]) -> object:
    """A filter that passes every node."""
    return {"NodeNames": arguments["NodeNames"]}


class Held:
    """An answer that is given when the test lets go; `calls` counts those who wait for it."""

    def __init__(self, answer: Any = all_pass) -> None:
        self._answer = answer
        self._go = asyncio.Event()
        self.calls = 0

    def go(self) -> None:
        """All calls are answered."""
        self._go.set()

    async def __call__(self, arguments: dict[str, Any]) -> object:
        self.calls += 1
        await self._go.wait()
        return self._answer(arguments)
