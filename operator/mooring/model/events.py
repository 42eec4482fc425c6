"""Cluster events: they tell the queue and the plugins about changes in the cluster."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of API objects that a scheduling decision reads."""

    POD = "Pod"
    NODE = "Node"
    NAMESPACE = "Namespace"
    SERVICE = "Service"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    STORAGE_CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    CSI_DRIVER = "CSIDriver"
    CSI_STORAGE_CAPACITY = "CSIStorageCapacity"
    VOLUME_ATTACHMENT = "VolumeAttachment"
    POD_DISRUPTION_BUDGET = "PodDisruptionBudget"
    REPLICA_SET = "ReplicaSet"
    REPLICATION_CONTROLLER = "ReplicationController"
    STATEFUL_SET = "StatefulSet"
    PRIORITY_CLASS = "PriorityClass"
    POD_GROUP = "PodGroup"
    """PodGroups of the API group scheduling.k8s.io."""
    COSCHEDULING_POD_GROUP = "podgroups.scheduling.x-k8s.io"
    VOLCANO_POD_GROUP = "podgroups.scheduling.volcano.sh"
    KAI_POD_GROUP = "podgroups.scheduling.run.ai"
    POD_GANG = "PodGang"
    HYPER_NODE = "HyperNode"
    QUEUE = "Queue"
    """Mooring's own Queues, of the API group scheduling.mooring.dev."""
    ELASTIC_QUOTA = "ElasticQuota"
    """ElasticQuotas of the API group scheduling.x-k8s.io or scheduling.sigs.k8s.io."""
    RESOURCE_CLAIM = "ResourceClaim"
    RESOURCE_SLICE = "ResourceSlice"
    DEVICE_CLASS = "DeviceClass"
    DEVICE_TAINT_RULE = "DeviceTaintRule"
    UNSCHEDULED_POD = "UnscheduledPod"
    """Pods without a node that belong to a pod group; a kind of event only, not of objects."""


class Action(StrEnum):
    """The change of an object in an event: added, updated or deleted."""

    ADD = "Add"
    UPDATE = "Update"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A change of an object: added (`before` is None), updated, or deleted (`after` is None).

    Events of kind Pod are about pods that are assumed on, bound to or nominated to a node:
    - ADD when the pod is assumed and Reserve and Permit have accepted it, or when another scheduler
      has bound it.
    - DELETE when the pod is forgotten or deleted, or loses its nomination; a pod that loses its
      nomination has a `nominated_node` and no `node_name`.

    A pod without a node causes events only if it is in a pod group. These events have the kind
    UnscheduledPod, because the rest of the group may be waiting for the pod. No event is caused
    when an assumed pod is confirmed, or when a status changes that no decision reads, for example
    the status of a PodGroup. An UPDATE of kind ResourceSlice with neither `before` nor `after`
    means that all devices are known now.
    """

    kind: Kind
    action: Action
    before: object | None
    after: object | None

    @property
    def label(self) -> str:
        """The kind and the action as metrics name them: NodeAdd, AssignedPodDelete."""
        return event_label(self.kind, self.action)


def event_label(kind: Kind, action: Action) -> str:
    """Return the name of events of this kind and action in metrics (ClusterEvent.Label)."""
    return f"{'AssignedPod' if kind is Kind.POD else kind.value}{action.value}"
