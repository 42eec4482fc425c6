"""What kopf is given to talk with, and that nothing of it is left when it stops."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from certificates import Authority
from controlplane.processes import free_ports
from kube.api_server import ApiServer
from mooring.handlers.sessions import KopfSessions
from mooring.kube.config import Connection
from mooring.kube.credentials import Credentials, NoToken
from mooring.kube.resources import POD, PRIORITY_CLASS, SCHEDULING_PROFILE, Resource


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as running:
        yield running


class Watches:
    """What was told of kopf's watches."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def __call__(self, path: str, *, accepted: bool) -> None:
        self.told.append((path, accepted))


async def no_pods(pods: list[dict[str, Any]]) -> None:
    """Takes the pods of lists of which a test has none."""
    assert pods == []


@pytest.fixture
def watches() -> Watches:
    return Watches()


@pytest.fixture
def sessions(server: ApiServer, watches: Watches) -> KopfSessions:
    connection = Connection(f"{server.url}/base", Credentials(NoToken(), "Bearer secret"))
    return KopfSessions(connection, watches, no_pods)


async def session_of(sessions: KopfSessions) -> aiohttp.ClientSession:
    session = (await sessions.log_in()).aiohttp_session
    assert session is not None
    return session


async def test_requests_carry_our_credentials_and_name(
    server: ApiServer, sessions: KopfSessions
) -> None:
    session = await session_of(sessions)
    answer = asyncio.create_task(session.get(f"{server.url}/version"))
    request = await server.next()
    request.reply({})
    (await answer).release()
    await sessions.close()
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["User-Agent"] == "mooring"


async def test_a_watch_is_told_when_it_is_sent_and_when_the_server_accepts_it(
    server: ApiServer, sessions: KopfSessions, watches: Watches
) -> None:
    session = await session_of(sessions)
    for status, told in ((503, []), (200, [("/pods", True)])):
        watches.told.clear()
        asking = asyncio.create_task(session.get(f"{server.url}/base/pods?watch=true"))
        request = await server.next()
        assert watches.told == [("/pods", False)]
        request.reply({}, status)
        (await asking).release()
        assert watches.told[1:] == told
    await sessions.close()


async def test_a_cancelled_request_is_finished_and_then_hung_up_on(
    server: ApiServer, sessions: KopfSessions
) -> None:
    session = await session_of(sessions)
    asking = asyncio.create_task(session.get(f"{server.url}/watch"))
    request = await server.next()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert not request.gone.is_set()
    request.send_bytes(b"too late")
    await request.gone.wait()
    await sessions.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_without_a_valid_lease_no_write_is_sent(
    server: ApiServer, watches: Watches, method: str
) -> None:
    sessions = KopfSessions(Connection(server.url), watches, no_pods, lambda: False)
    session = await session_of(sessions)
    with pytest.raises(aiohttp.ClientConnectionError, match="lease of this replica is not valid"):
        await session.request(method, f"{server.url}{SCHEDULING_PROFILE.path()}")
    await sessions.close()
    assert server.seen == []


async def test_without_a_valid_lease_kopf_reads_on(server: ApiServer, watches: Watches) -> None:
    sessions = KopfSessions(Connection(server.url), watches, no_pods, lambda: False)
    session = await session_of(sessions)
    asking = asyncio.create_task(session.get(f"{server.url}/version"))
    (await server.next()).reply({})
    (await asking).release()
    await sessions.close()


async def test_a_lease_that_is_lost_between_two_writes_stops_the_second(
    server: ApiServer, watches: Watches
) -> None:
    lease = True
    sessions = KopfSessions(Connection(server.url), watches, no_pods, lambda: lease)
    session = await session_of(sessions)
    writing = asyncio.create_task(session.patch(f"{server.url}/one"))
    (await server.next()).reply({})
    (await writing).release()
    lease = False
    with pytest.raises(aiohttp.ClientConnectionError):
        await session.patch(f"{server.url}/two")
    await sessions.close()
    assert [request.path for request in server.seen] == ["/one"]


async def test_the_lease_is_checked_after_the_connection_has_been_waited_for(
    watches: Watches,
) -> None:
    looks = count()
    (port,) = free_ports(1)
    sessions = KopfSessions(Connection("http://unused"), watches, no_pods, lambda: next(looks) < 0)
    session = await session_of(sessions)
    with pytest.raises(aiohttp.ClientConnectorError):
        await session.patch(f"http://127.0.0.1:{port}/one")
    await sessions.close()
    assert next(looks) == 0


async def test_watches_end_when_kopf_is_to_stop(server: ApiServer, sessions: KopfSessions) -> None:
    session = await session_of(sessions)
    asking = asyncio.create_task(session.get(f"{server.url}/pods?watch=true"))
    request = await server.next()
    request.send_bytes(b"first line\n")
    answer = await asking
    assert await answer.content.readline() == b"first line\n"
    sessions.hang_up()
    with pytest.raises(aiohttp.ClientConnectionError):
        await answer.content.readline()
    await request.gone.wait()
    await sessions.close()


async def test_the_answer_to_a_write_can_be_read_when_kopf_is_to_stop(
    server: ApiServer, sessions: KopfSessions
) -> None:
    session = await session_of(sessions)
    path = SCHEDULING_PROFILE.path(name="web")
    asking = asyncio.create_task(session.patch(f"{server.url}{path}"))
    request = await server.next()
    request.send_bytes(b'{"kind":')
    answer = await asking
    sessions.hang_up()
    request.send_bytes(b'"SchedulingProfile"}')
    request.end()
    assert await answer.json() == {"kind": "SchedulingProfile"}
    await sessions.close()


