"""Computes the resources that a pod requests (its demand), and its QoS class.

The rules are those of component-helpers' `resource/helpers.go` (PodRequests), with the options of
the scheduler's `framework/types.go` (PodInfo.CalculateResource) and `noderesources`, and of
`pkg/apis/core/v1/helper/qos`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from mooring.model.fields import mapping, mappings, text
from mooring.model.kubernetes_rules import KUBERNETES_RULES, NEWEST, KubernetesRules
from mooring.model.quantity import INT64_MAX
from mooring.model.resources import (
    CPU,
    MEMORY,
    ContainerResources,
    PodContainers,
    at_pod_level,
    parse_amounts,
    parse_pod_level,
    raise_to,
    total_requests,
)
from mooring.pausing import pause

_SCORED_DEFAULTS: Final = {CPU: 100, MEMORY: 200 * 1024**2}
"""The cpu (millicores) and memory (bytes) that scores assume for a container without a request."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A pod's demand: cpu in millicores, other resources in bytes or counts.

    Filters, node totals and BalancedAllocation use `resources`. The score of NodeResourcesFit uses
    the `scored_*` fields: they have a default amount for a container that requests no cpu or
    memory.
    """

    resources: Mapping[str, int]
    """Maps a resource to the request in millicores, bytes or counts; no entry without a request."""
    scored_cpu: int
    """The millicores of the incoming pod in NodeResourcesFit's score: its containers and overhead.
    Up to 1.37, kube-scheduler ignores the incoming pod's pod-level requests here, but counts those
    of pods on the node. Therefore `node_scored_cpu` differs."""
    scored_memory: int
    """The bytes of memory of the incoming pod in NodeResourcesFit's score, computed like
    `scored_cpu`."""
    scored_others: Mapping[str, int]
    """The requests beside cpu and memory in NodeResourcesFit's score: `resources` without pod-level
    huge pages."""
    node_scored_cpu: int
    """The millicores that the pod, once it is on a node, adds to the node's total for scores."""
    node_scored_memory: int
    """The bytes that the pod, once it is on a node, adds to the node's total memory for scores."""
    pod_level: frozenset[str] = frozenset()
    """The resources with pod-level requests. From 1.38 on, the score of NodeResourcesFit uses their
    amounts in `resources`."""

    def scored(self, *, pod_level: bool) -> dict[str, int]:
        """Return the requests that NodeResourcesFit's score uses, always with cpu and memory.

        If `pod_level` is true, pod-level requests replace the containers' requests.
        """
        scored = {CPU: self.scored_cpu, MEMORY: self.scored_memory, **self.scored_others}
        if pod_level and self.pod_level:
            scored |= {name: self.resources.get(name, 0) for name in self.pod_level}
        return scored


def pod_demand(
    spec: Mapping[str, Any],
    status: Mapping[str, Any] | None,
    *,
    assigned: bool,
    kubernetes: KubernetesRules = NEWEST,
    parsed: PodContainers | None = None,
) -> Demand:
    """Return the demand of a pod with this spec; `parsed` are its containers if already parsed.

    `status` is read only for an `assigned` pod, which may be being resized. Raises ManifestError
    with the path of a malformed amount.
    """
    parsed = parsed or PodContainers.of(spec)
    stages = _Stages([parsed])
    asked = stages.total()
    pod_level, _ = parse_pod_level(spec, asked)
    has_pod_level = bool(pod_level)
    if assigned and status:
        # During an in-place resize, the demand is the largest of the requested, the allocated and
        # the used amount.
        resize = _Resize(status, kubernetes)
        pod_level = resize.of_pod(pod_level)
        stages = resize.stages(*stages.of_containers[0])
        pause()
        asked = stages.total()
    pause()
    overhead = parse_amounts(mapping(spec, "overhead", "spec"), "spec.overhead")
    resources = _plus(asked | pod_level, overhead)
    pause()
    scored = _plus(stages.total(_SCORED_DEFAULTS), overhead)
    # Where pod-level requests are set, only what the whole pod leaves open is made up for.
    node_scored = scored | resources if has_pod_level else scored
    pause()
    return Demand(
        resources={name: amount for name, amount in resources.items() if amount},
        scored_cpu=scored.get(CPU, 0),
        scored_memory=scored.get(MEMORY, 0),
        scored_others={r: n for r, n in scored.items() if n and r not in (CPU, MEMORY)},
        node_scored_cpu=node_scored.get(CPU, 0),
        node_scored_memory=node_scored.get(MEMORY, 0),
        pod_level=frozenset(pod_level),
    )


