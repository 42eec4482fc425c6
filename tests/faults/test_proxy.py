"""What a client behind the proxy sees of each fault."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from faults.proxy import Proxy
from faults.rules import Kind, Rule, RuleError
from http_servers import answering, serving

PODS = "/api/v1/pods"
LOST = (aiohttp.ClientError, ConnectionError)


class Server:
    """An API server with one collection, whose watches show what the test puts in."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.watching = asyncio.Event()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(f"{request.method} {request.path}")
        if "watch" not in request.query:
            return web.json_response({"method": request.method, "items": ["x" * 100]})
        response = web.StreamResponse()
        await response.prepare(request)
        self.watching.set()
        while (event := await self.events.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


class Client:
    """What a test does through the proxy."""

    def __init__(self, session: aiohttp.ClientSession, port: int, control: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}"
        self._control = f"http://127.0.0.1:{control}"

    async def ask(
        self, method: str = "GET", path: str = PODS, sent: object = None
    ) -> aiohttp.ClientResponse:
        async with self._session.request(method, self._url + path, json=sent) as answer:
            await answer.read()
            return answer

    @asynccontextmanager
    async def watch(self, query: str = "") -> AsyncIterator[aiohttp.StreamReader]:
        async with self._session.get(f"{self._url}{PODS}?watch=1{query}") as answer:
            yield answer.content

    async def inject(self, kind: Kind, **fields: Any) -> int:
        """Return the rule's number."""
        rule = Rule(kind, **fields).written()
        async with self._session.post(f"{self._control}/rules", json=rule) as answer:
            answer.raise_for_status()
            return int(await answer.text())

    async def clear(self) -> None:
        await self._session.delete(f"{self._control}/rules")

    async def injected(self) -> list[tuple[int, str]]:
        """Return number and kind of the rule, for each strike."""
        async with self._session.get(f"{self._control}/injected") as answer:
            return [(one["rule"], one["kind"]) for one in await answer.json()]


@pytest.fixture
def journal() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, int]]:
    server = Server()
    async with serving(answering(server.respond), cancels=True) as port:
        yield server, port
        await server.events.put(None)


@pytest.fixture
async def client(server: tuple[Server, int], journal: io.StringIO) -> AsyncIterator[Client]:
    proxy = Proxy(f"http://127.0.0.1:{server[1]}", journal=journal)
    port, control = await proxy.start()
    async with aiohttp.ClientSession() as session:
        yield Client(session, port, control)
    await proxy.stop()


@pytest.fixture
def upstream(server: tuple[Server, int]) -> Server:
    return server[0]


async def test_without_a_rule_everything_passes_unchanged(client: Client, upstream: Server) -> None:
    answer = await client.ask("POST")
    assert (answer.status, (await answer.json())["method"]) == (200, "POST")
    assert upstream.seen == [f"POST {PODS}"]
    async with client.watch() as lines:
        await upstream.events.put({"n": 1})
        assert json.loads(await lines.readline()) == {"n": 1}
        await upstream.events.put(None)
        assert await lines.readline() == b""


async def test_a_dropped_request_never_reaches_the_server(client: Client, upstream: Server) -> None:
    await client.inject(Kind.DROP)
    with pytest.raises(LOST):
        await client.ask("POST")
    assert upstream.seen == []
    assert (await client.ask("POST")).status == 200


async def test_a_lost_answer_is_lost_after_the_server_acted(
    client: Client, upstream: Server, journal: io.StringIO
) -> None:
    await client.inject(Kind.LOSE)
    with pytest.raises(LOST):
        await client.ask("POST")
    assert upstream.seen == [f"POST {PODS}"]
    [line] = journal.getvalue().splitlines()
    assert (json.loads(line)["fault"], json.loads(line)["status"]) == ("lose", 200)


async def test_the_journal_says_what_a_refused_request_was_to_write_of_preemptions(
    client: Client, journal: io.StringIO
) -> None:
    await client.inject(Kind.CONFLICT, count=2)
    status = {"metadata": {"uid": "u"}, "status": {"nominatedNodeName": "n"}}
    event = {"reason": "Preempted", "regarding": {"uid": "low"}, "related": {"uid": "high"}}
    for sent in (status, event):
        await client.ask("POST", sent=sent)
    nominated, preempted = map(json.loads, journal.getvalue().splitlines())
    assert (nominated["uid"], nominated["nominated"], nominated["fault"]) == ("u", "n", "409")
    assert (preempted["victim"], preempted["preemptor"]) == ("low", "high")


