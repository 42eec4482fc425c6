"""A small HTTP server on 127.0.0.1; the test answers each request.

`request = await server.next()` waits for the next request. The test reads it and answers with
`reply`, or sends, ends or cuts a stream. If there is a `responder`, it is called with every request
instead, and answers.
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
    """A request of a client; the methods answer it."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any
    peer: object = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _actions: asyncio.Queue[object] = field(default_factory=asyncio.Queue)

    def reply(self, body: object = None, status: int = 200, **headers: str) -> None:
        """Answer with this body, as JSON unless it is bytes, and end the answer."""
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        named = {"Content-Type": "application/json"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        self._actions.put_nowait(web.Response(status=status, body=raw, headers=named))

    def refuse(self, status: int, reason: str, message: str, **headers: str) -> None:
        self.reply(status_object(status, reason, message), status, **headers)

    def send(self, *events: dict[str, Any]) -> None:
        """Send watch events in one chunk."""
        self.send_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))

    def send_bytes(self, raw: bytes) -> None:
        """Send bytes of a stream; the first call opens the stream."""
        self._actions.put_nowait(raw)

    def end(self) -> None:
        """End the stream, as a server does at the time limit of a watch."""
        self._actions.put_nowait(END)

    def cut(self) -> None:
        """Break the connection without ending the answer."""
        self._actions.put_nowait(CUT)

    async def perform(self, web_request: web.BaseRequest) -> web.StreamResponse:
        """Send the answer that the test has given."""
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
    """Listens on a free port while its context is entered."""

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
        """Return the next request that no call of `next` has returned yet."""
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
    """A read-only responder with these objects and refusals.

    Attributes:
        known: By the end of a path, an object or the items of a list.
        refused: By the end of a path, the status and the message of the refusal.
        others: Whether all other paths have an empty list; else they are not found.
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
    """Return a Status object for a refused request."""
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
    """Return a pod as JSON; its uid is its name."""
    metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": str(version)}
    return {"metadata": metadata, **extra}


def event(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a watch event."""
    return {"type": kind, "object": obj}


def bookmark(version: int, *, initial_end: bool = False) -> dict[str, Any]:
    """Return a BOOKMARK event; with `initial_end`, it ends the initial events of a WatchList."""
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"kind": "Pod", "metadata": metadata})
