"""`mooring run`."""

import logging
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from mooring import __version__
from mooring.cli.console import BAD_INPUT
from mooring.importing import import_module_quickly
from mooring.kube.errors import KubeError
from mooring.kube.lease import JITTER
from mooring.observe.logs import FORMATS, LEVELS, configure
from mooring.settings import RunSettings

__all__ = ["run"]

_DEFAULTS: Final = asdict(RunSettings())


class _Finite(click.FloatRange):
    """A number in a range; `inf` and `nan`, which Python reads as numbers too, are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; raise BadParameter if it is none, or out of range."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


_POSITIVE: Final = _Finite(min=0, min_open=True)

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _setting(name: str, text: str, kind: Any = str) -> Callable[[_Command], _Command]:
    """Return the option of a field of RunSettings: --some-field, or MOORING_SOME_FIELD."""
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
  MOORING_QPS=200 MOORING_LOG_FORMAT=json mooring run
  mooring run --otlp-endpoint http://collector.monitoring:4318"""
)
@_setting(
    "kubeconfig",
    "Path of the kubeconfig. Without it: $KUBECONFIG, the pod's service account, ~/.kube/config.",
    click.Path(),
)
@_setting("context", "Context in the kubeconfig. Without it: the current one.")
@_setting(
    "qps",
    "Requests per second to the API server, bindings included. Without it: no limit.",
    _POSITIVE,
)
@_setting(
    "burst",
    "Requests that may exceed --qps for a moment. Without it: twice --qps.",
    click.IntRange(1),
)
@_setting(
    "leader_elect",
    "Whether replicas elect a leader through a Lease; only the leader binds pods.",
    bool,
)
@_setting("lease_namespace", "Namespace of the Lease.")
@_setting("lease_name", "Name of the Lease; replicas of one scheduler use the same.")
@_setting(
    "lease_duration",
    "Seconds after which another replica takes a Lease that is not renewed.",
    click.IntRange(1),
)
@_setting(
    "renew_deadline",
    "Seconds for which the leader tries to renew its Lease before it gives up.",
    _POSITIVE,
)
@_setting("retry_period", "Seconds between two attempts to get or renew the Lease.", _POSITIVE)
@_setting("bind_address", "IP address of the HTTPS endpoints for health, metrics and debugging.")
@_setting(
    "secure_port", "Port of the HTTPS endpoints; 0 chooses a free port.", click.IntRange(0, 65_535)
)
@_setting(
    "tls_cert_file",
    "Certificate of the endpoints with its chain, PEM; read again when it changes. "
    "Without it: a self-signed one.",
    click.Path(),
)
@_setting("tls_private_key_file", "Private key of --tls-cert-file, PEM.", click.Path())
@_setting(
    "client_ca_file",
    "CAs of client certificates, PEM; read again when it changes. Without it: the cluster's, "
    "from the ConfigMap kube-system/extension-apiserver-authentication.",
    click.Path(),
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
@_setting("log_level", "The least severe messages that are logged.", click.Choice(LEVELS))
@_setting("log_format", "text for people, json for machines.", click.Choice(FORMATS))
@_setting("initial_backoff", "Seconds of a pod's first backoff.", _POSITIVE)
@_setting(
    "max_backoff",
    "Seconds of a pod's longest backoff; each backoff is twice the one before.",
    _POSITIVE,
)
@_setting(
    "queue_fairness",
    "namespace: namespaces take turns among pods of equal priority. none: kube-scheduler's order.",
    click.Choice(("none", "namespace")),
)
@_setting(
    "stop_seconds",
    "Seconds in which evictions, bindings, writes of claims and events may end after SIGTERM.",
    _Finite(min=0),
)
@_setting(
    "decision_record_mib",
    "MiB of memory for the record of decisions that mooring explain reads; 0: no record.",
    _Finite(min=0),
)
@_setting(
    "decision_log",
    "File to which what happens to each pod is appended, one line of JSON each. Without it: none.",
    click.Path(dir_okay=False),
)
@_setting(
    "decision_log_mib",
    "MiB at which that file is renamed to *.1, in the place of the one before.",
    _POSITIVE,
)
@_setting(
    "otlp_endpoint",
    "URL of an OTLP/HTTP endpoint, such as http://collector:4318, which gets a trace of each pod "
    "with its attempts; needs the extra otlp. Without it: none.",
)
@_setting(
    "plugin_slow_seconds",
    "Seconds after which a synchronous call of a plugin is logged and counted as slow.",
    _POSITIVE,
)
@_setting(
    "plugin_timeout_seconds",
    "Seconds after which PreBind, Bind and PostBind of a third-party plugin are cancelled.",
    _POSITIVE,
)
def run(**given: Any) -> None:
    """Run the scheduler.

    Any number of replicas may run; one of them, the leader, binds pods. Scheduling is configured
    by SchedulingProfile objects, the process by these options. Exits with 0 after SIGTERM, 1 if the
    Lease is lost, 2 if it cannot start.
    """
    settings = RunSettings(**given)
    _check(settings)
    configure(log_format=settings.log_format, level=settings.log_level, mistakes=(KubeError,))
    # The help text and wrong options do not need the whole scheduler.
    service = import_module_quickly("mooring.service")
    try:
        code = service.run(settings)
    except service.StartError as error:
        click.echo(f"error: {error}", err=True)
        code = BAD_INPUT
    sys.exit(code)


def _check_decision_log(settings: RunSettings) -> None:
    if settings.decision_log is None:
        return
    if not settings.decision_record_mib:
        raise click.UsageError("--decision-log needs a --decision-record-mib over 0")
    folder = Path(settings.decision_log).resolve().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise click.UsageError(f"--decision-log: {folder} is no folder that can be written to")


def _check_otlp_endpoint(settings: RunSettings) -> None:
    given = settings.otlp_endpoint
    if given is None:
        return
    if not settings.decision_record_mib:
        raise click.UsageError("--otlp-endpoint needs a --decision-record-mib over 0")
    if set("@?") & set(given):  # looked for first, so that no message has them
        raise click.UsageError(
            "--otlp-endpoint: credentials belong into OTEL_EXPORTER_OTLP_HEADERS, not into the URL"
        )
    try:
        url = urlsplit(given)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:  # the port is no number, or a bracket is missing
        usable = False
    if not usable:
        raise click.UsageError(
            f'--otlp-endpoint: "{given}" is no URL such as http://collector:4318'
        )
    try:
        with _errors_of_opentelemetry():
            traces = import_module("mooring.observe.traces")
            traces.Traces(given, version=__version__, instance="")
    except ImportError as error:
        raise click.UsageError(
            "--otlp-endpoint needs OpenTelemetry's packages: pip install '.[otlp]' in a clone of "
            f"Mooring, or an image built with LOCK=requirements-run-otlp.lock ({error})"
        ) from None
    except ValueError as error:
        raise click.UsageError(
            f"--otlp-endpoint: an OTEL_ variable in the environment is malformed: {error}"
        ) from None


@contextmanager
def _errors_of_opentelemetry() -> Iterator[None]:
    """Raise ValueError at the end if OpenTelemetry has logged an error, instead of logging it.

    Some variables that it cannot read it leaves out, with a traceback in the log.
    """
    errors: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            errors.append(record.getMessage())
        return False

    handler, logger = logging.Handler(), logging.getLogger("opentelemetry")
    handler.addFilter(keep)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
    if errors:
        raise ValueError(errors[0])


def _check(settings: RunSettings) -> None:
    """Raise UsageError if settings are invalid or contradict each other."""
    if settings.max_backoff < settings.initial_backoff:
        raise click.UsageError("--max-backoff must be at least --initial-backoff")
    if (settings.tls_cert_file is None) != (settings.tls_private_key_file is None):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file need each other")
    for path in filter(None, settings.authorization_always_allow_paths.split(",")):
        if not path.startswith("/"):
            raise click.UsageError(
                f'--authorization-always-allow-paths: "{path}" must begin with /'
            )
        if "*" in path[:-1]:
            raise click.UsageError(
                f'--authorization-always-allow-paths: "{path}" may have * at its end only'
            )
    _check_decision_log(settings)
    _check_otlp_endpoint(settings)
    if settings.burst is not None and settings.qps is None:
        raise click.UsageError("--burst needs --qps")
    if not settings.leader_elect:
        return
    if settings.lease_duration <= settings.renew_deadline:
        raise click.UsageError("--lease-duration must be longer than --renew-deadline")
    if settings.renew_deadline <= JITTER * settings.retry_period:
        raise click.UsageError(f"--renew-deadline must be over {JITTER} times --retry-period")
