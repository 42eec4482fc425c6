"""Finds the leading replica of a running scheduler, and reads its endpoints for commands."""

import asyncio
import json
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from mooring import __version__
from mooring.cli.console import connection_options, note
from mooring.kube.api_resources import LEASE, SCHEDULING_PROFILE
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection, load_connection
from mooring.kube.connecting import client_context, failure_text
from mooring.kube.errors import ForbiddenError, KubeError, NotFoundError
from mooring.kube.errors import explain as explain_error
from mooring.kube.exchange import Answer, BrokenExchangeError, Exchange, NoConnectionError
from mooring.kube.lease import CERTIFICATE, SERVER
from mooring.kube.port_forward import port_forward
from mooring.page.turns import MOST_SECONDS
from mooring.run.settings import RunSettings
from mooring.simulate.manifests import InputError

_SECONDS: Final = 15.0
_WORK_SECONDS: Final = MOST_SECONDS + 10.0
"""The time-out in seconds for an answer that the leading replica must compute."""
_REFUSALS: Final = (400, 413, 422, 429)
"""Answers with these HTTP statuses tell the user to change the request, or to repeat it later."""
_AGAIN_SECONDS: Final = 1.0
_LOOPBACK: Final = "127.0.0.1"
_PLAIN_URL: Final = re.compile(r"https://[A-Za-z0-9.:\[\]-]+", re.ASCII)
_DEFAULTS: Final = RunSettings()
_Command = TypeVar("_Command", bound=Callable[..., Any])
_Found = TypeVar("_Found")

SERVER_VARIABLE: Final = "MOORING_SERVER"
_SERVER: Final = click.option(
    "--server",
    envvar=SERVER_VARIABLE,
    show_envvar=True,
    help="URL of the leading replica's endpoints, https://HOST:PORT. Without it: what the Lease "
    "says of a replica that runs on this machine, else a port-forward to the pod that holds the "
    "Lease.",
)
_LEASE: Final = (
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
)
_TRUST: Final = (
    click.option(
        "--certificate-authority",
        type=click.Path(),
        help="CA of the endpoints' certificate, PEM. Without it: on this machine the certificate "
        "in the Lease, else with --server the system's CAs, in a port-forward none.",
    ),
    click.option("--tls-server-name", help="The name to expect in the endpoints' certificate."),
    click.option(
        "--insecure-skip-tls-verify",
        is_flag=True,
        help="With --server: do not verify its certificate. Your credentials are sent all the "
        "same.",
    ),
)


class RefusedError(InputError):
    """Raised if the user has no right to read this endpoint of the leading replica."""


class LeaderUnreachableError(InputError):
    """Raised if no replica leads now, or if the leading replica does not answer."""


class Following:
    """Asks the leading replica repeatedly, even while another replica takes the lead."""

    def __init__(self) -> None:
        self._has_answered = False

    def ask(self, question: Callable[[], _Found]) -> _Found:
        """Call `question` until the leading replica can be reached; return the answer.

        Raises LeaderUnreachableError at once if no earlier question was answered.
        """
        is_said = False
        while True:
            try:
                answer = question()
            except LeaderUnreachableError as error:
                if not self._has_answered:
                    raise
                if not is_said:
                    note(f"{error}; asking again until a replica leads")
                is_said = True
                time.sleep(_AGAIN_SECONDS)
            else:
                self._has_answered = True
                return answer


def leader_options(command: _Command) -> _Command:
    """Add the options that say where the leading replica is: the fields of `Leader`."""
    return connection_options(replica_options(command))


def replica_options(
    command: _Command, server: Callable[[_Command], _Command] = _SERVER
) -> _Command:
    """Add the options of `leader_options` without --kubeconfig and --context."""
    for option in reversed(_TRUST):
        command = option(command)
    command = server(command)
    for option in reversed(_LEASE):
        command = option(command)
    return command


