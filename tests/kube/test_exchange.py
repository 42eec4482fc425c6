"""Requests over kept connections, with a server that may break the rules of HTTP."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from mooring.kube.exchange import (
    KEEPALIVE_SECONDS,
    Answer,
    BrokenExchangeError,
    Exchange,
    NoConnectionError,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class Caller:
    """The server's side of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> bytes:
        """Return the head and the body of the next request."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return head + await self.reader.readexactly(int(length or 0))


@dataclass
class Server:
    """Calls `serve` for each connection, and counts the connections."""

    serve: Callable[[Caller], Awaitable[None]]
    url: str = ""
    connections: int = 0
    open: set[asyncio.Task[None]] = field(default_factory=set)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(Caller(reader, writer)))
        self.open.add(task)
        task.add_done_callback(self.open.discard)

    async def _serve(self, caller: Caller) -> None:
        try:
            await self.serve(caller)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            caller.writer.close()


@asynccontextmanager
async def serving(serve: Callable[[Caller], Awaitable[None]]) -> AsyncIterator[Server]:
    server = Server(serve)
    async with await asyncio.start_server(server.accept, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        server.url = f"http://{host}:{port}"
        yield server
        for task in server.open:
            task.cancel()
        await asyncio.gather(*server.open, return_exceptions=True)


def answering(*answers: bytes) -> Callable[[Caller], Awaitable[None]]:
    """Return a `serve` that gives these answers on each connection and then closes it."""

    async def serve(caller: Caller) -> None:
        for answer in answers:
            await caller.request()
            caller.writer.write(answer)
            await caller.writer.drain()

    return serve


@asynccontextmanager
async def exchange(url: str, pool: int = 100) -> AsyncIterator[Exchange]:
    node_newly = Exchange(url, {"User-Agent": "test"}, pool=pool)
    try:
        yield node_newly
    finally:
        await node_newly.close()


async def get(to: Exchange, seconds: float = 10.0) -> Answer:
    return await to.ask("GET", "/", {}, None, seconds=seconds)


async def test_a_request_is_one_head_and_its_body() -> None:
    seen: list[bytes] = []

    async def serve(caller: Caller) -> None:
        seen.append(await caller.request())
        caller.writer.write(OK)

    async with serving(serve) as server, exchange(f"{server.url}/base") as to:
        await to.ask("POST", "/x?y=1", {"Accept": "a"}, b"body", seconds=10)
    host = server.url.removeprefix("http://").encode()
    assert seen == [
        b"POST /base/x?y=1 HTTP/1.1\r\nHost: " + host + b"\r\nUser-Agent: test\r\n"
        b"Accept: a\r\nContent-Length: 4\r\n\r\nbody"
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK, Answer(200, b"{}", None)),
        (
            b"HTTP/1.1 429 Busy\r\nretry-after: 3\r\nContent-Length: 1\r\n\r\nx",
            Answer(429, b"x", "3"),
        ),
        (
            b"HTTP/1.1 201 C\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            Answer(201, b"abc", None),
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, b"", None)),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, Answer(200, b"{}", None)),
        (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end",
            Answer(200, b"to the end", None),
        ),
    ],
)
async def test_an_answer_may_be_framed_in_any_way(answer: bytes, expected: Answer) -> None:
    async with serving(answering(answer)) as server, exchange(server.url) as to:
        assert await get(to) == expected


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with serving(answering(OK, OK, OK)) as server, exchange(server.url) as to:
        for _ in range(3):
            await get(to)
        assert server.connections == 1


async def test_an_answer_that_ends_its_connection_is_followed_by_a_new_one() -> None:
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(last, OK)) as server, exchange(server.url) as to:
        assert (await get(to)).body == b""
        assert (await get(to)).body == b""
        assert server.connections == 2


async def test_a_connection_whose_user_is_refused_is_followed_by_a_new_one() -> None:
    """The connection may use an expired client certificate that was replaced meanwhile."""
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(refusal, OK)) as server, exchange(server.url) as to:
        assert (await get(to)).status == 401
        await get(to)
        assert server.connections == 2


async def test_a_connection_that_idled_for_long_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(answering(OK, OK)) as server, exchange(server.url) as to:
        await get(to)
        real = to.loop.time
        monkeypatch.setattr(to.loop, "time", lambda: real() + KEEPALIVE_SECONDS + 1)
        await get(to)
        assert server.connections == 2


async def test_no_more_connections_than_the_pool_allows() -> None:
    answer, waiting = asyncio.Event(), asyncio.Semaphore(0)

    async def serve(caller: Caller) -> None:
        while True:
            await caller.request()
            waiting.release()
            await answer.wait()
            caller.writer.write(OK)

    async with serving(serve) as server, exchange(server.url, pool=2) as to:
        asked = [asyncio.create_task(get(to)) for _ in range(5)]
        for _ in range(2):
            await waiting.acquire()
        answer.set()
        await asyncio.gather(*asked)
        assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "the server closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "the server closed the connection"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP"),
        (
            b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx",
            "changed to another protocol than HTTP",
        ),
    ],
)
async def test_a_broken_answer_says_what_was_wrong(answer: bytes, why: str) -> None:
    async with serving(answering(answer)) as server, exchange(server.url) as to:
        with pytest.raises(BrokenExchangeError, match=why):
            await get(to)


async def test_an_answer_that_does_not_come_is_given_up_with_its_connection() -> None:
    ended = asyncio.Event()

    async def serve(caller: Caller) -> None:
        await caller.request()
        await caller.reader.read()
        ended.set()

    async with serving(serve) as server, exchange(server.url) as to:
        with pytest.raises(BrokenExchangeError, match=r"no answer within 0\.05 seconds"):
            await get(to, seconds=0.05)
        await ended.wait()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 200,
    ],
    ids=["body", "head", "chunks"],
)
async def test_an_answer_that_is_too_long_is_not_read_to_its_end(answer: bytes) -> None:
    async with serving(answering(answer)) as server, exchange(server.url) as to:
        with pytest.raises(BrokenExchangeError, match="the answer has more than 500 bytes"):
            await to.ask("GET", "/", {}, None, seconds=10, most=500)


async def test_each_answer_may_have_the_most_bytes() -> None:
    async with serving(answering(OK, OK)) as server, exchange(server.url) as to:
        for _ in range(2):
            await to.ask("GET", "/", {}, None, seconds=10, most=len(OK))
        assert server.connections == 1


async def test_idle_connections_end_without_a_further_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = asyncio.Semaphore(0)

    async def serve(caller: Caller) -> None:
        await caller.request()
        caller.writer.write(OK)
        await caller.reader.read()
        ended.release()

    async with serving(serve) as server, exchange(server.url) as to:
        await asyncio.gather(get(to), get(to))
        real = to.loop.time
        monkeypatch.setattr(to.loop, "time", lambda: real() + KEEPALIVE_SECONDS + 1)
        for _ in range(2):
            await ended.acquire()


async def test_an_answer_nobody_waits_for_any_more_reaches_nobody() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def serve(caller: Caller) -> None:
        await caller.request()
        if not asked.is_set():
            asked.set()
            await go_on.wait()
            caller.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold")
        else:
            caller.writer.write(OK)

    async with serving(serve) as server, exchange(server.url) as to:
        given_up = asyncio.create_task(get(to))
        await asked.wait()
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        go_on.set()
        assert (await get(to)).body == b"{}"


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    ended = asyncio.Event()

    async def serve(caller: Caller) -> None:
        await caller.request()
        caller.writer.write(OK + OK)
        await caller.reader.read()
        ended.set()

    async with serving(serve) as server, exchange(server.url) as to:
        await get(to)
        await ended.wait()


async def test_an_address_of_the_host_that_does_not_answer_leaves_time_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The addresses may be several API servers; one of them has no power."""
    monkeypatch.setattr("mooring.kube.exchange.CONNECT_SECONDS", 1.0)
    async with serving(answering(OK)) as server:
        port = int(server.url.rpartition(":")[2])
        with socket.create_server(("127.0.0.2", port), backlog=0) as deaf:
            queued = [socket.socket() for _ in range(4)]
            for each in queued:  # when its queue is full, it answers no more
                each.settimeout(0)
                each.connect_ex(deaf.getsockname())
            async with exchange(f"http://several.test:{port}") as to:
                found = [
                    (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
                    for address in ("127.0.0.2", "127.0.0.1")
                ]

                async def addresses(*_: object, **__: object) -> list[object]:
                    return [*found]

                monkeypatch.setattr(to.loop, "getaddrinfo", addresses)
                assert (await get(to)).status == 200
            for each in queued:
                each.close()


async def test_without_a_server_nothing_is_sent() -> None:
    async with serving(answering(OK)) as server:
        url = server.url
    async with exchange(url) as to:
        with pytest.raises(NoConnectionError) as raised:
            await get(to)
        assert isinstance(raised.value.__cause__, ConnectionRefusedError)


async def test_a_connection_that_is_made_while_the_exchange_closes_is_of_no_use() -> None:
    async with serving(answering(OK)) as server:
        async with exchange(server.url) as to:
            asking = asyncio.create_task(get(to))
            await asyncio.sleep(0)  # it is connecting now
        with pytest.raises((NoConnectionError, BrokenExchangeError)):
            await asking


async def test_a_closed_exchange_sends_nothing() -> None:
    async with serving(answering(OK)) as server:
        async with exchange(server.url) as to:
            await get(to)
        with pytest.raises(NoConnectionError):
            await get(to)
