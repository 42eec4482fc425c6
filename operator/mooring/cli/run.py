"""The command `mooring run`: runs a replica of the scheduler."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from mooring import __version__
from mooring.cli.console import BAD_INPUT
from mooring.kube.errors import KubeError
from mooring.kube.lease import JITTER
from mooring.observe.logs import configure
from mooring.process.importing import import_module_quickly
from mooring.run.settings import RunSettings


def _options() -> list[click.Parameter]:
    options: list[click.Parameter] = []
    for setting in fields(RunSettings):
        flag, kind = f"--{setting.name.replace('_', '-')}", setting.metadata["kind"]
        options.append(
            click.Option(
                [f"{flag}/--no-{flag[2:]}" if kind is bool else flag, setting.name],
                type=None if kind is bool else kind,
                envvar=f"MOORING_{setting.name.upper()}",
                default=setting.default,
                show_default=setting.default is not None,
                show_envvar=True,
                help=setting.metadata["text"].replace("`", ""),
            )
        )
    return options


@click.command(
    params=_options(),
    epilog="""\b
Examples:
  mooring run
  mooring run --kubeconfig ~/.kube/config --no-leader-elect --log-level debug
  MOORING_QPS=200 MOORING_LOG_FORMAT=json mooring run
  mooring run --otlp-endpoint http://collector.monitoring:4318""",
)
def run(**given: Any) -> None:
    """Run the scheduler.

    Any number of replicas may run; one of them, the leader, binds pods. SchedulingProfile objects
    configure scheduling, and these options configure the process. Exits with 0 after SIGTERM, 1 if
    it loses the Lease, 2 if it cannot start.
    """
    settings = RunSettings(**given)
    _check(settings)
    configure(log_format=settings.log_format, level=settings.log_level, mistakes=(KubeError,))
    # The help text and wrong options do not need the whole scheduler.
    service = import_module_quickly("mooring.run.service")
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
    """Raise ValueError at the end of the context if OpenTelemetry has logged an error."""
    # OpenTelemetry ignores some malformed variables, and only logs a traceback.
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
