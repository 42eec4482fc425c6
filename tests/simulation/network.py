"""Connections in memory between processes and servers, and their faults.

Both ends of a connection speak real HTTP/1.1: Mooring's own `Exchange` and aiohttp write the
requests, so all code above the sockets is real. The rules in force (`Rule`), a random latency and
the server decide about each request.

To add a fault of requests, add an `Outcome` and its handling in `Network._carried_out`.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

import orjson

if TYPE_CHECKING:
    from simulation.timeline import Timeline
    from simulation.virtual_loop import VirtualLoop


API: Final = "api:80"
"""The address of the API server; aiohttp's connections have the path of its socket."""
_REASONS: Final = {200: "OK", 201: "Created"}


class Process(Protocol):
    """The owner of connections: a replica of Mooring."""

    @property
    def name(self) -> str:
        """The name of the process, which stays the same after a restart."""

    @property
    def identity(self) -> str:
        """The identity of this run of the process."""

    @property
    def loop(self) -> "VirtualLoop":
        """The event loop of the process."""

    @property
    def connected(self) -> bool:
        """Whether the process may use the network; False after its end."""

    def kill(self) -> None:
        """End the process at once."""

    def pause(self, seconds: float) -> None:
        """Stop the process for `seconds`."""


class Request(NamedTuple):
    """A request as a server receives it."""

    process: Process
    link: "Link"
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def what(self) -> str:
        """The kind of the request: bind, evict, watch pods, patch status of pods, ..."""
        parts = self.path.strip("/").split("/")
        if self.method == "GET":
            return f"{'watch' if 'watch' in self.query else 'get'} {_plural(parts)}"
        if parts[-1] in {"binding", "eviction"}:
            return {"binding": "bind", "eviction": "evict"}[parts[-1]]
        if parts[-1] == "status":
            return f"patch status of {_plural(parts)}"
        verb = {"POST": "create", "PUT": "update"}.get(self.method, self.method.lower())
        return f"{verb} {_plural(parts)}"

    @property
    def is_write(self) -> bool:
        """Whether the request may change the cluster."""
        return self.method != "GET" and (self.link.address == API or self.path.endswith("/bind"))

    def json(self) -> Any:
        """Return the body as a JSON value; None without a body."""
        return orjson.loads(self.body) if self.body else None


def _plural(parts: list[str]) -> str:
    """Return the plural name of the resource in a path."""
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return rest[0] if rest else "/".join(parts)


class Reply(NamedTuple):
    """A complete answer."""

    status: int
    body: Mapping[str, Any]
    retry_after: float | None = None

    @property
    def wire(self) -> bytes:
        """The answer as bytes of HTTP."""
        body = orjson.dumps(self.body)
        head = f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Refused')}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        if self.retry_after is not None:
            head += f"Retry-After: {self.retry_after:g}\r\n"
        return f"{head}\r\n".encode() + body


class Server(Protocol):
    """A server at an address of the network."""

    def answer(self, request: Request) -> Reply | None:
        """Carry out the request; return the answer, or None if a stream was opened."""


class Outcome(StrEnum):
    """The fate of a request under a rule."""

    LOST = "lost"
    """The connection breaks before the server has the request."""
    ANSWER_LOST = "answer lost"
    """The server carries it out, and the connection breaks before the answer."""
    UNHEARD = "unheard"
    """It never arrives, and nothing tells so."""
    ANSWER_UNHEARD = "answer unheard"
    """The server carries it out, the answer never arrives, and nothing tells so."""
    SLOW = "slow"
    """The server carries it out late: its storage is slow."""
    ANSWER_SLOW = "answer slow"
    """The server carries it out, and the answer comes late."""
    OVERLOADED = "overloaded"
    """429 with Retry-After: the server has not carried it out."""
    UNAVAILABLE = "unavailable"
    """503 with nothing carried out."""
    FAILED = "failed"
    """500 although it was carried out."""
    FAILED_FOR_NOW = "failed for now"
    """500 with Retry-After although it was carried out."""
    TIMED_OUT = "timed out"
    """504 of a gateway, with nothing carried out."""
    TIMED_OUT_LATE = "timed out late"
    """504 of a gateway although it was carried out."""
    GONE_BEFORE = "gone before"
    """The pod that it is about has been deleted at once, a moment before."""
    QUOTA = "quota"
    """403: a quota is exceeded."""
    KILLS = "kills"
    """The server carries it out, and the process ends before the answer."""
    KILLS_FIRST = "kills first"
    """The process ends before the request is gone."""
    STALLS = "stalls"
    """The server carries it out, and the process stops for a while before it reads the answer."""
    REFUSED = "refused"
    """No connection is made."""