def demands_by_version(
    spec: Mapping[str, Any], status: Mapping[str, Any] | None, newest: Demand
) -> Mapping[str, Demand] | None:
    """Return the assigned pod's demand by Kubernetes version; None if it is always `newest`."""
    if not status:
        return None
    has_pod_level = status.get("resources") is not None
    known: dict[tuple[bool, bool], Demand] = {(has_pod_level, True): newest}
    demands: dict[str, Demand] = {}
    for version, rules in KUBERNETES_RULES.items():
        facts = (has_pod_level and rules.pod_level_resize, rules.resize_by_stage)
        if facts not in known:
            known[facts] = pod_demand(spec, status, assigned=True, kubernetes=rules)
        demands[version] = known[facts]
    return demands if any(demand != newest for demand in demands.values()) else None


def pod_limits(spec: Mapping[str, Any], parsed: PodContainers | None = None) -> dict[str, int]:
    """Return the limits of cpu (millicores) and memory (bytes) of a pod with this spec.

    A resource without a limit is absent. `parsed` are the pod's containers if already parsed.
    Raises ManifestError with the path of a malformed amount.
    """
    parsed = parsed or PodContainers.of(spec)
    limits = total_requests(
        [container.limits for container in parsed.containers],
        [(c.limits, c.sidecar) for c in parsed.init],
    )
    _, pod_level = parse_pod_level(spec, {})
    limits |= pod_level
    return {name: limits[name] for name in (CPU, MEMORY) if limits.get(name)}


def qos_class(
    spec: Mapping[str, Any], parsed: PodContainers | None = None
) -> Literal["Guaranteed", "Burstable", "BestEffort"]:
    """Return the quality of service class of a pod with this spec.

    `parsed` are the pod's containers if already parsed. Raises ManifestError with the path of a
    malformed amount.
    """
    parsed = parsed or PodContainers.of(spec)
    containers, init = parsed.containers, parsed.init
    # Pod-level resources, if the field is present, replace those of all containers.
    if spec.get("resources") is not None:
        units = [parse_pod_level(spec, _total(containers, init))]
    else:
        units = [(c.requests, c.limits) for c in (*containers, *init)]
    requests = dict.fromkeys((CPU, MEMORY), 0)
    limits = dict.fromkeys((CPU, MEMORY), 0)
    every_limit_set = True
    for unit_requests, unit_limits in units:
        for name in (CPU, MEMORY):
            requests[name] += unit_requests.get(name, 0)
            limits[name] += unit_limits.get(name, 0)
            every_limit_set &= unit_limits.get(name, 0) > 0
    if not any((*requests.values(), *limits.values())):
        return "BestEffort"
    return "Guaranteed" if every_limit_set and requests == limits else "Burstable"


