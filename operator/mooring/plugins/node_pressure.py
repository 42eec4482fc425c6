"""Rejects nodes under pressure: CheckNodeMemoryPressure, -DiskPressure and -PIDPressure.

See algorithm/predicates/predicates.go of Kubernetes before 1.18. Today there are taints instead.
"""

from typing import ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.policy.reading import PolicyModel
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView

Pressure = Literal["MemoryPressure", "DiskPressure", "PIDPressure"]


class NodePressureArgs(PolicyModel):
    """The node conditions that make a node infeasible."""

    conditions: tuple[Pressure, ...] = Field(("MemoryPressure", "DiskPressure", "PIDPressure"))
    """MemoryPressure excludes nodes for BestEffort pods only, other conditions for every pod."""


_REASONS: Final[dict[Pressure, str]] = {
    "MemoryPressure": "node(s) had memory pressure",
    "DiskPressure": "node(s) had disk pressure",
    "PIDPressure": "node(s) had pid pressure",
}


class NodePressure:
    """Rejects nodes that have one of the profile's pressure conditions."""

    name: ClassVar[str] = "NodePressure"
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True
    Args: ClassVar[type[NodePressureArgs]] = NodePressureArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE)}
    )

    def __init__(self, args: NodePressureArgs, handle: Handle) -> None:
        self._conditions = args.conditions

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> Skip | tuple[Pressure, ...]:
        """Return the conditions to check, MemoryPressure for BestEffort pods only; SKIP if none."""
        best_effort = pod.spec.qos == "BestEffort"
        return tuple(c for c in self._conditions if c != "MemoryPressure" or best_effort) or SKIP

    def filter(self, _pod: Pod, nodes: NodeView, pressures: tuple[Pressure, ...]) -> BoolArray:
        """Return bool[nodes]: True where the node has none of the checked conditions."""
        return np.equal(_bits(nodes, pressures), 0)

    def explain(self, _pod: Pod, nodes: NodeView, pressures: tuple[Pressure, ...]) -> Explanation:
        """Return the conditions of each rejected node; evictions do not end a condition at once."""
        reasons = tuple(_REASONS[pressure] for pressure in pressures)
        return Explanation(reasons, _bits(nodes, pressures), np.zeros(len(nodes), np.bool_))

    def queueing_hint(self, _pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a node was added, or has lost one of the profile's conditions."""
        before, after = event.before, event.after
        if not isinstance(before, Node) or not isinstance(after, Node):
            return QueueingHint.QUEUE
        was, now = before.conditions, after.conditions
        return queue_if(any(was.get(c) == "True" != now.get(c) for c in self._conditions))


def _bits(nodes: NodeView, pressures: tuple[Pressure, ...]) -> npt.NDArray[np.uint64]:
    by_code = [
        sum(1 << i for i, pressure in enumerate(pressures) if (pressure, "True") in conditions)
        for conditions in nodes.condition_sets
    ]
    return np.array(by_code, np.uint64)[nodes.condition_codes]
