"""A proxy in front of an API server that does to requests what its rules say.

`python -m faults.proxy` is a process of its own: plain HTTP on loopback on one port, its control
endpoints on another. What `faults.control` wants of it:

    POST   /rules     sets a rule (faults.rules.Rule as JSON) and answers its number; open watches
                      are struck at once
    DELETE /rules     no rule is in force any more, and a partition is over
    GET    /injected  what was struck so far: [{"at", "rule", "kind", "method", "path"}]
    GET    /healthz   "ok"

Every request that may write is noted in the journal, one JSON object a line: when it was received
and when passed on, the status it got, the fault it met, and what it was to write about bindings,
nominations, preemptions and leases. Times are CLOCK_MONOTONIC, which all processes of a machine
share.
"""

import argparse
import asyncio
import json
import math
import random
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO
from weakref import WeakSet

import aiohttp
import orjson
from aiohttp import web

from faults.rules import ANSWERS, MID_STREAM, Kind, Rule, RuleError

BIGGEST_BODY: Final = 64 * 1024 * 1024
MOST_NOTED: Final = 200_000
"""Injections that are remembered; older ones are forgotten."""
HOP_BY_HOP: Final = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "transfer-encoding", "upgrade"}
)
CONNECTIONS_ARE_OVER: Final = (aiohttp.ClientError, ConnectionError, TimeoutError)


@dataclass(eq=False)
class _Rule:
    """A rule in force."""

    number: int
    rule: Rule
    until: float
    left: int
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """It is no longer in force, before its time."""


@dataclass(eq=False)
class _Stream:
    """An open watch: lines of the server, and the faults that strike it between them."""

    method: str
    path: str
    items: "asyncio.Queue[tuple[float, bytes] | _Rule | None]" = field(
        default_factory=lambda: asyncio.Queue(maxsize=1000)
    )
    """Lines with the time when they came; None is the server's end of the stream."""


