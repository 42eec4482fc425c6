"""The fields of a pod's spec that scheduling decisions read, parsed once for equal pods.

Most pods are copies of a template. Pods that are equal in these fields share one `PodSpec` object.
Therefore a spec is parsed once per template, and results of plugins can be cached by the identity
of the spec.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakValueDictionary

import orjson

from mooring.claims.model.resource_claims import PodClaim, pod_claims_of
from mooring.model.affinity import (
    PodAffinity,
    SpreadConstraint,
    parse_pod_affinity,
    spread_constraints_of,
)
from mooring.model.bounded_cache import BoundedCache, bytes_of
from mooring.model.declared_features import required_features
from mooring.model.demand import Demand, demands_by_version, pod_demand, pod_limits, qos_class
from mooring.model.fields import integer, mapping, mappings, optional_mapping, strings, text
from mooring.model.limits import LIMITS, Counted, exceeded
from mooring.model.manifest_error import ManifestError
from mooring.model.node import Node, normalized_image
from mooring.model.paused_reading import collected
from mooring.model.resources import ContainerRequests, PodContainers
from mooring.model.selectors import (
    LabelSelector,
    NodeSelector,
    PreferredTerm,
    node_terms_of,
    preferred_terms_of,
    requirements_from_labels,
)
from mooring.model.taints import Toleration, tolerations_of
from mooring.pausing import pause

_CONTAINER_FIELDS: Final = ("name", "image", "resources", "ports", "restartPolicy")
_SPEC_FIELDS: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "resourceClaims",
    "resources",
    "schedulerName",
    "schedulingGates",
    "tolerations",
    "topologySpreadConstraints",
)
_STATUS_FIELDS: Final = (
    "allocatedResources",
    "containerStatuses",
    "initContainerStatuses",
    "resources",
)
_CARD_ANNOTATIONS: Final = frozenset(
    (
        "gpu-fraction",
        "gpu-fraction-num-devices",
        "gpu-memory",
        "scheduling.mooring.dev/gpu-link-preferred",
        "scheduling.mooring.dev/gpu-link-required",
        "scheduling.mooring.dev/gpu-memory-at-least",
        "scheduling.mooring.dev/gpu-type",
    )
)
"""The annotations by which a pod requests GPU cards (gpu_cards/model/cards.py)."""
_LONGEST_ANNOTATION: Final = 512
"""The most characters of an annotation; the rest is cut off, because tenants write it."""
_STATUS_CONTAINER_FIELDS: Final = ("name", "resources", "allocatedResources")


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host port of a pod; `ip` 0.0.0.0 stands for all addresses of the node."""

    protocol: str
    port: int
    ip: str


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodSpec:
    """The part of a pod's spec that decisions read; pods with equal parts share one object."""

    namespace: str
    demand: Demand
    limits: Mapping[str, int]
    """The pod's limits of cpu (millicores) and memory (bytes); no entry means no limit."""
    qos: str
    priority: int
    preempts: bool
    scheduler_name: str
    gates: tuple[str, ...]
    node_selector: LabelSelector
    required_nodes: NodeSelector | None
    preferred_nodes: tuple[PreferredTerm, ...]
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    images: tuple[str, ...]
    """The image names of all init containers and containers, as `normalized_image` gives them."""
    volume_images: tuple[str, ...]
    """The image names of image volumes, as `normalized_image` gives them."""
    container_count: int
    """The number of containers, including init containers."""
    affinity: PodAffinity
    spread: tuple[SpreadConstraint, ...]
    resource_claims: tuple[PodClaim, ...]
    """The pod's claims for devices: names of claims, or of templates for claims."""
    required_features: frozenset[str]
    """The kubelet features that the pod's node must declare."""
    containers: tuple[ContainerRequests, ...]
    """Each container's requests, init containers first; () if no extended resource is used."""
    card_annotations: Mapping[str, str]
    """The pod's annotations that request GPU cards, or describe the request."""
    limit_exceeded: str | None = None
    """A sentence about the limit of `mooring.model.limits` that these fields exceed, or None."""
    demands: Mapping[str, Demand] | None = None
    """Maps a Kubernetes version to the demand during an in-place resize; None if all versions
    agree."""
    memory: int = 0
    """The estimated bytes of this object, with its JSON."""

    @property
    def extended(self) -> tuple[Mapping[str, int], ...]:
        """The requests of each app container for extended resources; () if no container has any."""
        return tuple(
            {name: amount for name, amount in container.requests.items() if "/" in name}
            for container in self.containers
            if container.kind == "app"
        )

    def selects(self, node: Node) -> bool:
        """Return whether the nodeSelector and the required node affinity select the node."""
        return self.node_selector.matches(node.labels) and (
            self.required_nodes is None or self.required_nodes.matches(node.name, node.labels)
        )


