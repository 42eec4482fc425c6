"""Metrics of values that other packages already have; each scrape reads the current values."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

_SCHEDULER: Final = "mooring"
"""The value of the label `name` in the metric about leader election."""


_MOST_VALUES: Final = 100
"""The most values of a label whose values users choose; other values share the series "other"."""


def largest(counts: Mapping[str, int]) -> Mapping[str, int]:
    """Return the hundred largest counts; the key "other" has the sum of all smaller counts."""
    if len(counts) <= _MOST_VALUES:
        return counts
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    others = sum(count for _, count in ordered[_MOST_VALUES:])
    return {**dict(ordered[:_MOST_VALUES]), "other": others}


def _counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Any:
    return field(metadata={"declaration": (CounterMetricFamily, name, text, labels)})


def _gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Any:
    return field(metadata={"declaration": (GaugeMetricFamily, name, text, labels)})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCollector:
    """Reads the current values of metrics; a scrape calls the callback of each metric once.

    A callback runs on the event loop. It returns one number, or a mapping from label values to
    numbers; with several labels, the keys are tuples.
    """

    pending_pods: Callable[[], Mapping[str, int]] = _gauge(
        "scheduler_pending_pods", "Pending pods by queue.", ("queue",)
    )
    unschedulable_pods: Callable[[], Mapping[tuple[str, str], int]] = _gauge(
        "scheduler_unschedulable_pods",
        "Unschedulable pods, by each plugin that rejected them.",
        ("plugin", "profile"),
    )
    queue_incoming_pods: Callable[[], Mapping[tuple[str, str], int]] = _counter(
        "scheduler_queue_incoming_pods_total",
        "Pods added to the queues, by queue and event.",
        ("queue", "event"),
    )
    queued_entities: Callable[[], Mapping[tuple[str, ...], int]] = _gauge(
        "scheduler_queued_entities",
        "Entries of the queues, by queue and entity; each pod is one.",
        ("queue", "type", "entity"),
    )
    queue_incoming_entities: Callable[[], Mapping[tuple[str, ...], int]] = _counter(
        "scheduler_queue_incoming_entities_total",
        "Entries added to the queues, by queue, event and entity; each pod is one.",
        ("queue", "event", "type", "entity"),
    )
    inflight_events: Callable[[], Mapping[str, int]] = _gauge(
        "scheduler_inflight_events",
        "Events that the queue keeps for pods in flight, and these pods (PodPopped).",
        ("event",),
    )
    profiles_ready: Callable[[], Mapping[str, bool]] = _gauge(
        "mooring_profile_ready",
        "1 if the newest spec of the profile is in force, else 0.",
        ("profile",),
    )
    cache_size: Callable[[], Mapping[str, int]] = _gauge(
        "scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", ("type",)
    )
    pod_groups: Callable[[], Mapping[str, int]] = _gauge(
        "mooring_pod_groups", "Pod groups by phase.", ("phase",)
    )
    reserved_nodes: Callable[[], int] = _gauge(
        "mooring_reserved_nodes", "Nodes that are reserved for a pod group."
    )
    queue_nominal: Callable[[], Mapping[tuple[str, str], float]] = _gauge(
        "mooring_queue_nominal",
        "The quota of each Queue, in cores, bytes or counts.",
        ("queue", "resource"),
    )
    queue_used: Callable[[], Mapping[tuple[str, str], float]] = _gauge(
        "mooring_queue_used",
        "What each Queue uses of its quota and borrows, in cores, bytes or counts.",
        ("queue", "resource"),
    )
    queue_waiting_pods: Callable[[], Mapping[str, int]] = _gauge(
        "mooring_queue_waiting_pods", "Pods of each Queue that wait for a node.", ("queue",)
    )
    leading: Callable[[], bool] = _gauge(
        "leader_election_master_status", "1 while this replica holds the lease, else 0.", ("name",)
    )
    watch_lag_seconds: Callable[[], Mapping[str, float]] = _gauge(
        "mooring_watch_lag_seconds",
        "How long the watch of a resource has not worked, 0 while it does.",
        ("resource",),
    )
    bindings_in_flight: Callable[[], int] = _gauge(
        "mooring_bindings_in_flight",
        "Assumed pods whose binding has neither succeeded nor failed yet.",
    )
    devices_known: Callable[[], bool] = _gauge(
        "mooring_devices_known",
        "1 if claims, slices and classes of devices are known, 0 while pods with claims wait.",
    )
    devices: Callable[[], Mapping[str, int]] = _gauge(
        "mooring_devices", "Devices in ResourceSlices, by driver.", ("driver",)
    )
    devices_in_use: Callable[[], Mapping[str, int]] = _gauge(
        "mooring_devices_in_use",
        "Devices that claims hold or are about to get, by driver; a shared one counts once.",
        ("driver",),
    )
    events_dropped: Callable[[], int] = _counter(
        "mooring_events_dropped_total",
        "Kubernetes Events lost because too many were waiting to be written.",
    )
    spans_dropped: Callable[[], int] = _counter(
        "mooring_spans_dropped_total",
        "Spans lost because the OTLP endpoint did not take them, or not soon enough.",
    )
    kopf_restarts: Callable[[], int] = _counter(
        "mooring_kopf_restarts_total",
        "Times kopf, which reads new pods and profiles, ended and was started again.",
    )
    gpu_mismatches: Callable[[], int] = _counter(
        "mooring_gpu_assignment_mismatches_total",
        "Pods whose device plugin handed out other GPU cards than those chosen for them.",
    )
    rebalancing_planned: Callable[[], Mapping[str, int]] = _gauge(
        "mooring_rebalancing_planned_moves",
        "Moves of pods that the last plan of the profile has.",
        ("profile",),
    )

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values, in prometheus_client's form."""
        for reading in fields(self):
            family_of, name, text, labels = reading.metadata["declaration"]
            family = family_of(name, text, labels=labels)
            found = getattr(self, reading.name)()
            if not isinstance(found, Mapping):
                found = {(_SCHEDULER,) if labels else (): found}
            for key, value in found.items():
                family.add_metric((key,) if isinstance(key, str) else key, value)
            yield family
