"""Arguments of the plugin GangScheduling."""

from pydantic import Field

from mooring.policy.names import QualifiedName
from mooring.policy.reading import PolicyModel

__all__ = ["GangSchedulingArgs", "PodGroupLabel"]


class PodGroupLabel(PolicyModel):
    """A label or annotation of the site's own by which pods name their group."""

    name: QualifiedName
    """The label or annotation whose value is the name of the group."""
    minimum: QualifiedName | None = None
    """The label or annotation that says how many members are placed together; absent: 1."""


class GangSchedulingArgs(PolicyModel):
    """How pods name groups that have no object."""

    pod_group_labels: tuple[PodGroupLabel, ...] = Field((), max_length=16)
    """Looked up in this order, in a pod's labels and then in its annotations."""
