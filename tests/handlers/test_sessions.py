"""What kopf is given to talk with, and that nothing of it is left when it stops."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from kube.api_server import ApiServer
from mooring.handlers.sessions import KopfSessions
from mooring.kube.config import Connection
from mooring.kube.credentials import Credentials, NoToken


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


@pytest.fixture
def watches() -> Watches:
    return Watches()


@pytest.fixture
def sessions(server: ApiServer, watches: Watches) -> KopfSessions:
    connection = Connection(f"{server.url}/base", Credentials(NoToken(), "Bearer secret"))
    return KopfSessions(connection, watches)


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


async def test_open_answers_end_when_kopf_is_to_stop(
    server: ApiServer, sessions: KopfSessions
) -> None:
    session = await session_of(sessions)
    asking = asyncio.create_task(session.get(f"{server.url}/watch"))
    request = await server.next()
    request.send_bytes(b"first line\n")
    answer = await asking
    assert await answer.content.readline() == b"first line\n"
    sessions.hang_up()
    with pytest.raises(aiohttp.ClientConnectionError):
        await answer.content.readline()
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
