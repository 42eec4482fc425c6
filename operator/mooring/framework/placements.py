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
    both are "" if the placement has all nodes. Placements with a higher `tier` are tried only if
    the whole group fits in no placement with a lower tier.
    """

    rows: IntArray
    key: str = ""
    value: str = ""
    tier: int = 0

    @property
    def text(self) -> str:
        """The domain for messages, such as `rack r3`; "" if the placement has all nodes."""
        return f"{self.key.rpartition('/')[2]} {self.value}" if self.key else ""


@dataclass(frozen=True, slots=True, eq=False)
class PodGroupAssignments:
    """A placement in which a group fits; `rows` has the row of each member's node, by uid.

    `scheduled` is the number of members that already had nodes.
    """

    placement: Placement
    rows: Mapping[Uid, int]
    scheduled: int


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """The rules of a profile for gangs; a plugin has them in its attribute `group_policy`.

    If no plugin of the profile has the attribute, the members of a group are scheduled one by one.
    """

    reserve_after_seconds: float | None = None
    """The seconds that a group waits before nodes are reserved for it; None reserves no nodes."""
    reserved_nodes_percent: int = 100
    """The largest percentage of the nodes that may be reserved at the same time."""
    delete_bound_members: bool = False
    """Whether the bound members of a gang are deleted if the other members cannot be bound."""