@dataclass(frozen=True, kw_only=True)
class Leader:
    """The options of a command that say how to reach the leading replica, and as which user."""

    kubeconfig: str | None
    context: str | None
    lease_namespace: str
    lease_name: str
    secure_port: int
    server: str | None
    certificate_authority: str | None
    tls_server_name: str | None
    insecure_skip_tls_verify: bool

    def tls(
        self, connection: Connection, *, pinned: str = "", in_forward: bool = False
    ) -> ssl.SSLContext:
        """Return the TLS context for the leading replica, with the kubeconfig's client certificate.

        If `pinned` (PEM) is not "", only this certificate is accepted. `in_forward` means a
        connection through a port-forward. Raises InputError if a certificate cannot be used.
        """
        authority = self.certificate_authority
        # In a port-forward, the API server and the kubelet connect to the right pod.
        verified = not self.insecure_skip_tls_verify and not (in_forward and authority is None)
        used = "the certificate in the Lease" if authority is None else authority
        try:
            context = client_context(authority, pinned or None, verified=verified)
            used = "the client certificate of the kubeconfig"
            if connection.client_certificate is not None:
                context.load_cert_chain(*connection.client_certificate)
        except (OSError, ValueError) as error:
            raise InputError(f"{used}: cannot be used: {failure_text(error)}") from None
        if pinned:  # it need not be a CA's
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        unnamed = bool(pinned) or (in_forward and self.tls_server_name is None)
        context.check_hostname = verified and not unnamed
        return context


def answer_of(
    leader: Leader, target: str, field: str, absent: str = "", body: bytes | None = None
) -> dict[str, Any] | None:
    """Ask the leading replica for `target` (POST if there is a `body`); return the JSON object.

    If `absent` is not empty, a 404 whose text contains it returns None. Raises InputError for any
    other answer without `field`.
    """
    status, answer = _read(leader, target, body)
    if status == 404 and absent and absent in _one_line(answer):
        return None
    if body is not None and status in _REFUSALS:
        raise InputError(answer.decode(errors="replace").strip())
    try:
        found = json.loads(answer) if status == 200 else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or field not in found:
        raise InputError(
            f"{leader.server or 'the leading replica'}: answers {status} and something other than "
            f"{field}; is it Mooring?"
        )
    return found


def page_of(leader: Leader, target: str) -> str:
    """Return the text of the leading replica's endpoint at `target`; else raise InputError."""
    status, body = _read(leader, target)
    if status != 200:
        where = leader.server or "the leading replica"
        raise InputError(f"{where}: answers {status} to {target}; is it Mooring?")
    return body.decode(errors="replace")


def _read(leader: Leader, target: str, body: bytes | None = None) -> tuple[int, bytes]:
    try:
        answer = asyncio.run(_answer(leader, target, body))
    except KubeError as error:
        raise LeaderUnreachableError(explain_error(error)) from None
    if answer.status in {401, 403, 503}:
        refusal = {401: InputError, 403: RefusedError, 503: LeaderUnreachableError}[answer.status]
        raise refusal(f"the leading replica answers {answer.status}: {_one_line(answer.body)}")
    return answer.status, answer.body


def _one_line(body: bytes) -> str:
    return " ".join(body.decode(errors="replace").split())


async def _answer(leader: Leader, target: str, body: bytes | None) -> Answer:
    connection = await load_connection(
        leader.kubeconfig, leader.context, user_agent=f"mooring/{__version__}"
    )
    headers = await connection.credentials.headers()
    fixed = {"Accept-Encoding": "identity", "User-Agent": connection.user_agent}
    async with leading_replica(connection, leader) as replica:
        exchange = Exchange(replica.url, fixed, tls=replica.tls, server_name=replica.name)
        try:
            method, seconds = ("GET", _SECONDS) if body is None else ("POST", _WORK_SECONDS)
            return await exchange.ask(method, target, headers, body, seconds=seconds)
        except (NoConnectionError, BrokenExchangeError, ValueError) as error:
            # ValueError: a host that IDNA cannot encode
            raise LeaderUnreachableError(
                _failure(leader, replica, error.__cause__ or error)
            ) from None
        finally:
            await exchange.close()


