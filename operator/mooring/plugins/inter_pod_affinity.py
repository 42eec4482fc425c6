"""Affinity and anti-affinity between pods, in both directions (interpodaffinity/)."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import Field

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.scores import MAX_SCORE
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.affinity import AffinityTerm, PodAffinity
from mooring.model.bounded_cache import cached
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.policy.reading import PolicyModel
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT, Domains
from mooring.state.topology.domain_counts import CountArray, DomainCounts
from mooring.state.topology.equivalent_pods import Role
from mooring.state.topology.pod_selection import Selection, selection, term_selector
from mooring.state.view import BoolArray, NodeView


class InterPodAffinityArgs(PolicyModel):
    """Arguments of InterPodAffinity; they change the scores only, not the filter."""

    hard_pod_affinity_weight: int = Field(1, ge=0, le=100)
    """The weight of an existing pod's required affinity to the incoming pod, in scores."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Score by the incoming pod's own preferred terms only."""


_MOST_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of cached terms with their pods' specs; the least recently used are dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class _Terms:
    """A pod's inter-pod affinity terms, with the pods that they select."""

    required: Selection | None
    required_keys: tuple[str, ...]
    anti: tuple[tuple[Selection, str], ...]
    preferred: tuple[tuple[int, Selection, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """Counts of pods per topology domain, for the filter."""

    wanted: tuple[DomainCounts, ...]
    first: bool
    """Whether only the pod itself matches its required affinity; if so, no other pod is needed."""
    avoided: tuple[DomainCounts, ...]
    # By node label: the placed pods whose own anti-affinity terms select the pod.
    avoiding: Mapping[Domains, IntArray | CountArray]


_Liking = dict[Domains, IntArray]
"""Maps a node label to an array that has, by code of the label's value, the sum of the weights of
all matching pods. The last item, 0, is for nodes without the label."""


class InterPodAffinity:
    """Rejects nodes by required inter-pod terms, and scores nodes by preferred terms."""

    name: ClassVar[str] = "InterPodAffinity"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[InterPodAffinityArgs]] = InterPodAffinityArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        product((Kind.POD, Kind.NODE, Kind.NAMESPACE), Action)
    )

    def __init__(self, args: InterPodAffinityArgs, handle: Handle) -> None:
        self._required_weight = args.hard_pod_affinity_weight
        self._own_only = args.ignore_preferred_terms_of_existing_pods
        self._evaluations = handle.evaluations

    def pre_filter(self, pod: Pod, cluster: ClusterView) -> Skip | _Counts:
        """Return the counts for all required terms that concern the pod; SKIP if there are none."""
        affinity = pod.spec.affinity
        avoiding = cluster.owners(Role.FORBIDDEN, pod)
        if not (affinity.required or affinity.required_anti or avoiding):
            return SKIP
        terms = _terms(pod.spec)
        required = ((terms.required, key) for key in terms.required_keys if terms.required)
        self._evaluations.count_pods(cluster, (*required, *terms.anti))
        wanted = _wanted(terms, cluster)
        first = terms.required is not None and _is_first(pod, terms.required, wanted, cluster)
        avoided = (cluster.counts(pods, key) for pods, key in terms.anti)
        return _Counts(wanted, first, tuple(c for c in avoided if c.total), avoiding)

    def filter(self, _pod: Pod, nodes: NodeView, counts: _Counts) -> BoolArray:
        """Return bool[nodes]: True where its domains have all wanted pods and no unwanted pod."""
        fits = _together(nodes, counts)
        for unwanted in counts.avoided:
            fits &= unwanted.at(nodes) == 0
        for domains, owners in counts.avoiding.items():
            fits &= owners[nodes.domain_codes(domains)] == 0
        return fits

    def explain(self, _pod: Pod, nodes: NodeView, counts: _Counts) -> Explanation:
        """Return one reason per rejected node, the first in kube-scheduler's order."""
        reasons = (
            "node(s) didn't match pod affinity rules",
            "node(s) didn't match pod anti-affinity rules",
            "node(s) didn't satisfy existing pods anti-affinity rules",
        )
        together, apart = _together(nodes, counts), np.ones(len(nodes), np.bool_)
        for unwanted in counts.avoided:
            apart &= unwanted.at(nodes) == 0
        bits = np.where(together, np.where(apart, np.uint64(4), np.uint64(2)), np.uint64(1))
        return Explanation(reasons, bits, together)

    def pre_score(self, pod: Pod, _nodes: NodeView, cluster: ClusterView) -> Skip | _Liking:
        """Return, by node label, the weights of the terms that apply; SKIP if no term applies."""
        preferred = pod.spec.affinity.preferred
        if self._own_only and not preferred:
            return SKIP
        liking: _Liking = {}
        for domains, owners in cluster.owners(Role.PREFERRED, pod).items():
            _add(liking, domains, owners.astype(np.int64))
        if self._required_weight:
            for domains, owners in cluster.owners(Role.REQUIRED, pod).items():
                _add(liking, domains, self._required_weight * owners.astype(np.int64))
        own = _terms(pod.spec).preferred if preferred else ()
        self._evaluations.count_pods(cluster, ((pods, key) for _, pods, key in own))
        for weight, pods, key in own:
            counts = cluster.counts(pods, key)
            if counts.total:
                _add(liking, counts.domains, weight * counts.by_code.astype(np.int64))
        return liking or SKIP

    def score(self, _pod: Pod, nodes: NodeView, liking: _Liking) -> IntArray:
        """Return int64[nodes]: the sum of the weights in the node's domains, scaled to 0-100."""
        total = np.zeros(len(nodes), np.int64)
        for domains, by_code in liking.items():
            total += by_code[nodes.domain_codes(domains)]
        total -= total.min()
        most = int(total.max())
        if not most:
            return total
        # In kube-scheduler's order of floating-point operations, so that truncation is the same.
        scaled: IntArray = (MAX_SCORE * (total / most)).astype(np.int64)
        return scaled

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a changed pod, node or namespace may make the pod's terms hold."""
        match event.kind:
            case Kind.POD:
                return queue_if(_pods_differ(pod, event.before, event.after, cluster))
            case Kind.NODE:
                return queue_if(_domains_differ(pod, event.before, event.after, cluster))
            case _:
                return queue_if(_namespaces_differ(pod, event.before, event.after))


