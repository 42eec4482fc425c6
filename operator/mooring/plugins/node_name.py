"""Rejects all nodes except the one that the pod names (nodename/)."""

from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView


class NodeName:
    """Rejects every node except the node in `spec.nodeName`."""

    name: ClassVar[str] = "NodeName"
    depends_on_node_only: ClassVar[bool] = False
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD)}
    )

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> Skip | str:
        """Return the name of the node; SKIP if the pod names none."""
        return pod.node_name or SKIP

    def filter(self, _pod: Pod, nodes: NodeView, name: str) -> BoolArray:
        """Return bool[nodes]: True for the node that the pod names."""
        return nodes.named(name)

    def explain(self, _pod: Pod, nodes: NodeView, _: str) -> Explanation:
        """Return the reason for all rejected nodes; evictions change no node's name."""
        reason = "node(s) didn't match the requested node name"
        return Explanation.single(reason, len(nodes), resolvable=False)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE when the named node was added."""
        return queue_if(isinstance(event.after, Node) and event.after.name == pod.node_name)
