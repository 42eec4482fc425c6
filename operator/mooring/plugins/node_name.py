"""A pod that names its node goes there or nowhere (nodename/)."""

from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray, NodeView

__all__ = ["NodeName"]


class NodeName:
    """Refuses every node but the one in `spec.nodeName`."""

    name: ClassVar[str] = "NodeName"
    row_local: ClassVar[bool] = False
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD)}
    )

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_filter(self, pod: Pod, _cluster: Snapshot) -> Skip | str:
        """The node's name; most pods name none."""
        return pod.node_name or SKIP

    def filter(self, _pod: Pod, nodes: NodeView, name: str) -> BoolArray:
        """True at the named node."""
        return nodes.named(name)

    def explain(self, _pod: Pod, nodes: NodeView, _: str) -> Explanation:
        """One reason; no eviction renames a node."""
        reason = "node(s) didn't match the requested node name"
        return Explanation.single(reason, len(nodes), resolvable=False)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: Snapshot) -> QueueingHint:
        """The named node came."""
        return queue_if(isinstance(event.after, Node) and event.after.name == pod.node_name)