_FIELDS: Final = tuple(field.name for field in fields(PodSpec))


def pod_spec(
    namespace: str,
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    annotations: Mapping[str, str] = MappingProxyType({}),
    *,
    assigned: bool,
) -> PodSpec:
    """Return the parsed spec of a pod; for an `assigned` pod, its status is read too.

    Other tasks may run meanwhile. Raises ManifestError with the path of a malformed field.
    """
    key = _spec_key(namespace, spec, status, annotations, assigned=assigned)
    pause()
    return _SPECS.of(key)


def _spec_key(
    namespace: str,
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    annotations: Mapping[str, str],
    *,
    assigned: bool,
) -> bytes:
    """Return JSON of the fields that decisions read; pods with equal JSON share a PodSpec."""
    picked = {field: spec[field] for field in _SPEC_FIELDS if field in spec}
    for group in ("containers", "initContainers"):
        if group in spec:
            picked[group] = _picked(mappings(spec, group, "spec"), _CONTAINER_FIELDS)
    images = _image_volumes(mappings(spec, "volumes", "spec"))
    if images:
        picked["imageVolumes"] = images
    features = required_features(spec)
    if features:
        picked["requiredFeatures"] = features
    fields: dict[str, Any] = {"namespace": namespace, "spec": picked}
    if not _CARD_ANNOTATIONS.isdisjoint(annotations):
        named = sorted(_CARD_ANNOTATIONS & annotations.keys())
        fields["annotations"] = {key: annotations[key][:_LONGEST_ANNOTATION] for key in named}
    if assigned:
        fields["status"] = _resize_status(status)
    try:
        # A copy, because what orjson returns occupies 4 KiB however short it is.
        return memoryview(orjson.dumps(fields)).tobytes()
    except orjson.JSONEncodeError as error:
        raise ManifestError("spec", f"cannot be written as JSON: {error}") from None


def _picked(
    containers: Iterable[Mapping[str, Any]], fields: tuple[str, ...]
) -> list[dict[str, Any]]:
    return [{field: c[field] for field in fields if field in c} for c in containers]


def _image_volumes(volumes: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        text(mapping(volume, "image", where), "reference", f"{where}.image")
        for index, volume in enumerate(volumes)
        if volume.get("image") is not None and (where := f"spec.volumes[{index}]")
    ]


def _resize_status(status: Mapping[str, Any]) -> dict[str, Any]:
    picked = {field: status[field] for field in _STATUS_FIELDS if field in status}
    for group in ("containerStatuses", "initContainerStatuses"):
        if group in picked:
            picked[group] = _picked(mappings(status, group, "status"), _STATUS_CONTAINER_FIELDS)
    pending = [
        {"type": "PodResizePending", "reason": condition.get("reason")}
        for condition in mappings(status, "conditions", "status")
        if condition.get("type") == "PodResizePending"
    ]
    return picked | {"conditions": pending} if pending else picked


