"""`mooring explain`."""

import asyncio
import http.client
import json
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import click

from mooring import __version__
from mooring.cli.console import NO, mistakes_reported, output_option, print_json, print_table
from mooring.cli.explanation import explanation, score_table
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection, load_connection
from mooring.kube.errors import ForbiddenError, KubeError, NotFoundError
from mooring.kube.errors import explain as explain_error
from mooring.kube.port_forward import port_forward
from mooring.kube.resources import LEASE
from mooring.settings import RunSettings
from mooring.simulate.manifests import InputError
from mooring.simulate.selection import type_and_name

__all__ = ["explain"]

_SECONDS: Final = 15.0
_DEFAULTS: Final = RunSettings()
_STATES: Final = {
    "active": "in the active queue",
    "backoff": "backing off",
    "in flight": "being decided",
}
"""What users read for a state whose name in the metric pending_pods says little alone."""


@click.command(
    epilog="""\b
Examples:
  mooring explain web-5d8f -n team-a
  mooring explain team-a/web-5d8f -o json
  mooring explain web-5d8f --server https://scheduler.example:10259"""
)
@click.argument("pod")
@click.option(
    "-n", "--namespace", default="default", show_default=True, help="The pod's namespace."
)
@click.option(
    "--kubeconfig", type=click.Path(), help="Path of the kubeconfig. Without it: as kubectl."
)
@click.option("--context", help="Context in the kubeconfig. Without it: the current one.")
@click.option(
    "--lease-namespace",
    default=_DEFAULTS.lease_namespace,
    show_default=True,
    help="Namespace of the scheduler's Lease and pods.",
)
@click.option(
    "--lease-name",
    default=_DEFAULTS.lease_name,
    show_default=True,
    help="The Lease whose holder keeps the decisions.",
)
@click.option(
    "--secure-port",
    type=click.IntRange(1, 65_535),
    default=_DEFAULTS.secure_port,
    show_default=True,
    help="Port of its endpoints.",
)
@click.option(
    "--server",
    envvar="MOORING_SERVER",
    show_envvar=True,
    help="URL of the leading replica's endpoints, https://HOST:PORT. Without it: a port-forward to "
    "the pod that holds the Lease.",
)
@click.option(
    "--certificate-authority",
    type=click.Path(),
    help="CA of the endpoints' certificate, PEM. Without it: with --server the system's CAs, in a "
    "port-forward none.",
)
@click.option("--tls-server-name", help="The name to expect in the endpoints' certificate.")
@click.option(
    "--insecure-skip-tls-verify",
    is_flag=True,
    help="With --server: do not verify its certificate. Your credentials are sent all the same.",
)
@output_option("text", "json")
def explain(pod: str, namespace: str, output: str, **options: Any) -> None:
    """Explain why POD runs on its node, or why it is pending.

    Shows where the pod is now; for an unschedulable one, the changes that would make it fit, each
    tried by the scheduler itself; and then the latest decisions about it, which the leading
    replica of a running scheduler keeps. The credentials are those of the kubeconfig; the user
    must be allowed to get /debug/decisions and the pod. Exits with 0 if the pod is known, 1 if it
    is not, 2 if the leading replica cannot be reached or does not show them.
    """
    with mistakes_reported():
        named = type_and_name(pod)
        if named is not None and named.kind != "Pod":
            raise InputError(f"{pod!r} is no pod; decisions are about pods: write pod/NAME")
        name = f"{namespace}/{named.name if named else pod}" if named or "/" not in pod else pod
        if name.count("/") != 1 or not all(name.split("/")):
            raise InputError(f"{pod!r} is no pod; write NAME, pod/NAME or NAMESPACE/NAME")
        answer = _decisions(_Leader(**options), name)
    if answer is None:
        click.echo(
            f"no recent decision about pod {name} is kept by this replica; "
            "only the leading replica decides",
            err=True,
        )
        sys.exit(NO)
    if output == "json":
        print_json(answer)
        return
    for line in _report(name, answer.get("pod")):
        click.echo(line)
    for decision in answer["decisions"]:
        _show(decision)


@dataclass(frozen=True, kw_only=True)
class _Leader:
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
        """The context for the endpoints, with the client certificate of the kubeconfig.

        Within a port-forward no certificate is verified unless a CA is given: the API server and
        the kubelet lead to the pod that they say.
        """
        try:
            context = ssl.create_default_context(cafile=self.certificate_authority)
            if connection.client_certificate is not None:
                context.load_cert_chain(*connection.client_certificate)
        except (OSError, ValueError) as error:
            raise InputError(f"the CA or client certificate cannot be used: {error}") from None
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        in_forward = self.server is None
        context.check_hostname = not self.insecure_skip_tls_verify and (
            not in_forward or self.tls_server_name is not None
        )
        if self.insecure_skip_tls_verify or (in_forward and self.certificate_authority is None):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _decisions(leader: _Leader, pod: str) -> dict[str, Any] | None:
    """The decisions about the pod as the endpoint returns them; None if it has none."""
    target = f"/debug/decisions?{urlencode({'pod': pod})}"
    try:
        status, body = asyncio.run(_answer(leader, target))
    except ForbiddenError as error:
        raise InputError(
            f"{' '.join(str(error).split())}; the Role mooring-explain in "
            f"{leader.lease_namespace} grants it, or ask the leading replica with --server"
        ) from None
    except KubeError as error:
        raise InputError(explain_error(error)) from None
    words = " ".join(body.decode(errors="replace").split())
    if status == 404 and "no recent decision" in words:
        return None
    if status in {401, 403, 503}:
        raise InputError(f"the leading replica answers {status}: {words}")
    try:
        decisions = json.loads(body) if status == 200 else None
    except ValueError:
        decisions = None
    if not isinstance(decisions, dict) or "decisions" not in decisions:
        raise InputError(
            f"{leader.server or 'the leading replica'}: answers {status} and something other than "
            "decisions; is it Mooring?"
        )
    return decisions


