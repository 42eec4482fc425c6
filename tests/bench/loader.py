"""Creates objects many at a time: the stage has to stand quickly, and is not what is measured."""

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from http import HTTPStatus

import aiohttp
import orjson

from bench.objects import Creation
from controlplane import Access
from controlplane.access import ADMIN
from controlplane.errors import ControlPlaneError

__all__ = ["create"]

IN_FLIGHT = 64
PATIENCE_SECONDS = 0.1
"""Before a creation that the busy server sent away is tried again."""


def create(access: Access, creations: Iterable[Creation]) -> None:
    """Create every object, in about the order given.

    Raises:
        ControlPlaneError: for the first object that the server refuses.
    """
    asyncio.run(_create(access, iter(creations)))


async def _create(access: Access, creations: Iterator[Creation]) -> None:
    headers = {
        "Authorization": f"Bearer {access.tokens[ADMIN]}",
        "Content-Type": "application/json",
    }
    tls = ssl.create_default_context(cafile=str(access.ca_file))
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT, ssl=tls)
    async with aiohttp.ClientSession(access.url, headers=headers, connector=connector) as session:
        # One refusal is enough to say; the TaskGroup would wrap it in a group.
        workers = [asyncio.create_task(_work(session, creations)) for _ in range(IN_FLIGHT)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()


async def _work(session: aiohttp.ClientSession, creations: Iterator[Creation]) -> None:
    for path, body in creations:
        await _post(session, path, orjson.dumps(body))


async def _post(session: aiohttp.ClientSession, path: str, body: bytes) -> None:
    while True:
        async with session.post(path, data=body) as response:
            answer = await response.read()
        if response.ok:
            return
        if response.status != HTTPStatus.TOO_MANY_REQUESTS:
            message = orjson.loads(answer).get("message", answer)
            raise ControlPlaneError(f"loading {path}: {response.status}: {message}")
        await asyncio.sleep(PATIENCE_SECONDS)
