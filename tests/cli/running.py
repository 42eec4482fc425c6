"""Serves the endpoints of a scheduler, and runs commands against these endpoints."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import yaml
from click.testing import CliRunner, Result

from certificates import Authority
from mooring.observe.tls import ServingTls
from served_endpoints import EVERYTHING, LOOPBACK, Rights, endpoints

AUTHORITY = Authority()


class Running:
    """The URL of a scheduler's endpoints, their CA, and kubeconfigs for users."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(AUTHORITY.certificate)

    def kubeconfig(self, server: str = "http://127.0.0.1:1", user: str = "ann") -> str:
        return kubeconfig_of(self._folder, server, user)

    async def answer(self, command: click.Command, *words: str, user: str = "ann") -> Result:
        """Run the command as `user`, with the options for the server and its CA."""
        return await ask(
            command,
            *words,
            f"--server={self.url}",
            f"--certificate-authority={self.ca}",
            f"--kubeconfig={self.kubeconfig(user=user)}",
        )


def kubeconfig_of(folder: Path, server: str, user: str = "ann") -> str:
    """Write a kubeconfig for this API server into the folder, and return its path."""
    path = folder / "kubeconfig"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": user}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def ask(command: click.Command, *words: str) -> Result:
    """Run the command in a thread, so that the event loop can serve the endpoints."""
    return await asyncio.to_thread(CliRunner().invoke, command, list(words))


class _Pending:
    """Pending pods; the answers are the same for every user."""

    def __init__(self, groups: Mapping[str, Any]) -> None:
        self._groups = groups

    def largest_namespaces(self) -> list[str]:
        return []

    def groups(self, _visible: frozenset[str], namespace: str = "") -> Mapping[str, Any]:
        return {**self._groups, "namespace": namespace} if namespace else self._groups

    async def pending(self) -> "_Pending":
        return self

    async def workload(self, *_of: str) -> Mapping[str, Any]:
        return {"placed": 0, "total": 0, "pods": []}


@asynccontextmanager
async def serving(
    folder: Path, *, pending: Mapping[str, Any] = MappingProxyType({"causes": []}), **given: Any
) -> AsyncIterator[Running]:
    """Serve the endpoints of a scheduler; `folder` gets the certificates.

    The user ann has all rights, bob has none. `pending` is the answer about pending pods if no
    `queue` is given. `given` are other arguments of `endpoints`.
    """
    pair = AUTHORITY.server()
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    tls = ServingTls(cert_file=str(folder / "tls.crt"), key_file=str(folder / "tls.key"))
    rights = Rights(ann=[EVERYTHING], bob=[])
    made = endpoints(**{"queue": _Pending(pending), "tls": tls, "reviews": rights, **given})
    port = await made.start(LOOPBACK, 0)
    try:
        yield Running(f"https://{LOOPBACK}:{port}", folder)
    finally:
        await made.stop()
