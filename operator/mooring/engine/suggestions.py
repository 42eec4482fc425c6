"""What would make an unschedulable pod fit, found out by running the filters with the change.

Two kinds of changes are tried: changes of the pod (smaller requests, one more toleration, one
constraint less), alone and, if none alone is enough, in pairs; and pods that end, on the nodes
where fewest have to. Nothing is guessed: each suggestion is a decision of the real pipeline about
the changed pod, or in a trial without the pods that end. What a suggestion says holds for the
state of the cluster at the moment when it was found.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice
from typing import Final, TypeVar

import numpy as np

from mooring.engine.cycle import LiveDryRun
from mooring.engine.filtering import PreFiltered
from mooring.engine.result_cache import ResultCache
from mooring.engine.what_if import WhatIf, stays_on_its_node
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.pipeline import Pipeline
from mooring.model.affinity import AffinityTerm, SpreadConstraint
from mooring.model.pod import Pod
from mooring.model.pod_spec import HostPort, PodSpec
from mooring.model.resources import CPU, MEMORY, amount_text
from mooring.model.selectors import LabelSelector, Requirement
from mooring.model.taints import NOT_SCHEDULABLE_TAINT, Taint, Toleration, tolerated
from mooring.model.volumes import ClaimVolume
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray

__all__ = ["Suggestion", "suggestions"]

_MOST_CHANGES: Final = 32
"""Changes of the pod that are tried; each is a search over all nodes."""
_MOST_PAIRS: Final = 32
_MOST_TAINTS: Final = 8
_MOST_ROWS: Final = 8
"""Nodes on which pods are removed in a trial."""
_MOST_ENDED: Final = 10
"""Pods that are removed from one node."""
_EXAMPLES: Final = 3
_TOLERATION: Final = 1.0
"""The cost of a toleration; that of a smaller request is below 1, a pod that ends costs 1."""
_CONSTRAINT: Final = 1.5
"""The cost of a constraint that the pod gives up."""
_MEBIBYTE: Final = 2**20


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change after which the pod would fit on `nodes` nodes, `examples` among them.

    `change` completes the sentence "it would fit on N nodes ...". `cause` is what it relieves, in a
    few words. `cost` orders suggestions: the smaller change comes first. `pod` is the pod with the
    change; `ended` are the pods without which the unchanged pod fits.
    """

    change: str | TextAboutPods
    cause: str
    cost: float
    nodes: int
    examples: tuple[str, ...]
    pod: Pod
    ended: tuple[PodRef, ...] = ()


@dataclass(frozen=True, slots=True)
class _Change:
    """One change of the pod; `resource` is the one that is requested no more, if it is that."""

    text: str
    cause: str
    cost: float
    apply: Callable[[Pod], Pod]
    resource: str = ""


def suggestions(
    pod: Pod, pipeline: Pipeline, cluster: ClusterView, cache: ResultCache
) -> Iterator[Suggestion | None]:
    """Yield each suggestion, and None after each change that does not help.

    A pod that fits as it is, since the cluster has changed, gets only the suggestion that says so.
    Between two items other work may go on, also such that changes the cluster. One item takes about
    as long as a decision about a new spec. `cache` should serve nothing else.
    """
    tried = _Suggestions(pod, pipeline, WhatIf(cluster, cache))
    unchanged = tried.unchanged()
    yield unchanged
    if unchanged is not None:
        return
    changes = list(islice(_changes(pod, cluster), _MOST_CHANGES))
    found = False
    for change in changes:
        suggestion = tried.with_changes(change)
        found |= suggestion is not None
        yield suggestion
    if not found:
        for pair in islice(combinations(changes, 2), _MOST_PAIRS):
            yield tried.with_changes(*pair)
    for row in tried.rows_for_endings():
        yield tried.without_pods(row)


