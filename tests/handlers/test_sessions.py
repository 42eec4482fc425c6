"""The HTTP sessions that kopf gets, and their complete end when kopf stops."""

import asyncio
import json
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from certificates import Authority
from controlplane.processes import free_ports
from kube.api_server import ApiServer, Request
from kube.refusing_proxy import refusing_proxy
from memory import collections_of_garbage
from mooring.handlers.bursts import PodEventFilter
from mooring.handlers.sessions import BOOKMARK_EVENTS, MOST_GARBAGE_BYTES, KopfSessions
from mooring.kube.api_resources import POD, PRIORITY_CLASS, SCHEDULING_PROFILE, Resource
from mooring.kube.config import Connection
from mooring.kube.credentials import Credentials, NoToken

WEB: dict[str, Any] = {"metadata": {"name": "web", "uid": "u1", "resourceVersion": "1"}}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


class Watches:
    """Records the calls of `OnWatch`."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def __call__(self, path: str, *, accepted: bool) -> None:
        self.told.append((path, accepted))


async def no_pods(pods: list[dict[str, Any]]) -> None:
    """Check that the list has no pods."""
    assert pods == []


async def no_pod(event: Mapping[str, Any]) -> None:
    """Fail, because the test expects no event of a pod."""
    pytest.fail(f"unexpected: {event}")


@pytest.fixture
def watches() -> Watches:
    return Watches()


@pytest.fixture
def sessions(server: ApiServer, watches: Watches) -> KopfSessions:
    connection = Connection(f"{server.url}/base", Credentials(NoToken(), "Bearer secret"))
    return KopfSessions(connection, watches, no_pods, PodEventFilter(no_pod))


@pytest.fixture
async def session(sessions: KopfSessions) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session as kopf gets it; close all sessions at the end of the test."""
    yield await session_of(sessions)
    await sessions.close()


Kopf = Callable[..., Awaitable[aiohttp.ClientSession]]


@pytest.fixture
async def kopf(server: ApiServer, watches: Watches) -> AsyncIterator[Kopf]:
    """Yield a function that makes a session for kopf, with other arguments of `KopfSessions`."""
    made = list[KopfSessions]()

    async def begin(
        connection: Connection | None = None,
        pods: Callable[[list[dict[str, Any]]], Awaitable[None]] = no_pods,
        bursts: PodEventFilter | None = None,
        **more: Any,
    ) -> aiohttp.ClientSession:
        to = connection or Connection(server.url)
        made.append(KopfSessions(to, watches, pods, bursts or PodEventFilter(no_pod), **more))
        return await session_of(made[-1])

    yield begin
    for sessions in made:
        await sessions.close()


async def session_of(sessions: KopfSessions) -> aiohttp.ClientSession:
    session = (await sessions.log_in()).aiohttp_session
    assert session is not None
    return session


async def test_requests_carry_our_credentials_and_name(
    server: ApiServer, session: aiohttp.ClientSession
) -> None:
    answer = asyncio.create_task(session.get(f"{server.url}/version"))
    request = await server.next()
    request.reply({})
    (await answer).release()
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["User-Agent"] == "mooring"


