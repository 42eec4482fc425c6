"""Spreads pods evenly over topology domains (framework/plugins/podtopologyspread)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.scores import MAX_SCORE
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.model.affinity import SpreadConstraint
from mooring.model.bounded_cache import cached
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import HOSTNAME, ZONE, Node
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.model.selectors import LabelSelector, Requirement
from mooring.plugins.pod_topology_spread.inclusion import NodeInclusion, includes
from mooring.policy.name_syntax import QualifiedName
from mooring.policy.profile_errors import FieldError
from mooring.policy.reading import PolicyModel
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT, EACH_NODE, Domains
from mooring.state.topology.pod_selection import Pair, PodSelector, Selection, selection
from mooring.state.view import BoolArray, NodeView


class DefaultConstraint(PolicyModel):
    """A topology spread constraint for pods that have none of their own."""

    unsupported: ClassVar[Mapping[str, str]] = {
        "labelSelector": "must not be set: it is derived from each pod's Services and owner",
        "matchLabelKeys": "must not be set: a default constraint has no labelSelector to narrow",
    }

    max_skew: int = Field(ge=1, le=2**31 - 1)
    topology_key: QualifiedName
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: int | None = Field(None, ge=1, le=2**31 - 1)
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None


class PodTopologySpreadArgs(PolicyModel):
    """Arguments of PodTopologySpread: constraints for pods that have none of their own."""

    default_constraints: tuple[DefaultConstraint, ...] = ()
    defaulting_type: Literal["System", "List"] = "System"
    """System: kube-scheduler's built-in constraints; List: `defaultConstraints`."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield mistakes: System with a list, or two items with equal key and whenUnsatisfiable."""
        if self.defaulting_type == "System" and self.default_constraints:
            yield FieldError("defaultingType", "must be List where defaultConstraints are given")
        seen = set[tuple[str, str]]()
        for number, constraint in enumerate(self.default_constraints):
            key = (constraint.topology_key, constraint.when_unsatisfiable)
            if key in seen:
                yield FieldError(
                    f"defaultConstraints[{number}]", f"{key[0]} with {key[1]} is there twice"
                )
            seen.add(key)


_MOST_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of cached constraints with their pods' specs and labels; the least recently used
are dropped."""

_SYSTEM_DEFAULTS: Final = (
    SpreadConstraint(max_skew=3, topology_key=HOSTNAME, hard=False, selector=None),
    SpreadConstraint(max_skew=5, topology_key=ZONE, hard=False, selector=None),
)
_PARENTS: Final = (
    Kind.SERVICE,
    Kind.REPLICA_SET,
    Kind.REPLICATION_CONTROLLER,
    Kind.STATEFUL_SET,
)
"""The kinds of objects with selectors that default constraints use to find a pod's peers."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rule:
    """A topology spread constraint, with the pods that it counts."""

    constraint: SpreadConstraint
    pods: Selection | None
    matches_self: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Limit:
    """The allowed domains, by code of the label's value."""

    key: str
    allows: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class _DomainScores:
    """A constraint's part of the raw score, for each domain."""

    domains: Domains
    by_code: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Scoring:
    """The parts of all constraints in the raw score of a pod."""

    # A node without one of these labels scores 0.
    required: tuple[str, ...]
    by_constraint: tuple[_DomainScores, ...]


