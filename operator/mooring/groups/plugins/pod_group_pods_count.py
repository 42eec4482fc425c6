"""Prefers the placement with nodes for the most members of a group (podgrouppodscount/)."""

from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.placements import PodGroupAssignments
from mooring.framework.plugin import Normalize
from mooring.framework.registry import NoArgs
from mooring.groups.state.pod_groups import PodGroupState
from mooring.state.cluster_view import ClusterView


class PodGroupPodsCount:
    """Scores a placement by the number of the group's members that have a node in it."""

    name: ClassVar[str] = "PodGroupPodsCount"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.MAX

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def score_placement(
        self, _group: PodGroupState, assignments: PodGroupAssignments, _cluster: ClusterView
    ) -> int:
        """Return the number of members that have a node, or get one in this placement."""
        return assignments.scheduled + len(assignments.rows)