class Tokens:
    """A TokenSource that gives the next token after each refusal, until only one is left."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)

    async def current(self) -> str:
        return self._tokens[0]

    async def replaced(self) -> str:
        if len(self._tokens) > 1:
            self._tokens.pop(0)
        return self._tokens[0]


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_a_refused_token_is_renewed_and_kopf_does_not_notice(
    server: ApiServer, kopf: Kopf, method: str
) -> None:
    credentials = Credentials(Tokens("old", "new"), "old")
    session = await kopf(Connection(server.url, credentials))
    asking = asyncio.create_task(session.request(method, f"{server.url}/one", json={"a": 1}))
    first = await server.next()
    first.refuse(401, "Unauthorized", "Unauthorized")
    second = await server.next()
    second.reply({"kind": "Status"})
    assert (await asking).status == 200
    assert [first.headers["Authorization"], second.headers["Authorization"]] == ["old", "new"]
    assert second.body == {"a": 1}


@pytest.mark.parametrize("tokens", [("old",), ("old", "new")])
async def test_credentials_that_the_server_does_not_know_are_an_error_that_kopf_tries_again(
    server: ApiServer, kopf: Kopf, tokens: tuple[str, ...]
) -> None:
    credentials = Credentials(Tokens(*tokens), "old")
    session = await kopf(Connection(server.url, credentials))
    asking = asyncio.create_task(session.get(f"{server.url}{POD.path()}?watch=true"))
    for _ in tokens:
        (await server.next()).refuse(401, "Unauthorized", "Unauthorized")
    words = "knows no user by the credentials for watch pods; renew the token"
    with pytest.raises(aiohttp.ClientConnectionError, match=words):
        await asking


async def test_a_proxy_that_refuses_is_an_error_that_kopf_tries_again_and_logs_without_password(
    kopf: Kopf,
) -> None:
    async with refusing_proxy() as proxy:
        connection = Connection("https://api.invalid", proxy=proxy)
        session = await kopf(connection)
        with pytest.raises(aiohttp.ClientConnectionError, match="the proxy answers 407") as failure:
            await session.get(f"{connection.url}{POD.path()}")
    assert "secret" not in "".join(traceback.format_exception(failure.value))


async def test_a_connection_that_ends_amid_data_is_not_taken_for_the_end_of_the_session(
    server: ApiServer, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended(_request: aiohttp.ClientRequest, _connection: Any) -> aiohttp.ClientResponse:
        raise aiohttp.ClientOSError(1, "[SSL: APPLICATION_DATA_AFTER_CLOSE_NOTIFY] (_ssl.c:2702)")

    monkeypatch.setattr(aiohttp.ClientRequest, "send", ended)
    with pytest.raises(aiohttp.ClientConnectionError, match=r"^the connection was closed$"):
        await session.get(f"{server.url}/one")


async def test_a_watch_whose_last_event_was_malformed_is_accepted_with_its_next_event(
    server: ApiServer, watches: Watches, kopf: Kopf
) -> None:
    """Otherwise a replica would seem ready although its watch fails again and again."""
    pauses = list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    session = await kopf(sleep=sleep)
    path = SCHEDULING_PROFILE.path()
    good = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'
    for body, accepted, pauses_before in (
        (b"5\n", True, 0),
        (b"5\n", False, 1),
        (good, False, 2),
        (good, True, 2),
    ):
        watches.told.clear()
        asking = asyncio.create_task(session.get(f"{server.url}{path}?watch=true"))
        request = await server.next()
        request.send_bytes(b"\n")
        answer = await asking
        assert watches.told == [(path, False), *[(path, True)] * accepted]
        assert len(pauses) == pauses_before
        request.send_bytes(body)
        request.end()
        if body is good:
            assert [data async for data in answer.content.iter_chunked(1000)] == [good]
            assert watches.told == [(path, False), (path, True)]
        else:
            with pytest.raises(aiohttp.ClientPayloadError, match="is malformed: it must be an obj"):
                [data async for data in answer.content.iter_chunked(1000)]
            answer.close()
    assert pauses[0] <= 0.8 < 2 * pauses[1]


async def test_a_watch_is_told_when_it_is_sent_and_when_the_server_accepts_it(
    server: ApiServer, session: aiohttp.ClientSession, watches: Watches
) -> None:
    for status, told in ((503, []), (200, [("/pods", True)])):
        watches.told.clear()
        asking = asyncio.create_task(session.get(f"{server.url}/base/pods?watch=true"))
        request = await server.next()
        assert watches.told == [("/pods", False)]
        request.reply({}, status)
        (await asking).release()
        assert watches.told[1:] == told


async def test_a_cancelled_request_is_finished_and_then_hung_up_on(
    server: ApiServer, session: aiohttp.ClientSession
) -> None:
    asking = asyncio.create_task(session.get(f"{server.url}/watch"))
    request = await server.next()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert not request.gone.is_set()
    request.send_bytes(b"too late")
    await request.gone.wait()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_without_a_valid_lease_no_write_is_sent(
    server: ApiServer, kopf: Kopf, method: str
) -> None:
    session = await kopf(may_write=lambda: False)
    with pytest.raises(aiohttp.ClientConnectionError, match="lease of this replica is not valid"):
        await session.request(method, f"{server.url}{SCHEDULING_PROFILE.path()}")
    assert server.seen == []


async def test_without_a_valid_lease_kopf_reads_on(server: ApiServer, kopf: Kopf) -> None:
    session = await kopf(may_write=lambda: False)
    asking = asyncio.create_task(session.get(f"{server.url}/version"))
    (await server.next()).reply({})
    (await asking).release()


async def test_a_lease_that_is_lost_between_two_writes_stops_the_second(
    server: ApiServer, kopf: Kopf
) -> None:
    lease = True
    session = await kopf(may_write=lambda: lease)
    writing = asyncio.create_task(session.patch(f"{server.url}/one"))
    (await server.next()).reply({})
    (await writing).release()
    lease = False
    with pytest.raises(aiohttp.ClientConnectionError):
        await session.patch(f"{server.url}/two")
    assert [request.path for request in server.seen] == ["/one"]


async def test_the_lease_is_checked_after_the_connection_has_been_waited_for(
    kopf: Kopf,
) -> None:
    looks = count()
    (port,) = free_ports(1)
    session = await kopf(Connection("http://unused"), may_write=lambda: next(looks) < 0)
    with pytest.raises(aiohttp.ClientConnectorError):
        await session.patch(f"http://127.0.0.1:{port}/one")
    assert next(looks) == 0


async def test_watches_end_when_kopf_is_to_stop(
    server: ApiServer, sessions: KopfSessions, session: aiohttp.ClientSession
) -> None:
    asking = asyncio.create_task(session.get(f"{server.url}/pods?watch=true"))
    request = await server.next()
    request.send_bytes(b"first line\n")
    answer = await asking
    assert await answer.content.readline() == b"first line\n"
    sessions.hang_up()
    with pytest.raises(aiohttp.ClientConnectionError):
        await answer.content.readline()
    await request.gone.wait()


async def test_the_answer_to_a_write_can_be_read_when_kopf_is_to_stop(
    server: ApiServer, sessions: KopfSessions, session: aiohttp.ClientSession
) -> None:
    path = SCHEDULING_PROFILE.path(name="web")
    asking = asyncio.create_task(session.patch(f"{server.url}{path}"))
    request = await server.next()
    request.send_bytes(b'{"kind":')
    answer = await asking
    sessions.hang_up()
    request.send_bytes(b'"SchedulingProfile"}')
    request.end()
    assert await answer.json() == {"kind": "SchedulingProfile"}


@asynccontextmanager
async def silent_server(folder: Path) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    """Serve TLS, and stop in the middle of each answer; yield the port and the client's context."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        await ended.wait()
        writer.transport.abort()

    authority = Authority()
    pair = authority.server()
    (folder / "pair.pem").write_bytes(pair.key + pair.certificate)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(folder / "pair.pem")
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    server = await asyncio.start_server(serve, "127.0.0.1", ssl=own)
    async with server:
        yield server.sockets[0].getsockname()[1], trusting
        ended.set()


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("is_late", [True, False])
async def test_an_answer_that_never_ends_does_not_hold_up_the_end(
    watches: Watches, tmp_path: Path, *, is_read: bool, is_late: bool
) -> None:
    """Closing the connection normally would wait for the server, which never answers."""
    async with silent_server(tmp_path) as (port, trusting):
        url = f"https://127.0.0.1:{port}"
        sessions = KopfSessions(
            Connection(url, tls=trusting), watches, no_pods, PodEventFilter(no_pod)
        )
        session = await session_of(sessions)
        if is_late:
            sessions.hang_up()
        answer = await session.get(f"{url}/pods")
        if not is_late:
            sessions.hang_up()
        connection = answer.connection
        assert connection is not None
        assert connection.transport is not None
        socket = connection.transport.get_extra_info("socket")
        reading = asyncio.create_task(answer.read() if is_read else asyncio.sleep(0))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await sessions.close()
        for _ in range(10):  # asyncio closes an aborted socket some turns later
            await asyncio.sleep(0)
        assert socket.fileno() == -1


