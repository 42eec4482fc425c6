"""The changes of a pod, or of the requests in its ResourceClaims, that suggestions try."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

import numpy as np

from mooring.claims.model.resource_claims import (
    MOST_RESULTS,
    ClaimSpec,
    Constraint,
    DeviceToleration,
    ExactRequest,
    ResourceClaim,
)
from mooring.model.declared_features import (
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_HOST_NETWORK,
    VOLUME_BIND_MOUNT_OPTIONS,
)
from mooring.model.events import Kind
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.model.selectors import LabelSelector, NodeSelector
from mooring.model.taints import NOT_SCHEDULABLE_TAINT, Taint, Toleration, tolerated
from mooring.state.cluster_view import ClusterView
from mooring.volumes.model.pod_volumes import ClaimVolume

_MOST_TAINTS: Final = 8
_MOST_DEVICE_TAINTS: Final = 4
_MOST_CHARACTERS: Final = 60
"""The maximum number of characters of a CEL expression in a text; the rest becomes "..."."""
_MOST_REQUIREMENTS: Final = 3
"""The most requirements of a selector that a text names; it omits the others."""
_TOLERATION: Final = 1.0
"""The cost of adding a toleration: suggestions with a smaller cost come first. A smaller request
costs less than 1, and each other pod that must end costs 1."""
_CONSTRAINT: Final = 1.5
"""The cost of removing a constraint from the pod or a claim; see `_TOLERATION`."""
_CLAIM: Final = 2.0
_WITHOUT_FEATURE: Final = {
    RESTART_ALL_CONTAINERS: "had no restartPolicyRules with the action RestartAllContainers",
    USER_NAMESPACES_HOST_NETWORK: "had no hostUsers: false beside hostNetwork",
    VOLUME_BIND_MOUNT_OPTIONS: "had no bindMountOptions",
}
"""For each kubelet feature: the end of "if it ..." for a pod that does not need the feature."""
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a pod by `apply`, or of the ResourceClaim with the uid `claim` by `ask`.

    `text` completes "if it ...", or "once ..." if `once` is True. It is empty for a smaller request
    of `resource`.
    """

    text: str
    cost: float
    apply: Callable[[Pod], Pod] = lambda pod: pod
    resource: str = ""
    once: bool = False
    claim: str = ""
    ask: Callable[[ClaimSpec], ClaimSpec] = lambda spec: spec


def conditions(changes: Sequence[Change], texts: Sequence[str], subject: str = "it") -> str:
    """Return "if it ... and ..., once ..." for the changes; `texts` has a text for each change."""
    both = [*zip(changes, texts, strict=True)]
    ifs = " and ".join(text for change, text in both if not change.once)
    onces = " and ".join(text for change, text in both if change.once)
    parts = (f"if {subject} {ifs}" if ifs else "", f"once {onces}" if onces else "")
    return ", ".join(filter(None, parts))


def pod_changes(pod: Pod, cluster: ClusterView) -> Iterator[Change]:
    """Yield changes of the pod's requests, tolerations, constraints and claims that may help it."""
    for resource in pod.spec.demand.resources:
        yield Change("", 0.0, resource=resource)
    yield from _tolerations(pod.spec, cluster)
    for text, item in _constraints(pod.spec):
        yield Change(text, _CONSTRAINT, partial(_without, item))
    claims = cluster.objects(Kind.PERSISTENT_VOLUME_CLAIM)
    for volume in pod.volumes:
        if isinstance(volume, ClaimVolume):
            name, without = f"{pod.namespace}/{volume.claim}", partial(_without, volume)
            if volume.ephemeral or name in claims:
                yield Change(f"did not use the claim {volume.claim}", _CLAIM, without)
            else:
                yield Change(f"you create claim {name}", _CONSTRAINT, without, once=True)
    for entry in pod.spec.resource_claims:
        yield Change(f"had no claim {entry.name}", _CLAIM, partial(_without, entry))


def _tolerations(spec: PodSpec, cluster: ClusterView) -> Iterator[Change]:
    nodes = cluster.nodes
    counts = Counter[Taint]()
    per_set = np.bincount(nodes.taint_codes[nodes.present], minlength=len(nodes.taint_sets))
    for taints, number in zip(nodes.taint_sets, per_set.tolist(), strict=False):
        for taint in taints:
            if _is_hard(taint) and number and not tolerated(taint, spec.tolerations):
                counts[taint] += number
    del counts[NOT_SCHEDULABLE_TAINT]  # a node has it when it is cordoned
    for taint, _ in counts.most_common(_MOST_TAINTS):
        tolerate = partial(_tolerating, taint)
        yield Change(f"tolerated the taint {taint.text}", _TOLERATION, tolerate)
    cordoned = nodes.unschedulable & nodes.present
    if cordoned.any() and not tolerated(NOT_SCHEDULABLE_TAINT, spec.tolerations):
        tolerate = partial(_tolerating, NOT_SCHEDULABLE_TAINT)
        yield Change("might use cordoned nodes", _TOLERATION, tolerate)


