"""The HTTPS endpoints of a running scheduler: health, metrics, configuration, recent decisions.

Health pages look like those of Kubernetes components: "ok", or one line per check if a check fails
or for `?verbose`. A line says why its check failed.

A path that is not always allowed needs the user's right to `get` it, which the API server decides.
Decisions about a pod also need the right to get this pod (docs/adr/0014).
"""

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

import orjson
from aiohttp import web

from mooring.model.access import (
    ANONYMOUS,
    Attributes,
    NonResourceAttributes,
    ReviewError,
    User,
    pod_read,
)
from mooring.observe.documents import dumps
from mooring.observe.metrics import Metrics
from mooring.observe.records import MOST_SUMMARIES, DecisionLog
from mooring.observe.tls import ServingTls, TlsError
from mooring.observe.viewer import Access, Viewer
from mooring.process.time_slices import REST, TimeSlices
from mooring.process.turn import Turn

logger = logging.getLogger(__name__)

RELOAD_SECONDS: Final = 10.0
"""The seconds between two readings of the certificate files."""
_SLICE: Final = 200
"""The number of cache records that are sent together; to prepare them takes some milliseconds."""

_Answer = TypeVar("_Answer")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

Check = Callable[[], str | None]
"""Returns a line about a problem, or None if there is none; called on the event loop."""


class AccessReviews(Protocol):
    """Asks the API server about users; both methods raise ReviewError if it does not answer."""

    async def user_of(self, token: str) -> User | None:
        """Return the user of a bearer token; None if the token is not accepted."""

    async def allows(self, user: User, attributes: Attributes) -> bool:
        """Return whether the API server allows the user this access."""


class Pending(Protocol):
    """The pending pods at one moment."""

    def largest_namespaces(self) -> Sequence[str]:
        """Return the namespaces with pending pods; the namespace with the most pods comes first."""

    def groups(self, visible: frozenset[str], namespace: str = "") -> Mapping[str, Any]:
        """Return the pods by state, cause and owner.

        Pods are named only if their namespace is in `visible`; other pods are counted. If
        `namespace` is given, only its pods are returned.
        """


class PendingQueue(Protocol):
    """Makes documents about pending pods."""

    async def pending(self) -> Pending:
        """Return the pending pods; the answer may be some seconds old."""

    async def workload(self, namespace: str, kind: str, name: str) -> Mapping[str, Any]:
        """Return the document about the pending pods of a workload."""


class PageRoutes(Protocol):
    """The handlers for /ui/ and /api/v1/what-if, implemented in `mooring.page`."""

    def is_public(self, path: str) -> bool:
        """Return whether everybody may get the path, because it is a file without data."""

    def start(self, access: Access) -> Iterable[web.RouteDef]:
        """Return the routes; `access` says which pods a user may see."""

    def headers(self, path: str) -> Mapping[str, str]:
        """Return the headers for every answer to this path, whatever its status."""

    async def stop(self) -> None:
        """End the open streams, because clients might never close them."""


class ListenError(Exception):
    """Raised if the endpoints cannot use this address or certificate; the text is one line."""