async def _answer(leader: _Leader, target: str) -> tuple[int, bytes]:
    """Status and body of the leading replica's answer."""
    connection = await load_connection(
        leader.kubeconfig, leader.context, user_agent=f"mooring/{__version__}"
    )
    tls = leader.tls(connection)
    if leader.server is not None:
        host, port, path = _parts(leader.server)
        headers = await connection.credentials.headers()
        name = leader.tls_server_name or host
        try:
            reached = await asyncio.to_thread(
                socket.create_connection, (host, port), timeout=_SECONDS
            )
        except (OSError, ValueError) as error:  # ValueError: a host that IDNA cannot encode
            raise InputError(
                f"{leader.server}: cannot be reached ({_words(error)}); correct --server, or "
                "leave it out for a port-forward"
            ) from None
        return await _fetched(reached, tls, name, path + target, headers, leader.server)
    pod = await _holder(connection, leader)
    headers = await connection.credentials.headers()
    where = f"pod {leader.lease_namespace}/{pod}"
    async with port_forward(connection, leader.lease_namespace, pod, leader.secure_port) as forward:
        name = leader.tls_server_name or "localhost"
        try:
            return await _fetched(forward.socket, tls, name, target, headers, where)
        except InputError as error:
            if forward.error:
                raise InputError(f"{where}: {' '.join(forward.error.split())}") from None
            raise error from None


def _parts(server: str) -> tuple[str, int, str]:
    """Host, port and path of the URL that --server gives."""
    try:
        parts = urlsplit(server)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"--server: {server!r} is no URL: {error}") from None
    if parts.scheme != "https" or not host:
        raise InputError(f"--server: {server!r} must start with https:// and a host")
    return host, 443 if port is None else port, parts.path.rstrip("/")


async def _holder(connection: Connection, leader: _Leader) -> str:
    """The name of the pod that holds the Lease."""
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
    """Status and body of the answer over a socket that is open."""

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
            f"{where}: no answer over HTTPS ({_words(error)}); is it Mooring?"
        ) from None


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _report(pod: str, report: Mapping[str, Any] | None) -> Iterator[str]:
    """Where the pod is now, what keeps it there, and what would make it fit."""
    if report is None:
        return
    yield f"pod {pod}: {', '.join(_facts(report))}"
    for plugin, seconds in report.get("waitsFor", {}).items():
        yield f"  waits for plugin {plugin}, at most {_duration(seconds)} more"
    if report["state"] == "gated" and report["plugins"]:
        yield f"  held back by {', '.join(report['plugins'])}"
    suggestions = report.get("suggestions")
    if suggestions:
        yield f"  The cause: {suggestions[0]['cause']}. It would fit"
        for suggestion in suggestions:
            yield f"  - {' '.join(filter(None, (_place(suggestion), suggestion['change'])))}"
    elif suggestions is not None:
        yield "  No one or two of the changes that were tried would make it fit."
    yield ""


def _facts(report: Mapping[str, Any]) -> Iterator[str]:
    """The state with its node and duration, the attempts, and what comes next."""
    state = _STATES.get(report["state"], report["state"])
    if report.get("node"):
        state += f" on {report['node']}"
    if "pendingSeconds" not in report:
        yield state
        return
    yield f"{state}, pending for {_duration(report['pendingSeconds'])}"
    yield f"{report['attempts']} attempt{'' if report['attempts'] == 1 else 's'}"
    if "backoffSeconds" in report:
        yield f"tried again in {_duration(report['backoffSeconds'])}"
    if "ahead" in report:
        yield f"{report['ahead']} pods ahead of it"


def _place(suggestion: Mapping[str, Any]) -> str:
    """On how many nodes a pod would fit; pods that end are named with their node anyway."""
    if suggestion["ended"]:
        return ""
    number, names = suggestion["nodes"], ", ".join(suggestion["examples"])
    if number == 1:
        return f"on {names}"
    return f"on {number} nodes ({names}{', ...' if number > len(suggestion['examples']) else ''})"


def _duration(seconds: float) -> str:
    """Seconds as kubectl prints ages: `42s`, `3m12s`, `5h4m`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes_left}m"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _show(decision: Mapping[str, Any]) -> None:
    place = f"on {decision['node']}" if decision["node"] else "not scheduled"
    profile = f"profile {decision['profile']}"
    if generation := decision.get("profileGeneration"):
        profile += f", generation {generation}"
    click.echo(f"{decision['time']}  {decision['pod']}  {place}  ({profile})")
    for line in explanation(decision):
        click.echo(f"  {line}")
    if decision["scores"]:
        print_table(*score_table(decision["scores"]))
    click.echo()