@asynccontextmanager
async def silent_server(folder: Path) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    """A TLS server that begins an answer and then neither writes nor reads; its port."""
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
    """Closing its connection would wait for the server's farewell, which does not come."""
    async with silent_server(tmp_path) as (port, trusting):
        url = f"https://127.0.0.1:{port}"
        sessions = KopfSessions(Connection(url, tls=trusting), watches, no_pods)
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
    server: ApiServer, sessions: KopfSessions
) -> None:
    session = await session_of(sessions)
    sessions.hang_up()
    asking = asyncio.create_task(session.get(f"{server.url}/pods?watch=true"))
    request = await server.next()
    request.send_bytes(b"first line\n")
    await asking
    await request.gone.wait()
    await sessions.close()


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


@pytest.mark.parametrize("query", ["", "?watch=true"])
@pytest.mark.parametrize("resource", [SCHEDULING_PROFILE, PRIORITY_CLASS])
async def test_what_is_nested_too_deeply_can_be_parsed(
    server: ApiServer, sessions: KopfSessions, query: str, resource: Resource
) -> None:
    session = await session_of(sessions)
    path = f"/base{resource.path()}"
    asking = asyncio.create_task(session.get(f"{server.url}{path}{query}"))
    request = await server.next()
    deep = b'{"object":' + b"[" * 5000 + b"]" * 5000 + b"}"
    request.send_bytes(deep + b'\n{"object":1}\n')
    request.end()
    answer = await asking
    body = b"".join([data async for data in answer.content.iter_chunked(1000)])
    first, second = (json.loads(line) for line in body.splitlines())
    assert first["object"]
    assert second == {"object": 1}
    await sessions.close()


async def test_pods_that_are_nested_too_deeply_can_be_parsed_in_lists_and_watches(
    server: ApiServer, watches: Watches
) -> None:
    listed = list[dict[str, Any]]()

    async def take(pods: list[dict[str, Any]]) -> None:
        listed.extend(pods)

    sessions = KopfSessions(Connection(server.url), watches, take)
    session = await session_of(sessions)
    deep = b'{"a":' * 5_000 + b"{}" + b"}" * 5_000
    asking = asyncio.create_task(session.get(f"{server.url}{POD.path()}"))
    request = await server.next()
    request.send_bytes(b'{"metadata":{},"items":[{"metadata":{"managedFields":%b}}]}' % deep)
    request.end()
    assert await (await asking).json() == {"metadata": {}, "items": []}
    assert [pod.keys() for pod in listed] == [{"metadata"}]
    asking = asyncio.create_task(session.get(f"{server.url}{POD.path()}?watch=true"))
    request = await server.next()
    request.send_bytes(b'{"object":%b}\n' % deep)
    request.end()
    (line,) = (await (await asking).read()).splitlines()
    assert json.loads(line)["object"]
    await sessions.close()


async def test_listed_pods_are_handed_over_and_kopf_gets_the_list_without_them(
    server: ApiServer, watches: Watches
) -> None:
    listed = list[dict[str, Any]]()

    async def take(pods: list[dict[str, Any]]) -> None:
        listed.extend(pods)

    sessions = KopfSessions(Connection(server.url), watches, take)
    session = await session_of(sessions)
    asking = asyncio.create_task(session.get(f"{server.url}{POD.path()}?limit=500"))
    metadata = {"resourceVersion": "7", "continue": "more"}
    (await server.next()).reply({"metadata": metadata, "items": [{"metadata": {"name": "web"}}]})
    assert await (await asking).json() == {"metadata": metadata, "items": []}
    assert listed == [{"metadata": {"name": "web"}}]
    await sessions.close()


async def test_pods_that_are_listed_after_a_watch_go_through_kopf_behind_what_the_watch_told(
    server: ApiServer, sessions: KopfSessions
) -> None:
    session = await session_of(sessions)
    path = f"{server.url}/base{POD.path()}"
    watching = asyncio.create_task(session.get(f"{path}?watch=true"))
    request = await server.next()
    request.send_bytes(b"{}")
    request.end()
    (await watching).release()
    asking = asyncio.create_task(session.get(path))
    (await server.next()).reply({"items": [{"metadata": {"name": "web"}}]})
    assert await (await asking).json() == {"items": [{"metadata": {"name": "web"}}]}
    await sessions.close()


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b'{"kind":"PodList"}', b'{"items":null}'])
async def test_a_list_of_pods_that_is_none_is_kopfs_to_complain_about(
    server: ApiServer, sessions: KopfSessions, body: bytes
) -> None:
    session = await session_of(sessions)
    asking = asyncio.create_task(session.get(f"{server.url}/base{POD.path()}"))
    request = await server.next()
    request.send_bytes(body)
    request.end()
    assert await (await asking).read() in (body, b'{"items":[]}')
    await sessions.close()


async def test_a_watch_of_pods_reaches_kopf_as_it_is(
    server: ApiServer, sessions: KopfSessions
) -> None:
    session = await session_of(sessions)
    asking = asyncio.create_task(session.get(f"{server.url}/base{POD.path()}?watch=true"))
    request = await server.next()
    request.send_bytes(b'{"type":"ADDED","items":[1]}\n')
    request.end()
    assert await (await asking).read() == b'{"type":"ADDED","items":[1]}\n'
    await sessions.close()