class Proxy:
    """One proxy; `start` it on a running event loop, `stop` it there."""

    def __init__(
        self,
        upstream: str,
        *,
        tls: ssl.SSLContext | bool = True,
        seed: int = 0,
        journal: TextIO | None = None,
    ) -> None:
        self._upstream = upstream.rstrip("/")
        self._tls = tls
        self._random = random.Random(seed)  # noqa: S311 - has to be repeatable
        self._journal = journal
        self._rules: list[_Rule] = []
        self._number = 0  # of the rule that was set last
        self._partition = 0  # the number of the partition that was set last
        self._all: WeakSet[_Rule] = WeakSet()  # those that hold a request back included
        self._streams: set[_Stream] = set()
        self._injected: deque[dict[str, Any]] = deque(maxlen=MOST_NOTED)
        self._whole = asyncio.Event()
        self._whole.set()
        self._healing: asyncio.TimerHandle | None = None
        self._running = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None

    async def start(self, port: int = 0, control_port: int = 0) -> tuple[int, int]:
        """Serve; the ports in use, 0 takes a free one."""
        self._session = await self._running.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._tls),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        )
        served = web.Application(client_max_size=BIGGEST_BODY)
        served.router.add_route("*", "/{path:.*}", self._serve)
        control = web.Application()
        control.router.add_post("/rules", self._add)
        control.router.add_delete("/rules", self._clear)
        control.router.add_get("/injected", self._show)
        control.router.add_get("/healthz", self._healthy)
        return await self._listen(served, port), await self._listen(control, control_port)

    async def stop(self) -> None:
        """Serve nothing any more."""
        self._heal()
        await self._running.aclose()

    async def _listen(self, app: web.Application, port: int) -> int:
        # With cancellation, a client that hangs up ends what is being held back for it.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        self._running.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", port).start()
        bound: int = runner.addresses[0][1]
        return bound

    # Control

    async def _add(self, request: web.Request) -> web.Response:
        try:
            rule = Rule.read(await request.json())
        except (RuleError, ValueError) as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        self._number += 1
        number = web.Response(text=str(self._number))
        if rule.kind is Kind.PARTITION:
            self._part(rule.seconds)
            return number
        active = _Rule(self._number, rule, time.monotonic() + rule.seconds, rule.count)
        self._rules.append(active)
        self._all.add(active)
        if rule.kind in MID_STREAM:
            for stream in list(self._streams):
                if self._strikes(active, stream.method, stream.path, watch=True):
                    # A full queue belongs to a client that reads nothing: there is no mid-stream.
                    with suppress(asyncio.QueueFull):
                        stream.items.put_nowait(active)
        return number

    async def _clear(self, _: web.Request) -> web.Response:
        for active in self._all:
            active.until = 0.0
            active.over.set()
        self._rules.clear()
        self._heal()
        return web.Response(text="ok")

    async def _show(self, _: web.Request) -> web.Response:
        return web.json_response(list(self._injected))

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    def _part(self, seconds: float) -> None:
        self._heal()
        self._whole.clear()
        self._partition = self._number
        self._healing = asyncio.get_running_loop().call_later(seconds, self._heal)

    def _heal(self) -> None:
        if self._healing is not None:
            self._healing.cancel()
        self._healing = None
        self._whole.set()

    async def _until_whole(self, method: str, path: str) -> None:
        """Return once there is no partition; what a partition holds back is struck by it."""
        if not self._whole.is_set():
            self._note(self._partition, Kind.PARTITION, method, path)
            await self._whole.wait()

    def _note(self, number: int, kind: Kind, method: str, path: str) -> None:
        struck = {"at": time.monotonic(), "rule": number}
        self._injected.append({**struck, "kind": kind, "method": method, "path": path})

    def _strikes(self, active: _Rule, method: str, path: str, *, watch: bool) -> bool:
        """Return whether the rule strikes now, and count it then."""
        if active.left <= 0 or time.monotonic() > active.until:
            return False
        rule = active.rule
        if not rule.matches(method, path, watch=watch) or self._random.random() >= rule.probability:
            return False
        active.left -= 1
        self._note(active.number, rule.kind, method, path)
        return True

    def _struck(self, method: str, path: str, *, watch: bool) -> _Rule | None:
        """Return the first rule that strikes a new request."""
        now = time.monotonic()
        self._rules = [active for active in self._rules if active.left and active.until > now]
        for active in self._rules:
            kind = active.rule.kind
            late = kind in {Kind.GONE, Kind.DUPLICATE} or (watch and kind is Kind.DELAY)
            if not late and self._strikes(active, method, path, watch=watch):
                return active
        return None

    # Requests

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.raw_path
        watch = request.query.get("watch", "") in {"1", "true", "True"}
        body = await request.read()
        received = time.monotonic()
        await self._until_whole(request.method, path)
        struck = self._struck(request.method, path, watch=watch)
        kind = struck.rule.kind if struck else None
        written = None if request.method == "GET" else self._entry(request, body, kind, received)
        try:
            if struck and kind in ANSWERS:
                return _answer(struck.rule)
            if struck and kind is Kind.STALL:
                await asyncio.sleep(struck.rule.delay)
            if struck and kind in {Kind.DROP, Kind.HALF_OPEN}:
                return await self._unanswered(request, struck)
            return await self._pass_on(request, body, struck, written, watch=watch)
        finally:
            if written is not None and self._journal is not None:
                self._journal.write(json.dumps(written) + "\n")
                self._journal.flush()

    async def _unanswered(self, request: web.Request, struck: _Rule) -> web.StreamResponse:
        if struck.rule.kind is Kind.HALF_OPEN:
            await self._until(struck.until, struck)
        return _hang_up(request)

    @staticmethod
    async def _until(moment: float, struck: _Rule) -> None:
        """Wait until then, or until the rule is over."""
        with suppress(TimeoutError):
            await asyncio.wait_for(struck.over.wait(), moment - time.monotonic())

    def _delay_of(self, struck: _Rule) -> float:
        return struck.rule.delay + self._random.uniform(0.0, struck.rule.jitter)

    async def _pass_on(
        self,
        request: web.Request,
        body: bytes,
        struck: _Rule | None,
        written: dict[str, Any] | None,
        *,
        watch: bool,
    ) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        if self._session is None:
            return _hang_up(request)
        if written is not None:
            written["at"] = time.monotonic()
        try:
            sent = self._session.request(
                request.method,
                self._upstream + request.raw_path,
                data=body or None,
                headers=headers,
                allow_redirects=False,
            )
            async with sent as answer:
                if written is not None:
                    written["status"] = answer.status
                if watch and answer.status == 200:
                    return await self._stream(request, answer, struck)
                whole = await answer.read()
        except CONNECTIONS_ARE_OVER:
            return _hang_up(request)
        if struck and struck.rule.kind is Kind.DELAY:
            await self._until(time.monotonic() + self._delay_of(struck), struck)
        await self._until_whole(request.method, request.raw_path)
        if struck and struck.rule.kind is Kind.LOSE:
            return _hang_up(request)
        if struck and struck.rule.kind is Kind.TRUNCATE:
            return await _half(request, answer, whole)
        return web.Response(body=whole, status=answer.status, headers=_end_to_end(answer))

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, struck: _Rule | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=200, headers=_end_to_end(answer))
        response.enable_chunked_encoding()
        await response.prepare(request)
        stream = _Stream(request.method, request.raw_path)
        if struck and struck.rule.kind is Kind.TRUNCATE:
            stream.items.put_nowait(struck)
        for active in self._rules:
            if active.rule.kind is Kind.GONE and self._strikes(
                active, stream.method, stream.path, watch=True
            ):
                stream.items.put_nowait(active)
        self._streams.add(stream)
        reading = asyncio.create_task(_read_lines(answer, stream))
        try:
            return await self._show_stream(request, response, stream)
        except CONNECTIONS_ARE_OVER:
            return _hang_up(request)
        finally:
            self._streams.discard(stream)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _show_stream(
        self, request: web.Request, response: web.StreamResponse, stream: _Stream
    ) -> web.StreamResponse:
        torn = False
        while (item := await stream.items.get()) is not None:
            if isinstance(item, tuple):
                await self._delay(stream, item[0])
            await self._until_whole(stream.method, stream.path)
            if isinstance(item, tuple):
                _, line = item
                if torn:
                    await response.write(line[: len(line) // 2])
                    return _hang_up(request)
                await response.write(line * 2 if self._is_doubled(stream) else line)
                continue
            match item.rule.kind:
                case Kind.STALL:
                    await asyncio.sleep(item.rule.delay)
                case Kind.TRUNCATE:
                    torn = True
                case Kind.GONE:
                    await response.write(_gone())
                    await response.write_eof()
                    return response
                case _:
                    return await self._unanswered(request, item)
        await response.write_eof()
        return response

    async def _delay(self, stream: _Stream, came: float) -> None:
        """Wait as long as an event that came then is delayed; the next one waits behind it."""
        for active in list(self._rules):
            if active.rule.kind is Kind.DELAY and self._strikes(
                active, stream.method, stream.path, watch=True
            ):
                await self._until(came + self._delay_of(active), active)

    def _is_doubled(self, stream: _Stream) -> bool:
        return any(
            active.rule.kind is Kind.DUPLICATE
            and self._strikes(active, stream.method, stream.path, watch=True)
            for active in self._rules
        )

    @staticmethod
    def _entry(
        request: web.Request, body: bytes, fault: Kind | None, received: float
    ) -> dict[str, Any]:
        """Return the journal's line about a request, before it is passed on."""
        try:
            sent = orjson.loads(body)
        except orjson.JSONDecodeError:
            sent = {}
        entry: dict[str, Any] = {"received": received, "at": None, "status": None, "fault": fault}
        entry |= {"method": request.method, "path": request.raw_path}
        if isinstance(sent, dict):
            metadata, target = sent.get("metadata") or {}, sent.get("target") or {}
            uid = metadata.get("uid") or (sent.get("preconditions") or {}).get("uid")
            entry |= {"uid": uid, "node": target.get("name")}
            if "/leases" in request.path:
                entry["holder"] = (sent.get("spec") or {}).get("holderIdentity")
            if nominated := (sent.get("status") or {}).get("nominatedNodeName"):
                entry["nominated"] = nominated
            if sent.get("reason") == "Preempted":
                entry["victim"] = (sent.get("regarding") or {}).get("uid")
                entry["preemptor"] = (sent.get("related") or {}).get("uid")
        return entry


async def _read_lines(answer: aiohttp.ClientResponse, stream: _Stream) -> None:
    """Put the server's lines into the stream, and None at its end."""
    rest = b""
    with suppress(*CONNECTIONS_ARE_OVER):
        async for chunk in _chunks(answer):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                await stream.items.put((time.monotonic(), line + b"\n"))
    await stream.items.put(None)


def _chunks(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    return answer.content.iter_any()


def _hang_up(request: web.Request) -> web.Response:
    """Reset the client's connection; what is returned goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _half(
    request: web.Request, answer: aiohttp.ClientResponse, whole: bytes
) -> web.StreamResponse:
    headers = {**_end_to_end(answer), "Content-Length": str(len(whole))}
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    await response.write(whole[: len(whole) // 2])
    return _hang_up(request)


def _end_to_end(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}


def _status(code: int, reason: str) -> Mapping[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "injected by tests/faults",
        "reason": reason,
        "code": code,
    }


def _answer(rule: Rule) -> web.Response:
    code, reason = ANSWERS[rule.kind]
    retry = {"Retry-After": str(math.ceil(rule.delay))} if code == 429 else {}
    return web.json_response(_status(code, reason), status=code, headers=retry)


def _gone() -> bytes:
    return orjson.dumps({"type": "ERROR", "object": _status(410, "Expired")}) + b"\n"


async def _main(arguments: argparse.Namespace) -> None:
    tls = ssl.create_default_context(cafile=str(arguments.ca_file))
    with arguments.journal.open("a") as journal:
        proxy = Proxy(arguments.upstream, tls=tls, seed=arguments.seed, journal=journal)
        await proxy.start(arguments.port, arguments.control_port)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m faults.proxy")
    parser.add_argument("upstream")
    parser.add_argument("--ca-file", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    asyncio.run(_main(parser.parse_args()))