def _add(liking: _Liking, domains: Domains, amounts: IntArray) -> None:
    liking[domains] = liking.get(domains, 0) + amounts


def _together(nodes: NodeView, counts: _Counts) -> BoolArray:
    fits = np.ones(len(nodes), np.bool_)
    for wanted in counts.wanted:
        if counts.first:
            fits &= nodes.domain_codes(wanted.domains) != ABSENT
        else:
            fits &= wanted.at(nodes) > 0
    return fits


@cached(_MOST_BYTES)
def _terms(spec: PodSpec) -> _Terms:
    affinity: PodAffinity = spec.affinity
    required: tuple[AffinityTerm, ...] = affinity.required
    return _Terms(
        required=_pods(*required) if required else None,
        required_keys=tuple(term.topology_key for term in required),
        anti=tuple((_pods(term), term.topology_key) for term in affinity.required_anti),
        preferred=tuple(
            (preferred.weight, _pods(preferred.term), preferred.term.topology_key)
            for preferred in affinity.preferred
        ),
    )


def _pods(*terms: AffinityTerm) -> Selection:
    return selection(tuple(map(term_selector, terms)), terminating=True)


def _wanted(terms: _Terms, cluster: ClusterView) -> tuple[DomainCounts, ...]:
    pods = terms.required
    if pods is None:
        return ()
    return tuple(cluster.counts(pods, key) for key in terms.required_keys)


def _is_first(
    pod: Pod, required: Selection, wanted: tuple[DomainCounts, ...], cluster: ClusterView
) -> bool:
    return not any(counts.total for counts in wanted) and cluster.selects(required, pod)


def _pods_differ(pod: Pod, before: Any, after: Any, cluster: ClusterView) -> bool:
    """Return whether the change of another pod may let `pod` fit on some node."""
    if before is not None and after is not None and before.labels == after.labels:
        return False
    terms = _terms(pod.spec)

    def came(pods: Selection) -> bool:
        return _is_in(pods, after, cluster) and not _is_in(pods, before, cluster)

    def left(pods: Selection) -> bool:
        return _is_in(pods, before, cluster) and not _is_in(pods, after, cluster)

    if terms.required is not None and came(terms.required):
        return True
    if any(left(pods) for pods, _ in terms.anti):
        return True
    if after is None and _keys_against(pod, before, cluster):
        return True
    required = terms.required
    if required is None or not left(required):
        return False
    # Now perhaps only `pod` itself matches the required affinity.
    return _is_first(pod, required, _wanted(terms, cluster), cluster)


def _domains_differ(pod: Pod, before: Any, after: Any, cluster: ClusterView) -> bool:
    """Return whether a Node's change may let `pod` fit because of the node's topology labels."""
    terms = _terms(pod.spec)
    if before is None and terms.required is None:
        return True
    was = before.labels if before is not None else {}
    now = after.labels if after is not None else {}
    if was == now:
        return False
    keys = {*terms.required_keys, *(key for _, key in terms.anti)}
    keys |= {domains.key for domains in cluster.owners(Role.FORBIDDEN, pod)}
    for placed in cluster.pods_of((before or after).name):
        keys |= _keys_against(pod, placed.pod, cluster)
    return any(was.get(key) != now.get(key) for key in keys)


def _namespaces_differ(pod: Pod, before: Any, after: Any) -> bool:
    if before is not None and after is not None and before.labels == after.labels:
        return False
    affinity = pod.spec.affinity
    selecting = (t.namespace_selector for t in (*affinity.required, *affinity.required_anti))
    return (before or after).name == pod.namespace or any(s is not None for s in selecting)


def _is_in(pods: Selection, pod: Pod | None, cluster: ClusterView) -> bool:
    return pod is not None and cluster.selects(pods, pod)


def _keys_against(pod: Pod, other: Pod, cluster: ClusterView) -> set[str]:
    return {key for pods, key in _terms(other.spec).anti if cluster.selects(pods, pod)}
