"""Without a valid lease, no method of Mooring writes to the API server.

The tests find the methods in the code. A new method of a known class is tested at once; a new class
that writes fails a test until the test knows how to make its object.
"""

import ast
import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import mooring
from kube.api_server import ApiServer, Request
from mooring.kube.api_resources import POD
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.errors import NotLeadingError
from mooring.kube.recorder import EventRecorder, ObjectRef
from mooring.kube.transport import REVIEWS
from mooring.kube.writes import PodGroupWriter, PodWriter, ProfileWriter
from mooring.model.pod import parse_pod
from mooring.scheduling.plugin_api import BindAttempt, PluginApi
from mooring.testing import builders

WEB = parse_pod(builders.pod("web"))
REF = {"name": WEB.name, "namespace": WEB.namespace, "uid": WEB.uid}
ANSWER = {
    "metadata": {**REF, "resourceVersion": "1"},
    "spec": {},
    "items": [],
    "resources": [],
    "major": "1",
    "minor": "37",
}
"""Whatever is asked: an object, a list, a version."""

VERBS = {"create", "update", "patch", "delete", "request"}
"""The methods of a client by which objects change; one of them also reads."""
NOT_FENCED = {
    "LeaderElector": "it gets the lease by what it writes",
    "Reviews": "what it creates are questions",
}
READERS = {
    "ApiClient.close",
    "ApiClient.get",
    "ApiClient.list_all",
    "ApiClient.served_in",
    "ApiClient.server_version",
    "PluginApi.finish",
    "PluginApi.read",
    "PluginApi.until",
    "PodGroupWriter.count_finished",
    "PodWriter.bound_node",
    "PodWriter.is_running",
}
"""Public coroutine methods that write nothing."""
ARGUMENTS: dict[str, Any] = {
    **REF,
    "body": {"metadata": REF},
    "done": lambda: True,
    "group": "apps",
    "label": "app",
    "method": "DELETE",
    "node": "n1",
    "patch": {"metadata": {"resourceVersion": "1"}},
    "path": POD.path("default", "web"),
    "pod": WEB,
    "resource": POD,
    "seconds": 1.0,
    "status": {"phase": "Pending"},
    "timeout": 60.0,
    "value": "web",
    "version": "1",
}
OF_PLUGINS = {"resource": "resourceclaims"}
OF_METHODS: dict[str, dict[str, Any]] = {
    "PluginApi.create": OF_PLUGINS,
    "PluginApi.delete": OF_PLUGINS,
    "PluginApi.patch": {"resource": "persistentvolumes"},
    "PluginApi.read": OF_PLUGINS,
    "PluginApi.update": OF_PLUGINS,
}


@asynccontextmanager
async def events(client: ApiClient) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(client, "mooring", "test")
    recorder.record(ObjectRef("Pod", **REF), "Normal", "Scheduled", "Binding", "to n1")
    running = asyncio.create_task(recorder.run())
    yield recorder
    running.cancel()


@asynccontextmanager
async def plugin_api(client: ApiClient) -> AsyncIterator[PluginApi]:
    """Yield the API for plugins, with a pod at Bind."""
    yield PluginApi(client, PodWriter(client), {WEB.uid: BindAttempt("n1", lambda: True)})


@asynccontextmanager
async def profiles(client: ApiClient) -> AsyncIterator[ProfileWriter]:
    writer = ProfileWriter(client)
    writer.seen(WEB.name, WEB.uid, "1")
    yield writer


@asynccontextmanager
async def itself(client: ApiClient) -> AsyncIterator[ApiClient]:
    yield client


@asynccontextmanager
async def pods(client: ApiClient) -> AsyncIterator[PodWriter]:
    yield PodWriter(client)


@asynccontextmanager
async def groups(client: ApiClient) -> AsyncIterator[PodGroupWriter]:
    yield PodGroupWriter(client)


