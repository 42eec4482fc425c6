"""What would make an unschedulable pod fit, found out by running the filters with the change.

Two kinds of changes are tried: changes of the pod and of what its claims ask for (smaller requests,
one more toleration, one constraint less), alone and, if none alone is enough, in pairs; and pods
that end, on the nodes where fewest have to. Nothing is guessed: each suggestion is a decision of
the real pipeline about the changed pod, or in a trial with the changed claims or without the pods
that end. What a suggestion says holds for the state of the cluster at the moment when it was found.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice, starmap
from typing import Final, TypeVar

import numpy as np

from mooring.engine.causes import no_such_node
from mooring.engine.change import Change, conditions
from mooring.engine.claim_changes import claim_changes, fewer_devices
from mooring.engine.cycle import LiveDryRun
from mooring.engine.filtering import PreFiltered
from mooring.engine.what_if import WhatIf, stays_on_its_node
from mooring.framework.card_plugin import CardPlugin
from mooring.framework.claim_report import ExplainsClaims
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.framework.diagnosis import Diagnosis
from mooring.framework.evaluations import StillEvaluating
from mooring.framework.pipeline import Pipeline
from mooring.model.affinity import AffinityTerm, SpreadConstraint
from mooring.model.declared_features import (
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_HOST_NETWORK,
    VOLUME_BIND_MOUNT_OPTIONS,
)
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.model.pod_spec import HostPort, PodSpec
from mooring.model.resource_claims import PodClaim
from mooring.model.resources import CPU, MEMORY, amount_text
from mooring.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from mooring.model.taints import NOT_SCHEDULABLE_TAINT, Taint, Toleration, tolerated
from mooring.model.volumes import ClaimVolume
from mooring.pausing import pause, pause_now
from mooring.state.cluster import Trial
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.nominations import Nominee

__all__ = [
    "EXAMPLES",
    "MOST_CHANGES",
    "Suggestion",
    "possible_changes",
    "request_text",
    "requesting",
    "reservation_texts",
    "step_of",
    "suggestions",
    "when_ended",
]

MOST_CHANGES: Final = 32
"""Changes of the pod that are tried; each is a search over all nodes."""
_MOST_PAIRS: Final = 32
_MOST_TAINTS: Final = 8
_MOST_ROWS: Final = 8
"""Nodes on which pods are removed in a trial."""
_MOST_ENDED: Final = 10
"""Pods that are removed from one node."""
EXAMPLES: Final = 3
_TOLERATION: Final = 1.0
"""The cost of a toleration; that of a smaller request is below 1, a pod that ends costs 1."""
_CONSTRAINT: Final = 1.5
"""The cost of a constraint that the pod gives up."""
_Found = TypeVar("_Found")
_MEBIBYTE: Final = 2**20
_WITHOUT_FEATURE: Final = {
    RESTART_ALL_CONTAINERS: "had no restartPolicyRules with the action RestartAllContainers",
    USER_NAMESPACES_HOST_NETWORK: "had no hostUsers: false beside hostNetwork",
    VOLUME_BIND_MOUNT_OPTIONS: "had no bindMountOptions",
}
"""What completes "if it ..." for each feature of the kubelet that a pod may need."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change after which the pod would fit on `nodes` nodes, `examples` among them.

    `change` completes the sentence "it would fit on N nodes ...". `cause` is what it relieves, in a
    few words. `cost` orders suggestions: the smaller change comes first. `pods` are the pod, or the
    members of a group, with the change; `ended` are the pods without which they fit unchanged.
    """

    change: str | TextAboutPods
    cause: str
    cost: float
    nodes: int
    examples: tuple[str, ...]
    pods: tuple[Pod, ...]
    ended: tuple[PodRef, ...] = ()


def suggestions(pod: Pod, pipeline: Pipeline, what_if: WhatIf) -> Iterator[Suggestion]:
    """Yield each suggestion, and pause after each change that is tried.

    A pod that fits as it is, since the cluster has changed, gets only the suggestion that says so,
    and one that fits where nodes are reserved for a group only that it waits until then.
    In the pauses other work may go on, also such that changes the cluster. A change takes about as
    long as a decision about a new spec. Each is tried in a trial of `what_if`, whose cache should
    serve nothing else.
    """
    tried = _Suggestions(pod, pipeline, what_if)
    as_it_is = _found(what_if, lambda _: tried.unchanged())
    as_it_is = as_it_is or _found(what_if, tried.without_reservation)
    if as_it_is is not None:
        yield as_it_is
        return

    def with_changes(*changed: Change) -> Suggestion | None:
        return _found(what_if, partial(tried.with_changes, changed))

    changes = list(islice(possible_changes(pod, what_if.cluster), MOST_CHANGES))
    helped = claims_helped = False
    for suggestion in filter(None, map(with_changes, changes)):
        yield suggestion
        helped = True
    fewer = (_mildest(with_changes, each) for each in fewer_devices(pod, what_if.cluster))
    for suggestion in filter(None, fewer):
        yield suggestion
        claims_helped = True
    rows = _found(what_if, lambda _: tried.rows_for_endings())
    yield from filter(None, (_found(what_if, partial(tried.without_pods, row)) for row in rows))
    # Last: claims that read other attributes than before have all devices looked at anew.
    of_claims = list(islice(claim_changes(pod, what_if.cluster), MOST_CHANGES))
    for suggestion in filter(None, map(with_changes, of_claims)):
        yield suggestion
        claims_helped = True
    if not claims_helped:
        # That a pod would fit without its claims does not say what to change of them.
        tried_in_pairs = of_claims if helped else [*changes, *of_claims]
        pairs = islice(combinations(tried_in_pairs, 2), _MOST_PAIRS)
        yield from filter(None, starmap(with_changes, pairs))


def _found(what_if: WhatIf, search: Callable[[Trial], _Found]) -> _Found:
    """Return what is found in a trial, and pause; also while values that it needs are evaluated."""
    while True:
        try:
            with what_if.trial() as trial:
                found = search(trial)
        except StillEvaluating:
            pause_now()
        else:
            pause()
            return found


def _mildest(
    with_changes: Callable[[Change], Suggestion | None], changes: Sequence[Change]
) -> Suggestion | None:
    """Return the suggestion of the first of these changes that helps; each goes further."""
    first, last, best = 0, len(changes), None
    while first < last:
        middle = (first + last) // 2
        found = with_changes(changes[middle])
        if found is None:
            first = middle + 1
        else:
            last, best = middle, found
    return best


class _Suggestions:
    """Runs the filters for the pod as it is, changed, or without some of the placed pods."""

    def __init__(self, pod: Pod, pipeline: Pipeline, what_if: WhatIf) -> None:
        self._pod = pod
        self._pipeline = pipeline
        self._what_if = what_if
        self._cluster = what_if.cluster
        self._short_of_devices: list[int] = []
        """Rows where devices that end with other pods may help."""

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
            pods=(self._pod,),
        )

    def without_reservation(self, trial: Trial) -> Suggestion | None:
        """Suggest to wait for the end of a reservation; return None if that does not help."""
        reserved = self._cluster.nominations.reserved
        for nominee in reserved:
            trial.withdraw(nominee.pod.uid)
        rows = self._what_if.feasible_rows(self._pod, self._pipeline)
        if not reserved or not len(rows):
            return None
        change, cause = reservation_texts(reserved, self._pod)
        return Suggestion(change, cause, 0.0, len(rows), self._names(rows), (self._pod,))

    def with_changes(self, changes: Sequence[Change], trial: Trial) -> Suggestion | None:
        """Suggest these changes of the pod; return None if it fits nowhere then."""
        others, resources = self._pod, list[str]()
        for change in changes:
            claim = self._cluster.dynamic_resources.claim_of_uid(change.claim)
            if change.resource:
                resources.append(change.resource)
            elif change.ask is None:
                others = change.apply(others)
            elif claim is None:
                return None
            else:
                trial.ask(claim.uid, change.ask(claim.spec))
        changed = requesting(dict.fromkeys(resources, 0), others)
        rows = self._what_if.feasible_rows(changed, self._pipeline)
        if not len(rows):
            return None
        limits: Mapping[str, int] = {}
        cost = sum(change.cost for change in changes)
        if resources:
            found = self._with_requests(others, resources, rows)
            if found is None:
                return None
            limits, changed, rows = found
            cost += 1.0 - min(
                limits[name] / others.spec.demand.resources[name] for name in resources
            )
        texts = [change.text or self._request_text(change.resource, limits) for change in changes]
        return Suggestion(
            change=conditions(changes, texts),
            cause=" and ".join(change.cause for change in changes),
            cost=cost,
            nodes=len(rows),
            examples=self._names(rows),
            pods=(changed,),
        )

    def _with_requests(
        self, pod: Pod, resources: list[str], rows: IntArray
    ) -> tuple[dict[str, int], Pod, IntArray] | None:
        """Return the largest requests with which the pod fits, the pod with these, and where.

        `rows` are where it fits without the resources. None if it must do without cpu or memory:
        it can only do without a device.
        """
        limits = self._largest_requests(resources, rows)
        changed = requesting(limits, pod)
        accepted = self._what_if.feasible_rows(changed, self._pipeline)
        if not len(accepted) and len(resources) == 1:
            # What is free on a node may be on several cards, or kept for nominated pods.
            limits = {resources[0]: self._largest_accepted(pod, resources[0], limits[resources[0]])}
            changed = requesting(limits, pod)
            accepted = self._what_if.feasible_rows(changed, self._pipeline)
        if not len(accepted) or any(not limits[name] and "/" not in name for name in resources):
            return None
        return limits, changed, accepted

    def _largest_accepted(self, pod: Pod, resource: str, most: int) -> int:
        """Return the largest request below `most` that the filters accept, 0 if there is none."""
        step = step_of(resource)
        accepted, rejected = 0, max(most // step, 1)
        while rejected - accepted > 1:
            middle = (accepted + rejected) // 2
            changed = requesting({resource: middle * step}, pod)
            if len(self._what_if.feasible_rows(changed, self._pipeline)):
                accepted = middle
            else:
                rejected = middle
        return accepted * step

    def _largest_requests(self, resources: list[str], rows: IntArray) -> dict[str, int]:
        """Return the largest requests that fit on a row, rounded down to what people write."""
        nodes = self._cluster.nodes.take(rows)
        free = {
            resource: np.maximum(nodes.allocatable(resource) - nodes.requested(resource), 0)
            for resource in resources
        }
        requested = self._pod.spec.demand.resources
        shares = np.min([free[name] / requested[name] for name in resources], axis=0)
        best = int(np.argmax(shares))
        return {
            name: _rounded_down(name, min(int(free[name][best]), requested[name]))
            for name in resources
        }

    def _request_text(self, resource: str, limits: Mapping[str, int]) -> str:
        requested = self._pod.spec.demand.resources[resource]
        return request_text(resource, limits[resource], requested, self._pipeline, self._cluster)

    def rows_for_endings(self) -> list[int]:
        """Return the rows where pods that end are most likely to help: those that lack least."""
        search = self._what_if.search(self._pod, self._pipeline)
        pre_filtered = search.pre_filter()
        if not isinstance(pre_filtered, PreFiltered):
            return []
        diagnosis = search.diagnose(pre_filtered)
        self._short_of_devices = self._rows_with_devices(diagnosis)
        rows = diagnosis.resolvable_rows
        if not len(rows):
            return self._short_of_devices
        nodes = self._cluster.nodes.take(rows)
        lacking = np.zeros(len(rows))
        possible = np.ones(len(rows), np.bool_)
        for resource, requested in self._pod.spec.demand.resources.items():
            allocatable = nodes.allocatable(resource)
            possible &= allocatable >= requested
            short = requested - (allocatable - nodes.requested(resource))
            lacking += np.maximum(short, 0) / max(requested, 1)
        order = np.argsort(np.where(possible, lacking, np.inf), kind="stable")
        lacking_least = [int(rows[i]) for i in order[:_MOST_ROWS] if possible[i]]
        return [*self._short_of_devices, *lacking_least]

    def _rows_with_devices(self, diagnosis: Diagnosis) -> list[int]:
        """Return rows that lack only devices, which they would have if fewer were in use.

        To evict pods does not free devices, but when they end, it does.
        """
        found = list[int]()
        for plugin in self._pipeline.filters:
            rows = [group.rows for group in diagnosis.rejected if group.plugin == plugin.name]
            if isinstance(plugin, ExplainsClaims) and rows:
                found += plugin.rows_if_freed(self._pod, np.concatenate(rows))[:_MOST_ROWS]
        return found

    def without_pods(self, row: int, trial: Trial) -> Suggestion | None:
        """Suggest to wait until some pods of the row end; return None if that does not help."""
        pods = [
            placed.pod for placed in self._cluster.pods_on(row) if not stays_on_its_node(placed.pod)
        ]
        if not pods or self._cluster.node(row) is None:
            return None
        pods.sort(key=partial(self._relief, row), reverse=True)
        dry_run = LiveDryRun(self._what_if.search(self._pod, self._pipeline), None)
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
            change=when_ended(ended, name),
            cause="pods that run",
            cost=float(len(ended)),
            nodes=1,
            examples=(name,),
            pods=(self._pod,),
            ended=tuple(map(PodRef.of, ended)),
        )

    def _relief(self, row: int, pod: Pod) -> float:
        """Return how much of what the pod requests would be free without this one on the row.

        If that is short of devices, pods that hold some come before all others.
        """
        requested, theirs = self._pod.spec.demand.resources, pod.spec.demand.resources
        relief = sum(theirs.get(name, 0) / max(most, 1) for name, most in requested.items())
        known = self._cluster.dynamic_resources
        holds = known.held(pod.uid) or known.reserved_for(pod.uid)
        return relief + len(requested) + 1 if holds and row in self._short_of_devices else relief

    def _names(self, rows: IntArray) -> tuple[str, ...]:
        return tuple(self._cluster.nodes.name(row) for row in rows[:EXAMPLES].tolist())


def reservation_texts(reserved: Sequence[Nominee], pod: Pod) -> tuple[str, str]:
    """Return what completes "it would fit on N nodes ..." where nodes are reserved, and why."""
    kept = next(each.reservation for each in reserved if each.reservation is not None)
    cause = kept.text_for(pod.namespace)
    return f"once they are not {cause}", cause


def request_text(
    resource: str, limit: int, requested: int, pipeline: Pipeline, cluster: ClusterView
) -> str:
    """Return what completes "if it ..." where a smaller request of a resource is what helps.

    Of a share of a GPU it says whether a card is larger, or has just no more that is free.
    """
    before = amount_text(resource, requested)
    if not limit:
        return f"did not request {resource} (it requests {before})"
    text = f"requested at most {amount_text(resource, limit)} of {resource} instead of {before}"
    for plugin in pipeline.filters:
        if isinstance(plugin, CardPlugin):
            largest = plugin.largest_card(resource, cluster.nodes_in_order)
            if largest is not None:
                return f"{text} (no card {'is larger' if largest <= limit else 'has more free'})"
    return text


def when_ended(pods: Sequence[Pod], node: str = "") -> TextAboutPods:
    """Return "when POD on NODE ends", or the like of several pods; the node may be left out."""
    end = f"{f'on {node} ' if node else ''}{'ends' if len(pods) == 1 else 'end'}"
    first, *more = (pod.key for pod in pods[:EXAMPLES])
    text = f"when {first} {end}"
    if more:
        others = f" and {len(pods) - EXAMPLES} more" if len(pods) > EXAMPLES else ""
        text = f"when {len(pods)} pods {end}: {', '.join((first, *more))}{others}"
    which = "a pod" if len(pods) == 1 else f"{len(pods)} pods"
    return TextAboutPods(text, tuple(map(PodRef.of, pods)), f"when {which} {end}")


def possible_changes(pod: Pod, cluster: ClusterView) -> Iterator[Change]:
    """Yield the changes of the pod that are worth a try, the smaller ones first."""
    spec = pod.spec
    for resource in spec.demand.resources:
        yield Change("", resource, 0.0, partial(requesting, {resource: 0}), resource)
    yield from _tolerations(spec, cluster)
    yield from _constraints(spec, cluster)
    for volume in pod.volumes:
        if isinstance(volume, ClaimVolume):
            yield _claim(volume, pod, cluster)
    for entry in spec.resource_claims:
        text = f"had no claim {entry.name}"
        yield Change(text, f"claim {entry.name}", 2.0, partial(_without_resource_claim, entry))


def _claim(volume: ClaimVolume, pod: Pod, cluster: ClusterView) -> Change:
    """Return what is to be done about a claim: create it if it is missing, else do without it."""
    name, without = f"claim {volume.claim}", partial(_without_volume, volume)
    claims = cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM)
    if not volume.ephemeral and f"{pod.namespace}/{volume.claim}" not in claims:
        missing = f"claim {pod.namespace}/{volume.claim}"
        cause = f"{missing} does not exist"
        return Change(f"you create {missing}", cause, _CONSTRAINT, without, once=True)
    return Change(f"did not use the {name}", name, 2.0, without)


def _constraints(spec: PodSpec, cluster: ClusterView) -> Iterator[Change]:
    """Yield changes that give up one constraint to nodes or to other pods."""
    for requirement in spec.node_selector.requirements:
        yield Change(
            f"had no nodeSelector {requirement.text}",
            no_such_node((requirement,), cluster) or f"nodeSelector {requirement.key}",
            _CONSTRAINT,
            partial(_without_requirement, requirement),
        )
    if spec.required_nodes is not None:
        first, *others = spec.required_nodes.terms or (NodeSelectorTerm(),)
        missing = no_such_node(first.expressions, cluster) if not others else ""
        text = "had no required node affinity"
        yield Change(text, missing or "node affinity", _CONSTRAINT, _without_node_affinity)
    for feature in sorted(spec.required_features):
        declared = any(feature in features for features in cluster.nodes.declared_feature_sets)
        cause = f"feature {feature}" if declared else f"no node declares the feature {feature}"
        without = partial(_without_feature, feature)
        yield Change(_WITHOUT_FEATURE[feature], cause, _CONSTRAINT, without)
    for port in spec.host_ports:
        name = f"host port {port.port}/{port.protocol}"
        yield Change(f"used no {name}", name, _CONSTRAINT, partial(_without_port, port))
    for constraint in spec.spread:
        if constraint.hard:
            yield Change(
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
            yield Change(text, name, _CONSTRAINT, partial(_without_term, term))


def _tolerations(spec: PodSpec, cluster: ClusterView) -> Iterator[Change]:
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
        text = f"tolerated the taint {taint.text}"
        yield Change(text, f"taint {shown}", _TOLERATION, partial(_tolerating, taint))
    cordoned = nodes.unschedulable & nodes.present
    if cordoned.any() and not tolerated(NOT_SCHEDULABLE_TAINT, spec.tolerations):
        tolerate = partial(_tolerating, NOT_SCHEDULABLE_TAINT)
        yield Change("might use cordoned nodes", "cordoned nodes", _TOLERATION, tolerate)


def _tolerating(taint: Taint, pod: Pod) -> Pod:
    toleration = Toleration(taint.key, "Equal", taint.value, taint.effect)
    tolerations = (*pod.spec.tolerations, toleration)
    return replace(pod, spec=replace(pod.spec, tolerations=tolerations))


def _without_requirement(requirement: Requirement, pod: Pod) -> Pod:
    selector = LabelSelector(_others(pod.spec.node_selector.requirements, requirement))
    return replace(pod, spec=replace(pod.spec, node_selector=selector))


def _without_node_affinity(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, required_nodes=None))


def _without_feature(feature: str, pod: Pod) -> Pod:
    features = pod.spec.required_features - {feature}
    return replace(pod, spec=replace(pod.spec, required_features=features))


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


def _without_resource_claim(entry: PodClaim, pod: Pod) -> Pod:
    claims = _others(pod.spec.resource_claims, entry)
    return replace(pod, spec=replace(pod.spec, resource_claims=claims))


def _without_volume(volume: ClaimVolume, pod: Pod) -> Pod:
    return replace(pod, volumes=_others(pod.volumes, volume))


_Item = TypeVar("_Item")


def _others(items: tuple[_Item, ...], item: _Item) -> tuple[_Item, ...]:
    """Return all items that are not equal to this one."""
    return tuple(other for other in items if other != item)


def requesting(limits: Mapping[str, int], pod: Pod) -> Pod:
    """Return the pod with these requests at most; what is 0 is not requested."""
    demand = pod.spec.demand
    resources = {
        name: min(amount, limits.get(name, amount)) for name, amount in demand.resources.items()
    }
    changed = replace(demand, resources={name: n for name, n in resources.items() if n})
    containers = tuple(
        each._replace(requests=_scaled(each.requests, demand.resources, limits))
        for each in pod.spec.containers
    )
    return replace(pod, spec=replace(pod.spec, demand=changed, containers=containers))


def _scaled(
    amounts: Mapping[str, int], requested: Mapping[str, int], limits: Mapping[str, int]
) -> Mapping[str, int]:
    """Return what a container requests where the pod requests no more than these limits."""
    changed = {
        name: amount * min(limits.get(name, amount), amount) // requested.get(name, amount)
        if name in limits and requested.get(name, 0) > limits[name]
        else amount
        for name, amount in amounts.items()
    }
    return {name: amount for name, amount in changed.items() if amount}


def _pods(selector: LabelSelector | None) -> str:
    """Return in words which pods a term is about."""
    if selector is None or selector.empty:
        return ""
    return f" to pods with {', '.join(r.text for r in selector.requirements[:EXAMPLES])}"


def _rounded_down(resource: str, free: int) -> int:
    """Return the largest amount up to `free` that people write: whole MiB, tens of millicores."""
    step = step_of(resource)
    return free // step * step if free >= step else free


def step_of(resource: str) -> int:
    """Return the smallest amount that people write."""
    if resource == CPU:
        return 10
    whole_mib = resource in (MEMORY, "ephemeral-storage") or resource.startswith("hugepages-")
    return _MEBIBYTE if whole_mib else 1