def _failure(leader: Leader, replica: "LeadingReplica", error: BaseException) -> str:
    if replica.trouble:
        return replica.trouble
    if isinstance(error, ssl.SSLCertVerificationError):
        if replica.pinned:
            return (
                f"{replica.where}: its certificate is not the one in the Lease "
                f"{leader.lease_namespace}/{leader.lease_name}: another program listens there"
            )
        return (
            f"{replica.where}: its certificate is not trusted ({error.verify_message}); "
            "say which CA signed it: --certificate-authority"
        )
    why = failure_text(error)
    answers = isinstance(error, ssl.SSLError | BrokenExchangeError)
    if leader.server is None and replica.pinned and not answers:
        return (
            f"{replica.where}: cannot be reached ({why}); the Lease says that the leading replica "
            "runs there, outside the cluster: run this command on its machine, or say how it is "
            "reached from here: --server https://HOST:PORT"
        )
    if leader.server is None or answers:
        return f"{replica.where}: no answer over HTTPS ({why}); is it Mooring?"
    return (
        f"{replica.where}: cannot be reached ({why}); correct --server, or "
        "leave it out for a port-forward"
    )


@dataclass(slots=True)
class LeadingReplica:
    """The leading replica's endpoints.

    Attributes:
        url: The URL of the endpoints.
        name: The name that their certificate must have.
        where: The place of the endpoints, for messages.
        tls: The TLS context for a connection.
        pinned: Whether `tls` accepts only the certificate in the Lease.
        trouble: The last error of a port-forward's connection; "" if there is none.
    """

    url: str
    name: str
    where: str
    tls: ssl.SSLContext
    pinned: bool = False
    trouble: str = ""


@asynccontextmanager
async def leading_replica(connection: Connection, leader: Leader) -> AsyncIterator[LeadingReplica]:
    """Yield the leading replica: at --server, at the Lease's URL, or in a pod by a port-forward.

    The Lease's URL must be on this machine (docs/adr/0020-a-leader-outside-the-cluster.md).
    """
    if leader.server is not None:
        url, host = _url_and_host(leader.server)
        here = host == "localhost" or _is_loopback(host)
        pinned = await _certificate_of(connection, leader) if here else ""
        tls = leader.tls(connection, pinned=pinned)
        name = leader.tls_server_name or host
        yield LeadingReplica(url, name, leader.server, tls, pinned=bool(pinned))
        return
    published = _published(await _lease_of(connection, leader))
    if published:
        yield _published_replica(connection, leader, published)
    else:
        async with _replica_in_a_pod(connection, leader) as replica:
            yield replica


def _published_replica(
    connection: Connection, leader: Leader, published: dict[str, str]
) -> LeadingReplica:
    """Return the replica at the URL in the Lease; raise InputError if it is not on this machine."""
    given = published.get(SERVER, "")
    if not _PLAIN_URL.fullmatch(given):  # it is printed, and may be copied into a shell
        raise InputError(f"the annotation {SERVER} of the Lease is no URL: {given[:100]!r}")
    url, host = _url_and_host(given, f"the annotation {SERVER} of the Lease")
    if not _is_loopback(host):
        raise InputError(
            f"the Lease names {url}, which is not on this machine, and nothing was sent there; if "
            f"you know that the leading replica has this address: --server {url}"
        )
    pinned = published.get(CERTIFICATE, "")
    if not (pinned or leader.certificate_authority or leader.insecure_skip_tls_verify):
        raise InputError(
            f"the Lease says that the leading replica is at {url}, but not with which "
            f"certificate; say which CA signed it: --server {url} --certificate-authority FILE"
        )
    pinned = "" if leader.certificate_authority else pinned
    tls = leader.tls(connection, pinned=pinned)
    name = leader.tls_server_name or host
    return LeadingReplica(url, name, url, tls, pinned=bool(pinned))


async def _certificate_of(connection: Connection, leader: Leader) -> str:
    if leader.certificate_authority is not None or leader.insecure_skip_tls_verify:
        return ""
    try:
        return _published(await _lease_of(connection, leader)).get(CERTIFICATE, "")
    except InputError:
        return ""


