"""`mooring run`."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, TypeVar

import click

from mooring.cli.console import BAD_INPUT
from mooring.kube.errors import KubeError
from mooring.observe.logs import FORMATS, LEVELS, configure
from mooring.service import StartError
from mooring.service import run as run_scheduler
from mooring.settings import RunSettings

__all__ = ["run"]

_DEFAULTS: Final = asdict(RunSettings())
_POSITIVE: Final = click.FloatRange(min=0, min_open=True)
_JITTER: Final = 1.2
"""The leader waits up to this factor of the retry period between tries."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _setting(name: str, text: str, kind: Any = str) -> Callable[[_Command], _Command]:
    """The option of a field of RunSettings: --some-field, or MOORING_SOME_FIELD."""
    flag = f"--{name.replace('_', '-')}"
    return click.option(
        f"{flag}/--no-{flag[2:]}" if kind is bool else flag,
        name,
        type=None if kind is bool else kind,
        envvar=f"MOORING_{name.upper()}",
        default=_DEFAULTS[name],
        show_default=_DEFAULTS[name] is not None,
        show_envvar=True,
        help=text,
    )


@click.command(
    epilog="""\b
Examples:
  mooring run
  mooring run --kubeconfig ~/.kube/config --no-leader-elect --log-level debug
  MOORING_QPS=200 MOORING_LOG_FORMAT=json mooring run"""
)
@_setting(
    "kubeconfig",
    "Path of the kubeconfig. Without it: $KUBECONFIG, the pod's service account, ~/.kube/config.",
)
@_setting("context", "Context in the kubeconfig. Without it: the current one.")
@_setting(
    "qps",
    "Requests per second to the API server, bindings included. Without it: no limit.",
    _POSITIVE,
)
@_setting("burst", "Requests at once on top of --qps. Without it: twice --qps.", click.IntRange(1))
@_setting("leader_elect", "Whether a Lease decides which replica binds.", bool)
@_setting("lease_namespace", "Namespace of the Lease.")
@_setting("lease_name", "Name of the Lease; replicas that share it stand in for each other.")
@_setting(
    "lease_duration",
    "Seconds after which the lease of a silent leader may be taken.",
    click.IntRange(1),
)
@_setting("renew_deadline", "Seconds for which the leader tries to renew its lease.", _POSITIVE)
@_setting("retry_period", "Seconds between tries to get or renew the lease.", _POSITIVE)
@_setting("bind_address", "IP address of the health, metrics and debug endpoints.")
@_setting(
    "secure_port", "Port of the endpoints (HTTPS); 0 takes a free one.", click.IntRange(0, 65_535)
)
@_setting(
    "tls_cert_file",
    "Certificate of the endpoints with its chain, PEM; read again when it changes. "
    "Without it: a self-signed one.",
)
@_setting("tls_private_key_file", "Key of --tls-cert-file, PEM.")
@_setting(
    "client_ca_file",
    "CAs of client certificates, PEM; read again when it changes. Without it: the cluster's, "
    "from the ConfigMap kube-system/extension-apiserver-authentication.",
)
@_setting(
    "authentication_skip_lookup",
    "Whether the cluster's CA of client certificates is not looked up.",
    bool,
)
@_setting(
    "authorization_always_allow_paths",
    "Paths that are shown without authorization, with commas between them; /a/* for all below /a/.",
)
@_setting("log_level", "What is less severe is not logged.", click.Choice(LEVELS))
@_setting("log_format", "text for people, json for machines.", click.Choice(FORMATS))
@_setting("initial_backoff", "Seconds a pod waits after it was refused once.", _POSITIVE)
@_setting("max_backoff", "The most seconds a refused pod waits; doubled up to here.", _POSITIVE)
@_setting(
    "stop_seconds",
    "Seconds that bindings in flight have to finish after SIGTERM.",
    click.FloatRange(min=0),
)
def run(**given: Any) -> None:
    """Run the scheduler.

    Any number of replicas may run; one of them binds. The policy is in SchedulingProfile objects,
    these options are about the process. Exits with 0 after SIGTERM, 1 if the lease is lost, 2 if it
    cannot start.
    """
    settings = RunSettings(**given)
    _check(settings)
    configure(log_format=settings.log_format, level=settings.log_level, mistakes=(KubeError,))
    try:
        code = run_scheduler(settings)
    except StartError as error:
        click.echo(f"error: {error}", err=True)
        code = BAD_INPUT
    sys.exit(code)


def _check(settings: RunSettings) -> None:
    """What is wrong between settings that are each right by themselves."""
    if settings.max_backoff < settings.initial_backoff:
        raise click.UsageError("--max-backoff must be at least --initial-backoff")
    if (settings.tls_cert_file is None) != (settings.tls_private_key_file is None):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file need each other")
    if settings.burst is not None and settings.qps is None:
        raise click.UsageError("--burst needs --qps")
    if not settings.leader_elect:
        return
    if settings.lease_duration <= settings.renew_deadline:
        raise click.UsageError("--lease-duration must be longer than --renew-deadline")
    if settings.renew_deadline <= _JITTER * settings.retry_period:
        raise click.UsageError(f"--renew-deadline must be over {_JITTER} times --retry-period")
