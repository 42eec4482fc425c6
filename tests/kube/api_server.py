"""A small HTTP server on 127.0.0.1 whose answers the test gives, one request at a time.

`request = await server.next()` waits for the next request; the test reads what was asked and
answers with `reply`, or opens a stream and sends, ends or cuts it. With a `responder` every
request is handed to it instead, to be answered there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import orjson
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

END: Final = object()
CUT: Final = object()
WAIT_SECONDS: Final = 60.0
_REASONS: Final = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound"}


@dataclass
class Request:
    """One request as it arrived, and the handle to answer it."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any
    peer: object = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _actions: asyncio.Queue[object] = field(default_factory=asyncio.Queue)

    def reply(self, body: object = None, status: int = 200, **headers: str) -> None:
        """Answer with JSON (or bytes as they are) and be done."""
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        named = {"Content-Type": "application/json"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        self._actions.put_nowait(web.Response(status=status, body=raw, headers=named))

    def refuse(self, status: int, reason: str, message: str, **headers: str) -> None:
        self.reply(status_object(status, reason, message), status, **headers)

    def send(self, *events: dict[str, Any]) -> None:
        """Send watch events, all in one chunk."""
        self.send_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))

    def send_bytes(self, raw: bytes) -> None:
        """Send a piece of the stream as it is; the first piece opens the stream."""
        self._actions.put_nowait(raw)

    def end(self) -> None:
        """End the stream as a server does whose time is up."""
        self._actions.put_nowait(END)

    def cut(self) -> None:
        """Break the connection without a farewell."""
        self._actions.put_nowait(CUT)

    async def perform(self, web_request: web.BaseRequest) -> web.StreamResponse:
        """Do on the wire what the test says."""
        action = await self._actions.get()
        if isinstance(action, web.Response):
            return action
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        if action is not CUT:
            await stream.prepare(web_request)
        while isinstance(action, bytes):
            await stream.write(action)
            action = await self._actions.get()
        if action is CUT and web_request.transport is not None:
            web_request.transport.abort()
        return stream


class ApiServer:
    """Listens from entering to leaving its context."""

    def __init__(self, responder: Callable[[Request], None] | None = None) -> None:
        self.seen: list[Request] = []
        self.url = ""
        self._responder = responder
        self._arrived: asyncio.Queue[Request] = asyncio.Queue()
        # Handlers of clients that have gone end at once, and so does the server.
        web_server = web.Server(self._handle, handler_cancellation=True)
        self._runner = web.ServerRunner(web_server, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._runner.cleanup()

    async def next(self) -> Request:
        """Return the next request that nobody has taken yet."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._arrived.get()

    async def _handle(self, web_request: web.BaseRequest) -> web.StreamResponse:
        raw = await web_request.read()
        request = Request(
            method=web_request.method,
            path=web_request.path,
            query=dict(web_request.query),
            headers=web_request.headers,
            body=orjson.loads(raw) if raw else None,
            peer=web_request.get_extra_info("peername"),
        )
        self.seen.append(request)
        if self._responder is None:
            self._arrived.put_nowait(request)
        else:
            self._responder(request)
        try:
            return await request.perform(web_request)
        finally:
            request.gone.set()


class Objects:
    """A responder that only reads: it has these objects, and refuses what it is told to.

    Attributes:
        known: By the end of a path, an object or the items of a list.
        refused: By the end of a path, the status and the message of the refusal.
        others: Whether there is an empty list at all other paths; else they are not served.
    """

    def __init__(
        self,
        known: Mapping[str, object] | None = None,
        *,
        refused: Mapping[str, tuple[int, str]] | None = None,
        others: bool = False,
    ) -> None:
        self.known = {"/version": {"major": "1", "minor": "37"}, **(known or {})}
        self.refused = dict(refused or {})
        self.others = others

    def __call__(self, request: Request) -> None:
        """Answer one request."""
        for end, (status, message) in self.refused.items():
            if request.path.endswith(end):
                request.refuse(status, _REASONS.get(status, "Refused"), message)
                return
        ends = (found for end, found in self.known.items() if request.path.endswith(end))
        found = next(ends, list[object]() if self.others else None)
        if found is None:
            request.refuse(404, "NotFound", "the server could not find the requested resource")
        elif isinstance(found, list):
            request.reply({"metadata": {"resourceVersion": "1"}, "items": found})
        else:
            request.reply(found)


def status_object(code: int, reason: str, message: str, **details: str) -> dict[str, Any]:
    """Return the Status object of a refusal."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def budget_refusal(message: str = "a budget forbids it") -> dict[str, Any]:
    """Return the Status object of the Eviction API for an exhausted disruption budget."""
    causes = [{"reason": "DisruptionBudget", "message": message}]
    return {**status_object(429, "TooManyRequests", message), "details": {"causes": causes}}


def pod(name: str, version: int, namespace: str = "default", **extra: Any) -> dict[str, Any]:
    """Return a pod as a list or watch shows it."""
    metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": str(version)}
    return {"metadata": metadata, **extra}


def event(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    """Return one line of a watch."""
    return {"type": kind, "object": obj}


def bookmark(version: int, *, initial_end: bool = False) -> dict[str, Any]:
    """Return the line that moves the version forward, or ends the initial events."""
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"kind": "Pod", "metadata": metadata})