async def test_a_half_open_request_is_not_answered_while_the_rule_lasts(
    client: Client, upstream: Server
) -> None:
    await client.inject(Kind.HALF_OPEN)
    asked = asyncio.create_task(client.ask("POST"))
    done, _ = await asyncio.wait({asked}, timeout=0.1)
    assert not done
    await client.clear()
    with pytest.raises(LOST):
        await asked
    assert upstream.seen == []


async def test_a_stalled_request_is_answered_late(client: Client, upstream: Server) -> None:
    await client.inject(Kind.STALL, delay=0.2)
    asked = asyncio.create_task(client.ask())
    done, _ = await asyncio.wait({asked}, timeout=0.05)
    assert not done
    assert upstream.seen == []
    assert (await asked).status == 200


async def test_a_truncated_answer_ends_before_its_length(client: Client, upstream: Server) -> None:
    await client.inject(Kind.TRUNCATE)
    with pytest.raises(aiohttp.ClientPayloadError):
        await client.ask()
    assert upstream.seen == [f"GET {PODS}"]


@pytest.mark.parametrize("code", ["409", "429", "500", "503"])
async def test_an_answered_fault_looks_like_the_servers(
    client: Client, upstream: Server, code: str
) -> None:
    await client.inject(Kind(code), delay=1.5)
    answer = await client.ask("POST")
    assert (answer.status, (await answer.json())["kind"]) == (int(code), "Status")
    assert answer.headers.get("Retry-After") == ("2" if code == "429" else None)
    assert upstream.seen == []


async def test_an_open_watch_is_ended_with_410_in_mid_stream(
    client: Client, upstream: Server
) -> None:
    async with client.watch() as lines:
        await upstream.events.put({"n": 1})
        await lines.readline()
        await client.inject(Kind.GONE)
        last = json.loads(await lines.readline())
        assert (last["type"], last["object"]["code"]) == ("ERROR", 410)
        assert await lines.readline() == b""


async def test_an_event_comes_twice(client: Client, upstream: Server) -> None:
    await client.inject(Kind.DUPLICATE)
    async with client.watch() as lines:
        for number in (1, 2):
            await upstream.events.put({"n": number})
        assert [json.loads(await lines.readline())["n"] for _ in range(3)] == [1, 1, 2]


async def test_the_events_of_one_watch_are_delayed_and_keep_their_order(
    client: Client, upstream: Server
) -> None:
    late = {"path": "fieldSelector=late", "delay": 0.2, "count": 100}
    await client.inject(Kind.DELAY, **late, jitter=0.1)
    async with client.watch("&fieldSelector=late") as delayed:
        for number in range(20):
            await upstream.events.put({"n": number})
        first = asyncio.create_task(delayed.readline())
        done, _ = await asyncio.wait({first}, timeout=0.1)
        assert not done
        lines = [await first, *[await delayed.readline() for _ in range(19)]]
        assert [json.loads(line)["n"] for line in lines] == [*range(20)]
        assert len(await client.injected()) == 20


async def test_delays_of_events_that_come_together_are_not_added_up(
    client: Client, upstream: Server
) -> None:
    """If they were, these would take a quarter of an hour."""
    await client.inject(Kind.DELAY, delay=0.3, count=10_000)
    async with client.watch() as lines:
        for number in range(3000):
            await upstream.events.put({"n": number})
        for _ in range(3000):
            await lines.readline()


async def test_other_watches_are_not_delayed(client: Client, upstream: Server) -> None:
    await client.inject(Kind.DELAY, path="fieldSelector=late", delay=3600.0)
    async with client.watch("&fieldSelector=other") as lines:
        await upstream.events.put({"n": 1})
        assert json.loads(await lines.readline()) == {"n": 1}
    assert await client.injected() == []


async def test_a_delayed_watch_goes_on_at_once_when_the_rule_is_over(
    client: Client, upstream: Server
) -> None:
    await client.inject(Kind.DELAY, delay=3600.0, count=100)
    async with client.watch() as lines:
        for number in range(2):
            await upstream.events.put({"n": number})
        first = asyncio.create_task(lines.readline())
        done, _ = await asyncio.wait({first}, timeout=0.1)
        assert not done
        await client.clear()
        assert [json.loads(line)["n"] for line in (await first, await lines.readline())] == [0, 1]


async def test_a_delayed_watch_tells_all_it_has_before_it_ends_with_410(
    client: Client, upstream: Server
) -> None:
    await client.inject(Kind.DELAY, delay=0.1, count=100)
    async with client.watch() as lines:
        for number in range(3):
            await upstream.events.put({"n": number})
        await lines.readline()
        await client.inject(Kind.GONE)
        told = [json.loads(line) async for line in lines]
        assert [event.get("n", event.get("type")) for event in told] == [1, 2, "ERROR"]