def _is_hard(taint: Taint) -> bool:
    return taint.effect in ("NoSchedule", "NoExecute")


def _constraints(spec: PodSpec) -> Iterator[tuple[str, object]]:
    """Yield each constraint of the pod, after a text that completes "if it ..."."""
    for requirement in spec.node_selector.requirements:
        yield f"had no nodeSelector {requirement.text}", requirement
    if spec.required_nodes is not None:
        yield "had no required node affinity", spec.required_nodes
    for feature in sorted(spec.required_features):
        yield _WITHOUT_FEATURE[feature], feature
    for port in spec.host_ports:
        yield f"used no host port {port.port}/{port.protocol}", port
    for spread in spec.spread:
        if spread.hard:
            yield (
                (
                    f"had no topology spread constraint on {spread.topology_key} "
                    f"(maxSkew {spread.max_skew})"
                ),
                spread,
            )
    affinity = spec.affinity
    for word, terms in (("", affinity.required), ("anti-", affinity.required_anti)):
        for term in terms:
            to = _to_pods(term.selector)
            yield f"had no required pod {word}affinity per {term.topology_key}{to}", term


def _to_pods(selector: LabelSelector | None) -> str:
    if selector is None or selector.empty:
        return ""
    return f" to pods with {', '.join(r.text for r in selector.requirements[:_MOST_REQUIREMENTS])}"


def _tolerating(taint: Taint, pod: Pod) -> Pod:
    tolerations = (*pod.spec.tolerations, _toleration(taint))
    return replace(pod, spec=replace(pod.spec, tolerations=tolerations))


def _toleration(taint: Taint) -> Toleration:
    return Toleration(taint.key, "Equal", taint.value, taint.effect)


def _without(item: object, pod: Pod) -> Pod:
    spec = pod.spec
    affinity = replace(
        spec.affinity,
        required=_others(spec.affinity.required, item),
        required_anti=_others(spec.affinity.required_anti, item),
    )
    changed = replace(
        spec,
        node_selector=LabelSelector(_others(spec.node_selector.requirements, item)),
        required_nodes=None if isinstance(item, NodeSelector) else spec.required_nodes,
        required_features=frozenset(_others(spec.required_features, item)),
        host_ports=_others(spec.host_ports, item),
        spread=_others(spec.spread, item),
        affinity=affinity,
        resource_claims=_others(spec.resource_claims, item),
    )
    return replace(pod, spec=changed, volumes=_others(pod.volumes, item))


def _others(items: Collection[_Item], item: object) -> tuple[_Item, ...]:
    return tuple(other for other in items if other != item)


def requesting(limits: Mapping[str, int], pod: Pod) -> Pod:
    """Return the pod with its requests reduced to these limits; 0 removes the resource."""
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
    """Reduce a container's `amounts` in the ratio of `limits` to the pod's `requested` amounts."""
    changed = {
        name: amount * limits[name] // requested[name]
        if name in limits and requested.get(name, 0) > limits[name]
        else amount
        for name, amount in amounts.items()
    }
    return {name: amount for name, amount in changed.items() if amount}


def claim_changes(pod: Pod, cluster: ClusterView) -> Iterator[Change]:
    """Yield changes of the pod's unallocated claims, for suggestions to try."""
    taints: Sequence[Taint] | None = None
    for name, claim in _waiting(pod, cluster):
        change = partial(Change, claim=claim.uid)
        for request, wanted in _requests(claim.spec):
            where = f"request {request} of claim {name}"
            for text, part in _parts(wanted, where):
                without = partial(_edited, request, partial(_without_part, part))
                yield change(text, _CONSTRAINT, ask=without)
        for constraint in dict.fromkeys(claim.spec.constraints):
            attribute = constraint.match_attribute or constraint.distinct_attribute
            text = f"had no constraint on {attribute} in claim {name}"
            yield change(text, _CONSTRAINT, ask=partial(_without_constraint, constraint))
        taints = _device_taints(cluster) if taints is None else taints
        for taint in taints:
            if not all(_tolerates(wanted, taint) for _, wanted in _requests(claim.spec)):
                text = f"tolerated the device taint {taint.text} in claim {name}"
                tolerate = partial(_edited, "", partial(_with_toleration, taint))
                yield change(text, _TOLERATION, ask=tolerate)


