"""The placements that a pod group may have as a whole, and a profile's policy for groups.

See `Placement` and `PodGroupAssignments` in kube-scheduler's framework.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.model.pod import Uid
from mooring.state.columns import IntArray

__all__ = ["GroupPolicy", "Placement", "PodGroupAssignments"]


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Nodes on which all members of a group may be placed together.

    `rows` are int64 rows of the node table. `key` and `value` are the label that the nodes share;
    both are "" for all nodes. Placements of a higher `tier` are tried only if the whole group fits
    in none of a lower one.
    """

    rows: IntArray
    key: str = ""
    value: str = ""
    tier: int = 0

    @property
    def text(self) -> str:
        """The domain in a message: `rack r3`; "" for all nodes."""
        return f"{self.key.rpartition('/')[2]} {self.value}" if self.key else ""


@dataclass(frozen=True, slots=True, eq=False)
class PodGroupAssignments:
    """A placement with the rows of members by uid; `scheduled` were on a node before."""

    placement: Placement
    rows: Mapping[Uid, int]
    scheduled: int


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """How a profile treats its gangs; a plugin gives it in its attribute `group_policy`.

    Without a plugin that has one, the members of a group are scheduled one by one.
    """

    reserve_after_seconds: float | None = None
    """After so long without a place, nodes are reserved for a group; None: never."""
    reserved_nodes_percent: int = 100
    """At most so many of the nodes are reserved."""
    delete_bound_members: bool = False
    """Whether the bound members of a gang are deleted if the others cannot be bound."""
