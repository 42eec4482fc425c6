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
    http_address: str = "0.0.0.0"
    """Address of the health, metrics and debug endpoints."""
    http_port: int = 10251
    """Their port; 0 takes a free one."""
    log_level: str = "info"
    """error, warning, info or debug."""
    log_format: str = "text"
    """text for people, json for machines."""
    initial_backoff: float = 1.0
    """Seconds a pod waits after its first refusal; doubled with each further one."""
    max_backoff: float = 10.0
    """The longest of these waits, in seconds."""
    queue_fairness: str = "none"
    """none: kube-scheduler's order. namespace: namespaces take turns among equal priorities."""
    stop_seconds: float = 20.0
    """How long bindings in flight may take to finish after SIGTERM."""
