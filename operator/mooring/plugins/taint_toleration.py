"""Rejects nodes whose taints the pod does not tolerate (tainttoleration/)."""

from collections.abc import Callable, Hashable
from typing import ClassVar

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, node_newly, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Explanation
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.model.taints import Taint, repelled, tolerated
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView


class TaintToleration:
    """Rejects nodes with untolerated NoSchedule or NoExecute taints; scores PreferNoSchedule."""

    name: ClassVar[str] = "TaintToleration"
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE)}
    )
    normalize: ClassVar[Normalize] = Normalize.REVERSED

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def filter_key(self, pod: Pod) -> Hashable:
        """Return the pod's tolerations; the filter reads nothing else of the pod."""
        return pod.spec.tolerations

    def filter(self, pod: Pod, nodes: NodeView, _: None) -> BoolArray:
        """Return bool[nodes]: True where the pod tolerates every NoSchedule and NoExecute taint."""
        tolerations = pod.spec.tolerations
        return np.equal(_per_taint_set(nodes, lambda taints: repelled(taints, tolerations)), 0)

    def explain(self, _pod: Pod, nodes: NodeView, _: None) -> Explanation:
        """Return the reason for all rejected nodes; evictions remove no taint."""
        return Explanation.single("node(s) had untolerated taint(s)", len(nodes), resolvable=False)

    def score_key(self, pod: Pod) -> Hashable:
        """Return the pod's tolerations; the score reads nothing else of the pod."""
        return pod.spec.tolerations

    def score(self, pod: Pod, nodes: NodeView, _: None) -> IntArray:
        """Return int64[nodes]: how many PreferNoSchedule taints the pod does not tolerate."""
        soft = [t for t in pod.spec.tolerations if t.effect in ("", "PreferNoSchedule")]

        def untolerated(taints: tuple[Taint, ...]) -> int:
            return sum(t.effect == "PreferNoSchedule" and not tolerated(t, soft) for t in taints)

        return _per_taint_set(nodes, untolerated)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if the pod tolerates a new or changed node and did not before."""
        tolerations = pod.spec.tolerations
        return queue_if(node_newly(event, lambda node: not repelled(node.taints, tolerations)))


def _per_taint_set(nodes: NodeView, measure: Callable[[tuple[Taint, ...]], int]) -> IntArray:
    codes, sets = nodes.taint_codes, nodes.taint_sets
    if len(codes) < len(sets):
        measured = np.zeros(len(sets), np.int64)
        for code in np.unique(codes).tolist():
            measured[code] = measure(sets[code])
    else:
        measured = np.array([measure(taints) for taints in sets], np.int64)
    return measured.take(codes)
