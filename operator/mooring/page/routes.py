"""The HTTP side of the page: its files, its JSON API below /ui/api/ and its stream of changes.

People use the view Try it; programs send the same questions to /api/v1/what-if.

A request needs the right to `get` (or `post`) its path, as for /debug. The files of the page hold
no data, and everybody may get them. Nothing here writes to the cluster.

Modules for decisions about new pods are imported by the first request that needs them. This takes
30 ms of CPU, and most replicas never get such a request.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson
from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from mooring import __version__
from mooring.model.access import NonResourceAttributes, events_list, pod_read
from mooring.model.events import Kind
from mooring.model.indexes import add_count
from mooring.observe.http import json_answer, namespace_and_name
from mooring.observe.viewer import Access, Viewer
from mooring.page import MOST_BYTES
from mooring.page.nodes_view import Nodes, ResourceOfNodes
from mooring.page.pod_objects import NotReadError, PodObjects
from mooring.page.pod_search import PodSearch
from mooring.page.pods_view import Pods
from mooring.page.policy_view import PolicyView
from mooring.page.queue_view import Queue, Selected
from mooring.page.rebalancing_view import PlanRequest, PlansView
from mooring.page.turns import TooLongError, TrialsBusy
from mooring.process.time_slices import REST, TimeSlices
from mooring.quota.status.queue_status import queue_documents
from mooring.simulate.manifests import InputError

if TYPE_CHECKING:
    from mooring.page.trials import WhatIfRunner


logger = logging.getLogger(__name__)

WHAT_IF: Final = "/api/v1/what-if"
_RETRY_SECONDS: Final = "5"
"""The header Retry-After in seconds, for clients that must send the request again later."""
MOST_STREAMS: Final = 32
"""The most open streams of changes; a request for another stream gets HTTP 503."""
MOST_STREAMS_OF_A_USER: Final = 16
"""The most open streams of one user, so that one user cannot take all streams."""
_CHANGES_SECONDS: Final = 0.5
"""The least seconds between two messages about changed nodes."""
_SNAPSHOT_SECONDS: Final = 2.0
"""The least seconds between two messages with all nodes."""
_BEAT_SECONDS: Final = 5.0
"""The most seconds between two messages; after a longer silence, the page connects again."""
_RIGHTS_SECONDS: Final = 10.0
"""The seconds between two checks whether the user may still have the stream."""
_WRITE_SECONDS: Final = 30.0
"""The seconds after which a client that reads no data loses its stream."""
_MOST_PODS: Final = 500
"""The most pods of a list in an answer; the page requests further parts."""
_MOST_CHARACTERS: Final = 512
"""The most characters of a request's parameter; a longer parameter gets HTTP 400."""
_API: Final = "/ui/api/"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_Request = TypeVar("_Request")
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