async def test_a_watch_that_is_accepted_while_kopf_ends_is_hung_up_on(
    server: ApiServer, sessions: KopfSessions, session: aiohttp.ClientSession
) -> None:
    sessions.hang_up()
    asking = asyncio.create_task(session.get(f"{server.url}/pods?watch=true"))
    request = await server.next()
    request.send_bytes(b"first line\n")
    await asking
    await request.gone.wait()


async def test_a_request_without_an_answer_does_not_hold_up_the_end(
    server: ApiServer, sessions: KopfSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.handlers.sessions._LAST_SECONDS", 0.01)
    session = await session_of(sessions)
    asking = asyncio.create_task(session.get(f"{server.url}/watch"))
    request = await server.next()
    asking.cancel()
    await sessions.close()
    await request.gone.wait()
    await asyncio.gather(asking, return_exceptions=True)


DEEP = b'{"metadata":{"name":"a","uid":"1","resourceVersion":"1"},"spec":%b}' % (
    b"[" * 5000 + b"]" * 5000
)


@pytest.mark.parametrize("resource", [SCHEDULING_PROFILE, PRIORITY_CLASS])
async def test_a_watch_of_objects_that_are_nested_too_deeply_can_be_parsed(
    server: ApiServer, session: aiohttp.ClientSession, resource: Resource
) -> None:
    path = f"/base{resource.path()}"
    asking = asyncio.create_task(session.get(f"{server.url}{path}?watch=true"))
    request = await server.next()
    request.send_bytes(b'{"type":"ADDED","object":%b}\n' % DEEP)
    request.send_bytes(b'{"type":"ERROR","object":{"code":410}}\n')
    request.end()
    answer = await asking
    body = b"".join([data async for data in answer.content.iter_chunked(1000)])
    first, second = (json.loads(line) for line in body.splitlines())
    assert first["object"]["spec"]
    assert second == {"type": "ERROR", "object": {"code": 410}}


@pytest.mark.parametrize("resource", [SCHEDULING_PROFILE, PRIORITY_CLASS])
async def test_a_list_of_objects_that_are_nested_too_deeply_can_be_parsed(
    server: ApiServer, session: aiohttp.ClientSession, resource: Resource
) -> None:
    asking = asyncio.create_task(session.get(f"{server.url}/base{resource.path()}"))
    (await server.next()).reply(b'{"metadata":{"resourceVersion":"7"},"items":[%b]}' % DEEP)
    [profile] = (await (await asking).json())["items"]
    assert profile["metadata"]["name"] == "a"


async def test_pods_that_are_nested_too_deeply_can_be_parsed_in_lists_and_watches(
    server: ApiServer, kopf: Kopf
) -> None:
    listed = list[dict[str, Any]]()

    async def take(pods: list[dict[str, Any]]) -> None:
        listed.extend(pods)

    session = await kopf(pods=take)
    asking = asyncio.create_task(session.get(f"{server.url}{POD.path()}"))
    request = await server.next()
    request.send_bytes(b'{"metadata":{"resourceVersion":"7"},"items":[%b]}' % DEEP)
    request.end()
    assert await (await asking).json() == {"metadata": {"resourceVersion": "7"}, "items": []}
    assert [pod["metadata"]["name"] for pod in listed] == ["a"]
    asking = asyncio.create_task(session.get(f"{server.url}{POD.path()}?watch=true"))
    request = await server.next()
    request.send_bytes(b'{"type":"ADDED","object":%b}\n' % DEEP)
    request.end()
    answer = await asking
    (line,) = b"".join([data async for data in answer.content.iter_chunked(1000)]).splitlines()
    assert json.loads(line)["object"]


async def test_listed_pods_are_handed_over_and_kopf_gets_the_list_without_them(
    server: ApiServer, kopf: Kopf
) -> None:
    listed = list[dict[str, Any]]()

    async def take(pods: list[dict[str, Any]]) -> None:
        listed.extend(pods)

    session = await kopf(pods=take)
    asking = asyncio.create_task(session.get(f"{server.url}{POD.path()}?limit=500"))
    metadata = {"resourceVersion": "7", "continue": "more"}
    (await server.next()).reply({"metadata": metadata, "items": [WEB]})
    assert await (await asking).json() == {"metadata": metadata, "items": []}
    assert listed == [WEB]


@pytest.mark.parametrize("resource", [POD, SCHEDULING_PROFILE])
async def test_a_list_without_objects_is_told_because_kopf_tells_no_handler_of_it(
    server: ApiServer, kopf: Kopf, resource: Resource
) -> None:
    told = list[list[dict[str, Any]]]()

    async def take(pods: list[dict[str, Any]]) -> None:
        told.append(pods)

    session = await kopf(pods=take)
    watching = asyncio.create_task(session.get(f"{server.url}{resource.path()}?watch=true"))
    request = await server.next()
    request.send_bytes(b"{}")
    request.end()
    (await watching).release()
    asking = asyncio.create_task(session.get(f"{server.url}{resource.path()}"))
    page = {"metadata": {"resourceVersion": "7"}, "items": []}
    (await server.next()).reply(page)
    assert await (await asking).json() == page
    assert told == [[]]


async def test_pods_that_are_listed_after_a_watch_go_through_kopf_behind_what_the_watch_told(
    server: ApiServer, session: aiohttp.ClientSession
) -> None:
    path = f"{server.url}/base{POD.path()}"
    watching = asyncio.create_task(session.get(f"{path}?watch=true"))
    request = await server.next()
    request.send_bytes(b"{}")
    request.end()
    (await watching).release()
    asking = asyncio.create_task(session.get(path))
    page = {"metadata": {"resourceVersion": "7"}, "items": [WEB]}
    (await server.next()).reply(page)
    assert await (await asking).json() == page


async def test_what_a_watch_tells_of_pods_that_kopf_was_shown_does_not_overtake_the_list(
    server: ApiServer, kopf: Kopf
) -> None:
    """When the watch begins, kopf may not have handled the pods of the list yet."""
    past_kopf = list[str]()

    async def take(event: Mapping[str, Any]) -> None:
        past_kopf.append(event["object"]["metadata"]["uid"])

    bursts = PodEventFilter(take, lambda: 0.0)
    session = await kopf(bursts=bursts)
    path = f"{server.url}{POD.path()}"

    async def watch(*lines: dict[str, Any]) -> list[str]:
        """Send these events in a watch; return the uids of the pods that kopf gets."""
        asking = asyncio.create_task(session.get(f"{path}?watch=true"))
        request = await server.next()
        request.send_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        request.end()
        body = b"".join([data async for data in (await asking).content.iter_chunked(1000)])
        shown = map(orjson.loads, body.splitlines())
        return [each["object"]["metadata"].get("uid", each["type"]) for each in shown]

    assert await watch() == []
    for query, uid in (("?limit=1", "a"), ("?limit=1&continue=more", "b")):
        asking = asyncio.create_task(session.get(path + query))
        page = {"metadata": {"resourceVersion": "7"}, "items": [pod_event(uid, "7")["object"]]}
        (await server.next()).reply(page)
        assert await (await asking).json() == page
    told = [pod_event(uid, "8") for uid in ("first", "a", "b", "new")]
    assert await watch(*told) == ["first", "a", "b", "BOOKMARK"]
    assert past_kopf == ["new"]


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b'{"kind":"PodList"}', b'{"items":5}'])
async def test_a_list_of_pods_that_is_none_is_a_broken_answer(
    server: ApiServer, session: aiohttp.ClientSession, body: bytes
) -> None:
    asking = asyncio.create_task(session.get(f"{server.url}/base{POD.path()}"))
    (await server.next()).reply(body)
    with pytest.raises(aiohttp.ClientPayloadError, match="kopf's list of pods is malformed: "):
        await (await asking).read()