class _Suggestions:
    """Runs the filters for the pod as it is, changed, or without some of the placed pods."""

    def __init__(self, pod: Pod, pipeline: Pipeline, what_if: WhatIf) -> None:
        self._pod = pod
        self._pipeline = pipeline
        self._what_if = what_if
        self._cluster = what_if.cluster

    def unchanged(self) -> Suggestion | None:
        """Suggest no change if the pod fits by now; return None if it does not."""
        rows = self._what_if.feasible_rows(self._pod, self._pipeline)
        if not len(rows):
            return None
        return Suggestion(
            change="as it is",
            cause="no filter rejects every node any more",
            cost=0.0,
            nodes=len(rows),
            examples=self._names(rows),
            pod=self._pod,
        )

    def with_changes(self, *changes: _Change) -> Suggestion | None:
        """Suggest these changes of the pod; return None if it fits nowhere then."""
        changed = self._pod
        for change in changes:
            changed = change.apply(changed)
        rows = self._what_if.feasible_rows(changed, self._pipeline)
        if not len(rows):
            return None
        limits: Mapping[str, int] = {}
        cost = sum(change.cost for change in changes)
        resources = [change.resource for change in changes if change.resource]
        if resources:
            limits, share = self._largest_requests(resources, rows)
            if any(not limits[name] and "/" not in name for name in resources):
                return None  # a pod cannot do without cpu or memory, only without a device
            changed = _requesting(limits, changed)
            rows = self._what_if.feasible_rows(changed, self._pipeline)
            if not len(rows):
                return None  # nominated pods take what looked free
            cost += 1.0 - share
        texts = [c.text or self._request_text(c.resource, limits[c.resource]) for c in changes]
        return Suggestion(
            change="if it " + " and ".join(texts),
            cause=" and ".join(change.cause for change in changes),
            cost=cost,
            nodes=len(rows),
            examples=self._names(rows),
            pod=changed,
        )

    def _largest_requests(
        self, resources: list[str], rows: IntArray
    ) -> tuple[dict[str, int], float]:
        """Return the largest requests that fit on a row, and which share of the pod's they are.

        Rounded down to amounts that people write.
        """
        nodes = self._cluster.nodes.take(rows)
        free = {
            resource: np.maximum(nodes.allocatable(resource) - nodes.requested(resource), 0)
            for resource in resources
        }
        requested = self._pod.spec.demand.resources
        shares = np.min([free[name] / requested[name] for name in resources], axis=0)
        best = int(np.argmax(shares))
        limits = {
            name: _rounded_down(name, min(int(free[name][best]), requested[name]))
            for name in resources
        }
        return limits, min(float(shares[best]), 1.0)

    def _request_text(self, resource: str, limit: int) -> str:
        requested = amount_text(resource, self._pod.spec.demand.resources[resource])
        if not limit:
            return f"did not request {resource} (it requests {requested})"
        return (
            f"requested at most {amount_text(resource, limit)} of {resource} instead of {requested}"
        )

    def rows_for_endings(self) -> list[int]:
        """Return the rows where pods that end are most likely to help: those that lack least."""
        search = self._what_if.search(self._pod, self._pipeline)
        pre_filtered = search.pre_filter()
        if not isinstance(pre_filtered, PreFiltered):
            return []
        rows = search.diagnose(pre_filtered).resolvable_rows
        if not len(rows):
            return []
        nodes = self._cluster.nodes.take(rows)
        lacking = np.zeros(len(rows))
        possible = np.ones(len(rows), np.bool_)
        for resource, requested in self._pod.spec.demand.resources.items():
            allocatable = nodes.allocatable(resource)
            possible &= allocatable >= requested
            short = requested - (allocatable - nodes.requested(resource))
            lacking += np.maximum(short, 0) / max(requested, 1)
        order = np.argsort(np.where(possible, lacking, np.inf), kind="stable")
        return [int(rows[i]) for i in order[:_MOST_ROWS] if possible[i]]

    def without_pods(self, row: int) -> Suggestion | None:
        """Suggest to wait until some pods of the row end; return None if that does not help."""
        pods = [
            placed.pod for placed in self._cluster.pods_on(row) if not stays_on_its_node(placed.pod)
        ]
        if not pods or self._cluster.node(row) is None:
            return None
        pods.sort(key=self._relief, reverse=True)
        dry_run = LiveDryRun(self._what_if.search(self._pod, self._pipeline), None)
        with self._what_if.trial() as trial:
            ended: list[Pod] = []
            for pod in pods[:_MOST_ENDED]:
                trial.remove(pod.uid)
                ended.append(pod)
                if not dry_run.rejection(row):
                    break
            else:
                return None
            # The largest pods ended first; perhaps the smaller ones among them need not.
            for pod in ended[-2::-1]:
                trial.add(pod, row)
                if dry_run.rejection(row):
                    trial.remove(pod.uid)
                else:
                    ended.remove(pod)
        name = self._cluster.nodes.name(row)
        return Suggestion(
            change=_when_ended(ended, name),
            cause="pods that run",
            cost=float(len(ended)),
            nodes=1,
            examples=(name,),
            pod=self._pod,
            ended=tuple(map(PodRef.of, ended)),
        )

    def _relief(self, pod: Pod) -> float:
        """Return how much of what the pod requests would be free without this one."""
        requested, theirs = self._pod.spec.demand.resources, pod.spec.demand.resources
        return sum(theirs.get(name, 0) / max(most, 1) for name, most in requested.items())

    def _names(self, rows: IntArray) -> tuple[str, ...]:
        return tuple(self._cluster.nodes.name(row) for row in rows[:_EXAMPLES].tolist())