@dataclass
class Rule:
    """The outcome of matching requests until the rule ends."""

    outcome: Outcome
    until: float
    replica: str = ""
    """Whose requests; empty: anybody's."""
    what: str = ""
    """How `Request.what` begins; empty: any."""
    times: int = 1_000_000
    seconds: float = 0.0
    """How slow, or in how many seconds to come again."""

    def takes(self, process: Process, what: str, now: float) -> bool:
        """Return whether the rule applies to this request, and count it."""
        if now >= self.until or not self.times or not what.startswith(self.what):
            return False
        if self.replica not in {"", process.name}:
            return False
        self.times -= 1
        return True


class Link(asyncio.Transport):
    """One connection: a transport for the process, and the server's side."""

    def __init__(
        self, network: "Network", process: Process, protocol: asyncio.BaseProtocol, address: str
    ) -> None:
        super().__init__()
        self.process, self.address, self.is_open = process, address, True
        self.half_open = False
        """Whether nothing reaches the process any more, and nothing tells it so."""
        self.on_closed: Callable[[], object] = lambda: None
        """Called when the process, or the network, has closed the connection."""
        self._network = network
        self._loop = process.loop
        self._protocol: Any = protocol
        self._unread = b""

    # What the process calls.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data; each complete request is carried to the server."""
        if not self.is_open or not self.process.connected:
            return
        self._unread += bytes(data)
        head, separator, body = self._unread.partition(b"\r\n\r\n")
        if not separator:
            return
        request = _parsed(self, head, body)
        if request is not None:
            self._unread = b""
            self._network.carry(request)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Close the connection; the process notices this in a later turn."""
        self._end(None)

    def is_closing(self) -> bool:
        """Return whether the connection is closed."""
        return not self.is_open

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002 - asyncio's
        """Return the default, because there is no socket."""
        return default

    def pause_reading(self) -> None:
        """Do nothing, because the reader keeps early data."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing, because writes are sent at once."""

    # What the server and the network call.

    def deliver(self, data: bytes, received: Callable[[], object] = lambda: None) -> None:
        """Give data to the process; call `received` when the process has it.

        A stopped process gets the data when it continues, unless the connection breaks before.
        """
        if self.is_open and not self.half_open:
            self._loop.call_soon(self._received, data, received)

    def reset(self, why: str = "Connection reset by peer") -> None:
        if not self.half_open:
            self._end(ConnectionResetError(104, why))

    def finish(self) -> None:
        """Close the connection from the server's side after all data."""
        if not self.half_open:
            self._end(None)

    def _received(self, data: bytes, received: Callable[[], object]) -> None:
        if self.is_open:
            self._protocol.data_received(data)
            received()

    def _end(self, error: Exception | None) -> None:
        if self.is_open:
            self.is_open = False
            self._network.links.pop(self, None)
            if not self._loop.is_closed():
                self._loop.call_soon(self._protocol.connection_lost, error)
            self.on_closed()


