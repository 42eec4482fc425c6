"""The settings of `mooring run`, each described once.

`mooring run` makes its options from them. `python -m website --settings` makes the tables of
docs/settings.md from them.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final

import click

from mooring.observe.logs import FORMATS, LEVELS


class _Finite(click.FloatRange):
    """A parameter type: a number in a range, never `inf` or `nan`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; raise BadParameter if it is malformed, infinite or out of range."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


_POSITIVE: Final = _Finite(min=0, min_open=True)
_AT_LEAST_0: Final = _Finite(min=0)


def _setting(default: Any, text: str, kind: Any = str) -> Any:
    return field(default=default, metadata={"text": text, "kind": kind})


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of one replica; its scheduling policy is in SchedulingProfiles."""

    kubeconfig: str | None = _setting(
        None,
        "Path of the kubeconfig. Without it: the first of `$KUBECONFIG`, the pod's service "
        "account, `~/.kube/config`.",
        click.Path(),
    )
    context: str | None = _setting(
        None, "Context in the kubeconfig. Without it: the current context."
    )
    qps: float | None = _setting(
        None,
        "Requests per second to the API server, bindings included. Without it: no limit.",
        _POSITIVE,
    )
    burst: int | None = _setting(
        None,
        "Requests that Mooring may send at once, even above `--qps`. Without it: twice `--qps`.",
        click.IntRange(1),
    )
    leader_elect: bool = _setting(
        default=True,
        text="Whether replicas elect a leader through a Lease; only the leader binds pods. Without "
        "election this replica always binds pods.",
        kind=bool,
    )
    lease_namespace: str = _setting(
        "mooring-system",
        "Namespace of the Lease; the shipped RBAC allows access only in `mooring-system`.",
    )
    lease_name: str = _setting(
        "mooring",
        "Name of the Lease, the same for all replicas of a scheduler. The shipped RBAC allows "
        "access only to `mooring`.",
    )
    lease_duration: int = _setting(
        15,
        "Seconds after which another replica takes a Lease that is not renewed.",
        click.IntRange(1),
    )
    renew_deadline: float = _setting(
        10.0,
        "Seconds for which the leader tries to renew its Lease before it gives up; less than "
        "`--lease-duration`.",
        _POSITIVE,
    )
    retry_period: float = _setting(
        2.0,
        "Seconds between two attempts to get or renew the Lease; `--renew-deadline` must be more "
        "than 1.2 times this period.",
        _POSITIVE,
    )
    bind_address: str = _setting(
        "0.0.0.0",
        "IP address of the HTTPS endpoints for health, metrics and debugging; `0.0.0.0` and `::` "
        "both mean all IPv4 and IPv6 addresses.",
    )
    secure_port: int = _setting(
        10259, "Port of the HTTPS endpoints; 0 chooses a free port.", click.IntRange(0, 65_535)
    )
    tls_cert_file: str | None = _setting(
        None,
        "Certificate of the endpoints with its chain, PEM; read again when it changes. Without it: "
        "Mooring makes a self-signed certificate at the start.",
        click.Path(),
    )
    tls_private_key_file: str | None = _setting(
        None,
        "Private key of `--tls-cert-file`, PEM, not encrypted; neither flag works alone.",
        click.Path(),
    )
    client_ca_file: str | None = _setting(
        None,
        "CAs of client certificates, PEM; read again when it changes. Without it: the cluster's "
        "CAs, from the ConfigMap `kube-system/extension-apiserver-authentication`.",
        click.Path(),
    )
    authentication_skip_lookup: bool = _setting(
        default=False,
        text="Whether Mooring skips the look-up of the cluster's CAs of client certificates.",
        kind=bool,
    )
    authorization_always_allow_paths: str = _setting(
        "/healthz,/readyz,/livez",
        "Paths that are shown without authorization, with commas between them; `/a/*` for all "
        "paths below `/a/`.",
    )
    log_level: str = _setting(
        "info",
        "The least severe messages that are logged: `debug`, `info`, `warning` or `error`.",
        click.Choice(LEVELS),
    )
    log_format: str = _setting(
        "text",
        "`text` for people, `json` for machines; the shipped Deployment sets `json`.",
        click.Choice(FORMATS),
    )
    initial_backoff: float = _setting(
        1.0,
        "Seconds of a pod's first backoff; each later backoff is twice the one before.",
        _POSITIVE,
    )
    max_backoff: float = _setting(10.0, "Seconds of a pod's longest backoff.", _POSITIVE)
    queue_fairness: str = _setting(
        "none",
        "`namespace`: namespaces take turns among pods of equal priority. `none`: "
        "kube-scheduler's order.",
        click.Choice(("none", "namespace")),
    )
    stop_seconds: float = _setting(
        20.0,
        "Seconds that evictions, bindings, writes of claims and events may take after SIGTERM. "
        "Unfinished bindings are rolled back, then the Lease is released.",
        _AT_LEAST_0,
    )
    decision_record_mib: float = _setting(
        64.0,
        "MiB of memory for the record of decisions that `mooring explain` reads; 0: no record.",
        _AT_LEAST_0,
    )
    decision_log: str | None = _setting(
        None,
        "File to which the leader appends every step of every pod, each as a line of JSON.",
        click.Path(dir_okay=False),
    )
    decision_log_mib: float = _setting(
        100.0,
        "MiB at which the file of `--decision-log` is renamed to `*.1`; this replaces the former "
        "`*.1`.",
        _POSITIVE,
    )
    otlp_endpoint: str | None = _setting(
        None,
        "URL of an OTLP/HTTP endpoint, such as `http://collector:4318`, which gets a trace of each "
        "pod with its attempts; needs the extra `otlp`.",
    )
    plugin_slow_seconds: float = _setting(
        1.0,
        "Seconds after which a synchronous call of a plugin is logged and counted as slow.",
        _POSITIVE,
    )
    plugin_timeout_seconds: float = _setting(
        900.0,
        "Seconds after which PreBind, Bind and PostBind of a third-party plugin are cancelled.",
        _POSITIVE,
    )