def _when_ended(pods: Sequence[Pod], node: str) -> TextAboutPods:
    """Return "when POD on NODE ends", or the like of several pods."""
    end = f"on {node} {'ends' if len(pods) == 1 else 'end'}"
    first, *more = (pod.key for pod in pods[:_EXAMPLES])
    text = f"when {first} {end}"
    if more:
        others = f" and {len(pods) - _EXAMPLES} more" if len(pods) > _EXAMPLES else ""
        text = f"when {len(pods)} pods {end}: {', '.join((first, *more))}{others}"
    which = "a pod" if len(pods) == 1 else f"{len(pods)} pods"
    return TextAboutPods(text, tuple(map(PodRef.of, pods)), f"when {which} {end}")


def _changes(pod: Pod, cluster: ClusterView) -> Iterator[_Change]:
    """Yield the changes of the pod that are worth a try, the smaller ones first."""
    spec = pod.spec
    for resource in spec.demand.resources:
        yield _Change("", resource, 0.0, partial(_requesting, {resource: 0}), resource)
    yield from _tolerations(spec, cluster)
    yield from _constraints(spec)
    for volume in pod.volumes:
        if isinstance(volume, ClaimVolume):
            name = f"claim {volume.claim}"
            yield _Change(f"did not use the {name}", name, 2.0, partial(_without_volume, volume))


def _constraints(spec: PodSpec) -> Iterator[_Change]:
    """Yield changes that give up one constraint to nodes or to other pods."""
    for requirement in spec.node_selector.requirements:
        yield _Change(
            f"had no nodeSelector {requirement.text}",
            f"nodeSelector {requirement.key}",
            _CONSTRAINT,
            partial(_without_requirement, requirement),
        )
    if spec.required_nodes is not None:
        text = "had no required node affinity"
        yield _Change(text, "node affinity", _CONSTRAINT, _without_node_affinity)
    for port in spec.host_ports:
        name = f"host port {port.port}/{port.protocol}"
        yield _Change(f"used no {name}", name, _CONSTRAINT, partial(_without_port, port))
    for constraint in spec.spread:
        if constraint.hard:
            yield _Change(
                f"had no topology spread constraint on {constraint.topology_key} "
                f"(maxSkew {constraint.max_skew})",
                f"topology spread on {constraint.topology_key}",
                _CONSTRAINT,
                partial(_without_spread, constraint),
            )
    for word, terms in (
        ("pod affinity", spec.affinity.required),
        ("pod anti-affinity", spec.affinity.required_anti),
    ):
        for term in terms:
            name = f"{word} per {term.topology_key}"
            text = f"had no required {name}{_pods(term.selector)}"
            yield _Change(text, name, _CONSTRAINT, partial(_without_term, term))


