"""Numbers that other packages already have; they are read when the metrics are scraped."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ["Readings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """The callbacks a scrape reads; each is called once per scrape on the event loop."""

    pending_pods: Callable[[], Mapping[str, int]]
    """Pods by queue: active, backoff, unschedulable, gated."""
    unschedulable_pods: Callable[[], Mapping[tuple[str, str], int]]
    """Unschedulable pods by (plugin, profile); a pod rejected by two plugins counts in both."""
    cache_size: Callable[[], Mapping[str, int]]
    """Objects in the mirror by type: nodes, pods, assumed_pods, pod_groups."""
    watch_lag_seconds: Callable[[], Mapping[str, float]]
    """By resource, how long its watch has not worked; 0 while it does."""
    bindings_in_flight: Callable[[], int]
    """Assumed pods whose binding has neither succeeded nor failed yet."""
    events_dropped: Callable[[], int]
    """Kubernetes Events lost so far because too many were waiting to be written."""
    spans_dropped: Callable[[], int]
    """Spans lost so far because the OTLP endpoint did not take them."""
    kopf_restarts: Callable[[], int]
    """How often kopf has ended and was started again."""
    gpu_mismatches: Callable[[], int]
    """Pods that turned out to have other GPU cards than those chosen for them."""
    pod_groups: Callable[[], Mapping[str, int]]
    """Pod groups by phase, as they were last looked at by a leading replica."""
    queue_incoming_pods: Callable[[], Mapping[tuple[str, str], int]]
    """Pods that were added to the queues so far, by (queue, event)."""
    inflight_events: Callable[[], Mapping[str, int]]
    """Events that the queue keeps for pods in flight, by event."""
    profiles_ready: Callable[[], Mapping[str, bool]]
    """By profile, whether its newest spec is in force."""
    leading: Callable[[], bool]
    """Whether this replica holds the lease and therefore binds."""

    def collect(self) -> Iterator[Metric]:
        """All of them with their present values, in prometheus_client's form."""
        yield _gauge(
            "scheduler_pending_pods",
            "Pending pods by queue.",
            ("queue",),
            _keyed(self.pending_pods()),
        )
        yield _gauge(
            "scheduler_unschedulable_pods",
            "Unschedulable pods, by each plugin that rejected them.",
            ("plugin", "profile"),
            self.unschedulable_pods().items(),
        )
        incoming = CounterMetricFamily(
            "scheduler_queue_incoming_pods_total",
            "Pods added to the queues, by queue and event.",
            labels=("queue", "event"),
        )
        for labels, pods in self.queue_incoming_pods().items():
            incoming.add_metric(labels, pods)
        yield incoming
        yield _gauge(
            "scheduler_inflight_events",
            "Events that the queue keeps for pods in flight, and these pods (PodPopped).",
            ("event",),
            _keyed(self.inflight_events()),
        )
        yield _gauge(
            "mooring_profile_ready",
            "1 if the newest spec of the profile is in force, else 0.",
            ("profile",),
            _keyed(self.profiles_ready()),
        )
        yield _gauge(
            "scheduler_cache_size",
            "Nodes, pods and assumed pods in the cache.",
            ("type",),
            _keyed(self.cache_size()),
        )
        yield _gauge(
            "mooring_pod_groups",
            "Pod groups by phase.",
            ("phase",),
            _keyed(self.pod_groups()),
        )
        yield _gauge(
            "leader_election_master_status",
            "1 while this replica holds the lease, else 0.",
            ("name",),
            _keyed({"mooring": self.leading()}),
        )
        yield _gauge(
            "mooring_watch_lag_seconds",
            "How long the watch of a resource has not worked, 0 while it does.",
            ("resource",),
            _keyed(self.watch_lag_seconds()),
        )
        yield _gauge(
            "mooring_bindings_in_flight",
            "Assumed pods whose binding has neither succeeded nor failed yet.",
            (),
            [((), self.bindings_in_flight())],
        )
        yield CounterMetricFamily(
            "mooring_events_dropped_total",
            "Kubernetes Events lost because too many were waiting to be written.",
            value=self.events_dropped(),
        )
        yield CounterMetricFamily(
            "mooring_spans_dropped_total",
            "Spans lost because the OTLP endpoint did not take them, or not soon enough.",
            value=self.spans_dropped(),
        )
        yield CounterMetricFamily(
            "mooring_kopf_restarts_total",
            "Times kopf, which reads new pods and profiles, ended and was started again.",
            value=self.kopf_restarts(),
        )
        yield CounterMetricFamily(
            "mooring_gpu_assignment_mismatches_total",
            "Pods whose device plugin handed out other GPU cards than those chosen for them.",
            value=self.gpu_mismatches(),
        )


def _keyed(values: Mapping[str, float]) -> Iterator[tuple[tuple[str, ...], float]]:
    return (((key,), value) for key, value in values.items())


def _gauge(
    name: str,
    documentation: str,
    labels: tuple[str, ...],
    values: Iterable[tuple[tuple[str, ...], float]],
) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family
