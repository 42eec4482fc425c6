"""Rejects cordoned nodes for pods that do not tolerate them (nodeunschedulable/)."""

from collections.abc import Hashable
from typing import ClassVar

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, node_newly, queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Explanation
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.model.taints import NOT_SCHEDULABLE_TAINT, tolerated
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView


class NodeUnschedulable:
    """Rejects cordoned nodes, unless the pod tolerates `node.kubernetes.io/unschedulable`."""

    name: ClassVar[str] = "NodeUnschedulable"
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE)}
    )

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def filter_key(self, pod: Pod) -> Hashable:
        """Return the pod's tolerations; the filter reads nothing else of the pod."""
        return pod.spec.tolerations

    def filter(self, pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        """Return bool[nodes]: False for cordoned nodes, unless the pod tolerates their taint."""
        if tolerated(NOT_SCHEDULABLE_TAINT, pod.spec.tolerations):
            return np.ones(len(nodes), np.bool_)
        return ~nodes.unschedulable

    def explain(self, _pod: Pod, nodes: NodeView, _: None) -> Explanation:
        """Return the reason for all rejected nodes; evictions do not uncordon a node."""
        return Explanation.single("node(s) were unschedulable", len(nodes), resolvable=False)

    def queueing_hint(self, _pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a node was uncordoned, or if a node was added that is not cordoned."""
        return queue_if(node_newly(event, lambda node: not node.unschedulable))