async def test_an_unfinished_event_at_the_end_of_a_watch_is_left_out(
    server: ApiServer, session: aiohttp.ClientSession
) -> None:
    """The next watch begins after the last whole event, so the server repeats the other one."""
    asking = asyncio.create_task(session.get(f"{server.url}/base{POD.path()}?watch=true"))
    request = await server.next()
    whole = orjson.dumps({"type": "ADDED", "object": WEB}) + b"\n"
    request.send_bytes(whole + whole[:-10])
    request.end()
    answer = await asking
    assert [data async for data in answer.content.iter_chunked(1000)] == [whole]


def pod_event(uid: str, version: str) -> dict[str, Any]:
    return {
        "type": "ADDED",
        "object": {"metadata": {"name": uid, "uid": uid, "resourceVersion": version}},
    }


def bookmark_line(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


@asynccontextmanager
async def watch_of_bursts(
    server: ApiServer, watches: Watches
) -> AsyncIterator[tuple[Request, AsyncIterator[bytes], list[str]]]:
    """Yield both sides of a watch of pods, and the list of versions that bypass kopf."""
    told = list[str]()

    async def take(event: Mapping[str, Any]) -> None:
        told.append(event["object"]["metadata"]["resourceVersion"])

    bursts = PodEventFilter(take, lambda: 0.0)
    sessions = KopfSessions(Connection(server.url), watches, no_pods, bursts)
    session = await session_of(sessions)
    asking = asyncio.create_task(session.get(f"{server.url}{POD.path()}?watch=true"))
    request = await server.next()
    request.send(pod_event("first", "1"))
    yield request, (await asking).content.iter_chunked(1 << 20), told
    await sessions.close()


async def test_kopf_gets_one_bookmark_behind_the_events_that_went_past_it_when_the_watch_ends(
    server: ApiServer, watches: Watches
) -> None:
    async with watch_of_bursts(server, watches) as (request, kopfs, told):
        lines = [orjson.loads(await anext(kopfs))]
        for version in range(2, 5):
            request.send(pod_event(f"p{version}", str(version)))
        request.end()
        lines += [orjson.loads(line) async for line in kopfs]
    assert lines == [pod_event("first", "1"), bookmark_line(4)]
    assert told == ["2", "3", "4"]


@pytest.mark.parametrize("breaks", [lambda it: it.send_bytes(b"{}\n"), Request.cut])
async def test_kopf_gets_the_bookmark_before_the_error_of_a_watch_that_breaks_off(
    server: ApiServer, watches: Watches, breaks: Callable[[Request], None]
) -> None:
    async with watch_of_bursts(server, watches) as (request, kopfs, told):
        await anext(kopfs)
        request.send(pod_event("a", "2"), pod_event("b", "3"))
        next_line = asyncio.ensure_future(anext(kopfs))
        while len(told) < 2:  # noqa: ASYNC110 - the parts have no event for every state
            await asyncio.sleep(0)
        breaks(request)
        assert orjson.loads(await next_line) == bookmark_line(3)
        with pytest.raises(aiohttp.ClientPayloadError):
            await anext(kopfs)


async def test_what_kopf_is_shown_is_no_bookmark_behind(
    server: ApiServer, watches: Watches
) -> None:
    """An event that kopf gets states the version, so that no bookmark is needed."""
    async with watch_of_bursts(server, watches) as (request, kopfs, told):
        await anext(kopfs)
        request.send(pod_event("a", "2"), pod_event("first", "3"))
        request.end()
        assert [orjson.loads(line) async for line in kopfs] == [pod_event("first", "3")]
    assert told == ["2"]


async def test_kopf_gets_a_bookmark_after_many_events_that_went_past_it(
    server: ApiServer, watches: Watches
) -> None:
    """If kopf itself closes a silent watch, it cannot get the bookmark at the watch's end."""
    async with watch_of_bursts(server, watches) as (request, kopfs, told):
        await anext(kopfs)
        last = 2 + BOOKMARK_EVENTS
        request.send(*(pod_event("a", str(version)) for version in range(2, last + 1)))
        assert orjson.loads(await anext(kopfs)) == bookmark_line(last - 1)
    assert len(told) == BOOKMARK_EVENTS


@pytest.mark.parametrize(("size", "collected"), [(2**20, [1, 1]), (2**13, [])])
async def test_garbage_of_large_objects_is_collected_by_their_bytes(
    server: ApiServer, session: aiohttp.ClientSession, size: int, collected: list[int]
) -> None:
    asking = asyncio.create_task(session.get(f"{server.url}/base{POD.path()}?watch=true"))
    request = await server.next()
    large = {**WEB, "spec": {"nodeName": "x" * size}}
    line = orjson.dumps({"type": "MODIFIED", "object": large}) + b"\n"
    request.send_bytes(line * (2 * MOST_GARBAGE_BYTES // len(line) + 1))
    request.end()
    answer = await asking
    with collections_of_garbage() as generations:
        async for _ in answer.content.iter_chunked(2**16):
            pass
    assert generations == collected