def _published(lease: dict[str, Any]) -> dict[str, str]:
    annotations = (lease.get("metadata") or {}).get("annotations") or {}
    return {name: annotations[name] for name in (SERVER, CERTIFICATE) if name in annotations}


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@asynccontextmanager
async def _replica_in_a_pod(
    connection: Connection, leader: Leader
) -> AsyncIterator[LeadingReplica]:
    """Yield a replica whose local URL is forwarded to the leading pod."""
    tls = leader.tls(connection, in_forward=True)
    name = leader.tls_server_name or "localhost"
    replica = LeadingReplica("", name, "the leading replica", tls)
    tasks = set[asyncio.Task[None]]()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        with suppress(asyncio.CancelledError):
            try:
                replica.trouble = await _forwarded(connection, leader, replica, reader, writer)
            finally:
                writer.close()

    server = await asyncio.start_server(accept, _LOOPBACK, 0)
    replica.url = f"https://{_LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    try:
        yield replica
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forwarded(
    connection: Connection,
    leader: Leader,
    replica: LeadingReplica,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> str:
    """Forward both streams to the leading pod; return why that failed, or an empty text."""
    namespace = leader.lease_namespace
    try:
        pod = _holder_of(leader, await _lease_of(connection, leader))
        replica.where = f"pod {namespace}/{pod}"
        error = await port_forward(connection, namespace, pod, leader.secure_port, reader, writer)
    except NotFoundError:
        return (
            f"there is no {replica.where}, which the Lease names as the leading replica; if that "
            "runs outside the cluster, say where: --server https://HOST:PORT"
        )
    except InputError as mistake:
        return str(mistake)
    except ForbiddenError as refusal:
        return _forbidden(leader, refusal)
    except KubeError as failure:
        return explain_error(failure)
    return f"{replica.where}: {' '.join(error.split())}" if error else ""


def _forbidden(leader: Leader, refusal: ForbiddenError) -> str:
    return (
        f"{' '.join(str(refusal).split())}; the Role mooring-explain in {leader.lease_namespace} "
        "grants it, or ask the leading replica with --server"
    )


def _url_and_host(server: str, source: str = "--server") -> tuple[str, str]:
    try:
        parts = urlsplit(server)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"{source}: {server!r} is no URL: {error}") from None
    if parts.scheme != "https" or not host:
        raise InputError(f"{source}: {server!r} must start with https:// and a host")
    netloc = f"[{host}]" if ":" in host else host
    return f"https://{netloc}:{443 if port is None else port}{parts.path.rstrip('/')}", host


async def _lease_of(connection: Connection, leader: Leader) -> dict[str, Any]:
    try:
        async with ApiClient(connection) as client:
            try:
                return await client.get(LEASE, leader.lease_name, leader.lease_namespace)
            except NotFoundError:
                served = await client.served_in(
                    SCHEDULING_PROFILE.group, SCHEDULING_PROFILE.version
                )
    except ForbiddenError as refusal:
        raise InputError(_forbidden(leader, refusal)) from None
    except KubeError as error:
        raise LeaderUnreachableError(explain_error(error)) from None
    if SCHEDULING_PROFILE.plural not in served:
        raise InputError(
            "Mooring is not installed in this cluster; docs/installing.md says how to install it, "
            "and `mooring simulate` decides without it"
        )
    raise InputError(
        f"no replica leads: there is no Lease {leader.lease_namespace}/{leader.lease_name}; "
        "correct --lease-namespace and --lease-name, or give --server (`mooring status` says more)"
    )


def _holder_of(leader: Leader, lease: dict[str, Any]) -> str:
    # A replica's identity is its host name, which is its pod's name, and something random.
    holder: str = (lease.get("spec") or {}).get("holderIdentity") or ""
    pod = holder.rpartition("_")[0]
    if not pod:
        name = f"{leader.lease_namespace}/{leader.lease_name}"
        raise LeaderUnreachableError(
            f"no replica holds the Lease {name} now; try again in some seconds"
        )
    return pod
