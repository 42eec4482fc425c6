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
    """PodGroups of scheduling.k8s.io."""
    COSCHEDULING_POD_GROUP = "podgroups.scheduling.x-k8s.io"
    VOLCANO_POD_GROUP = "podgroups.scheduling.volcano.sh"
    KAI_POD_GROUP = "podgroups.scheduling.run.ai"
    POD_GANG = "PodGang"
    HYPER_NODE = "HyperNode"
    RESOURCE_CLAIM = "ResourceClaim"
    RESOURCE_SLICE = "ResourceSlice"
    DEVICE_CLASS = "DeviceClass"
    DEVICE_TAINT_RULE = "DeviceTaintRule"
    UNSCHEDULED_POD = "UnscheduledPod"
    """Pods without a node that belong to a pod group; a kind of event only, not of objects."""


class Action(StrEnum):
    """The change of the object."""

    ADD = "Add"
    UPDATE = "Update"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An object was added (`before` is None), updated, or deleted (`after` is None).

    Events of kind Pod concern pods that are assumed on, bound to or nominated to a node. Pending
    pods cause no events, except that those of a pod group have events of kind UnscheduledPod, which
    the rest of their group may be waiting for. A pod is added when it is assumed and
    Reserve and Permit have accepted it. It is deleted when it is forgotten, deleted or no longer
    nominated (then it has a `nominated_node` and no `node_name`). The confirmation of an assumed
    pod and changes of a status that no decision reads cause no event; nor does the status of a
    PodGroup. An UPDATE of ResourceSlices without objects says that all devices are known now.
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
    """Return the name of such events in metrics (ClusterEvent.Label in k8s.io/kube-scheduler)."""
    return f"{'AssignedPod' if kind is Kind.POD else kind.value}{action.value}"
