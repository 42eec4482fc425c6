"""The leading replica of a running scheduler, for commands that read its endpoints."""

import asyncio
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from mooring import __version__
from mooring.cli.console import connection_options
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection, load_connection
from mooring.kube.connecting import client_context, failure_text
from mooring.kube.errors import ForbiddenError, KubeError, NotFoundError
from mooring.kube.errors import explain as explain_error
from mooring.kube.port_forward import PortForward, port_forward
from mooring.kube.resources import LEASE
from mooring.settings import RunSettings
from mooring.simulate.manifests import InputError

__all__ = [
    "Leader",
    "answer_of",
    "holder_forward",
    "leader_options",
    "page_of",
    "replica_options",
    "url_parts",
]

_SECONDS: Final = 15.0
_DEFAULTS: Final = RunSettings()
_Command = TypeVar("_Command", bound=Callable[..., Any])

_REPLICA: Final = (
    click.option(
        "--lease-namespace",
        default=_DEFAULTS.lease_namespace,
        show_default=True,
        help="Namespace of the scheduler's Lease and pods.",
    ),
    click.option(
        "--lease-name",
        default=_DEFAULTS.lease_name,
        show_default=True,
        help="The Lease whose holder keeps the decisions.",
    ),
    click.option(
        "--secure-port",
        type=click.IntRange(1, 65_535),
        default=_DEFAULTS.secure_port,
        show_default=True,
        help="Port of its endpoints.",
    ),
    click.option(
        "--server",
        envvar="MOORING_SERVER",
        show_envvar=True,
        help="URL of the leading replica's endpoints, https://HOST:PORT. Without it: a "
        "port-forward to the pod that holds the Lease.",
    ),
    click.option(
        "--certificate-authority",
        type=click.Path(),
        help="CA of the endpoints' certificate, PEM. Without it: with --server the system's CAs, "
        "in a port-forward none.",
    ),
    click.option("--tls-server-name", help="The name to expect in the endpoints' certificate."),
    click.option(
        "--insecure-skip-tls-verify",
        is_flag=True,
        help="With --server: do not verify its certificate. Your credentials are sent all the "
        "same.",
    ),
)


def leader_options(command: _Command) -> _Command:
    """Add the options that say where the leading replica is: the fields of `Leader`."""
    return connection_options(replica_options(command))


def replica_options(command: _Command) -> _Command:
    """Add these options but --kubeconfig and --context, which the command has already."""
    for option in reversed(_REPLICA):
        command = option(command)
    return command


@dataclass(frozen=True, kw_only=True)
class Leader:
    """Where the leading replica is, and the credentials for it; the fields are the options."""

    kubeconfig: str | None
    context: str | None
    lease_namespace: str
    lease_name: str
    secure_port: int
    server: str | None
    certificate_authority: str | None
    tls_server_name: str | None
    insecure_skip_tls_verify: bool

    def tls(self, connection: Connection) -> ssl.SSLContext:
        """Return the context for the endpoints, with the client certificate of the kubeconfig.

        Within a port-forward no certificate is verified unless a CA is given: the API server and
        the kubelet lead to the pod that they say.
        """
        in_forward = self.server is None
        authority = self.certificate_authority
        verified = not self.insecure_skip_tls_verify and not (in_forward and authority is None)
        try:
            context = client_context(authority, verified=verified)
            if connection.client_certificate is not None:
                context.load_cert_chain(*connection.client_certificate)
        except (OSError, ValueError) as error:
            raise InputError(f"the CA or client certificate cannot be used: {error}") from None
        context.check_hostname = verified and not (in_forward and self.tls_server_name is None)
        return context


def answer_of(leader: Leader, target: str, field: str, absent: str = "") -> dict[str, Any] | None:
    """Return the JSON object that the leading replica's endpoint at `target` returns.

    The object must have `field`. Returns None if the answer is 404 and contains `absent`.

    Raises:
        InputError: In one line, why there is no such answer.
    """
    status, body = _read(leader, target)
    if status == 404 and absent and absent in _one_line(body):
        return None
    try:
        found = json.loads(body) if status == 200 else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or field not in found:
        raise InputError(
            f"{leader.server or 'the leading replica'}: answers {status} and something other than "
            f"{field}; is it Mooring?"
        )
    return found


def page_of(leader: Leader, target: str) -> str:
    """Return the text that the leading replica's endpoint at `target` returns.

    Raises:
        InputError: In one line, why there is no such answer.
    """
    status, body = _read(leader, target)
    if status != 200:
        where = leader.server or "the leading replica"
        raise InputError(f"{where}: answers {status} to {target}; is it Mooring?")
    return body.decode(errors="replace")


