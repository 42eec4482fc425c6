"""One replica as a whole, without a cluster worth the name; with one: tests/e2e."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from certificates import insecure
from controlplane.processes import free_ports
from kube.api_server import ApiServer
from mooring.app import Scheduler
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.settings import RunSettings

SECONDS = 20.0


@asynccontextmanager
async def replica(server: ApiServer) -> AsyncIterator[tuple[str, asyncio.Task[int]]]:
    """The address of a running replica's endpoints, and the replica."""
    (port,) = free_ports(1)
    settings = RunSettings(leader_elect=False, bind_address="127.0.0.1", secure_port=port)
    connection = Connection(server.url)
    async with ApiClient(connection) as client:
        running = asyncio.create_task(Scheduler(settings, connection, client).run())
        try:
            yield f"https://127.0.0.1:{port}", running
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().remove_signal_handler(number)


async def answer(url: str) -> tuple[int, str]:
    """The endpoint's answer, as soon as there is one."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(SECONDS):
        while True:
            try:
                async with session.get(url, ssl=insecure()) as response:
                    return response.status, await response.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.01)


async def test_a_replica_that_has_not_seen_the_cluster_lives_but_is_not_ready() -> None:
    refusing = ApiServer(lambda request: request.refuse(500, "InternalError", "no etcd"))
    async with refusing as server, replica(server) as (url, running):
        assert (await answer(f"{url}/livez"))[0] == 200
        status, words = await answer(f"{url}/readyz?verbose")
        assert status == 500
        assert "not listed yet" in words
        assert not running.done()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await running == 0