def fewer_devices(pod: Pod, cluster: ClusterView) -> Iterator[Sequence[Change]]:
    """Yield, for each device request, the changes to fewer devices, the largest number first.

    A request for all devices is changed to one device. Numbers above `MOST_RESULTS` are left out.
    """
    for name, claim in _waiting(pod, cluster):
        for request, wanted in _requests(claim.spec):
            is_all = wanted.mode == "All"
            before = "all" if is_all else str(wanted.count)
            numbers = [1] if is_all else range(min(wanted.count - 1, MOST_RESULTS), 0, -1)
            yield [
                Change(
                    f"asked for {number} device{'s' * (number > 1)} instead of {before} "
                    f"in request {request} of claim {name}",
                    1.0 - number / max(wanted.count, 2),
                    claim=claim.uid,
                    ask=partial(_edited, request, partial(_counting, number)),
                )
                for number in numbers
            ]


def _waiting(pod: Pod, cluster: ClusterView) -> Iterator[tuple[str, ResourceClaim]]:
    """Yield each unallocated claim of the pod, after its name in the pod's spec."""
    seen, known = set[str](), cluster.dynamic_resources
    for entry in pod.spec.resource_claims:
        name = entry.claim or pod.claim_names.get(entry.name)
        claim = known.claims.get(f"{pod.namespace}/{name}") if name else None
        if claim is None or claim.uid in seen or claim.deleting:
            continue
        if claim.allocation is None and known.claims.in_flight(claim.uid) is None:
            seen.add(claim.uid)
            yield entry.name, claim


def _requests(spec: ClaimSpec) -> Iterator[tuple[str, ExactRequest]]:
    for each in spec.requests:
        if each.exactly is not None:
            yield each.name, each.exactly
        for sub in each.first_available:
            yield f"{each.name}/{sub.name}", sub


def _parts(wanted: ExactRequest, where: str) -> Iterator[tuple[str, str | None]]:
    """Yield each selector and capacity of the request, after a text that completes "if it ..."."""
    for index, expression in enumerate(wanted.selectors):
        shown = " ".join((expression or "").split())
        if len(shown) > _MOST_CHARACTERS:
            shown = f"{shown[: _MOST_CHARACTERS - 3]}..."
        yield f"had no selector #{index} in {where} ({shown})", expression
    for capacity, amount in wanted.capacity.items():
        text = f"requested no {capacity} of devices in {where} (it requests {amount.text})"
        yield text, capacity


def _device_taints(cluster: ClusterView) -> Sequence[Taint]:
    counts = Counter[Taint]()
    for each in cluster.dynamic_resources.slices.all():
        for device in each.devices:
            if device.taints:
                counts.update(filter(_is_hard, device.taints))
    return [taint for taint, _ in counts.most_common(_MOST_DEVICE_TAINTS)]


def _tolerates(wanted: ExactRequest, taint: Taint) -> bool:
    return any(each.toleration.tolerates(taint) for each in wanted.tolerations)


def _edited(name: str, edit: Callable[[ExactRequest], ExactRequest], spec: ClaimSpec) -> ClaimSpec:
    """Apply `edit` to the claim's request or subrequest `name`, or to all if `name` is ""."""

    def edited(at: str, wanted: ExactRequest) -> ExactRequest:
        return edit(wanted) if name in ("", at) else wanted

    requests = tuple(
        replace(
            each,
            exactly=edited(each.name, each.exactly) if each.exactly is not None else None,
            first_available=tuple(
                edited(f"{each.name}/{sub.name}", sub) for sub in each.first_available
            ),
        )
        for each in spec.requests
    )
    return replace(spec, requests=requests)


def _without_part(part: str | None, wanted: ExactRequest) -> ExactRequest:
    capacity = {name: amount for name, amount in wanted.capacity.items() if name != part}
    return replace(wanted, selectors=_others(wanted.selectors, part), capacity=capacity)


def _without_constraint(constraint: Constraint, spec: ClaimSpec) -> ClaimSpec:
    return replace(spec, constraints=_others(spec.constraints, constraint))


def _with_toleration(taint: Taint, wanted: ExactRequest) -> ExactRequest:
    tolerations = (*wanted.tolerations, DeviceToleration(_toleration(taint), None))
    return replace(wanted, tolerations=tolerations)


def _counting(number: int, wanted: ExactRequest) -> ExactRequest:
    return replace(wanted, mode="ExactCount", count=number)
