"""Avoids nodes whose annotation asks to keep the pods of a controller away.

See NodePreferAvoidPodsPriority (nodepreferavoidpods/ of Kubernetes before 1.23). The annotation
`scheduler.alpha.kubernetes.io/preferAvoidPods` names the controllers.
"""

from typing import ClassVar, Final

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.registry import NoArgs
from mooring.framework.scores import MAX_SCORE
from mooring.framework.verdicts import SKIP, Skip
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

_CONTROLLERS: Final = ("ReplicationController", "ReplicaSet")


class NodePreferAvoidPods:
    """Scores 0 for nodes whose annotation names the pod's controller, 100 for all other nodes.

    Older defaults gave this plugin the weight 10000, so that it outweighs all others.
    """

    name: ClassVar[str] = "NodePreferAvoidPods"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_score(self, pod: Pod, nodes: NodeView, _cluster: ClusterView) -> Skip | BoolArray:
        """Return bool[nodes]: True for nodes to avoid; SKIP if no node is to be avoided."""
        owner = pod.owner
        if owner is None or owner.kind not in _CONTROLLERS:
            return SKIP
        avoiding = nodes.avoiding(owner.kind, owner.uid)
        return avoiding if avoiding.any() else SKIP

    def score(self, _pod: Pod, _nodes: NodeView, avoiding: BoolArray) -> IntArray:
        """Return int64[nodes]: 0 for nodes to avoid, 100 for others."""
        return MAX_SCORE * ~avoiding
