"""Arguments of the plugin GangScheduling."""

from datetime import timedelta

from pydantic import Field

from mooring.policy.durations import Duration
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
    """How pods name groups that have no object, and what is done for groups that wait or break."""

    pod_group_labels: tuple[PodGroupLabel, ...] = Field((), max_length=16)
    """Looked up in this order, in a pod's labels and then in its annotations."""
    reserve_after: Duration = timedelta(minutes=5)
    """After so long without a place, nodes are reserved for a group, for as long; `0`: never."""
    delete_bound_members: bool = False
    """If the members of a gang cannot all be bound, delete those that were bound with them.

    Only if all of these have a controller, which makes them again; so that no half gang keeps its
    nodes.
    """
