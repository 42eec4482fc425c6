"""The settings of `mooring run`; the command line and the environment fill them in."""

from dataclasses import dataclass

__all__ = ["RunSettings"]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How one replica of the scheduler runs; its policy is in SchedulingProfiles, not here."""

    kubeconfig: str | None = None
    """Path of the kubeconfig. None: $KUBECONFIG, else the pod's service account, else ~/.kube."""
    context: str | None = None
    """Context in the kubeconfig. None: its current one."""
    qps: float | None = None
    """Requests per second to the API server, bindings included. None: no limit of our own."""
    burst: int | None = None
    """Requests at once on top of `qps`. None: twice `qps`."""
    leader_elect: bool = True
    """Whether a Lease decides which replica binds; without it this one always does."""
    lease_namespace: str = "mooring-system"
    """Where the Lease is; the shipped RBAC grants it there."""
    lease_name: str = "mooring"
    """Replicas with the same lease stand in for each other."""
    lease_duration: int = 15
    """Seconds after which a silent leader's lease may be taken."""
    renew_deadline: float = 10.0
    """Seconds for which the leader tries to renew before it gives up."""
    retry_period: float = 2.0
    """Seconds between tries to get or renew the lease."""
    bind_address: str = "0.0.0.0"
    """IP address of the health, metrics and debug endpoints; kubelet probes a pod at its own, which
    may be one of IPv6."""
    secure_port: int = 10259
    """Their port, HTTPS only, kube-scheduler's; 0 chooses a free one."""
    tls_cert_file: str | None = None
    """Their certificate, PEM. None: a self-signed one is made at the start."""
    tls_private_key_file: str | None = None
    """The certificate's private key, PEM."""
    client_ca_file: str | None = None
    """CAs of client certificates, PEM. None: the cluster's, unless that look-up is skipped."""
    authentication_skip_lookup: bool = False
    """Whether the cluster's CA of client certificates is not looked up."""
    authorization_always_allow_paths: str = "/healthz,/readyz,/livez"
    """Paths shown without authorization, with commas between them; kubelet has no credentials."""
    log_level: str = "info"
    """error, warning, info or debug."""
    log_format: str = "text"
    """text for people, json for machines."""
    initial_backoff: float = 1.0
    """Seconds a pod waits after its first failed attempt; doubled with each further one."""
    max_backoff: float = 10.0
    """The longest of these waits, in seconds."""
    queue_fairness: str = "none"
    """none: kube-scheduler's order. namespace: namespaces take turns among equal priorities."""
    stop_seconds: float = 20.0
    """How long evictions, bindings, writes of claims and events may take to end after SIGTERM."""
    decision_record_mib: float = 64.0
    """Memory for the record of decisions in MiB; 0 keeps no record."""
    decision_log: str | None = None
    """File to which every step of every pod is appended as a line of JSON. None: to none."""
    decision_log_mib: float = 100.0
    """The file is renamed to *.1 when it has so many MiB."""
    otlp_endpoint: str | None = None
    """Base URL of the OTLP/HTTP endpoint that gets a trace of every pod. None: there is none."""
    plugin_slow_seconds: float = 1.0
    """A synchronous call of a plugin that takes longer is logged and counted."""
    plugin_timeout_seconds: float = 900.0
    """How long PreBind, Bind and PostBind of a plugin that is not shipped may take."""