MAKERS: dict[type, Callable[[ApiClient], Any]] = {
    ApiClient: itself,
    EventRecorder: events,
    PluginApi: plugin_api,
    PodGroupWriter: groups,
    PodWriter: pods,
    ProfileWriter: profiles,
}


class Method(NamedTuple):
    """A public coroutine method of a class that writes to the API server."""

    writer: type
    name: str

    def __str__(self) -> str:
        return f"{self.writer.__name__}.{self.name}"

    async def call(self, client: ApiClient) -> None:
        """Call the method with suitable arguments; NotLeadingError is allowed without a lease."""
        chosen = ARGUMENTS | OF_METHODS.get(str(self), {})
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(MAKERS[self.writer](client))
            method = getattr(made, self.name)
            parameters = inspect.signature(method).parameters.values()
            needed = [p.name for p in parameters if p.default is inspect.Parameter.empty]
            try:
                await method(**{name: chosen[name] for name in needed})
            except NotLeadingError:
                assert not client.may_write()


def methods() -> list[Method]:
    """Return all public coroutine methods of the classes that write."""
    return [
        Method(writer, name)
        for writer in MAKERS
        for name, method in inspect.getmembers(writer, inspect.iscoroutinefunction)
        if not name.startswith("_")
        and name not in getattr(writer, "__dataclass_fields__", {})
        and "NoReturn" not in str(method.__annotations__["return"])
    ]


def _writes(node: ast.AST, writing: set[str]) -> bool:
    """Return whether the code calls a writing method of a client, or a function in `writing`."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Name) and call.func.id in writing:
            return True
        if isinstance(call.func, ast.Attribute) and call.func.attr in VERBS:
            first = call.args[0] if call.args else None
            reads = isinstance(first, ast.Constant) and first.value == "GET"
            if ast.unparse(call.func.value).endswith("client") and not reads:
                return True
    return False


def classes_that_write() -> set[str]:
    """Return the names of all classes with methods that write to the API server."""
    found = set()
    packages = "kube scheduling groups rebalancing extenders run mirroring handlers page"
    for package in packages.split():
        for path in (Path(mooring.__file__).parent / package).rglob("*.py"):
            body = ast.parse(path.read_text()).body
            functions = [f for f in body if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)]
            writing = {function.name for function in functions if _writes(function, set())}
            classes = [part for part in body if isinstance(part, ast.ClassDef)]
            found |= {part.name for part in classes if _writes(part, writing)}
    return found


def writes(server: ApiServer) -> list[Request]:
    """Return the writes that the server has received."""
    return [r for r in server.seen if r.method != "GET" and not r.path.startswith(REVIEWS)]


def test_every_class_that_writes_is_held_to_the_lease_here_or_has_a_reason() -> None:
    tested = {writer.__name__ for writer in MAKERS} - {"ApiClient"}
    assert classes_that_write() == tested | NOT_FENCED.keys()


@pytest.mark.parametrize("method", methods(), ids=str)
async def test_a_method_writes_with_a_lease_and_sends_nothing_without_one(method: Method) -> None:
    """A method that writes nothing even with a lease must be listed in READERS."""
    for lease in (True, False):
        async with (
            ApiServer(lambda request: request.reply(ANSWER)) as server,
            ApiClient(Connection(server.url), may_write=lambda: lease) as client,  # noqa: B023 - called in this round
        ):
            await method.call(client)
            assert bool(writes(server)) == (lease and str(method) not in READERS)


@pytest.mark.parametrize("method", [m for m in methods() if str(m) not in READERS], ids=str)
async def test_a_write_is_not_sent_again_once_the_lease_is_lost(method: Method) -> None:
    lease = True

    def busy(request: Request) -> None:
        nonlocal lease
        lease = False
        request.refuse(429, "TooManyRequests", "busy", Retry_After="0")

    async with (
        ApiServer(busy) as server,
        ApiClient(Connection(server.url), may_write=lambda: lease) as client,
    ):
        await method.call(client)
    assert len(writes(server)) == 1
