"""What happened to the cluster, as the queue and the plugins are told about it."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Action", "ClusterEvent", "Kind"]


class Kind(StrEnum):
    """The kinds of object that a decision reads."""

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


class Action(StrEnum):
    """What happened to the object."""

    ADD = "Add"
    UPDATE = "Update"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One object added (`before` is None), updated, or deleted (`after` is None).

    A Pod event is about a pod that is or was on a node, or about the end of a nomination (DELETE of
    a pod with `nominated_node` and no `node_name`); pods that wait are the queue's own business. A
    pod is added when it is assumed and Reserve and Permit have accepted it. Its confirmation by the
    watch, or a status that no decision depends on, is no event.
    """

    kind: Kind
    action: Action
    before: object | None
    after: object | None
