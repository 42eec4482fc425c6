"""Rejects nodes whose kubelet lacks a feature that a pod needs (nodedeclaredfeatures/)."""

from collections.abc import Hashable
from typing import ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, node_newly, queue_if
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.view import BoolArray, NodeView

_MISSING: Final = "node(s) didn't match Pod's required features"


class NodeDeclaredFeatures:
    """Rejects nodes whose `status.declaredFeatures` lacks a feature that the pod needs."""

    name: ClassVar[str] = "NodeDeclaredFeatures"
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE)}
    )

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._known = handle.kubernetes.declared_features

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> Skip | frozenset[str]:
        """Return the features that the pod needs; SKIP if it needs none."""
        return (pod.spec.required_features & self._known) or SKIP

    def filter_key(self, pod: Pod) -> Hashable:
        """Return the features that the pod needs; the filter reads nothing else of the pod."""
        return pod.spec.required_features

    def filter(self, _pod: Pod, nodes: NodeView, required: frozenset[str]) -> BoolArray:
        """Return bool[nodes]: True where the node declares all features that the pod needs."""
        declares = np.array([required <= declared for declared in nodes.declared_feature_sets])
        fits: BoolArray = declares[nodes.declared_feature_codes]
        return fits

    def explain(self, _pod: Pod, nodes: NodeView, required: frozenset[str]) -> Explanation:
        """Return the missing features of each rejected node as details; evictions cannot help."""
        lacking: dict[str, BoolArray] = {}
        for code, declared in enumerate(nodes.declared_feature_sets):
            missing = ", ".join(sorted(required - declared))
            here = np.equal(nodes.declared_feature_codes, code)
            lacking[missing] = lacking[missing] | here if missing in lacking else here
        masks = [(missing, mask) for missing, mask in lacking.items() if mask.any()]
        return Explanation.from_masks(
            ((_MISSING, mask) for _, mask in masks),
            resolvable=np.zeros(len(nodes), np.bool_),
            details=(f"it does not declare {missing}" for missing, _ in masks),
        )

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a new or changed node declares all needed features and did not before."""
        required = pod.spec.required_features & self._known
        return queue_if(node_newly(event, lambda node: required <= node.declared_features))
