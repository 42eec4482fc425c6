"""Services, controllers, disruption budgets, priority classes and namespaces."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mooring.model.fields import (
    boolean,
    integer,
    mapping,
    name_of,
    namespace_of,
    naming_the_object,
    optional_mapping,
    strings,
    text,
)
from mooring.model.selectors import LabelSelector, parse_label_selector, selector_from_labels


@dataclass(frozen=True, slots=True)
class _PodSelecting:
    """An object that selects pods of its namespace; without a selector it selects none."""

    namespace: str
    name: str
    selector: LabelSelector | None

    @property
    def key(self) -> str:
        """The object's namespace and name: `team-a/web`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Service(_PodSelecting):
    """A Service; default topology spread constraints count the pods that its selector matches."""


@dataclass(frozen=True, slots=True)
class Controller(_PodSelecting):
    """A ReplicationController, ReplicaSet or StatefulSet, which selects its pods."""


@dataclass(frozen=True, slots=True)
class PodDisruptionBudget(_PodSelecting):
    """A budget for disruptions of the selected pods.

    Attributes:
        disruptions_allowed: The number of pods that may be disrupted now; evictions of
            `disrupted_pods` are already subtracted.
        disrupted_pods: Names of pods whose eviction the disruption controller has not seen yet.
        allows_unhealthy: Whether the Eviction API always evicts pods that are not ready.
    """

    disruptions_allowed: int
    disrupted_pods: frozenset[str]
    allows_unhealthy: bool = False


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A named priority; `preemption_policy` is PreemptLowerPriority or Never."""

    name: str
    value: int
    global_default: bool
    preemption_policy: str


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace and its labels."""

    name: str
    labels: Mapping[str, str]


@naming_the_object("Service")
def parse_service(raw: Mapping[str, Any]) -> Service:
    """Parse a Service; it selects no pod if it has no selector."""
    labels = strings(mapping(raw, "spec"), "selector", "spec")
    return Service(
        namespace_of(raw), name_of(raw), selector_from_labels(labels) if labels else None
    )


@naming_the_object("ReplicationController")
def parse_replication_controller(raw: Mapping[str, Any]) -> Controller:
    """Parse a ReplicationController; without a selector it selects by its template's labels."""
    spec = mapping(raw, "spec")
    labels = strings(spec, "selector", "spec")
    if not labels:  # the API server's default
        template = mapping(mapping(spec, "template", "spec"), "metadata", "spec.template")
        labels = strings(template, "labels", "spec.template.metadata")
    return Controller(
        namespace_of(raw), name_of(raw), selector_from_labels(labels) if labels else None
    )


def _parse_controller(raw: Mapping[str, Any]) -> Controller:
    return Controller(namespace_of(raw), name_of(raw), _selector(raw))


parse_replica_set: Final = naming_the_object("ReplicaSet")(_parse_controller)
parse_stateful_set: Final = naming_the_object("StatefulSet")(_parse_controller)


@naming_the_object("PodDisruptionBudget")
def parse_pod_disruption_budget(raw: Mapping[str, Any]) -> PodDisruptionBudget:
    """Parse a PodDisruptionBudget; without a status it allows no disruption."""
    status = mapping(raw, "status")
    policy = text(mapping(raw, "spec"), "unhealthyPodEvictionPolicy", "spec")
    healthy = integer(status, "currentHealthy", "status") or 0
    wanted = integer(status, "desiredHealthy", "status") or 0
    return PodDisruptionBudget(
        namespace_of(raw),
        name_of(raw),
        _selector(raw),
        disruptions_allowed=integer(status, "disruptionsAllowed", "status") or 0,
        disrupted_pods=frozenset(mapping(status, "disruptedPods", "status")),
        allows_unhealthy=policy == "AlwaysAllow" or healthy >= wanted > 0,
    )


@naming_the_object("PriorityClass")
def parse_priority_class(raw: Mapping[str, Any]) -> PriorityClass:
    """Parse a PriorityClass; raise ManifestError if a field is malformed."""
    return PriorityClass(
        name=name_of(raw),
        value=integer(raw, "value") or 0,
        global_default=boolean(raw, "globalDefault"),
        preemption_policy=text(raw, "preemptionPolicy") or "PreemptLowerPriority",
    )


NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The API server gives each namespace this label, whose value is the namespace's name."""


@naming_the_object("Namespace")
def parse_namespace(raw: Mapping[str, Any]) -> Namespace:
    """Parse a Namespace; raise ManifestError if a field is malformed."""
    return Namespace(name_of(raw), strings(mapping(raw, "metadata"), "labels", "metadata"))


def _selector(raw: Mapping[str, Any]) -> LabelSelector | None:
    selector = optional_mapping(mapping(raw, "spec"), "selector", "spec")
    return parse_label_selector(selector, "spec.selector")