def _read(leader: Leader, target: str) -> tuple[int, bytes]:
    """Return status and body of an answer that is no refusal and no error of the connection."""
    try:
        status, body = asyncio.run(_answer(leader, target))
    except ForbiddenError as error:
        raise InputError(
            f"{' '.join(str(error).split())}; the Role mooring-explain in "
            f"{leader.lease_namespace} grants it, or ask the leading replica with --server"
        ) from None
    except KubeError as error:
        raise InputError(explain_error(error)) from None
    if status in {401, 403, 503}:
        raise InputError(f"the leading replica answers {status}: {_one_line(body)}")
    return status, body


def _one_line(body: bytes) -> str:
    return " ".join(body.decode(errors="replace").split())


async def _answer(leader: Leader, target: str) -> tuple[int, bytes]:
    """Return status and body of the leading replica's answer."""
    connection = await load_connection(
        leader.kubeconfig, leader.context, user_agent=f"mooring/{__version__}"
    )
    tls = leader.tls(connection)
    if leader.server is not None:
        host, port, path = url_parts(leader.server)
        headers = await connection.credentials.headers()
        name = leader.tls_server_name or host
        try:
            reached = await asyncio.to_thread(
                socket.create_connection, (host, port), timeout=_SECONDS
            )
        except (OSError, ValueError) as error:  # ValueError: a host that IDNA cannot encode
            raise InputError(
                f"{leader.server}: cannot be reached ({failure_text(error)}); correct --server, or "
                "leave it out for a port-forward"
            ) from None
        return await _fetched(reached, tls, name, path + target, headers, leader.server)
    headers = await connection.credentials.headers()
    async with holder_forward(connection, leader) as (forward, where):
        name = leader.tls_server_name or "localhost"
        try:
            return await _fetched(forward.socket, tls, name, target, headers, where)
        except InputError as error:
            if forward.error:
                raise InputError(f"{where}: {' '.join(forward.error.split())}") from None
            raise error from None


@asynccontextmanager
async def holder_forward(
    connection: Connection, leader: Leader
) -> AsyncIterator[tuple[PortForward, str]]:
    """Yield a port-forward to the pod that holds the Lease, and the pod's name in messages."""
    pod = await _holder_of(connection, leader)
    where = f"pod {leader.lease_namespace}/{pod}"
    async with AsyncExitStack() as stack:
        try:
            forward = await stack.enter_async_context(
                port_forward(connection, leader.lease_namespace, pod, leader.secure_port)
            )
        except NotFoundError:
            raise InputError(
                f"there is no {where}, which the Lease names as the leading replica; if that runs "
                "outside the cluster, say where: --server https://HOST:PORT"
            ) from None
        yield forward, where


def url_parts(server: str) -> tuple[str, int, str]:
    """Return host, port and path of the URL that --server gives."""
    try:
        parts = urlsplit(server)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"--server: {server!r} is no URL: {error}") from None
    if parts.scheme != "https" or not host:
        raise InputError(f"--server: {server!r} must start with https:// and a host")
    return host, 443 if port is None else port, parts.path.rstrip("/")


async def _holder_of(connection: Connection, leader: Leader) -> str:
    """Return the name of the pod that holds the Lease."""
    lease = f"{leader.lease_namespace}/{leader.lease_name}"
    async with ApiClient(connection) as client:
        try:
            found = await client.get(LEASE, leader.lease_name, leader.lease_namespace)
        except NotFoundError:
            raise InputError(
                f"there is no Lease {lease}, so no replica leads; "
                "correct --lease-namespace and --lease-name, or give --server"
            ) from None
    # A replica's identity is its host name, which is its pod's name, and something random.
    holder: str = (found.get("spec") or {}).get("holderIdentity") or ""
    pod = holder.rpartition("_")[0]
    if not pod:
        raise InputError(f"no replica holds the Lease {lease} now; try again in some seconds")
    return pod


async def _fetched(
    reached: socket.socket,
    tls: ssl.SSLContext,
    name: str,
    target: str,
    headers: Mapping[str, str],
    where: str,
) -> tuple[int, bytes]:
    """Return status and body of the answer over a socket that is open."""

    def fetch() -> tuple[int, bytes]:
        client = http.client.HTTPSConnection(name, context=tls)
        with tls.wrap_socket(reached, server_hostname=name) as client.sock:
            client.request("GET", target, headers=dict(headers))
            answer = client.getresponse()
            return answer.status, answer.read()

    try:
        return await asyncio.to_thread(fetch)
    except ssl.SSLCertVerificationError as error:
        raise InputError(
            f"{where}: its certificate is not trusted ({error.verify_message}); "
            "say which CA signed it: --certificate-authority"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise InputError(
            f"{where}: no answer over HTTPS ({failure_text(error)}); is it Mooring?"
        ) from None
