"""Places the pods of a Service on nodes with equal labels, or spreads them over label values.

See CheckServiceAffinity and service anti-affinity (serviceaffinity/ of Kubernetes 1.17 to 1.22).
"""

from collections.abc import Iterable
from itertools import product
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.scores import MAX_SCORE
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.selectors import Requirement, selector_from_labels
from mooring.model.workloads import Service
from mooring.policy.name_syntax import QualifiedName
from mooring.policy.reading import PolicyModel
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT, EACH_NODE
from mooring.state.topology.pod_selection import PodSelector, selection
from mooring.state.view import BoolArray, NodeView


class ServiceAffinityArgs(PolicyModel):
    """Labels by which the pods of a Service are kept together or spread."""

    affinity_labels: tuple[QualifiedName, ...] = ()
    """All pods of a Service run on nodes with the same values of these labels."""
    anti_affinity_labels_preference: tuple[QualifiedName, ...] = ()
    """The pods of a Service are spread over the values of each of these labels."""


_RequiredLabels = tuple[Requirement, ...]
"""Requirements that a node must meet: each names a label and its one allowed value."""


class ServiceAffinity:
    """Keeps a Service's pods on nodes with equal labels, or spreads them over a label's values."""

    name: ClassVar[str] = "ServiceAffinity"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[ServiceAffinityArgs]] = ServiceAffinityArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        product((Kind.POD, Kind.NODE, Kind.SERVICE), Action)
    )

    def __init__(self, args: ServiceAffinityArgs, handle: Handle) -> None:
        self._affinity = args.affinity_labels
        self._anti_affinity = args.anti_affinity_labels_preference

    def pre_filter(self, pod: Pod, cluster: ClusterView) -> Skip | _RequiredLabels:
        """Return the labels that a node must have; SKIP if there are none.

        A label's value comes from the pod's nodeSelector. Otherwise, if a Service selects the pod,
        the value comes from the node of a pod with the same labels.
        """
        wanted = {
            requirement.key: requirement.values[0]
            for requirement in pod.spec.node_selector.requirements
            if requirement.key in self._affinity
        }
        missing = [key for key in self._affinity if key not in wanted]
        if missing and cluster.services(pod):
            wanted |= _labels_of_matching_pods(pod, missing, cluster)
        return tuple(Requirement(key, "In", (value,)) for key, value in wanted.items()) or SKIP

    def filter(self, _pod: Pod, nodes: NodeView, wanted: _RequiredLabels) -> BoolArray:
        """Return bool[nodes]: True where every label has the required value."""
        fits = np.ones(len(nodes), np.bool_)
        for requirement in wanted:
            fits &= nodes.meets(requirement)
        return fits

    def explain(self, _pod: Pod, nodes: NodeView, _: _RequiredLabels) -> Explanation:
        """Return the reason for all rejected nodes; evicting all matching pods would help."""
        return Explanation.single(
            "node(s) didn't match service affinity", len(nodes), resolvable=True
        )

    def pre_score(self, pod: Pod, nodes: NodeView, cluster: ClusterView) -> Skip | IntArray:
        """Return int64[nodes]: how many pods of the pod's first Service are on each node.

        Return SKIP if the profile prefers no labels.
        """
        if not self._anti_affinity:
            return SKIP
        services = cluster.services(pod)
        if not services:
            return np.zeros(len(nodes), np.int64)
        part = PodSelector(services[0].selector, frozenset((pod.namespace,)))
        counts = cluster.counts(selection((part,), terminating=False), EACH_NODE)
        return counts.at(nodes).astype(np.int64)

    def score(self, _pod: Pod, nodes: NodeView, counts: IntArray) -> IntArray:
        """Return int64[nodes]: the mean, over the preferred labels, of `_elsewhere`."""
        total = np.zeros(len(nodes))
        for key in self._anti_affinity:
            total += _elsewhere(nodes, key, counts) / len(self._anti_affinity)
        return total.astype(np.int64)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, _cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a matching pod, a Service or a node came, went or got other labels."""
        before, after = event.before, event.after
        match event.kind:
            case Kind.POD:
                return queue_if(_matches(before, pod) != _matches(after, pod))
            case Kind.SERVICE:
                services = [s for s in (before, after) if isinstance(s, Service)]
                return queue_if(before != after and services[0].namespace == pod.namespace)
            case _:
                if not isinstance(before, Node) or not isinstance(after, Node):
                    return QueueingHint.QUEUE
                return queue_if(before.labels != after.labels)


def _matches(other: object | None, pod: Pod) -> bool:
    return (
        isinstance(other, Pod)
        and other.namespace == pod.namespace
        and pod.labels.items() <= other.labels.items()
    )


def _labels_of_matching_pods(pod: Pod, keys: Iterable[str], cluster: ClusterView) -> dict[str, str]:
    part = PodSelector(selector_from_labels(pod.labels), frozenset((pod.namespace,)))
    matching = cluster.counts(selection((part,), terminating=True), EACH_NODE)
    if not matching.total:
        return {}
    order = cluster.nodes.take(cluster.nodes_in_order)
    found = np.flatnonzero(matching.at(order))
    if not len(found):
        return {}
    node = order.node(int(found[0]))
    labels = node.labels if node is not None else {}
    return {key: labels[key] for key in keys if key in labels}


def _elsewhere(nodes: NodeView, key: str, counts: IntArray) -> npt.NDArray[np.float64]:
    """Return, for each node, the percentage of pods on nodes with another value of the label."""
    codes = nodes.label_codes(key)
    labelled = codes != ABSENT
    pods = int(counts.sum())
    if not pods:
        return np.where(labelled, float(MAX_SCORE), 0.0)
    by_value = np.bincount(codes[labelled], weights=counts[labelled], minlength=1)
    share = MAX_SCORE * ((pods - by_value[codes]) / pods)
    return np.where(labelled, share, 0.0)