@dataclass(frozen=True, slots=True)
class _Stages:
    """The requests of a pod at each stage of an in-place resize."""

    # The containers and the init containers at each stage.
    of_containers: list[tuple[Sequence[ContainerResources], Sequence[ContainerResources]]]
    # The pod's total at each stage whose total the pod's status has.
    of_pods: list[dict[str, int]] = field(default_factory=list)

    def total(self, defaults: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
        """Return, for each resource, the pod's largest total at any stage.

        `defaults` has the amount of each resource for containers that do not request it.
        """
        largest: dict[str, int] = {}
        for containers, init in self.of_containers:
            raise_to(largest, _total(containers, init, defaults))
        for amounts in self.of_pods:
            raise_to(largest, amounts)
        return largest


class _Resize:
    """The amounts of a pod during an in-place resize, read from its status."""

    def __init__(self, status: Mapping[str, Any], kubernetes: KubernetesRules) -> None:
        self._status = status
        self._kubernetes = kubernetes
        self._containers = {
            text(raw, "name", where): (raw, where)
            for field in ("containerStatuses", "initContainerStatuses")
            for index, raw in enumerate(mappings(status, field, "status"))
            if (where := f"status.{field}[{index}]")
        }
        pending = (
            condition.get("reason")
            for condition in mappings(status, "conditions", "status")
            if condition.get("type") == "PodResizePending"
        )
        self._infeasible = next(pending, None) == "Infeasible"

    def stages(
        self, containers: Sequence[ContainerResources], init: Sequence[ContainerResources]
    ) -> _Stages:
        """Return the stages of the resize; before 1.37 one stage, with the largest amounts."""
        if not self._kubernetes.resize_by_stage:
            held = [self._with_most(container) for container in containers]
            held_init = [self._with_most(c) if c.sidecar else c for c in init]
            return _Stages([(held, held_init)])
        # The stages are requested (the spec), allocated and in use. The requested stage is left out
        # if the node reports the resize as infeasible.
        asked = [] if self._infeasible else [(containers, init)]
        allocated, used = _amounts(self._status, "status")
        if allocated is not None and used is not None:
            return _Stages(asked, [allocated, used])
        others = [
            ([picked(c) for c in containers], [picked(c) for c in init])
            for picked in (self._allocated, self._used)
        ]
        return _Stages([*asked, *others])

    def of_pod(self, pod_level: dict[str, int]) -> dict[str, int]:
        """Return, by resource, the largest pod-level request of the resize's stages."""
        if not pod_level or not self._kubernetes.pod_level_resize:
            return pod_level
        if self._status.get("resources") is None:
            return pod_level
        held = self._most(pod_level, self._status, "status")
        if self._kubernetes.resize_by_stage:
            return at_pod_level(held)
        return {name: held.get(name, 0) for name in pod_level}

    def _with_most(self, container: ContainerResources) -> ContainerResources:
        raw, where = self._containers.get(container.name, ({}, ""))
        if raw.get("resources") is None:
            return container
        return container._replace(requests=self._most(container.requests, raw, where))

    def _most(self, asked: Mapping[str, int], raw: Mapping[str, Any], where: str) -> dict[str, int]:
        most = {} if self._infeasible else dict(asked)
        for amounts in _amounts(raw, where):
            raise_to(most, amounts or {})
        return most

    def _allocated(self, container: ContainerResources) -> ContainerResources:
        allocated, _ = _amounts(*self._containers.get(container.name, ({}, "")))
        return self._with(container, allocated)

    def _used(self, container: ContainerResources) -> ContainerResources:
        allocated, used = _amounts(*self._containers.get(container.name, ({}, "")))
        return self._with(container, used if used is not None else allocated)

    def _with(
        self, container: ContainerResources, amounts: dict[str, int] | None
    ) -> ContainerResources:
        if amounts is None:
            amounts = {} if self._infeasible else container.requests
        return container._replace(requests=amounts)


def _amounts(
    raw: Mapping[str, Any], where: str
) -> tuple[dict[str, int] | None, dict[str, int] | None]:
    allocated = used = None
    if raw.get("allocatedResources") is not None:
        amounts = mapping(raw, "allocatedResources", where)
        allocated = parse_amounts(amounts, f"{where}.allocatedResources")
    resources = mapping(raw, "resources", where)
    if resources.get("requests") is not None:
        amounts = mapping(resources, "requests", f"{where}.resources")
        used = parse_amounts(amounts, f"{where}.resources.requests")
    return allocated, used


def _total(
    containers: Iterable[ContainerResources],
    init: Iterable[ContainerResources],
    defaults: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    return total_requests(
        [{**defaults, **c.requests} for c in containers],
        [({**defaults, **c.requests}, c.sidecar) for c in init],
    )


def _plus(amounts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    if not more and max(amounts.values(), default=0) <= INT64_MAX:
        return dict(amounts)
    return {
        name: min(amounts.get(name, 0) + more.get(name, 0), INT64_MAX)
        for name in {**amounts, **more}
    }
