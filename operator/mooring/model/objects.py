"""Parse a raw API object of any kind into its key and its value."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.claims.model.device_classes import parse_device_class
from mooring.claims.model.resource_claims import parse_resource_claim
from mooring.claims.model.resource_slices import parse_device_taint_rule, parse_resource_slice
from mooring.groups.model.hyper_node import parse_hyper_node
from mooring.groups.model.pod_group import (
    parse_coscheduling_pod_group,
    parse_kai_pod_group,
    parse_pod_gang,
    parse_pod_group,
    parse_volcano_pod_group,
)
from mooring.model import workloads
from mooring.model.events import Kind
from mooring.model.fields import name_of, namespace_of, text
from mooring.model.node import parse_node
from mooring.model.pod import parse_pod
from mooring.quota.model.elastic_quota import parse_elastic_quota
from mooring.quota.model.queue import parse_queue
from mooring.volumes.model import csi
from mooring.volumes.model import storage_objects as storage

_PARSERS: Final[Mapping[Kind, Callable[[Mapping[str, Any]], Any]]] = {
    Kind.POD: parse_pod,
    Kind.NODE: parse_node,
    Kind.NAMESPACE: workloads.parse_namespace,
    Kind.SERVICE: workloads.parse_service,
    Kind.PERSISTENT_VOLUME: storage.parse_persistent_volume,
    Kind.PERSISTENT_VOLUME_CLAIM: storage.parse_persistent_volume_claim,
    Kind.STORAGE_CLASS: storage.parse_storage_class,
    Kind.CSI_NODE: csi.parse_csi_node,
    Kind.CSI_DRIVER: csi.parse_csi_driver,
    Kind.CSI_STORAGE_CAPACITY: csi.parse_csi_storage_capacity,
    Kind.VOLUME_ATTACHMENT: csi.parse_volume_attachment,
    Kind.POD_DISRUPTION_BUDGET: workloads.parse_pod_disruption_budget,
    Kind.REPLICA_SET: workloads.parse_replica_set,
    Kind.REPLICATION_CONTROLLER: workloads.parse_replication_controller,
    Kind.STATEFUL_SET: workloads.parse_stateful_set,
    Kind.PRIORITY_CLASS: workloads.parse_priority_class,
    Kind.POD_GROUP: parse_pod_group,
    Kind.COSCHEDULING_POD_GROUP: parse_coscheduling_pod_group,
    Kind.VOLCANO_POD_GROUP: parse_volcano_pod_group,
    Kind.KAI_POD_GROUP: parse_kai_pod_group,
    Kind.POD_GANG: parse_pod_gang,
    Kind.HYPER_NODE: parse_hyper_node,
    Kind.QUEUE: parse_queue,
    Kind.ELASTIC_QUOTA: parse_elastic_quota,
    Kind.RESOURCE_CLAIM: parse_resource_claim,
    Kind.RESOURCE_SLICE: parse_resource_slice,
    Kind.DEVICE_CLASS: parse_device_class,
    Kind.DEVICE_TAINT_RULE: parse_device_taint_rule,
}

NAMESPACED: Final = frozenset(
    {
        Kind.POD,
        Kind.SERVICE,
        Kind.PERSISTENT_VOLUME_CLAIM,
        Kind.CSI_STORAGE_CAPACITY,
        Kind.POD_DISRUPTION_BUDGET,
        Kind.REPLICA_SET,
        Kind.REPLICATION_CONTROLLER,
        Kind.STATEFUL_SET,
        Kind.POD_GROUP,
        Kind.COSCHEDULING_POD_GROUP,
        Kind.VOLCANO_POD_GROUP,
        Kind.KAI_POD_GROUP,
        Kind.POD_GANG,
        Kind.ELASTIC_QUOTA,
        Kind.RESOURCE_CLAIM,
    }
)
"""The kinds whose key is namespace/name."""


def object_key(kind: Kind, raw: Mapping[str, Any]) -> str:
    """Return the key of an object: its name, or namespace/name."""
    return f"{namespace_of(raw)}/{name_of(raw)}" if kind in NAMESPACED else name_of(raw)


def identity(kind: Kind, raw: Mapping[str, Any]) -> str:
    """Return the key in the cluster state: the uid of a pod ("" if unset), else `object_key`."""
    return text(raw["metadata"], "uid", "metadata") if kind is Kind.POD else object_key(kind, raw)


def is_older(version: str, than: str) -> bool:
    """Return whether resourceVersion `version` is older than `than`; both are growing numbers."""
    return (len(version), version) < (len(than), than)


def parse_object(kind: Kind, raw: Mapping[str, Any]) -> Any:
    """Parse an object of this kind; all keys of `raw` must be strings, as in JSON.

    Raises ManifestError if a field is malformed; the text names the object and the field.
    """
    return _PARSERS[kind](raw)