class PodTopologySpread:
    """Rejects nodes in domains with too many matching pods; prefers domains with few of them."""

    name: ClassVar[str] = "PodTopologySpread"
    depends_on_node_only: ClassVar[bool] = False
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[PodTopologySpreadArgs]] = PodTopologySpreadArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        product((Kind.POD, Kind.NODE, *_PARENTS), Action)
    )

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        self._system = args.defaulting_type == "System"
        listed = tuple(map(_constraint, args.default_constraints))
        self._defaults = _SYSTEM_DEFAULTS if self._system else listed
        self._inclusion = NodeInclusion()
        self._evaluations = handle.evaluations
        self._empty_counts = handle.kubernetes.empty_selector_counts_pods

    def pre_filter(self, pod: Pod, cluster: ClusterView) -> Skip | tuple[_Limit, ...]:
        """Return the domains that each DoNotSchedule constraint allows; SKIP if there is none."""
        rules = self._rules(pod, cluster, hard=True)
        keys = tuple(rule.constraint.topology_key for rule in rules)
        return tuple(self._limit(pod.spec, rule, keys, cluster) for rule in rules) or SKIP

    def filter(self, _pod: Pod, nodes: NodeView, limits: tuple[_Limit, ...]) -> BoolArray:
        """Return bool[nodes]: True where every constraint allows the node's domain."""
        fits = np.ones(len(nodes), np.bool_)
        for limit in limits:
            fits &= limit.allows[nodes.label_codes(limit.key)]
        return fits

    def explain(self, _pod: Pod, nodes: NodeView, limits: tuple[_Limit, ...]) -> Explanation:
        """Return the first constraint that each node violates; evictions add no missing label."""
        reasons = (
            "node(s) didn't match pod topology spread constraints (missing required label)",
            "node(s) didn't match pod topology spread constraints",
        )
        bits = np.zeros(len(nodes), np.uint64)
        for limit in limits:
            codes = nodes.label_codes(limit.key)
            why = np.where(codes == ABSENT, np.uint64(1), np.uint64(2))
            bits = np.where((bits == 0) & ~limit.allows[codes], why, bits)
        return Explanation(reasons, bits, bits == 2)

    def pre_score(self, pod: Pod, nodes: NodeView, cluster: ClusterView) -> Skip | _Scoring:
        """Return each ScheduleAnyway constraint's part of the score; SKIP without constraints."""
        rules = self._rules(pod, cluster, hard=False)
        if not rules:
            return SKIP
        keys: tuple[str, ...] = ()
        if pod.spec.spread or not self._system:
            keys = tuple(rule.constraint.topology_key for rule in rules)
        required = tuple(k for k in keys if nodes.label(k).held < nodes.node_count)
        scored = np.flatnonzero(~_missing(nodes, required)) if required else None
        candidates = nodes if scored is None else nodes.take(nodes.rows[scored])
        return _Scoring(
            required,
            tuple(self._domain_scores(pod.spec, r, keys, candidates, cluster) for r in rules),
        )

    def score(self, _pod: Pod, nodes: NodeView, scoring: _Scoring) -> IntArray:
        """Return int64[nodes]: higher for fewer pods in the domains; 0 if a label is missing."""
        total = np.zeros(len(nodes), np.float64)
        for added in scoring.by_constraint:
            total += added.by_code[nodes.domain_codes(added.domains)]
        raw = np.floor(total + 0.5).astype(np.int64)
        if not scoring.required:
            return _normalized(raw)
        kept = ~_missing(nodes, scoring.required)
        scores = np.zeros(len(nodes), np.int64)
        scores[kept] = _normalized(raw[kept])
        return scores

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if the event changes what a DoNotSchedule constraint counts."""
        # A Service or controller may change the selector of the default constraints.
        if event.kind in _PARENTS:
            return queue_if(not pod.spec.spread and any(c.hard for c in self._defaults))
        before, after = event.before, event.after
        rules = self._rules(pod, cluster, hard=True)
        if event.kind is Kind.POD:
            return queue_if(
                any(
                    _is_counted(before, rule, cluster) != _is_counted(after, rule, cluster)
                    for rule in rules
                )
            )
        return queue_if(_domains(before, pod.spec, rules) != _domains(after, pod.spec, rules))

    def _rules(self, pod: Pod, cluster: ClusterView, *, hard: bool) -> tuple[_Rule, ...]:
        """Return the DoNotSchedule rules if `hard`, otherwise the ScheduleAnyway rules."""
        if pod.spec.spread:
            labels = frozenset(pod.labels.items())
            return _own_rules(pod.spec, labels, hard=hard, empty_counts=self._empty_counts)
        defaults = tuple(c for c in self._defaults if c.hard is hard)
        pods = cluster.default_selector(pod) if defaults else None
        if pods is None:
            return ()
        return tuple(_Rule(c, pods, cluster.selects(pods, pod)) for c in defaults)

    def _limit(
        self, spec: PodSpec, rule: _Rule, keys: tuple[str, ...], cluster: ClusterView
    ) -> _Limit:
        constraint = rule.constraint
        included = self._inclusion.counted_nodes(spec, constraint, keys, cluster.nodes)
        if rule.pods is not None:
            self._evaluations.count_pods(cluster, ((rule.pods, included.key),))
        counts = included.counts(cluster, rule.pods)
        counted = counts[included.inhabited]
        least = int(counted.min()) if len(counted) >= constraint.min_domains else 0
        allows = counts <= constraint.max_skew + least - rule.matches_self
        allows[ABSENT] = False
        return _Limit(constraint.topology_key, allows)

    def _domain_scores(
        self,
        spec: PodSpec,
        rule: _Rule,
        keys: tuple[str, ...],
        scored: NodeView,
        cluster: ClusterView,
    ) -> _DomainScores:
        constraint, nodes = rule.constraint, cluster.nodes
        if constraint.topology_key == HOSTNAME and rule.pods is not None:
            self._evaluations.count_pods(cluster, ((rule.pods, EACH_NODE),))
            counted = cluster.counts(rule.pods, EACH_NODE)
            by_code = _weighted(counted.by_code, len(scored), constraint)
            if nodes.label(HOSTNAME).held < nodes.node_count:
                by_code[:-1][nodes.label_codes(HOSTNAME) == ABSENT] = 0
            return _DomainScores(counted.domains, by_code)
        included = self._inclusion.counted_nodes(spec, constraint, keys, nodes)
        if rule.pods is not None:
            self._evaluations.count_pods(cluster, ((rule.pods, included.key),))
        seen = np.zeros(len(included.inhabited), np.bool_)
        # Nodes without the label are a domain too.
        seen[scored.domain_codes(included.domains)] = True
        counts, seen_domains = included.counts(cluster, rule.pods), int(np.count_nonzero(seen))
        by_code = _weighted(counts, seen_domains, constraint)
        by_code[ABSENT] = 0
        return _DomainScores(included.domains, by_code)


def _weighted(
    counts: npt.NDArray[np.signedinteger], domains: int, constraint: SpreadConstraint
) -> npt.NDArray[np.float64]:
    # The more domains there are, the faster the score grows.
    return counts.astype(np.float64) * math.log(domains + 2) + (constraint.max_skew - 1)


def _normalized(raw: IntArray) -> IntArray:
    # As in scoring.go.
    most = int(raw.max(initial=0))
    if not most:
        return np.full(len(raw), MAX_SCORE, np.int64)
    return MAX_SCORE * (most + int(raw.min()) - raw) // most


def _is_counted(pod: object | None, rule: _Rule, cluster: ClusterView) -> bool:
    return (
        isinstance(pod, Pod)
        and rule.pods is not None
        and not pod.terminating
        and cluster.selects(rule.pods, pod)
    )


def _domains(
    node: object | None, spec: PodSpec, rules: tuple[_Rule, ...]
) -> list[tuple[str, bool]] | None:
    if not isinstance(node, Node):
        return None
    constraints = [rule.constraint for rule in rules]
    if any(c.topology_key not in node.labels for c in constraints):
        return None
    return [(node.labels[c.topology_key], includes(spec, c, node)) for c in constraints]


def _missing(nodes: NodeView, keys: tuple[str, ...]) -> BoolArray:
    missing = np.zeros(len(nodes), np.bool_)
    for key in keys:
        missing |= nodes.label_codes(key) == ABSENT
    return missing


@cached(_MOST_BYTES)
def _own_rules(
    spec: PodSpec, labels: frozenset[Pair], *, hard: bool, empty_counts: bool
) -> tuple[_Rule, ...]:
    known = dict(labels)
    constraints = (constraint for constraint in spec.spread if constraint.hard is hard)
    return tuple(_rule(c, spec.namespace, known, empty_counts=empty_counts) for c in constraints)


def _rule(
    constraint: SpreadConstraint, namespace: str, labels: Mapping[str, str], *, empty_counts: bool
) -> _Rule:
    """Return the rule for a constraint; an empty selector selects all pods if `empty_counts`."""
    selector = constraint.selector
    # As in common.go.
    same = [Requirement(k, "In", (labels[k],)) for k in constraint.match_label_keys if k in labels]
    if same:
        selector = (selector or LabelSelector()).narrowed(*same)
    if selector is None:
        return _Rule(constraint, None, matches_self=False)
    pods = None
    if empty_counts or not selector.empty:
        part = PodSelector(selector, frozenset((namespace,)))
        pods = selection((part,), terminating=False)
    return _Rule(constraint, pods, selector.matches(labels))


def _constraint(default: DefaultConstraint) -> SpreadConstraint:
    return SpreadConstraint(
        max_skew=default.max_skew,
        topology_key=default.topology_key,
        hard=default.when_unsatisfiable == "DoNotSchedule",
        selector=None,
        min_domains=default.min_domains or 1,
        honor_affinity=default.node_affinity_policy != "Ignore",
        honor_taints=default.node_taints_policy == "Honor",
    )
