"""Arguments of the plugins that carry policies of older clusters.

Names and fields are those these plugins had in KubeSchedulerConfiguration v1beta1, where they had
any (staging `kube-scheduler/config/v1beta1/types_pluginargs.go` of v1.20).
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from mooring.policy.args import CPU_AND_MEMORY, Resources, Shape, ShapePoint
from mooring.policy.errors import FieldError
from mooring.policy.names import QualifiedName
from mooring.policy.reading import PolicyModel

__all__ = [
    "NodeLabelArgs",
    "NodePressureArgs",
    "NodeResourcesLeastAllocatedArgs",
    "NodeResourcesMostAllocatedArgs",
    "Pressure",
    "RequestedToCapacityRatioArgs",
    "ServiceAffinityArgs",
    "VolumeCountArgs",
]

Pressure = Literal["MemoryPressure", "DiskPressure", "PIDPressure"]


class NodeLabelArgs(PolicyModel):
    """Node labels that must or should be there or not, whatever their values."""

    present_labels: tuple[QualifiedName, ...] = ()
    """Keys a node must have to fit."""
    absent_labels: tuple[QualifiedName, ...] = ()
    """Keys a node must not have to fit."""
    present_labels_preference: tuple[QualifiedName, ...] = ()
    """Keys whose presence adds to a node's score."""
    absent_labels_preference: tuple[QualifiedName, ...] = ()
    """Keys whose absence adds to a node's score."""

    def mistakes(self) -> Iterator[FieldError]:
        """No node has a label and lacks it."""
        for field, wanted, unwanted in (
            ("absentLabels", self.present_labels, self.absent_labels),
            (
                "absentLabelsPreference",
                self.present_labels_preference,
                self.absent_labels_preference,
            ),
        ):
            for number, label in enumerate(unwanted):
                if label in wanted:
                    message = f'"{label}" is among the labels that should be present, too'
                    yield FieldError(f"{field}[{number}]", message)


class ServiceAffinityArgs(PolicyModel):
    """Pods of one Service on nodes that are alike, or spread over nodes that differ."""

    affinity_labels: tuple[QualifiedName, ...] = ()
    """All pods of a Service run on nodes with the same values of these."""
    anti_affinity_labels_preference: tuple[QualifiedName, ...] = ()
    """Pods of a Service are spread over the values of each of these."""


class NodePressureArgs(PolicyModel):
    """The node conditions that keep pods away."""

    conditions: tuple[Pressure, ...] = Field(("MemoryPressure", "DiskPressure", "PIDPressure"))
    """MemoryPressure keeps BestEffort pods away, the others every pod."""


class VolumeCountArgs(PolicyModel):
    """How many volumes of a cloud a node can have attached."""

    max_volumes: int | None = Field(None, ge=1, le=2**31 - 1)
    """In place of the cloud's own limit, as KUBE_MAX_PD_VOLS was once; a limit that the node
    publishes counts for more."""


class NodeResourcesLeastAllocatedArgs(PolicyModel):
    """A score of free resources beside that of NodeResourcesFit."""

    resources: Resources = CPU_AND_MEMORY


class NodeResourcesMostAllocatedArgs(PolicyModel):
    """A score of used resources beside that of NodeResourcesFit."""

    resources: Resources = CPU_AND_MEMORY


class RequestedToCapacityRatioArgs(PolicyModel):
    """A score by utilization beside that of NodeResourcesFit."""

    shape: Shape = (ShapePoint(utilization=0, score=10), ShapePoint(utilization=100, score=0))
    """The emptier, the better, unless it says something else."""
    resources: Resources = CPU_AND_MEMORY
