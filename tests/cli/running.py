"""The endpoints of a running scheduler, and commands that are run against them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import yaml
from click.testing import CliRunner, Result

from certificates import Authority
from mooring.model.access import Attributes, User
from mooring.observe.http import Endpoints, PendingQueue
from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog
from mooring.observe.tls import ServingTls

AUTHORITY = Authority()


class _Everything:
    """The API server lets the user "ann" do everything; a token is a user's name."""

    async def user_of(self, token: str) -> User | None:
        return User(token) if token.isalpha() else None

    async def allows(self, user: User, _: Attributes) -> bool:
        return user.name == "ann"


class Running:
    """The endpoints of a scheduler at a URL, and a user's kubeconfig."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(AUTHORITY.certificate)

    def kubeconfig(self, server: str = "http://127.0.0.1:1", user: str = "ann") -> str:
        return kubeconfig_of(self._folder, server, user)

    async def answer(self, command: click.Command, *words: str, user: str = "ann") -> Result:
        """Run the command with --server and the CA, as the user."""
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
    """Run the command beside the event loop on which the endpoints answer."""
    return await asyncio.to_thread(CliRunner().invoke, command, list(words))


async def _unknown(_pod: str) -> Mapping[str, Any] | None:
    return None


async def _no_pod_groups(_namespace: str, _name: str) -> list[dict[str, Any]]:
    return []


def _no_shadow(_namespace: str) -> Mapping[str, Any]:
    return {"profiles": {}, "pods": []}


class _Pending:
    """Pending pods that everybody sees."""

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
    folder: Path,
    *,
    decisions: DecisionLog | None = None,
    pod_report: Callable[[str], Awaitable[Mapping[str, Any] | None]] = _unknown,
    pod_groups: Callable[[str, str], Awaitable[list[dict[str, Any]]]] = _no_pod_groups,
    pending: Mapping[str, Any] = MappingProxyType({"causes": []}),
    queue: PendingQueue | None = None,
    shadow: Callable[[str], Mapping[str, Any]] = _no_shadow,
) -> AsyncIterator[Running]:
    """Serve the endpoints of a scheduler that knows this; `folder` gets certificates.

    `pending` is what the endpoint of pending pods says if there is no `queue`.
    """
    pair = AUTHORITY.server()
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    endpoints = Endpoints(
        live={},
        ready={},
        metrics=Metrics(),
        decisions=decisions or DecisionLog(),
        pod_report=pod_report,
        pod_groups=pod_groups,
        queue=queue or _Pending(pending),
        shadow=shadow,
        rebalancing=list,
        cache_dump=lambda: iter(()),
        configuration=dict,
        tls=ServingTls(cert_file=str(folder / "tls.crt"), key_file=str(folder / "tls.key")),
        reviews=_Everything(),
        always_allow_paths=(),
    )
    port = await endpoints.start("127.0.0.1", 0)
    try:
        yield Running(f"https://127.0.0.1:{port}", folder)
    finally:
        await endpoints.stop()