@dataclass
class Network:
    """Carries requests to servers and answers back.

    `sent` is called with each request at the moment when it leaves the process.
    """

    timeline: "Timeline"
    random: Random
    sent: Callable[[Request], None] = lambda _: None
    servers: dict[str, Server] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    links: dict[Link, None] = field(default_factory=dict)
    latency: float = 0.002
    """Seconds that a message takes about."""
    delete_pod: Callable[[str], None] = lambda _: None
    """Deletes the pod that a path is about."""
    goes_wrong: Callable[[str, Outcome], object] = lambda *_: None
    """Called with each request that a rule takes, in one word, and what becomes of it."""
    _disturbed_at: float = -1.0
    """When a rule was in force last as somebody sent or connected."""
    failed_at: dict[str, float] = field(default_factory=dict)
    """When requests of a kind last did not go as they should; by "" if it was all of them.

    Of one that the server carries out, that is when it does so, at the earliest.
    """
    token: str = ""
    """What the API server wants to see now; empty if nothing."""
    refused: dict[tuple[str, str], float] = field(default_factory=dict)
    """When a process first heard that its token was rejected, by identity and token."""

    async def connect(
        self, process: Process, protocol: asyncio.BaseProtocol, address: str
    ) -> asyncio.Transport:
        """Connect the process to the address; raise OSError if no server is there."""
        await asyncio.sleep(self.delay())
        if not process.connected or address not in self.servers:
            self.failed_at[""] = self.timeline.now
            raise ConnectionRefusedError(111, "Connection refused")
        if self._rule(process, f"connect {address}") is not None:
            raise ConnectionRefusedError(111, "Connection refused")
        link = Link(self, process, protocol, address)
        self.links[link] = None
        protocol.connection_made(link)
        return link

    def carry(self, request: Request) -> None:
        """Carry a request from the process to the server, and carry its answer back."""
        self.sent(request)
        rule = self._rule(request.process, request.what)
        delay = self.delay()
        if rule is not None and rule.outcome is Outcome.SLOW:
            delay += rule.seconds
        if rule is not None and rule.outcome is Outcome.KILLS_FIRST:
            self.timeline.after(0.0, request.process.kill)
            return
        self.timeline.after(delay, lambda: self._arrived(request, rule))

    def was_disturbed(self, since: float) -> bool:
        """Return whether any rule was in force since this time."""
        return self._disturbed_at >= since

    def end_all(self, of: Callable[[Link], bool] = lambda _: True) -> None:
        """Break the connections that `of` accepts; processes also notice half-open ones."""
        self.failed_at[""] = self.timeline.now
        for link in [link for link in self.links if of(link)]:
            link.half_open = False
            link.reset()

    def delay(self) -> float:
        """Return a random transmission time in seconds."""
        return self.latency * self.random.expovariate(1.0)

    def _rule(self, process: Process, what: str) -> Rule | None:
        """Return the first rule for this request; forget rules that have ended."""
        if not self.rules:
            return None
        now = self._disturbed_at = self.timeline.now
        self.rules = [rule for rule in self.rules if now < rule.until and rule.times]
        taken = next((rule for rule in self.rules if rule.takes(process, what, now)), None)
        if taken is not None:
            self.failed_at[what] = now
            self.goes_wrong(what, taken.outcome)
        return taken

    def _arrived(self, request: Request, rule: Rule | None) -> None:
        server = self.servers.get(request.link.address)
        if not request.link.is_open and request.method == "GET":
            return  # nobody waits for it any more
        if server is None:
            self.failed_at[""] = self.timeline.now
            request.link.reset()
            return
        outcome = rule.outcome if rule is not None else None
        if (refusal := _REFUSALS.get(outcome)) is not None and rule is not None:
            self._reply(request, refusal(rule), 0.0)
        elif outcome in {Outcome.LOST, Outcome.REFUSED}:
            request.link.reset()
        elif outcome is not Outcome.UNHEARD:
            self._carried_out(request, server, rule)

    def _carried_out(self, request: Request, server: Server, rule: Rule | None) -> None:
        if rule is not None:
            self.failed_at[request.what] = self.timeline.now
        if rule is not None and rule.outcome is Outcome.GONE_BEFORE:
            self.delete_pod(request.path)
        reply = server.answer(request)
        outcome = rule.outcome if rule is not None else None
        if reply is None or outcome is Outcome.ANSWER_UNHEARD:
            return
        if outcome is Outcome.ANSWER_LOST:
            request.link.reset()
            return
        if outcome is Outcome.KILLS:
            request.process.kill()
            return
        if outcome is Outcome.STALLS and rule is not None:
            request.process.pause(5.0 * rule.seconds)
        if outcome is Outcome.FAILED:
            reply = Reply(500, status(500, "InternalError", "etcdserver: request timed out"))
        elif outcome is Outcome.FAILED_FOR_NOW:
            body = status(500, "InternalError", "etcdserver: request timed out")
            reply = Reply(500, body, retry_after=1.0)
        elif outcome is Outcome.TIMED_OUT_LATE:
            reply = _gateway_timeout(rule)
        slow = rule.seconds if rule is not None and outcome is Outcome.ANSWER_SLOW else 0.0
        self._reply(request, reply, slow)

    def _reply(self, request: Request, reply: Reply, slow: float) -> None:
        heard = partial(self._heard, request, reply)
        self.timeline.after(self.delay() + slow, lambda: request.link.deliver(reply.wire, heard))

    def _heard(self, request: Request, reply: Reply) -> None:
        if reply.status == 401:
            shown = request.headers.get("Authorization", "")
            self.refused.setdefault((request.process.identity, shown), self.timeline.now)


def status(code: int, reason: str, message: str, **details: Any) -> dict[str, Any]:
    """Return a Status object of Kubernetes."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        **({"details": details} if details else {}),
    }


def _overloaded(rule: Rule) -> Reply:
    body = status(429, "TooManyRequests", "the server has received too many requests")
    return Reply(429, body, retry_after=max(1.0, round(rule.seconds)))


def _unavailable(_: Rule) -> Reply:
    return Reply(503, status(503, "ServiceUnavailable", "etcdserver: leader changed"))


def _gateway_timeout(_: Rule | None) -> Reply:
    return Reply(504, status(504, "Timeout", "the gateway did not get an answer in time"))


def _over_quota(_: Rule) -> Reply:
    message = "exceeded quota: few, requested: count/events=1, used: 1, limited: 1"
    return Reply(403, status(403, "Forbidden", message))


_REFUSALS: Final[Mapping[Outcome | None, Callable[[Rule], Reply]]] = {
    Outcome.OVERLOADED: _overloaded,
    Outcome.UNAVAILABLE: _unavailable,
    Outcome.QUOTA: _over_quota,
    Outcome.TIMED_OUT: _gateway_timeout,
}


def _parsed(link: Link, head: bytes, body: bytes) -> Request | None:
    """Return the request; None if its body is incomplete."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = dict(line.split(": ", 1) for line in lines)
    length = int(headers.get("Content-Length", "0"))
    if len(body) < length:
        return None
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Request(link.process, link, method, parts.path, query, headers, body[:length])