class PodSpecCache:
    """The parsed specs of all pods, and recently used specs without a pod.

    The spec of an existing pod is always found, so that equal pods share it. Specs without a pod
    are kept up to `most_bytes`, for later pods of their templates.
    """

    def __init__(self, most_bytes: int) -> None:
        self._live: WeakValueDictionary[bytes, PodSpec] = WeakValueDictionary()
        self._recent: BoundedCache[bytes, PodSpec] = BoundedCache(
            most_bytes, lambda _, spec: spec.memory
        )

    def __len__(self) -> int:
        return len(self._live)

    def of(self, key: bytes) -> PodSpec:
        """Return the parsed spec for this JSON."""
        # A spec that takes more than a hundredth of `most_bytes` is kept only while a pod has it.
        known = self._recent.get(key) or self._live.get(key)
        if known is not None:
            return known
        parsed = _parsing(key)
        spec = self._live.setdefault(key, parsed)  # in a pause it may have been parsed for another
        if spec.memory * 100 <= self._recent.most_bytes:
            self._recent.put(key, spec)
        return spec

    @property
    def recent_bytes(self) -> int:
        """The estimated bytes of the most recently used specs."""
        return self._recent.bytes


_MOST_MEMORY_PER_BYTE: Final = 25
"""The bytes of memory that a parsed spec needs at most for each byte of its JSON; most specs need a
fifth."""
_SMALL: Final = 2048
"""The most bytes of JSON for which a spec's memory is estimated, because measuring it takes longer
than parsing. It is also estimated for pods that are too large to be scheduled."""
_SPECS: Final = PodSpecCache(64 * 1024 * 1024)


def _parsing(key: bytes) -> PodSpec:
    loaded = orjson.loads(key)
    pause()
    namespace, spec, status = loaded["namespace"], loaded["spec"], loaded.get("status")
    affinity, containers = mapping(spec, "affinity", "spec"), list(_containers(spec))
    required_nodes, preferred_nodes = _node_affinity(affinity)
    resources = PodContainers.of(spec)
    demand, demands = _demands(spec, status, resources)
    limits, qos = pod_limits(spec, resources), qos_class(spec, resources)
    pause()
    wanted = requirements_from_labels(strings(spec, "nodeSelector", "spec"))
    tolerations = tolerations_of(mappings(spec, "tolerations", "spec"))
    spread = spread_constraints_of(mappings(spec, "topologySpreadConstraints", "spec"))
    parsed = PodSpec(
        namespace=namespace,
        demand=demand,
        demands=demands,
        limits=limits,
        qos=qos,
        priority=integer(spec, "priority", "spec") or 0,
        preempts=text(spec, "preemptionPolicy", "spec") != "Never",
        scheduler_name=text(spec, "schedulerName", "spec") or "default-scheduler",
        gates=collected(_gates(spec)),
        node_selector=LabelSelector(collected(wanted)),
        required_nodes=required_nodes,
        preferred_nodes=preferred_nodes,
        tolerations=collected(tolerations),
        host_ports=tuple(dict.fromkeys(collected(_host_ports(containers)))),
        images=collected(_images(containers)),
        volume_images=collected(map(normalized_image, spec.get("imageVolumes", ()))),
        container_count=len(containers),
        affinity=parse_pod_affinity(affinity, namespace),
        spread=collected(spread),
        resource_claims=collected(pod_claims_of(spec)),
        required_features=frozenset(spec.get("requiredFeatures", ())),
        containers=resources.with_extended,
        card_annotations=loaded.get("annotations", {}),
    )
    pause()
    return _measured(parsed, key, assigned=status is not None)


def _demands(
    spec: Mapping[str, Any], status: Mapping[str, Any] | None, resources: PodContainers
) -> tuple[Demand, Mapping[str, Demand] | None]:
    """Return the demand in the newest Kubernetes version, and by version if versions differ."""
    pause()
    assigned = status is not None
    demand = pod_demand(spec, status, assigned=assigned, parsed=resources)
    pause()
    demands = demands_by_version(spec, status, demand)
    pause()
    return demand, demands


def _measured(parsed: PodSpec, key: bytes, *, assigned: bool) -> PodSpec:
    memory = _MOST_MEMORY_PER_BYTE * len(key)
    if _SMALL < len(key) <= LIMITS[Counted.BYTES]:
        memory = bytes_of(key, *(getattr(parsed, field) for field in _FIELDS))
    limit_exceeded = exceeded({Counted.BYTES: len(key), **_counts(parsed)})
    # Too many inter-pod terms are removed: every decision about another pod would read the terms of
    # a placed pod, and any tenant can create a pod that names its node.
    affinity = parsed.affinity
    if assigned and _has_too_many_terms(affinity):
        affinity = PodAffinity()
    return replace(parsed, limit_exceeded=limit_exceeded, memory=memory, affinity=affinity)


