"""Makes the load of `bench.live` in a process of its own, to keep its CPU apart.

The process reads a `Load` as JSON from its input. It prints when it sent each pod's creation, by
name, or by uid if names return. Times are seconds of the monotonic clock, which all processes of a
machine share.
"""

import asyncio
import ssl
import sys
import time
from dataclasses import asdict, dataclass
from http import HTTPStatus
from random import Random
from typing import Any, Final

import aiohttp
import orjson

NAMES: Final = 60
"""How many names are used again and again for pods that are created, changed and deleted."""
LIVES: Final = (0.1, 2.0)
"""The shortest and the longest life of a pod with a returning name, in seconds."""
CHANGED: Final = 0.5
"""The share of these pods that get another label in the middle of their life."""
_AWAY: Final = {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}
"""Errors of a deletion if the scheduler has written to the pod first."""


@dataclass(frozen=True)
class Load:
    """The pods to create, and how fast."""

    url: str
    token: str
    ca_file: str
    path: str
    """The path of the pods of one namespace."""
    pods: list[dict[str, Any]]
    """The pods to create, in turn; every copy gets its own name."""
    seconds: float
    rate: float
    """Pods per second, each created alone; 0: pods with returning names instead."""
    most_cpus: int = 0
    """Pods with returning names request 1 to this number of whole CPUs; 0: all request the same."""

    def as_json(self) -> bytes:
        """Return the load as JSON for `main`."""
        return orjson.dumps(asdict(self))


def names_of(load: Load) -> list[str]:
    """Return the names of all pods that are created, without returning names."""
    return [f"live-{index:06}" for index in range(round(load.rate * load.seconds))]


class _Client:
    def __init__(self, session: aiohttp.ClientSession, load: Load) -> None:
        self._session = session
        self._load = load
        self.sent: dict[str, float] = {}

    async def create(self, name: str, number: int, cpus: int = 0) -> str:
        """Create a copy of the pod whose turn it is at this number; return the copy's uid."""
        pod = self._load.pods[number % len(self._load.pods)]
        body = {**pod, "metadata": {**pod["metadata"], "name": name}}
        if cpus:
            (container,) = body["spec"]["containers"]
            requests = {"requests": {"cpu": str(cpus)}}
            body["spec"] = {**body["spec"], "containers": [{**container, "resources": requests}]}
        self.sent[name] = time.monotonic()
        answer = orjson.loads(await self._call("POST", "", body))
        uid: str = answer["metadata"]["uid"]
        return uid

    async def change(self, name: str, value: str) -> None:
        await self._call("PATCH", f"/{name}", {"metadata": {"labels": {"changed": value}}})

    async def delete(self, name: str) -> None:
        await self._call("DELETE", f"/{name}", {"gracePeriodSeconds": 0})

    async def _call(self, method: str, rest: str, body: dict[str, Any]) -> str:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        path, data = f"{self._load.path}{rest}", orjson.dumps(body)
        headers = {"Content-Type": kind}
        async with self._session.request(method, path, data=data, headers=headers) as answer:
            text = await answer.text()
        if not answer.ok and (method == "POST" or answer.status not in _AWAY):
            raise RuntimeError(f"{method} {path}: {answer.status}: {text[:300]}")
        return text


async def _steady(client: _Client, load: Load) -> None:
    """Create pods at equal intervals, however long each creation takes."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as creations:
        for index, name in enumerate(names_of(load)):
            await asyncio.sleep(max(0.0, began + index / load.rate - time.monotonic()))
            creations.create_task(client.create(name, index))


async def _come_and_go(client: _Client, load: Load, number: int) -> dict[str, float]:
    """Create, change and delete pods of one name until the end; return creation times by uid."""
    random = Random(number)  # noqa: S311 - the same lives in each run
    name, sent = f"churn-{number:02}", dict[str, float]()
    end = time.monotonic() + load.seconds
    while time.monotonic() < end:
        cpus = random.randint(1, load.most_cpus) if load.most_cpus else 0
        uid = await client.create(name, number, cpus)
        sent[uid] = client.sent[name]
        life = random.uniform(*LIVES)
        await asyncio.sleep(life / 2)
        if random.random() < CHANGED:
            await client.change(name, str(len(sent)))
        await asyncio.sleep(life / 2)
        await client.delete(name)
    return sent


async def _run(load: Load) -> dict[str, Any]:
    tls = ssl.create_default_context(cafile=load.ca_file)
    headers = {"Authorization": f"Bearer {load.token}"}
    connector = aiohttp.TCPConnector(limit=0, ssl=tls)
    async with aiohttp.ClientSession(load.url, headers=headers, connector=connector) as session:
        client = _Client(session, load)
        if load.rate:
            await _steady(client, load)
            return {"created": len(client.sent), "sent": client.sent}
        lives = (_come_and_go(client, load, number) for number in range(NAMES))
        sent = {uid: at for one in await asyncio.gather(*lives) for uid, at in one.items()}
        return {"created": len(sent), "sent": sent}


def main() -> None:
    """Read the load, create its pods, and print the creation times."""
    sys.stdout.buffer.write(orjson.dumps(asyncio.run(_run(Load(**orjson.loads(sys.stdin.read()))))))


if __name__ == "__main__":
    main()
