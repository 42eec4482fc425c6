"""Requests over real connections: credentials, retries, limits, time limits and streams."""

import asyncio
import traceback
from contextlib import aclosing

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.api_server import ApiServer, Request, bookmark, event, pod
from kube.refusing_proxy import refusing_proxy
from kube.virtual_clock import VirtualClock
from mooring.kube.api_resources import POD
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.credentials import Credentials
from mooring.kube.errors import (
    ForbiddenError,
    NotLeadingError,
    TooManyRequestsError,
    UnansweredError,
    UnauthorizedError,
    UnreachableError,
    explain,
)
from mooring.kube.limiter import TokenBucket
from mooring.kube.transport import LONGEST_RETRY_AFTER, RETRIES, LineSplitter

PODS = POD.path()


class Tokens:
    """A TokenSource that returns another token after each refusal."""

    def __init__(self) -> None:
        self.issued = 1

    async def current(self) -> str:
        return f"Bearer {self.issued}"

    async def replaced(self) -> str:
        self.issued += 1
        return await self.current()


class Pauses:
    """Records the requested pauses, and does not sleep."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)


async def test_a_request_asks_for_plain_json_and_says_who_it_is(
    server: ApiServer, client: ApiClient
) -> None:
    answer = asyncio.create_task(client.request("GET", "/version"))
    request = await server.next()
    request.reply({"minor": "36"})
    assert await answer == b'{"minor":"36"}'
    assert request.headers["Accept"] == "application/json"
    assert request.headers["Accept-Encoding"] == "identity"
    assert request.headers["User-Agent"] == "mooring"
    assert "Content-Type" not in request.headers


async def test_connections_are_kept() -> None:
    async with (
        ApiServer(lambda request: request.reply({})) as server,
        ApiClient(Connection(server.url)) as client,
    ):
        for _ in range(3):
            await client.request("GET", "/version")
    assert len({request.peer for request in server.seen}) == 1


async def test_after_a_401_the_request_is_sent_again_with_new_credentials(
    server: ApiServer,
) -> None:
    credentials = Credentials(Tokens(), "Bearer 1")
    async with ApiClient(Connection(server.url, credentials)) as client:
        answer = asyncio.create_task(client.request("GET", "/version"))
        first = await server.next()
        first.refuse(401, "Unauthorized", "Unauthorized")
        second = await server.next()
        second.reply({})
        await answer
    assert first.headers["Authorization"] == "Bearer 1"
    assert second.headers["Authorization"] == "Bearer 2"


async def test_many_refused_requests_renew_the_credentials_once() -> None:
    tokens = Tokens()

    def respond(request: Request) -> None:
        if request.headers["Authorization"] == "Bearer 1":
            request.refuse(401, "Unauthorized", "Unauthorized")
        else:
            request.reply({})

    async with ApiServer(respond) as server:
        connection = Connection(server.url, Credentials(tokens, "Bearer 1"))
        async with ApiClient(connection) as client, asyncio.TaskGroup() as tasks:
            for _ in range(10):
                tasks.create_task(client.request("GET", "/version"))
    assert tokens.issued == 2


async def test_a_second_401_is_an_error(server: ApiServer) -> None:
    credentials = Credentials(Tokens(), "Bearer 1")
    async with ApiClient(Connection(server.url, credentials)) as client:
        answer = asyncio.create_task(client.request("GET", PODS))
        for _ in range(2):
            (await server.next()).refuse(401, "Unauthorized", "Unauthorized")
        with pytest.raises(UnauthorizedError):
            await answer
    assert len(server.seen) == 2


async def test_behind_a_proxy_requests_go_through_it_under_the_same_rules(
    server: ApiServer,
) -> None:
    credentials = Credentials(Tokens(), "Bearer 1")
    connection = Connection("http://api.invalid:6443", credentials, proxy=server.url)
    async with ApiClient(connection) as client:
        answer = asyncio.create_task(client.request("POST", PODS, body=b'{"a":1}'))
        (await server.next()).refuse(401, "Unauthorized", "Unauthorized")
        second = await server.next()
        second.reply({"kind": "Pod"})
        assert await answer == b'{"kind":"Pod"}'
    assert (second.path, second.body) == (PODS, {"a": 1})
    assert second.headers["Host"] == "api.invalid:6443"
    assert second.headers["Authorization"] == "Bearer 2"
    assert second.headers["Accept"] == "application/json"


async def test_retry_after_is_waited_for(server: ApiServer) -> None:
    pauses = Pauses()
    async with ApiClient(Connection(server.url), sleep=pauses.sleep) as client:
        answer = asyncio.create_task(client.request("GET", PODS))
        (await server.next()).refuse(429, "TooManyRequests", "busy", Retry_After="3")
        (await server.next()).refuse(503, "ServiceUnavailable", "going", Retry_After="600")
        (await server.next()).reply({})
        await answer
    assert pauses.taken == [3, LONGEST_RETRY_AFTER]


async def test_retries_are_bounded() -> None:
    pauses = Pauses()
    busy = ApiServer(lambda r: r.refuse(429, "TooManyRequests", "busy", Retry_After="1"))
    async with busy as server, ApiClient(Connection(server.url), sleep=pauses.sleep) as client:
        with pytest.raises(TooManyRequestsError) as raised:
            await client.request("GET", PODS)
    assert raised.value.retry_after == 1
    assert pauses.taken == [1] * RETRIES
    assert len(server.seen) == 1 + RETRIES


async def test_without_retry_after_nothing_is_repeated(
    server: ApiServer, client: ApiClient
) -> None:
    answer = asyncio.create_task(client.request("GET", PODS))
    (await server.next()).refuse(429, "TooManyRequests", "busy")
    with pytest.raises(TooManyRequestsError):
        await answer
    assert len(server.seen) == 1


async def test_the_limiter_counts_every_request(server: ApiServer) -> None:
    clock = VirtualClock()
    limiter = TokenBucket(1, 1, clock=clock, sleep=clock.sleep)
    async with ApiClient(Connection(server.url), limiter=limiter) as client:
        first = asyncio.create_task(client.request("GET", PODS))
        (await server.next()).reply({})
        await first
        second = asyncio.create_task(client.request("GET", PODS))
        await clock.sleepers()
        assert len(server.seen) == 1
        await clock.advance(1)
        (await server.next()).reply({})
        await second


async def test_a_closed_port_is_unreachable_and_the_line_names_it() -> None:
    async with ApiServer() as server:
        url = server.url
    async with ApiClient(Connection(url)) as client:
        with pytest.raises(UnreachableError) as raised:
            await client.request("GET", PODS)
    assert not isinstance(raised.value, UnansweredError)
    line = explain(raised.value)
    assert line.startswith(f"cannot reach the API server at {url}: Connection refused")


async def test_a_connection_that_breaks_before_the_answer_leaves_the_outcome_open(
    server: ApiServer, client: ApiClient
) -> None:
    answer = asyncio.create_task(client.request("POST", PODS, body=b"{}"))
    (await server.next()).cut()
    with pytest.raises(UnansweredError):
        await answer
    assert len(server.seen) == 1


async def test_a_server_that_does_not_answer_is_given_up(server: ApiServer) -> None:
    async with ApiClient(Connection(server.url), timeout=0.05) as client:
        with pytest.raises(UnansweredError):
            await client.request("GET", PODS)


async def test_a_refused_watch_is_an_error_at_its_opening(
    server: ApiServer, client: ApiClient
) -> None:
    stream = client.watch_lines(PODS, {}, silence=10)
    opening = asyncio.ensure_future(anext(stream))
    (await server.next()).refuse(403, "Forbidden", "no")
    with pytest.raises(ForbiddenError) as raised:
        await opening
    assert raised.value.verb == "watch"


async def test_a_watch_that_is_never_accepted_is_given_up(server: ApiServer) -> None:
    async with (
        ApiClient(Connection(server.url), timeout=0.05) as client,
        aclosing(client.watch_lines(PODS, {}, silence=10)) as stream,
    ):
        with pytest.raises(UnansweredError):
            await anext(stream)


async def test_a_watch_says_when_it_is_open_and_then_gives_whole_lines(
    server: ApiServer, client: ApiClient
) -> None:
    async with aclosing(client.watch_lines(PODS, {"x": "1"}, silence=10)) as stream:
        opening = asyncio.ensure_future(anext(stream))
        request = await server.next()
        assert request.query == {"x": "1", "watch": "true"}
        request.send_bytes(b'{"a"')
        assert await opening == []
        request.send_bytes(b':1}\n{"b":2}\n{"c"')
        assert await anext(stream) == [b'{"a":1}', b'{"b":2}']
        request.end()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_a_watch_broken_within_a_line_never_shows_the_half(
    server: ApiServer, client: ApiClient
) -> None:
    async with aclosing(client.watch_lines(PODS, {}, silence=10)) as stream:
        opening = asyncio.ensure_future(anext(stream))
        request = await server.next()
        request.send_bytes(b'{"a":1}\n{"b"')
        await opening
        assert await anext(stream) == [b'{"a":1}']
        request.cut()
        with pytest.raises(UnansweredError):
            await anext(stream)


async def test_a_silent_watch_is_given_up(server: ApiServer, client: ApiClient) -> None:
    async with aclosing(client.watch_lines(PODS, {}, silence=0.5)) as stream:
        opening = asyncio.ensure_future(anext(stream))
        (await server.next()).send(bookmark(1))
        await opening
        await anext(stream)
        with pytest.raises(UnansweredError):
            await anext(stream)


async def test_objects_of_a_megabyte_pass(server: ApiServer, client: ApiClient) -> None:
    big = event("ADDED", pod("big", 1, note="x" * 1_000_000))
    async with aclosing(client.watch_lines(PODS, {}, silence=10)) as stream:
        opening = asyncio.ensure_future(anext(stream))
        request = await server.next()
        request.send(big, big)
        await opening
        lines: list[bytes] = []
        while len(lines) < 2:
            lines += await anext(stream)
    assert [orjson.loads(line) for line in lines] == [big, big]


@given(st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"x", b"\n"))))
def test_lines_do_not_depend_on_where_the_stream_is_cut(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    finished = b"".join(chunks).split(b"\n")[:-1]
    assert lines == [line for line in finished if line]


def test_a_line_is_held_back_until_it_ends() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b'{"a"') == []
    assert splitter.feed(b":1") == []
    assert splitter.feed(b'}\n{"b"') == [b'{"a":1}']
    assert splitter.feed(b":2}\n") == [b'{"b":2}']


class Lease:
    """Returns whether the lease is valid; the test sets this."""

    def __init__(self) -> None:
        self.valid = True

    def __call__(self) -> bool:
        return self.valid


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_without_a_valid_lease_no_write_is_sent(server: ApiServer, method: str) -> None:
    lease = Lease()
    lease.valid = False
    async with ApiClient(Connection(server.url), may_write=lease) as client:
        with pytest.raises(NotLeadingError) as failure:
            await client.request(method, POD.path("default", "web"))
    assert server.seen == []
    assert explain(failure.value).endswith(
        "pods default/web was not sent: the lease of this replica is not valid at the moment"
    )


async def test_a_proxy_that_refuses_is_told_of_without_its_password() -> None:
    async with (
        refusing_proxy() as proxy,
        ApiClient(Connection("https://api.invalid", proxy=proxy)) as client,
    ):
        with pytest.raises(UnreachableError) as failure:
            await client.request("GET", PODS)
    assert "the proxy answers 407 Proxy Authentication Required" in explain(failure.value)
    assert "secret" not in "".join(traceback.format_exception(failure.value))


async def test_through_a_proxy_neither(server: ApiServer) -> None:
    lease = Lease()
    lease.valid = False
    connection = Connection("http://api.invalid", proxy=server.url)
    async with ApiClient(connection, may_write=lease) as client:
        with pytest.raises(NotLeadingError):
            await client.request("DELETE", POD.path("default", "web"))
    assert server.seen == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", PODS),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ],
)
async def test_what_changes_nothing_needs_no_lease(method: str, path: str) -> None:
    async with (
        ApiServer(lambda request: request.reply({})) as server,
        ApiClient(Connection(server.url), may_write=lambda: False) as client,
    ):
        assert await client.request(method, path) == b"{}"


async def test_the_lease_is_checked_after_the_client_limit_has_been_waited_for(
    server: ApiServer,
) -> None:
    lease, clock = Lease(), VirtualClock()
    limiter = TokenBucket(1.0, 1, clock=clock, sleep=clock.sleep)
    await limiter.acquire()
    async with ApiClient(Connection(server.url), limiter=limiter, may_write=lease) as client:
        write = asyncio.create_task(client.request("DELETE", POD.path("default", "web")))
        await clock.sleepers(seconds=1.0)
        lease.valid = False
        await clock.advance(1.0)
        with pytest.raises(NotLeadingError):
            await write
    assert server.seen == []


async def test_the_lease_is_checked_again_before_a_write_is_sent_again(server: ApiServer) -> None:
    lease, clock = Lease(), VirtualClock()
    async with ApiClient(Connection(server.url), sleep=clock.sleep, may_write=lease) as client:
        write = asyncio.create_task(client.request("DELETE", POD.path("default", "web")))
        request = await server.next()
        request.refuse(429, "TooManyRequests", "busy", Retry_After="1")
        await clock.sleepers(seconds=1.0)
        lease.valid = False
        await clock.advance(1.0)
        with pytest.raises(NotLeadingError):
            await write
    assert len(server.seen) == 1


async def test_a_connection_whose_write_was_held_back_serves_the_next_request() -> None:
    lease = Lease()
    async with (
        ApiServer(lambda request: request.reply({})) as server,
        ApiClient(Connection(server.url), may_write=lease) as client,
    ):
        await client.request("GET", "/version")
        lease.valid = False
        with pytest.raises(NotLeadingError):
            await client.request("DELETE", POD.path("default", "web"))
        await client.request("GET", "/version")
    assert len({request.peer for request in server.seen}) == 1
    assert len(server.seen) == 2