def _tolerations(spec: PodSpec, cluster: ClusterView) -> Iterator[_Change]:
    """Yield a toleration of each taint that keeps the pod off nodes, the most frequent first."""
    nodes = cluster.nodes
    counts = Counter[Taint]()
    per_set = np.bincount(nodes.taint_codes[nodes.present], minlength=len(nodes.taint_sets))
    for taints, number in zip(nodes.taint_sets, per_set.tolist(), strict=False):
        for taint in taints:
            hard = taint.effect in ("NoSchedule", "NoExecute")
            if hard and number and not tolerated(taint, spec.tolerations):
                counts[taint] += number
    del counts[NOT_SCHEDULABLE_TAINT]  # a node has it when it is cordoned
    for taint, _ in counts.most_common(_MOST_TAINTS):
        shown = f"{taint.key}={taint.value}" if taint.value else taint.key
        text = f"tolerated the taint {shown}:{taint.effect}"
        yield _Change(text, f"taint {shown}", _TOLERATION, partial(_tolerating, taint))
    cordoned = nodes.unschedulable & nodes.present
    if cordoned.any() and not tolerated(NOT_SCHEDULABLE_TAINT, spec.tolerations):
        tolerate = partial(_tolerating, NOT_SCHEDULABLE_TAINT)
        yield _Change("might use cordoned nodes", "cordoned nodes", _TOLERATION, tolerate)


def _tolerating(taint: Taint, pod: Pod) -> Pod:
    toleration = Toleration(taint.key, "Equal", taint.value, taint.effect)
    tolerations = (*pod.spec.tolerations, toleration)
    return replace(pod, spec=replace(pod.spec, tolerations=tolerations))


def _without_requirement(requirement: Requirement, pod: Pod) -> Pod:
    selector = LabelSelector(_others(pod.spec.node_selector.requirements, requirement))
    return replace(pod, spec=replace(pod.spec, node_selector=selector))


def _without_node_affinity(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, required_nodes=None))


def _without_port(port: HostPort, pod: Pod) -> Pod:
    ports = _others(pod.spec.host_ports, port)
    return replace(pod, spec=replace(pod.spec, host_ports=ports))


def _without_spread(constraint: SpreadConstraint, pod: Pod) -> Pod:
    spread = _others(pod.spec.spread, constraint)
    return replace(pod, spec=replace(pod.spec, spread=spread))


def _without_term(term: AffinityTerm, pod: Pod) -> Pod:
    """Return the pod without the term, whether it is of affinity or anti-affinity."""
    affinity = replace(
        pod.spec.affinity,
        required=_others(pod.spec.affinity.required, term),
        required_anti=_others(pod.spec.affinity.required_anti, term),
    )
    return replace(pod, spec=replace(pod.spec, affinity=affinity))


def _without_volume(volume: ClaimVolume, pod: Pod) -> Pod:
    return replace(pod, volumes=_others(pod.volumes, volume))


_Item = TypeVar("_Item")


def _others(items: tuple[_Item, ...], item: _Item) -> tuple[_Item, ...]:
    """Return all items but this object."""
    return tuple(other for other in items if other is not item)


def _requesting(limits: Mapping[str, int], pod: Pod) -> Pod:
    """Return the pod with these requests; what is 0 is not requested."""
    demand = pod.spec.demand
    resources = {**demand.resources, **limits}
    changed = replace(demand, resources={name: n for name, n in resources.items() if n})
    return replace(pod, spec=replace(pod.spec, demand=changed))


def _pods(selector: LabelSelector | None) -> str:
    """Return in words which pods a term is about."""
    if selector is None or selector.empty:
        return ""
    return f" to pods with {', '.join(r.text for r in selector.requirements[:_EXAMPLES])}"


def _rounded_down(resource: str, free: int) -> int:
    """Return the largest amount up to `free` that people write: whole MiB, tens of millicores."""
    step = _MEBIBYTE if resource == MEMORY or resource.startswith("hugepages-") else 1
    if resource == "ephemeral-storage":
        step = _MEBIBYTE
    if resource == CPU:
        step = 10
    return free // step * step if free >= step else free
