"""The scheduling loop over a cluster of its own, with extenders on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import engines
from extending import Answers, extender
from kube.api_server import ApiServer, Request
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.run.build import Options


class ApiAnswers:
    """Answers of an API server: carries out bindings and deletions, and remembers statuses."""

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        self.statuses: dict[str, dict[str, Any]] = {}
        self.deleted: list[str] = []
        self.gone: set[str] = set()
        """The names of pods that do not exist any more."""

    def __call__(self, request: Request) -> None:
        """Answer one request."""
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
        elif request.method == "GET" and parts[-1] in self.gone:
            request.refuse(404, "NotFound", "there is no such pod")
        elif request.method == "GET":
            spec = {"nodeName": self.bound[parts[-1]]} if parts[-1] in self.bound else {}
            request.reply({"metadata": {"uid": f"pod-default-{parts[-1]}"}, "spec": spec})
        else:
            request.reply({}, 201)

    def message(self, name: str) -> str:
        """Return the message of the pod's condition; "" without one."""
        conditions = self.statuses.get(name, {}).get("conditions", [{"message": ""}])
        message: str = conditions[0]["message"]
        return message


class Engine(engines.Engine):
    """An engine of which a profile with these extenders takes every pod."""

    def __init__(
        self, client: ApiClient, *objects: dict[str, Any], extenders: list[dict[str, Any]]
    ) -> None:
        options = Options(initial_backoff=0.01, max_backoff=0.01, most_per_attempt=None)
        super().__init__(client, *objects, options=options, plugins={}, extenders=extenders)
        self.state = self.scheduler_state

    def put(self, raw: dict[str, Any]) -> None:
        """Show the node or assigned pod as the watch does."""
        kind = Kind.NODE if "allocatable" in raw.get("status", {}) else Kind.POD
        value = parse_object(kind, raw)
        self.state.state.put(kind, value.key if kind is Kind.POD else value.name, value)

    def unschedulable(self) -> int:
        """Return how many pods are unschedulable."""
        return self.state.queue.counts()["unschedulable"]


class Stage:
    """An API server, and engines that talk to it."""

    def __init__(self, stack: AsyncExitStack, client: ApiClient, api: ApiAnswers) -> None:
        self._stack = stack
        self._client = client
        self.api = api

    async def engine(self, *objects: dict[str, Any], answers: Answers, **fields: Any) -> Engine:
        """Return an engine that runs, with one extender; `fields` are fields of the extender."""
        verbs = fields.pop("verbs", tuple(answers.by_verb))
        port = await self._stack.enter_async_context(answers.serving())
        engine = Engine(self._client, *objects, extenders=[extender(port, *verbs, **fields)])
        self._stack.push_async_callback(engine.close)
        self._stack.enter_context(engine.running())
        return engine


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    """Yield a stage with an API server; engines that are made inside end with it."""
    api = ApiAnswers()
    async with (
        ApiServer(api) as server,
        ApiClient(Connection(server.url)) as client,
        AsyncExitStack() as stack,
    ):
        yield Stage(stack, client, api)


def all_pass(arguments: dict[str, Any]) -> object:
    """Answer as a filter that passes every node."""
    return {"NodeNames": arguments["NodeNames"]}


class Held:
    """An answer that is given when the test lets go; `calls` counts those who wait for it."""

    def __init__(self, answer: Any = all_pass) -> None:
        self._answer = answer
        self._go = asyncio.Event()
        self.calls = 0

    def go(self) -> None:
        """Answer all calls."""
        self._go.set()

    async def __call__(self, arguments: dict[str, Any]) -> object:
        self.calls += 1
        await self._go.wait()
        return self._answer(arguments)
