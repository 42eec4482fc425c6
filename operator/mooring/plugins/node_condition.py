"""Rejects nodes whose conditions are bad: CheckNodeCondition of Kubernetes before 1.18.

See algorithm/predicates/predicates.go. Today the node controller sets taints instead.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, node_newly, queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Explanation
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView

_HEALTHY: Final[Mapping[str, str]] = {
    "Ready": "True",
    "OutOfDisk": "False",
    "NetworkUnavailable": "False",
}
"""Maps a condition to its status on a healthy node; a healthy node may also lack the condition."""
_REASONS: Final = (
    "node(s) were not ready",
    "node(s) were out of disk space",
    "node(s) had unavailable network",
    "node(s) were unschedulable",
)
"""The reasons for rejecting a node: one for each condition in `_HEALTHY`, then one for cordoned
nodes."""
_CORDONED: Final = np.uint64(1 << len(_HEALTHY))


class NodeCondition:
    """Rejects nodes that are not ready, out of disk, without network or cordoned."""

    name: ClassVar[str] = "NodeCondition"
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE)}
    )

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def filter(self, _pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        """Return bool[nodes]: True where no condition is bad and the node is not cordoned."""
        return np.equal(_bits(nodes), 0)

    def explain(self, _pod: Pod, nodes: NodeView, _: None) -> Explanation:
        """Return all reasons that apply to each rejected node; evictions cannot help."""
        return Explanation(_REASONS, _bits(nodes), np.zeros(len(nodes), np.bool_))

    def queueing_hint(self, _pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if the event's node is acceptable now and was not before."""
        return queue_if(
            node_newly(event, lambda n: not n.unschedulable and not _unfit(n.conditions))
        )


def _bits(nodes: NodeView) -> npt.NDArray[np.uint64]:
    by_code = np.array([_unfit(dict(conditions)) for conditions in nodes.condition_sets], np.uint64)
    return by_code[nodes.condition_codes] | np.where(nodes.unschedulable, _CORDONED, np.uint64(0))


def _unfit(conditions: Mapping[str, str]) -> int:
    return sum(
        1 << i
        for i, (kind, wanted) in enumerate(_HEALTHY.items())
        if conditions.get(kind, wanted) != wanted
    )