def _gates(spec: Mapping[str, Any]) -> Iterator[str]:
    gates = enumerate(mappings(spec, "schedulingGates", "spec"))
    return (text(gate, "name", f"spec.schedulingGates[{index}]") for index, gate in gates)


def _node_affinity(
    affinity: Mapping[str, Any],
) -> tuple[NodeSelector | None, tuple[PreferredTerm, ...]]:
    nodes, where = mapping(affinity, "nodeAffinity", "spec.affinity"), "spec.affinity.nodeAffinity"
    hard, soft = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    required, terms = optional_mapping(nodes, hard, where), None
    if required is not None:
        terms = NodeSelector(collected(node_terms_of(required, f"{where}.{hard}")))
    preferred = preferred_terms_of(mappings(nodes, soft, where), f"{where}.{soft}")
    return terms, collected(preferred)


def _has_too_many_terms(affinity: PodAffinity) -> bool:
    return not affinity.empty and exceeded(_counts_of_terms(affinity)) is not None


def _counts_of_terms(affinity: PodAffinity) -> dict[Counted, int]:
    terms = [*affinity.required, *affinity.required_anti]
    terms += [preferred.term for preferred in affinity.preferred]
    selectors = [
        selector for term in terms for selector in (term.selector, term.namespace_selector)
    ]
    requirements = [r for s in selectors if s is not None for r in s.requirements]
    return {
        Counted.POD_TERMS: len(terms),
        Counted.REQUIREMENTS: len(requirements),
        Counted.VALUES: sum(len(requirement.values) for requirement in requirements)
        + sum(len(term.namespaces) for term in terms),
    }


def _counts(spec: PodSpec) -> dict[Counted, int]:
    node_terms = [preferred.term for preferred in spec.preferred_nodes]
    node_terms += spec.required_nodes.terms if spec.required_nodes is not None else ()
    selectors = [spec.node_selector, *(constraint.selector for constraint in spec.spread)]
    requirements = [r for s in selectors if s is not None for r in s.requirements]
    for node_term in node_terms:
        requirements += (*node_term.expressions, *node_term.fields)
    of_terms = _counts_of_terms(spec.affinity)
    values = sum(len(requirement.values) for requirement in requirements)
    return {
        Counted.NODE_TERMS: len(node_terms),
        Counted.POD_TERMS: of_terms[Counted.POD_TERMS],
        Counted.SPREAD_CONSTRAINTS: len(spec.spread),
        Counted.REQUIREMENTS: len(requirements) + of_terms[Counted.REQUIREMENTS],
        Counted.VALUES: values + of_terms[Counted.VALUES],
        Counted.RESOURCES: len(spec.demand.resources),
        Counted.TOLERATIONS: len(spec.tolerations),
        Counted.HOST_PORTS: len(spec.host_ports),
        Counted.IMAGES: len(spec.images) + len(spec.volume_images),
        Counted.CONTAINERS: spec.container_count,
        Counted.RESOURCE_CLAIMS: len(spec.resource_claims),
    }


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for group in ("initContainers", "containers"):
        for index, container in enumerate(mappings(spec, group, "spec")):
            yield f"spec.{group}[{index}]", container


def _images(containers: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    images = (text(container, "image", path) for path, container in containers)
    return (normalized_image(image) for image in images if image)


def _host_ports(containers: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[HostPort]:
    for path, container in containers:
        # Of init containers, only sidecars count, as in util.GetHostPorts.
        if path.startswith("spec.initContainers") and container.get("restartPolicy") != "Always":
            continue
        for index, port in enumerate(mappings(container, "ports", path)):
            where = f"{path}.ports[{index}]"
            number = integer(port, "hostPort", where) or 0
            if number > 0:
                protocol = text(port, "protocol", where) or "TCP"
                yield HostPort(protocol, number, text(port, "hostIP", where) or "0.0.0.0")
