"""Arguments of the plugins that Mooring keeps for policies of older clusters.

Names and fields are those these plugins had in KubeSchedulerConfiguration v1beta1, where they had
any (staging `kube-scheduler/config/v1beta1/types_pluginargs.go` of v1.20).
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from mooring.policy.args import CPU_AND_MEMORY, LESS_USED_FIRST, Resources, Shape
from mooring.policy.name_syntax import QualifiedName
from mooring.policy.profile_errors import FieldError
from mooring.policy.reading import PolicyModel

Pressure = Literal["MemoryPressure", "DiskPressure", "PIDPressure"]


class NodeLabelArgs(PolicyModel):
    """Labels that a node must have, must not have, should have or should not have."""

    present_labels: tuple[QualifiedName, ...] = ()
    """Keys a node must have to fit."""
    absent_labels: tuple[QualifiedName, ...] = ()
    """Keys a node must not have to fit."""
    present_labels_preference: tuple[QualifiedName, ...] = ()
    """Keys whose presence adds to a node's score."""
    absent_labels_preference: tuple[QualifiedName, ...] = ()
    """Keys whose absence adds to a node's score."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for a label that is both required and forbidden."""
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
                    message = f'"{label}" is also in the list of labels that should be present'
                    yield FieldError(f"{field}[{number}]", message)


class ServiceAffinityArgs(PolicyModel):
    """Labels by which the pods of a Service are kept together or spread."""

    affinity_labels: tuple[QualifiedName, ...] = ()
    """All pods of a Service run on nodes with the same values of these."""
    anti_affinity_labels_preference: tuple[QualifiedName, ...] = ()
    """Pods of a Service are spread over the values of each of these."""


class NodePressureArgs(PolicyModel):
    """The node conditions that make a node infeasible."""

    conditions: tuple[Pressure, ...] = Field(("MemoryPressure", "DiskPressure", "PIDPressure"))
    """MemoryPressure applies to BestEffort pods only, the others to every pod."""


class VolumeCountArgs(PolicyModel):
    """How many volumes of a cloud provider a node can have attached."""

    max_volumes: int | None = Field(None, ge=1, le=2**31 - 1)
    """Replaces the cloud provider's limit, as the variable KUBE_MAX_PD_VOLS did. A limit that the
    node publishes takes precedence."""


class NodeResourcesLeastAllocatedArgs(PolicyModel):
    """A score of free resources, in addition to that of NodeResourcesFit."""

    resources: Resources = CPU_AND_MEMORY


class NodeResourcesMostAllocatedArgs(PolicyModel):
    """A score of requested resources, in addition to that of NodeResourcesFit."""

    resources: Resources = CPU_AND_MEMORY


class RequestedToCapacityRatioArgs(PolicyModel):
    """A score by utilization, in addition to that of NodeResourcesFit."""

    shape: Shape = LESS_USED_FIRST
    resources: Resources = CPU_AND_MEMORY
