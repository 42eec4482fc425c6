"""Applies node selectors and node affinity of the pod and of the profile (nodeaffinity/)."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, node_newly, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.verdicts import SKIP, Explanation, PreFilterResult, Skip, Unschedulable
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    PreferredTerm,
    parse_node_selector,
    parse_preferred_terms,
)
from mooring.policy.label_selectors import NodeAffinity as AddedNodeAffinity
from mooring.policy.reading import PolicyModel
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView


class NodeAffinityArgs(PolicyModel):
    """Arguments of NodeAffinity: node affinity that the profile adds to each pod's own."""

    added_affinity: AddedNodeAffinity | None = None


_HARD, _SOFT = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


@dataclass(frozen=True, slots=True)
class _Selectors:
    labels: LabelSelector
    required: NodeSelector | None


class NodeAffinity:
    """Rejects nodes that the required selectors do not match, and scores the preferred terms."""

    name: ClassVar[str] = "NodeAffinity"
    depends_on_node_only: ClassVar[bool] = True
    depends_on_node_object_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.MAX
    Args: ClassVar[type[NodeAffinityArgs]] = NodeAffinityArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {(Kind.NODE, Action.ADD), (Kind.NODE, Action.UPDATE)}
    )

    def __init__(self, args: NodeAffinityArgs, handle: Handle) -> None:
        added: dict[str, Any] = {}
        if args.added_affinity is not None:
            added = args.added_affinity.model_dump(by_alias=True, exclude_none=True, mode="json")
        self._added = parse_node_selector(added.get(_HARD))
        self._added_preferred = parse_preferred_terms(added.get(_SOFT) or ())

    def pre_filter(
        self, pod: Pod, _cluster: ClusterView
    ) -> Skip | _Selectors | PreFilterResult | Unschedulable:
        """Return the pod's selectors; SKIP if neither the pod nor the profile has any.

        If every term names nodes, also return their names. Returns Unschedulable if every term
        contradicts itself.
        """
        wanted = _selectors(pod)
        if wanted.required is None and wanted.labels.empty and self._added is None:
            return SKIP
        terms = wanted.required.terms if wanted.required is not None else ()
        by_term = [_names(term) for term in terms]
        named = [names for names in by_term if names is not None]
        if not terms or len(named) < len(by_term):
            return wanted
        names = frozenset[str]().union(*named)
        return (
            PreFilterResult(wanted, names)
            if names
            else Unschedulable("pod affinity terms conflict")
        )

    def filter_key(self, pod: Pod) -> Hashable:
        """Return the node selector and the required terms; the filter reads nothing else."""
        return pod.spec.node_selector, pod.spec.required_nodes

    def filter(self, pod: Pod, nodes: NodeView, wanted: _Selectors | None) -> BoolArray:
        """Return bool[nodes]: True where the selectors of the pod and of the profile match.

        `wanted` is None if the profile disables PreFilter of this plugin.
        """
        wanted = wanted or _selectors(pod)
        return self._enforced(nodes) & nodes.admitted(wanted.labels, wanted.required)

    def explain(self, _pod: Pod, nodes: NodeView, _: _Selectors | None) -> Explanation:
        """Return one reason per rejected node: the profile's affinity, else the pod's selectors."""
        reasons = (
            "node(s) didn't match scheduler-enforced node affinity",
            "node(s) didn't match Pod's node affinity/selector",
        )
        bits = np.where(self._enforced(nodes), np.uint64(2), np.uint64(1))
        return Explanation(reasons, bits, np.zeros(len(nodes), np.bool_))

    def pre_score(
        self, pod: Pod, _nodes: NodeView, _cluster: ClusterView
    ) -> Skip | tuple[PreferredTerm, ...]:
        """Return the preferred terms of the profile and of the pod; SKIP if there are none."""
        return self._preferred(pod) or SKIP

    def score_key(self, pod: Pod) -> Hashable:
        """Return the pod's preferred terms; the score reads nothing else."""
        return pod.spec.preferred_nodes

    def score(self, pod: Pod, nodes: NodeView, terms: tuple[PreferredTerm, ...] | None) -> IntArray:
        """Return int64[nodes]: the sum of the weights of the preferred terms that match.

        `terms` is None if the profile disables PreScore of this plugin.
        """
        total = np.zeros(len(nodes), np.int64)
        for preferred in self._preferred(pod) if terms is None else terms:
            total += preferred.weight * nodes.selected(preferred.term)
        return total

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a new or changed node matches all selectors, but did not before."""
        before, after = event.before, event.after
        if isinstance(before, Node) and isinstance(after, Node) and before.labels == after.labels:
            return QueueingHint.SKIP
        added = self._added

        def selected(node: Node) -> bool:
            enforced = added is None or added.matches(node.name, node.labels)
            return enforced and pod.spec.selects(node)

        return queue_if(node_newly(event, selected))

    def _enforced(self, nodes: NodeView) -> BoolArray:
        return nodes.admitted(LabelSelector(), self._added)

    def _preferred(self, pod: Pod) -> tuple[PreferredTerm, ...]:
        return (*self._added_preferred, *pod.spec.preferred_nodes)


def _selectors(pod: Pod) -> _Selectors:
    return _Selectors(pod.spec.node_selector, pod.spec.required_nodes)


def _names(term: NodeSelectorTerm) -> frozenset[str] | None:
    named = [
        frozenset(field.values)
        for field in term.fields
        if field.key == "metadata.name" and field.operator == "In"
    ]
    return frozenset.intersection(*named) if named else None