async def test_a_delayed_list_is_what_the_server_said_before_the_delay(
    client: Client, upstream: Server
) -> None:
    await client.inject(Kind.DELAY, delay=0.2)
    asked = asyncio.create_task(client.ask())
    done, _ = await asyncio.wait({asked}, timeout=0.1)
    assert not done
    assert upstream.seen == [f"GET {PODS}"]
    assert (await asked).status == 200


async def test_a_watch_is_torn_in_the_middle_of_a_line(client: Client, upstream: Server) -> None:
    async with client.watch() as lines:
        await client.inject(Kind.TRUNCATE)
        await upstream.events.put({"n": "a long line"})
        with pytest.raises(aiohttp.ClientPayloadError):
            await lines.readline()


@pytest.mark.parametrize("kind", [Kind.DROP, Kind.HALF_OPEN])
async def test_an_open_watch_can_be_cut(client: Client, upstream: Server, kind: Kind) -> None:
    async with client.watch() as lines:
        await upstream.watching.wait()
        await client.inject(kind, seconds=0.1)
        with pytest.raises(aiohttp.ClientPayloadError):
            await lines.readline()


async def test_a_partition_holds_both_directions_and_then_lets_them_go_on(
    client: Client, upstream: Server
) -> None:
    async with client.watch() as lines:
        await upstream.watching.wait()
        await client.inject(Kind.PARTITION)
        await upstream.events.put({"n": 1})
        watched = asyncio.create_task(lines.readline())
        asked = asyncio.create_task(client.ask("POST"))
        done, _ = await asyncio.wait({watched, asked}, timeout=0.1)
        assert not done
        assert f"POST {PODS}" not in upstream.seen
        await client.clear()
        assert json.loads(await watched) == {"n": 1}
        assert (await asked).status == 200


async def test_what_a_client_gave_up_during_a_partition_is_never_sent(
    client: Client, upstream: Server
) -> None:
    await client.inject(Kind.PARTITION)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.ask("POST"), 0.1)
    await client.clear()
    await client.ask("PUT")
    assert upstream.seen == [f"PUT {PODS}"]


async def test_a_rule_strikes_only_what_it_names_and_as_often_as_it_says(client: Client) -> None:
    number = await client.inject(Kind.INTERNAL, method="POST|PUT", path="/pods", count=2)
    assert (await client.ask("GET")).status == 200
    assert (await client.ask("POST", "/api/v1/nodes")).status == 200
    assert [(await client.ask("POST")).status for _ in range(3)] == [500, 500, 200]
    assert await client.injected() == [(number, "500")] * 2


async def test_of_two_rules_of_a_kind_the_one_that_struck_nothing_is_known(client: Client) -> None:
    idle = await client.inject(Kind.INTERNAL, method="POST", path="/nodes")
    struck = await client.inject(Kind.INTERNAL, method="POST", path="/pods")
    assert (await client.ask("POST")).status == 500
    assert idle != struck
    assert await client.injected() == [(struck, "500")]


async def test_a_partition_has_struck_once_it_holds_something_back(client: Client) -> None:
    number = await client.inject(Kind.PARTITION)
    assert await client.injected() == []
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.ask("POST"), 0.1)
    assert await client.injected() == [(number, "partition")]


async def test_a_rule_ends_with_its_time(client: Client) -> None:
    await client.inject(Kind.INTERNAL, count=100, seconds=0.01)
    await asyncio.sleep(0.05)
    assert (await client.ask()).status == 200


async def test_a_rule_without_bounds_is_rejected(client: Client) -> None:
    with pytest.raises(aiohttp.ClientResponseError, match="400"):
        await client.inject(Kind.DROP, seconds=1e9)


@given(
    st.sampled_from(Kind),
    st.integers(1, 1000),
    st.floats(0.1, 3600),
    st.sampled_from([".*", "POST", "GET|PUT"]),
)
def test_a_rule_is_read_as_it_was_written(
    kind: Kind, count: int, seconds: float, method: str
) -> None:
    rule = Rule(kind, count=count, seconds=seconds, method=method)
    assert Rule.read(json.loads(json.dumps(rule.written()))) == rule


@pytest.mark.parametrize(
    "raw", [{}, {"kind": "?"}, {"kind": "drop", "count": 0}, {"kind": "drop", "path": "("}]
)
def test_what_is_no_rule_is_an_error(raw: dict[str, Any]) -> None:
    with pytest.raises(RuleError):
        Rule.read(raw)
