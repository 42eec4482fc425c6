"""Writes many objects at a time, because the preparation of a run is not measured."""

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from pathlib import Path

import aiohttp
import orjson

from bench.objects import Creation
from controlplane import Access
from controlplane.access import ADMIN
from controlplane.errors import ControlPlaneError

IN_FLIGHT = 64
PATIENCE_SECONDS = 0.1
"""The seconds before the loader repeats a write for which the server was too busy."""


Write = tuple[str, str, object]
"""The method, the path and the body of a request."""

CONTENT_TYPES = {"PATCH": "application/merge-patch+json"}
"""The content type by method; all other methods send JSON."""


def create(access: Access, creations: Iterable[Creation]) -> None:
    """Create every object, roughly in the given order.

    Raises:
        ControlPlaneError: The server rejects an object; the error is about the first one.
    """
    asyncio.run(_write(access, (("POST", path, body) for path, body in creations)))


def patch(access: Access, changes: Iterable[Creation]) -> None:
    """Merge every change into the object at its path.

    Raises:
        ControlPlaneError: The server rejects a change; the error is about the first one.
    """
    asyncio.run(_write(access, (("PATCH", path, body) for path, body in changes)))


def session_to(url: str, token: str, ca_file: Path) -> aiohttp.ClientSession:
    """Return a client of the API server at the URL, with a connection for each parallel write."""
    tls = ssl.create_default_context(cafile=str(ca_file))
    return aiohttp.ClientSession(
        url,
        headers={"Authorization": f"Bearer {token}"},
        connector=aiohttp.TCPConnector(limit=IN_FLIGHT, ssl=tls),
        timeout=aiohttp.ClientTimeout(total=None),
    )


async def send(session: aiohttp.ClientSession, method: str, path: str, body: object) -> bytes:
    """Return the answer to the request; repeat it while the server is too busy.

    Raises:
        ControlPlaneError: The server rejects the request.
    """
    headers = {"Content-Type": CONTENT_TYPES.get(method, "application/json")}
    data = orjson.dumps(body)
    while True:
        async with session.request(method, path, data=data, headers=headers) as response:
            answer = await response.read()
        if response.ok:
            return answer
        if response.status != HTTPStatus.TOO_MANY_REQUESTS:
            message = orjson.loads(answer).get("message", answer)
            raise ControlPlaneError(f"loading {path}: {response.status}: {message}")
        await asyncio.sleep(PATIENCE_SECONDS)


async def _write(access: Access, writes: Iterator[Write]) -> None:
    async with session_to(access.url, access.tokens[ADMIN], access.ca_file) as session:
        # One refusal is enough to say; the TaskGroup would wrap it in a group.
        workers = [asyncio.create_task(_work(session, writes)) for _ in range(IN_FLIGHT)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()


async def _work(session: aiohttp.ClientSession, writes: Iterator[Write]) -> None:
    for method, path, body in writes:
        await send(session, method, path, body)