@dataclass(eq=False, repr=False, kw_only=True)
class Endpoints:
    """Serves /livez, /readyz, /healthz, /metrics, /configz, /debug, /ui and /api once started.

    Args:
        live: Checks by name. If one fails, only a restart helps. /healthz runs the same checks.
        ready: Checks by name. If one fails, this replica cannot do its work yet.
        metrics: The content of /metrics.
        decisions: The content of /debug/decisions.
        pod_report: Returns the document about the present state of the pod "namespace/name"; None
            if the pod is not known.
        pod_groups: Returns the documents about the pod groups of this namespace and name.
        queue: The pending pods, for both /debug/pending and the page.
        shadow: Returns the content of /debug/shadow for a namespace; "" means all namespaces.
        rebalancing: Returns the documents about profiles for /debug/rebalancing.
        cache_dump: Yields the content of /debug/cache: records of the cache as JSON values.
        configuration: Returns the configuration in force, as JSON values, for /configz.
        tls: Makes the TLS context to serve with.
        reviews: Tells who a user is and what the user may do.
        always_allow_paths: Paths that everybody may read; `/a/*` means all paths below `/a/`.
        page: Serves the paths below /ui/ and /api/; None serves nothing there.
        turn: The lock of the cluster's state. Only health pages are answered while a task has it.
        dump_seconds: A client that needs longer than this to read /debug/cache is cut off.
    """

    live: Mapping[str, Check]
    ready: Mapping[str, Check]
    metrics: Metrics
    decisions: DecisionLog
    pod_report: Callable[[str], Awaitable[object]]
    pod_groups: Callable[[str, str], Awaitable[Sequence[Mapping[str, Any]]]]
    queue: PendingQueue
    shadow: Callable[[str], Mapping[str, Any]]
    rebalancing: Callable[[], Sequence[object]]
    cache_dump: Callable[[], Iterator[Mapping[str, Any]]]
    configuration: Callable[[], Mapping[str, Any]]
    tls: ServingTls
    reviews: AccessReviews
    always_allow_paths: Collection[str]
    page: PageRoutes | None = None
    turn: Turn = field(default_factory=Turn)
    dump_seconds: float = 120.0

    def __post_init__(self) -> None:
        self._health = {"livez": self.live, "healthz": self.live, "readyz": self.ready}
        self._dumping = False
        self._always_allowed = frozenset(
            path for path in self.always_allow_paths if not path.endswith("*")
        )
        self._always_allowed_below = tuple(
            path[:-1] for path in self.always_allow_paths if path.endswith("*")
        )
        self._listener: _Listener | None = None
        self._reloading: asyncio.Task[None] | None = None
        self._trouble = ""
        self._review_trouble = ""

    @property
    def certificate(self) -> str:
        """The served certificate (PEM) without its chain; "" before the first start."""
        return self.tls.certificate

    async def start(self, address: str, port: int) -> int:
        """Serve on `port` of the IP address `address`; port 0 takes a free port.

        Returns:
            The port in use.

        Raises:
            ListenError: The address cannot be listened on, or a certificate cannot be used.
        """
        try:
            context = await self.tls.context()
        except TlsError as error:
            raise ListenError(str(error)) from error
        self._complain(self.tls.trouble)
        app = web.Application(middlewares=[_unless_gone, self._authorized])
        app.router.add_get("/{page:livez|readyz|healthz}", self._show_health)
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/configz", self._show_configuration)
        app.router.add_get("/debug/decisions", self._show_decisions)
        app.router.add_get("/debug/pending", self._show_pending)
        app.router.add_get("/debug/shadow", self._show_shadow)
        app.router.add_get("/debug/rebalancing", self._show_rebalancing)
        app.router.add_get("/debug/cache", self._show_cache, allow_head=False)
        if self.page is not None:
            app.router.add_routes(self.page.start(self))
            app.on_response_prepare.append(self._add_headers)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            listening = _listening(address, port)
        except (OSError, ValueError) as error:
            await runner.cleanup()
            raise ListenError(_cannot_listen(address, port, error)) from error
        self._listener = _Listener(runner, listening)
        await self._listener.serve_with(context)
        self._reloading = asyncio.create_task(self._reload_for_ever())
        bound: int = listening.getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Free the port; requests in progress have one second to finish."""
        if self._reloading is not None:
            self._reloading.cancel()
            await asyncio.wait([self._reloading])
            self._reloading = None
        if self._listener is not None:
            if self.page is not None:
                await self.page.stop()
            await self._listener.close()
            self._listener = None

    async def reload(self) -> None:
        """Serve new connections with the present contents of the certificate files.

        If the files cannot be used, nothing changes, and the reason is logged once.
        """
        try:
            context = await self.tls.context()
            changed = self._listener is not None and await self._listener.serve_with(context)
        # Also while both files are replaced, or if too many files are open.
        except (OSError, TlsError) as error:
            self._complain(str(error))
            return
        self._complain(self.tls.trouble)
        if changed:
            logger.info("serving with changed certificates")

    async def _reload_for_ever(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            await self.reload()

    def _complain(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            logger.warning("certificates: %s; what was known before stays in use", trouble)
        self._trouble = trouble

    @web.middleware
    async def _authorized(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        path = request.path
        always = path in self._always_allowed or path.startswith(self._always_allowed_below)
        always |= self.page is not None and self.page.is_public(path)
        if not always and request.match_info.http_exception is None:
            await self._require(request, NonResourceAttributes(request.method.lower(), path))
        # Health pages do not wait for the turn.
        if path.removeprefix("/") in self._health:
            return await handler(request)
        return await self.turn.between(_answer, handler, request)

    async def _require(self, request: web.Request, attributes: Attributes) -> None:
        user = await self.user_of(request)
        if not await self.allows(user, attributes):
            raise web.HTTPForbidden(text=f'forbidden: User "{user.name}" cannot {attributes}\n')

    async def allows(self, user: User, attributes: Attributes) -> bool:
        """Return whether the API server allows the user this access.

        Raises HTTPServiceUnavailable if the API server does not answer.
        """
        return await self._answered(self.reviews.allows(user, attributes))

    async def user_of(self, request: web.Request) -> User:
        """Return the user of the client certificate, else of the bearer token, else ANONYMOUS.

        Raises HTTPUnauthorized if the API server rejects the token, and HTTPServiceUnavailable if
        the API server does not answer.
        """
        certificate = request.get_extra_info("peercert")
        if certificate and ssl.cert_time_to_seconds(certificate["notAfter"]) > time.time():
            by_certificate = User.of_certificate(certificate["subject"])
            if by_certificate is not None:
                return by_certificate
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        user = await self._answered(self.reviews.user_of(token.strip()))
        if user is None:
            raise web.HTTPUnauthorized(
                text="Unauthorized: the API server does not accept the token\n",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return user

    async def _answered(self, review: Awaitable[_Answer]) -> _Answer:
        try:
            answer = await review
        except ReviewError as error:
            # Told to administrators, not to a user who is not known: it names the API server.
            if str(error) != self._review_trouble:
                logger.warning("cannot find out who may read the endpoints: %s", error)
            self._review_trouble = str(error)
            raise web.HTTPServiceUnavailable(
                text="cannot find out who may see this: the API server does not say; "
                "the log of this replica has the reason\n"
            ) from error
        self._review_trouble = ""
        return answer

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        if self.page is not None:
            response.headers.update(self.page.headers(request.path))

    async def _show_health(self, request: web.Request) -> web.Response:
        page = request.match_info["page"]
        outcomes = {name: check() for name, check in self._health[page].items()}
        failed = any(outcome is not None for outcome in outcomes.values())
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [
            f"[+]{name} ok" if outcome is None else f"[-]{name} failed: {outcome}"
            for name, outcome in outcomes.items()
        ]
        lines.append(f"{page} check {'failed' if failed else 'passed'}\n")
        return web.Response(text="\n".join(lines), status=500 if failed else 200)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        page, content_type = self.metrics.exposition(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def _show_configuration(self, _: web.Request) -> web.Response:
        return web.json_response(self.configuration())

    async def _show_pod_groups(self, request: web.Request, group: str) -> web.Response:
        namespace, name = namespace_and_name("podgroup", group, request.path)
        await self._require(request, pod_read(namespace))
        found = await self.pod_groups(namespace, name)
        if not found:
            raise web.HTTPNotFound(text=f"no pod group {group} is known to this replica\n")
        viewer = await Viewer.of(self, request)
        shown = await viewer.shown({"podGroups": found}, lambda pod: pod.namespace == namespace)
        return json_answer(shown)

    async def _show_decisions(self, request: web.Request) -> web.Response:
        if (group := request.query.get("podgroup")) is not None:
            return await self._show_pod_groups(request, group)
        pod, namespace = request.query.get("pod"), request.query.get("namespace", "")
        if pod is None:
            await self._require(request, pod_read(namespace))
            if request.query.get("summary") == "true":
                return await self._show_summaries(namespace, request.query.get("limit", "1000"))
            # The names of other pods, such as victims, are hidden.
            viewer = await Viewer.of(self, request)
            latest = {"decisions": self.decisions.latest(namespace)}
            return json_answer(await viewer.shown(latest, lambda p: namespace in ("", p.namespace)))
        found_namespace, name = namespace_and_name("pod", pod, request.path)
        await self._require(request, pod_read(found_namespace, name))
        report, path = await self.pod_report(pod), self.decisions.path(pod)
        records = self.decisions.of(pod)
        if report is None and path is None:
            raise web.HTTPNotFound(
                text=f"no recent decision about pod {pod} is kept by this replica;"
                " only the leading replica decides\n"
            )
        viewer = await Viewer.of(self, request)
        found = {"pod": report, "path": path, "decisions": records}
        return json_answer(await viewer.shown(found, lambda other: other.key == pod))

    async def _show_summaries(self, namespace: str, limit: str) -> web.Response:
        if not (limit.isdecimal() and len(limit) < 10) or not 0 < int(limit) <= MOST_SUMMARIES:
            raise web.HTTPBadRequest(text=f"limit must be between 1 and {MOST_SUMMARIES}\n")
        found = self.decisions.summaries(namespace, int(limit))
        parts, slices = list[bytes](), TimeSlices()
        for record in found:
            parts.append(dumps(record))  # of pods that the user may get all
            await slices.pause()
        counts = {"bytes": self.decisions.bytes, "limitBytes": self.decisions.limit}
        page = b'{"decisions":[%b],%b' % (b",".join(parts), orjson.dumps(counts)[1:])
        return json_answer(page)

    async def _show_pending(self, request: web.Request) -> web.Response:
        namespace = request.query.get("namespace", "")
        if namespace:
            await self._require(request, pod_read(namespace))
        workload = request.query.get("workload")
        if workload is not None:
            kind, _, name = workload.partition("/")
            if not (namespace and kind and name):
                raise web.HTTPBadRequest(text="workload must be KIND/NAME, with a namespace\n")
            return json_answer(orjson.dumps(await self.queue.workload(namespace, kind, name)))
        # Pods of namespaces that the user may not see are only counted.
        viewer = await Viewer.of(self, request)
        pending = await self.queue.pending()
        names = [namespace] if namespace else pending.largest_namespaces()
        return json_answer(orjson.dumps(pending.groups(await viewer.visible(names), namespace)))

    async def _show_shadow(self, request: web.Request) -> web.Response:
        namespace = request.query.get("namespace", "")
        await self._require(request, pod_read(namespace))
        return json_answer(orjson.dumps(self.shadow(namespace)))

    async def _show_rebalancing(self, request: web.Request) -> web.Response:
        viewer = await Viewer.of(self, request)
        return json_answer(await viewer.shown({"profiles": self.rebalancing()}))

    async def _show_cache(self, request: web.Request) -> web.StreamResponse:
        await self._require(request, pod_read())
        if self._dumping:
            text = "another client is reading the cache: try again when it has read it\n"
            raise web.HTTPTooManyRequests(text=text, headers={"Retry-After": "5"})
        self._dumping = True
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        try:
            async with asyncio.timeout(self.dump_seconds):
                await response.prepare(request)
                await self._send_cache(response)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._dumping = False
        return response

    async def _send_cache(self, response: web.StreamResponse) -> None:
        lines = (orjson.dumps(record) + b"\n" for record in self.cache_dump())
        while True:
            slices = TimeSlices(0.0, rest=REST)
            if not (part := b"".join(islice(lines, _SLICE))):
                return
            await slices.pause()
            await response.write(part)


async def _answer(handler: _Handler, request: web.Request) -> web.StreamResponse:
    return await handler(request)


@web.middleware
async def _unless_gone(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    # Without this, aiohttp would log a traceback for a browser that loads another page.
    except ConnectionResetError:
        if request.transport is not None and not request.transport.is_closing():
            raise
        return web.Response()


def json_answer(body: bytes) -> web.Response:
    """Return an answer with this JSON text as its body."""
    return web.Response(body=body, content_type="application/json")


def namespace_and_name(parameter: str, value: str, path: str = "") -> tuple[str, str]:
    """Return the two parts of `value`; raise HTTPBadRequest unless it is NAMESPACE/NAME."""
    namespace, slash, name = value.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise web.HTTPBadRequest(text=f"say which {parameter}: {path}?{parameter}=NAMESPACE/NAME\n")
    return namespace, name


class _Listener:
    """A listening socket; `serve_with` sets the TLS context for new connections."""

    def __init__(self, runner: web.AppRunner, listening: socket.socket) -> None:
        self._runner = runner
        self._socket = listening
        self._context: ssl.SSLContext | None = None
        self._site: web.SockSite | None = None

    async def serve_with(self, context: ssl.SSLContext) -> bool:
        """Serve new connections with `context`; return False if `context` was in use already."""
        if context is self._context:
            return False
        earlier = self._site
        site = web.SockSite(self._runner, self._socket.dup(), ssl_context=context)
        await site.start()
        self._site, self._context = site, context
        if earlier is not None:
            await earlier.stop()
        return True

    async def close(self) -> None:
        await self._runner.cleanup()
        self._socket.close()


def _listening(address: str, port: int) -> socket.socket:
    parsed = ip_address(address)
    is_every = parsed.is_unspecified and socket.has_dualstack_ipv6()
    found = socket.socket(socket.AF_INET6 if parsed.version == 6 or is_every else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # As Go's net.Listen: kubelet probes IPv6 addresses if pods have no others.
        if is_every:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind(("::" if is_every else str(parsed), port))
        found.listen(128)
        found.setblocking(False)  # noqa: FBT003 - the standard library's only form
    except OSError:
        found.close()
        raise
    return found


def _cannot_listen(address: str, port: int, error: OSError | ValueError) -> str:
    # asyncio puts a sentence of its own around the system's words; these alone are clearer.
    errno = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(errno).lower() if errno is not None else error
    return f"cannot listen on port {port} of {address}: {reason}; choose another address or port"