@dataclass(eq=False, repr=False, kw_only=True)
class Page:
    """Implements `mooring.observe.http.PageRoutes`.

    Attributes:
        pod_groups: Returns the documents about the pod groups of a namespace and name.
        trials: Returns the object that decides about pods that do not exist.
        leading: Returns whether this replica leads; only a leader has the current queue and
            decisions.
        deciding: Returns whether this replica leads and knows all profiles and pods.
    """

    nodes: Nodes
    queue: Queue
    pods: Pods
    pod_groups: Callable[[str, str], Awaitable[Sequence[Mapping[str, Any]]]]
    policy: PolicyView
    trials: Callable[[], "WhatIfRunner"]
    plans: PlansView
    search: PodSearch
    objects: PodObjects
    leading: Callable[[], bool]
    deciding: Callable[[], bool]

    def __post_init__(self) -> None:
        self._files = dict(_bundle())
        self._access: Access | None = None
        self._stopping = asyncio.Event()
        self._sampling: asyncio.Task[None] | None = None
        self._streams = Counter[str]()
        """Maps a user to the number of the user's open streams."""

    def is_public(self, path: str) -> bool:
        """Return whether everybody may get the path, because it is a file without data."""
        return path == "/ui" or (path.startswith("/ui/") and not path.startswith(_API))

    def headers(self, path: str) -> Mapping[str, str]:
        """Return the headers for security and caching; {} for paths that are not of this module."""
        if path not in ("/ui", WHAT_IF) and not path.startswith("/ui/"):
            return {}
        caching = "no-cache" if self.is_public(path) else "no-store"
        return {**_HEADERS, "Cache-Control": caching}

    def start(self, access: Access) -> Iterable[web.RouteDef]:
        """Return the routes; start to record the counts of the queue."""
        self._access = access
        self._stopping = asyncio.Event()
        self._sampling = asyncio.create_task(self.queue.sample_for_ever())
        return (
            web.get("/ui", _to_the_page),
            web.get("/ui/{file:[a-z_]*[.]?[a-z]*}", self._show_file),
            web.get("/ui/api/session", self._show_session),
            web.get("/ui/api/stream", self._stream),
            web.get("/ui/api/node", self._show_node),
            web.get("/ui/api/queue", self._show_queue),
            web.get("/ui/api/queues", self._show_queues),
            web.get("/ui/api/pods", self._show_pods),
            web.get("/ui/api/find", self._find_pods),
            web.get("/ui/api/trend", self._show_trend),
            web.get("/ui/api/pod", self._show_pod),
            web.get("/ui/api/podgroup", self._show_pod_group),
            web.get("/ui/api/object", self._show_object),
            web.get("/ui/api/events", self._show_events),
            web.get("/ui/api/policy", self._show_policy),
            web.get("/ui/api/rebalancing", self._show_plans),
            web.post("/ui/api/try", self._try),
            web.post("/ui/api/plan", self._plan),
            web.post("/ui/api/compare", self._compare),
            web.post(WHAT_IF, self._what_if),
        )

    async def stop(self) -> None:
        """End the open streams, and stop recording the counts of the queue."""
        self._stopping.set()
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait([self._sampling])
            self._sampling = None

    async def _viewer(self, request: web.Request) -> Viewer:
        if self._access is None:
            raise web.HTTPServiceUnavailable
        return await Viewer.of(self._access, request)

    async def _show_file(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info["file"] or "index.html")
        if found is None:
            raise web.HTTPNotFound
        body, content_type, tag = found
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return web.Response(
            body=body, content_type=content_type, charset="utf-8", headers={"ETag": tag}
        )

    async def _show_session(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        return _json(
            {
                "user": viewer.user.name,
                "version": __version__,
                "leading": self.leading(),
                "mayTry": await viewer.may(NonResourceAttributes("post", "/ui/api/try")),
                "seesAllPods": await viewer.sees_all_pods(),
            }
        )

    async def _show_node(self, request: web.Request) -> web.Response:
        name = _parameter(request, "name")
        viewer = await self._viewer(request)
        namespaces = self.nodes.namespaces_on(name)
        visible = await viewer.visible(sorted(namespaces or ()))
        details = self.nodes.details(name, visible)
        if details is None:
            raise web.HTTPNotFound(text="there is no node of this name\n")
        return _json(details)

    async def _show_queue(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        pending = await self.queue.pending()
        visible = await viewer.visible(pending.largest_namespaces())
        return _json({**pending.groups(visible), "leading": self.leading()})

    async def _show_pods(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        fields = ("state", "cause", "namespace", "owner", "search")
        selected = Selected(**{field: _parameter(request, field) for field in fields})
        offset, limit = _number(request, "offset", 0), _number(request, "limit", 100)
        pending = await self.queue.pending()
        wanted = [selected.namespace] if selected.namespace else pending.largest_namespaces()
        visible = await viewer.visible(wanted)
        return _json(pending.page(selected, visible, offset, min(limit, _MOST_PODS)))

    async def _find_pods(self, request: web.Request) -> web.Response:
        text = _parameter(request, "text").strip()
        viewer = await self._viewer(request)
        return _json(await self.search.find(text, viewer.visible))

    async def _show_trend(self, _: web.Request) -> web.Response:
        return _json(self.queue.trend())

    async def _show_pod(self, request: web.Request) -> web.Response:
        key, namespace, name = _named(request, "pod")
        viewer = await self._viewer(request)
        await viewer.require(pod_read(namespace, name))
        found = await self.pods.of(key)
        if found is None:
            text = f"pod {key} is not known to this replica; only the leading replica decides\n"
            raise web.HTTPNotFound(text=text)
        return json_answer(await viewer.shown(found, lambda other: other.key == key))

    async def _show_pod_group(self, request: web.Request) -> web.Response:
        key, namespace, name = _named(request, "podgroup")
        viewer = await self._viewer(request)
        await viewer.require(pod_read(namespace))
        found = await self.pod_groups(namespace, name)
        if not found:
            raise web.HTTPNotFound(text=f"no pod group {key} is known to this replica\n")
        document = {"podGroup": key, "podGroups": found}
        return json_answer(await viewer.shown(document, lambda pod: pod.namespace == namespace))

    async def _show_object(self, request: web.Request) -> web.Response:
        _, namespace, name = _named(request, "pod")
        viewer = await self._viewer(request)
        await viewer.require(pod_read(namespace, name))
        return await _read(self.objects.pod(namespace, name))

    async def _show_events(self, request: web.Request) -> web.Response:
        _, namespace, name = _named(request, "pod")
        viewer = await self._viewer(request)
        await viewer.require(pod_read(namespace, name))
        await viewer.require(events_list(namespace))
        return await _read(self.objects.events(namespace, name))

    async def _show_policy(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        visible = await viewer.visible(self.policy.namespaces())
        return _json(self.policy.document(visible))

    async def _show_queues(self, request: web.Request) -> web.Response:
        viewer, objects = await self._viewer(request), self.queue.scheduler.state.objects
        # Copies, because watches go on while the API server is asked, and between slices.
        queues, elastic = {**objects.of(Kind.QUEUE)}, {**objects.of(Kind.ELASTIC_QUOTA)}
        last_first = sorted(elastic, reverse=True)  # of equal names, the first one counts
        namespaces = {elastic[key].name: key.partition("/")[0] for key in last_first}
        visible = await viewer.visible(namespaces.values())
        slices = TimeSlices(rest=REST, clock=self.queue.clock)
        # An ElasticQuota with a parent needs the right to get the pods of its namespace.
        kept = [
            each
            for each in await slices.run(partial(queue_documents, queues, elastic))
            if each["kind"] == "Queue"
            or each["parent"] is None
            or namespaces[each["name"]] in visible
        ]
        return _json({"queues": kept})

    async def _show_plans(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        return json_answer(await viewer.shown(self.plans.document()))

    async def _plan(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        wanted = await _body(request, PlanRequest)
        with _answering():
            found = await self.plans.planned(wanted)
        return json_answer(await viewer.shown(found))

    async def _try(self, request: web.Request) -> web.Response:
        from mooring.page.trials import TryRequest  # noqa: PLC0415 - slow, see the top

        viewer = await self._viewer(request)
        wanted = await _body(request, TryRequest)
        user = viewer.user.name
        with _answering():
            found = await self.trials().tried(wanted, viewer.visible, user, detailed=True)
        return json_answer(await viewer.shown(found))

    async def _what_if(self, request: web.Request) -> web.Response:
        from mooring.page.trials import TryRequest  # noqa: PLC0415 - slow, see the top

        if request.headers.get("Sec-Fetch-Site") == "cross-site":
            raise web.HTTPForbidden(text="forbidden: another site's page asks\n")
        for name in request.query.keys() - {"profile"}:
            raise web.HTTPBadRequest(text=f"{name[:40]}: is not known; there is profile\n")
        profile = _parameter(request, "profile")
        if not self.deciding():
            text = "this replica does not decide now: ask the leading one, or try again\n"
            raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": _RETRY_SECONDS})
        viewer = await self._viewer(request)
        try:
            wanted = TryRequest((await _read_body(request)).decode(), profile)
        except UnicodeDecodeError:
            raise web.HTTPBadRequest(text="the body: is not UTF-8 text\n") from None
        with _answering():
            found = await self.trials().tried(wanted, viewer.visible, viewer.user.name)
        return json_answer(await viewer.shown(found))

    async def _compare(self, request: web.Request) -> web.Response:
        from mooring.page.trials import CompareRequest  # noqa: PLC0415 - slow, see the top

        viewer = await self._viewer(request)
        wanted = await _body(request, CompareRequest)
        with _answering():
            found = await self.trials().compared(wanted, viewer.visible, viewer.user.name)
        return json_answer(await viewer.shown(found))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Send events: first all nodes, then their changes, and the counts of the queue.

        The parameters are ?resource=NAME, ?label=KEY, and ?nodes=false for only the counts.
        """
        nodes = _parameter(request, "nodes") != "false"
        resource = _parameter(request, "resource") or "cpu"
        label = _parameter(request, "label") if "label" in request.query else None
        viewer = await self._viewer(request)
        with self._counted(viewer.user.name):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            try:
                async for event, data in self._events(
                    viewer, request, (resource, label) if nodes else None
                ):
                    async with asyncio.timeout(_WRITE_SECONDS):
                        await response.write(_event(event, data))
            except TimeoutError:
                pass  # the client takes no data
            return response

    @contextmanager
    def _counted(self, user: str) -> Iterator[None]:
        what = ""
        if self._streams.total() >= MOST_STREAMS:
            what = f"{MOST_STREAMS} pages"
        elif self._streams[user] >= MOST_STREAMS_OF_A_USER:
            what = f"{MOST_STREAMS_OF_A_USER} pages of this user"
        if what:
            text = f"{what} are open already; close one and reload\n"
            raise web.HTTPServiceUnavailable(text=text)
        self._streams[user] += 1
        try:
            yield
        finally:
            add_count(self._streams, user, -1)

    async def _events(
        self, viewer: Viewer, request: web.Request, shown: tuple[str, str | None] | None
    ) -> AsyncIterator[tuple[str, Any]]:
        right = NonResourceAttributes("get", request.path)
        now = asyncio.get_running_loop().time
        columns: ResourceOfNodes | None = None
        counts: Mapping[str, Any] = {}
        snapshot_at, counts_at, checked_at = 0.0, 0.0, now()
        while not self._stopping.is_set():
            if now() - checked_at >= _RIGHTS_SECONDS:
                checked_at = now()
                if not await self._still(viewer, request, right):
                    return
            if shown is not None:
                resource, label = shown
                current = self.nodes.columns(resource)
                if columns is None or current.version != columns.version:
                    if columns is None or now() - snapshot_at >= _SNAPSHOT_SECONDS:
                        columns, snapshot_at = current, now()
                        yield (
                            "snapshot",
                            await self.nodes.snapshot(columns, resource, label),
                        )
                elif (changes := current.changes(columns)) is not None:
                    columns = current
                    yield "nodes", changes
            queue = {**self.queue.counts(), "leading": self.leading()}
            if queue != counts or now() - counts_at >= _BEAT_SECONDS:
                counts, counts_at = queue, now()
                yield "queue", counts
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHANGES_SECONDS):
                    await self._stopping.wait()

    async def _still(
        self, viewer: Viewer, request: web.Request, right: NonResourceAttributes
    ) -> bool:
        try:
            user = (await self._viewer(request)).user
            return user == viewer.user and await viewer.may(right)
        except web.HTTPException:
            return False


async def _body(request: web.Request, fields: type[_Request]) -> _Request:
    try:
        return TypeAdapter(fields).validate_json(await _read_body(request))
    except ValidationError as error:
        found = error.errors()[0]
        where = ".".join(map(str, found["loc"]))
        raise web.HTTPBadRequest(text=f"{where}: {found['msg']}\n") from None


async def _read_body(request: web.Request) -> bytes:
    """Return the body; raise HTTPRequestEntityTooLarge if it has more than `MOST_BYTES`."""
    if (request.content_length or 0) > MOST_BYTES:
        raise web.HTTPRequestEntityTooLarge(MOST_BYTES, request.content_length or 0)
    body = await request.content.read(MOST_BYTES + 1)
    while len(body) <= MOST_BYTES and (more := await request.content.read(MOST_BYTES)):
        body += more
    if len(body) > MOST_BYTES:
        raise web.HTTPRequestEntityTooLarge(MOST_BYTES, len(body))
    return body


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise web.HTTPUnprocessableEntity(text=f"{error}\n") from None
    except RecursionError:
        raise web.HTTPUnprocessableEntity(text="the text is nested too deeply\n") from None
    except TooLongError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n") from None
    except TrialsBusy as busy:
        headers = {"Retry-After": _RETRY_SECONDS}
        raise web.HTTPTooManyRequests(text=f"{busy}\n", headers=headers) from None


async def _read(document: Awaitable[Any]) -> web.Response:
    try:
        return _json(await document)
    except NotReadError as error:
        return web.Response(status=error.status, text=f"{error}\n")


async def _to_the_page(_: web.Request) -> web.Response:
    raise web.HTTPPermanentRedirect("/ui/")


def _bundle() -> Iterable[tuple[str, tuple[bytes, str, str]]]:
    for file in files(__package__).joinpath("bundle").iterdir():
        body = file.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        yield file.name, (body, _TYPES[file.name.rpartition(".")[2]], tag)


def _json(value: Any) -> web.Response:
    return json_answer(_dumped(value))


def _dumped(value: Any) -> bytes:
    # A dataclass may have names of pods that only `Viewer.shown` hides from the user.
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATACLASS)


def _event(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _dumped(data))


def _parameter(request: web.Request, name: str) -> str:
    value = request.query.get(name, "")
    if len(value) > _MOST_CHARACTERS:
        raise web.HTTPBadRequest(text=f"{name}: is longer than {_MOST_CHARACTERS} characters\n")
    return value


def _named(request: web.Request, name: str) -> tuple[str, str, str]:
    key = _parameter(request, name)
    return key, *namespace_and_name(name, key)


def _number(request: web.Request, name: str, default: int) -> int:
    text = _parameter(request, name)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise web.HTTPBadRequest(text=f"{name}: must be a number\n")
    return int(text)
