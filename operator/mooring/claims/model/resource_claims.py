"""ResourceClaim and ResourceClaimTemplate objects of resource.k8s.io, and how pods name them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

import orjson

from mooring.claims.model.resource_slices import parse_quantities
from mooring.model.bounded_cache import BoundedCache, bytes_of
from mooring.model.fields import (
    boolean,
    controller_uid,
    integer,
    mapping,
    mappings,
    name_of,
    namespace_of,
    naming_the_object,
    optional_mapping,
    strings,
    text,
    texts,
    timestamp,
)
from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import Quantity
from mooring.model.selectors import NodeSelector, Requirement, parse_node_selector
from mooring.model.taints import Toleration, parse_tolerations

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of a claim that has devices."""
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that a scheduler created for a pod's extended resources."""
MOST_RESULTS: Final = 32
"""The most devices of a claim, because its status holds no more (AllocationResultsMaxSize); a claim
that needs more cannot be allocated."""


class DeviceId(NamedTuple):
    """Identifies a device in the cluster by driver, pool and name."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class DeviceToleration:
    """A toleration of device taints.

    A running pod tolerates the taints for `seconds`; None means for ever.
    """

    toleration: Toleration
    seconds: int | None


@dataclass(frozen=True, slots=True)
class ExactRequest:
    """A request for devices of a class: `count` devices, or all devices if `mode` is All.

    `selectors` are CEL expressions; None is a selector of an unknown type. `capacity` has the
    requested amount of each capacity.
    """

    name: str
    device_class: str
    selectors: tuple[str | None, ...]
    mode: str
    count: int
    admin_access: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A request of a claim: either `exactly`, or the first possible item of `first_available`."""

    name: str
    exactly: ExactRequest | None
    first_available: tuple[ExactRequest, ...]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule that the devices of some requests have equal or different values of an attribute.

    Both attributes are None if the rule's type is unknown. If `requests` is empty, the rule is for
    all requests.
    """

    requests: tuple[str, ...]
    match_attribute: str | None
    distinct_attribute: str | None


@dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """Parameters that only the driver understands."""

    driver: str
    parameters: Any


@dataclass(frozen=True, slots=True)
class ClaimConfig:
    """A configuration for the devices of some requests, or of all requests if none is named."""

    requests: tuple[str, ...]
    opaque: OpaqueConfig | None


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """The requests, constraints and configuration of a claim or of a template."""

    requests: tuple[DeviceRequest, ...]
    constraints: tuple[Constraint, ...]
    config: tuple[ClaimConfig, ...]
    memory: int | None = field(default=None, compare=False, repr=False)
    """The estimated bytes of this object in memory; None until the bytes are first measured."""
    asked: str = field(init=False, compare=False, repr=False)
    """The requests and constraints as text; claims with equal texts request the same devices."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", f"{self.requests!r}{self.constraints!r}")


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """An allocated device; `request` is the name of the request, or `name/subrequest`.

    `admin_access` may be None, which means unset. `share_id` is "" if the device is not shared.
    """

    request: str
    device: DeviceId
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str = ""
    consumed: Mapping[str, Quantity] | None = None


@dataclass(frozen=True, slots=True)
class AllocationConfig:
    """A driver's configuration in an allocation; `source` is FromClass or FromClaim."""

    source: Literal["FromClass", "FromClaim"]
    requests: tuple[str, ...]
    opaque: OpaqueConfig | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """The devices of an allocated claim; without a `node_selector`, all nodes can use the devices.

    `time` is when the claim was allocated, in seconds since the epoch.
    """

    results: tuple[DeviceResult, ...]
    config: tuple[AllocationConfig, ...] = ()
    node_selector: NodeSelector | None = None
    time: float | None = None


@dataclass(frozen=True, slots=True)
class ConsumerReference:
    """An object that uses a claim; for a pod, `resource` is `pods` and `group` is ""."""

    group: str
    resource: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeviceCondition:
    """A condition in the status of an allocated device, written by its driver."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """The status of an allocated device, written by its driver."""

    device: DeviceId
    share_id: str
    conditions: tuple[DeviceCondition, ...]


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """A claim for devices.

    Attributes:
        allocation: None if the claim has no devices yet.
        controller_uid: The uid of the pod or PodGroup for which a template's claim was created.
        for_extended_resources: Whether a scheduler created the claim for extended resources.
        malformed: The mistake if no pod can use the claim; see `unreadable_claim`.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    deleting: bool
    finalizers: tuple[str, ...]
    controller_uid: str
    for_extended_resources: bool
    spec: ClaimSpec
    allocation: Allocation | None
    reserved_for: tuple[ConsumerReference, ...]
    device_statuses: tuple[DeviceStatus, ...]
    malformed: str = ""

    @property
    def key(self) -> str:
        """The claim as `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodClaim:
    """An entry of a pod's resourceClaims: it names either a claim or a template."""

    name: str
    claim: str
    template: str


@dataclass(frozen=True, slots=True)
class ExtendedResourceClaim:
    """The claim that a scheduler created for a pod's extended resources.

    `requests` maps a container and a resource to a request of the claim.
    """

    claim: str
    requests: tuple[tuple[str, str, str], ...]


def claim_of_scheduler(
    namespace: str, name: str, uid: str, pod_uid: str, requests: Iterable[DeviceRequest] = ()
) -> ResourceClaim:
    """Return a claim for the extended resources of the pod that has this uid."""
    return ResourceClaim(
        namespace=namespace,
        name=name,
        uid=uid,
        resource_version="",
        deleting=False,
        finalizers=(),
        controller_uid=pod_uid,
        for_extended_resources=True,
        spec=ClaimSpec(tuple(requests), (), ()),
        allocation=None,
        reserved_for=(),
        device_statuses=(),
    )


@naming_the_object("ResourceClaim")
def parse_resource_claim(raw: Mapping[str, Any]) -> ResourceClaim:
    """Parse a ResourceClaim; ManifestError names the object and the wrong field."""
    metadata, status = mapping(raw, "metadata"), mapping(raw, "status")
    annotations = strings(metadata, "annotations", "metadata")
    allocation = optional_mapping(status, "allocation", "status")
    return ResourceClaim(
        namespace=namespace_of(raw),
        name=name_of(raw),
        uid=text(metadata, "uid", "metadata"),
        resource_version=text(metadata, "resourceVersion", "metadata"),
        deleting=metadata.get("deletionTimestamp") is not None,
        finalizers=texts(metadata, "finalizers", "metadata"),
        controller_uid=controller_uid(metadata),
        for_extended_resources=annotations.get(EXTENDED_RESOURCE_CLAIM) == "true",
        spec=parse_claim_spec(mapping(raw, "spec"), "spec"),
        allocation=None if allocation is None else _allocation(allocation, "status.allocation"),
        reserved_for=_consumers(status),
        device_statuses=tuple(
            _device_status(device, f"status.devices[{index}]")
            for index, device in enumerate(mappings(status, "devices", "status"))
        ),
    )


def unreadable_claim(
    raw: Mapping[str, Any], problem: str, known: ResourceClaim | None
) -> ResourceClaim:
    """Return a claim with the readable parts of `raw`, which `parse_resource_claim` cannot parse.

    No pod can use the claim. Its devices stay in use; devices that cannot be read come from its
    earlier version `known`.
    """
    metadata: Mapping[str, Any] = _readable(lambda: mapping(raw, "metadata"), {})
    annotations: Mapping[str, str] = _readable(
        lambda: strings(metadata, "annotations", "metadata"), {}
    )
    uid = _readable(lambda: text(metadata, "uid", "metadata"), "")
    before = known.allocation if known is not None and known.uid == uid else None
    return ResourceClaim(
        namespace=namespace_of(raw),
        name=name_of(raw),
        uid=uid,
        resource_version=_readable(lambda: text(metadata, "resourceVersion", "metadata"), ""),
        deleting=metadata.get("deletionTimestamp") is not None,
        finalizers=_readable(lambda: texts(metadata, "finalizers", "metadata"), ()),
        controller_uid=_readable(lambda: controller_uid(metadata), ""),
        for_extended_resources=annotations.get(EXTENDED_RESOURCE_CLAIM) == "true",
        spec=ClaimSpec((), (), ()),
        allocation=_devices_named(raw, before),
        reserved_for=_readable(lambda: _consumers(mapping(raw, "status")), ()),
        device_statuses=(),
        malformed=problem,
    )


_Value = TypeVar("_Value")


def _readable(read: Callable[[], _Value], otherwise: _Value) -> _Value:
    try:
        return read()
    except ManifestError:
        return otherwise


def _devices_named(raw: Mapping[str, Any], known: Allocation | None) -> Allocation | None:
    """Return what is readable of a malformed claim's allocation; `known` is its former value."""
    status = raw.get("status")
    if status is None or (isinstance(status, Mapping) and status.get("allocation") is None):
        return None
    results: list[Mapping[str, Any]] = _readable(
        lambda: mappings(mapping(mapping(raw["status"], "allocation"), "devices"), "results"), []
    )
    devices = [_readable(partial(_device_id, each, "status.allocation"), None) for each in results]
    found = [
        DeviceResult("", device, result.get("adminAccess") is True or None)
        for device, result in zip(devices, results, strict=True)
        if device is not None
    ]
    # Some devices cannot be read. A pod may still use the devices of the earlier version.
    if known is not None and (not devices or None in devices):
        found += [result for result in known.results if result not in found]
    return Allocation(tuple(found))


@naming_the_object("ResourceClaimTemplate")
def resource_claim_template_key(raw: Mapping[str, Any]) -> str:
    """Return `namespace/name` of a ResourceClaimTemplate; ManifestError if it is malformed."""
    key = f"{namespace_of(raw)}/{name_of(raw)}"
    spec = mapping(raw, "spec")
    metadata = mapping(spec, "metadata", "spec")
    strings(metadata, "labels", "spec.metadata")
    strings(metadata, "annotations", "spec.metadata")
    parse_claim_spec(mapping(spec, "spec", "spec"), "spec.spec")
    return key


def parse_claim_spec(raw: Mapping[str, Any], where: str) -> ClaimSpec:
    """Parse the spec of a claim or of a template; equal specs share one object."""
    try:
        key = orjson.dumps(raw)
    except orjson.JSONEncodeError:
        return _claim_spec(raw, where)
    # All claims of a template have this spec, and each new status causes it to be parsed again.
    known = _SPECS.get(key)
    if known is None:
        parsed = _claim_spec(raw, where)
        known = replace(parsed, memory=bytes_of(parsed))
        _SPECS.put(key, known)
    return known


_SPECS: Final = BoundedCache[bytes, ClaimSpec](16 * 1024 * 1024)


def _claim_spec(raw: Mapping[str, Any], where: str) -> ClaimSpec:
    devices, at = mapping(raw, "devices", where), f"{where}.devices"
    return ClaimSpec(
        requests=tuple(
            _request(request, f"{at}.requests[{index}]")
            for index, request in enumerate(mappings(devices, "requests", at))
        ),
        constraints=tuple(
            _constraint(constraint, f"{at}.constraints[{index}]")
            for index, constraint in enumerate(mappings(devices, "constraints", at))
        ),
        config=tuple(
            ClaimConfig(
                texts(config, "requests", f"{at}.config[{index}]"),
                parse_opaque_config(config, f"{at}.config[{index}]"),
            )
            for index, config in enumerate(mappings(devices, "config", at))
        ),
    )


def parse_selectors(raw: Mapping[str, Any], where: str) -> tuple[str | None, ...]:
    """Parse the selectors of a class or a request: CEL expressions, None for unknown types."""
    return tuple(
        None if cel is None else text(cel, "expression", f"{at}.cel")
        for index, selector in enumerate(mappings(raw, "selectors", where))
        for at in [f"{where}.selectors[{index}]"]
        for cel in [optional_mapping(selector, "cel", at)]
    )


def parse_opaque_config(raw: Mapping[str, Any], where: str) -> OpaqueConfig | None:
    """Parse the opaque configuration of an entry; None if the entry has none."""
    opaque = optional_mapping(raw, "opaque", where)
    if opaque is None:
        return None
    return OpaqueConfig(text(opaque, "driver", f"{where}.opaque"), opaque.get("parameters"))


def parse_pod_claims(spec: Mapping[str, Any]) -> tuple[PodClaim, ...]:
    """Parse the resourceClaims of a pod's spec; ManifestError names the wrong field."""
    return tuple(pod_claims_of(spec))


def pod_claims_of(spec: Mapping[str, Any]) -> Iterator[PodClaim]:
    """Yield the resourceClaims of a pod's spec; each entry is parsed only when it is needed."""
    return (
        PodClaim(
            text(claim, "name", where),
            text(claim, "resourceClaimName", where),
            text(claim, "resourceClaimTemplateName", where),
        )
        for index, claim in enumerate(mappings(spec, "resourceClaims", "spec"))
        for where in [f"spec.resourceClaims[{index}]"]
    )


def parse_claim_statuses(status: Mapping[str, Any]) -> Mapping[str, str | None]:
    """Return the names of the claims created for a pod, by the pod's entry in `resourceClaims`.

    None stands for an entry that needs no claim.
    """
    named: dict[str, str | None] = {}
    for index, entry in enumerate(mappings(status, "resourceClaimStatuses", "status")):
        where = f"status.resourceClaimStatuses[{index}]"
        absent = entry.get("resourceClaimName") is None
        name = None if absent else text(entry, "resourceClaimName", where)
        named.setdefault(text(entry, "name", where), name)
    return named


def parse_extended_resource_claim(status: Mapping[str, Any]) -> ExtendedResourceClaim | None:
    """Parse the extendedResourceClaimStatus of a pod; None if the pod has none."""
    entry = optional_mapping(status, "extendedResourceClaimStatus", "status")
    if entry is None:
        return None
    where = "status.extendedResourceClaimStatus"
    return ExtendedResourceClaim(
        text(entry, "resourceClaimName", where),
        tuple(
            (
                text(request, "containerName", at),
                text(request, "resourceName", at),
                text(request, "requestName", at),
            )
            for index, request in enumerate(mappings(entry, "requestMappings", where))
            for at in [f"{where}.requestMappings[{index}]"]
        ),
    )


def allocation_fields(allocation: Allocation) -> dict[str, Any]:
    """Return an allocation as API fields, without its time."""
    devices: dict[str, Any] = {"results": [_result_fields(r) for r in allocation.results]}
    if allocation.config:
        devices["config"] = [
            _present(
                source=config.source,
                requests=list(config.requests),
                opaque=config.opaque
                and {"driver": config.opaque.driver, "parameters": config.opaque.parameters},
            )
            for config in allocation.config
        ]
    selector = allocation.node_selector
    return _present(
        devices=devices,
        nodeSelector=selector
        and {
            "nodeSelectorTerms": [
                _present(
                    matchExpressions=[_requirement_fields(r) for r in term.expressions],
                    matchFields=[_requirement_fields(r) for r in term.fields],
                )
                for term in selector.terms
            ]
        },
    )


def _present(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in (None, "", [], {})}


def _result_fields(result: DeviceResult) -> dict[str, Any]:
    consumed = result.consumed
    return _present(
        request=result.request,
        driver=result.device.driver,
        pool=result.device.pool,
        device=result.device.device,
        adminAccess=result.admin_access,
        tolerations=[
            _present(
                key=toleration.key,
                operator=toleration.operator,
                value=toleration.value,
                effect=toleration.effect,
                tolerationSeconds=seconds,
            )
            for entry in result.tolerations
            for toleration, seconds in [(entry.toleration, entry.seconds)]
        ],
        bindingConditions=list(result.binding_conditions),
        bindingFailureConditions=list(result.binding_failure_conditions),
        shareID=result.share_id,
        consumedCapacity=consumed and {name: amount.text for name, amount in consumed.items()},
    )


def _requirement_fields(requirement: Requirement) -> dict[str, Any]:
    return _present(
        key=requirement.key, operator=requirement.operator, values=list(requirement.values)
    )


def _request(raw: Mapping[str, Any], where: str) -> DeviceRequest:
    exactly, name = optional_mapping(raw, "exactly", where), text(raw, "name", where)
    return DeviceRequest(
        name=name,
        exactly=None if exactly is None else _exact_request(exactly, name, f"{where}.exactly"),
        first_available=tuple(
            _exact_request(sub, text(sub, "name", at), at)
            for index, sub in enumerate(mappings(raw, "firstAvailable", where))
            for at in [f"{where}.firstAvailable[{index}]"]
        ),
    )


def _exact_request(raw: Mapping[str, Any], name: str, where: str) -> ExactRequest:
    mode = text(raw, "allocationMode", where) or "ExactCount"
    count = integer(raw, "count", where) or 0
    capacity = mapping(raw, "capacity", where)
    return ExactRequest(
        name=name,
        device_class=text(raw, "deviceClassName", where),
        selectors=parse_selectors(raw, where),
        mode=mode,
        count=count or (1 if mode == "ExactCount" else 0),
        admin_access=boolean(raw, "adminAccess", where),
        tolerations=_tolerations(raw, where),
        capacity=parse_quantities(capacity, "requests", f"{where}.capacity"),
    )


def _tolerations(raw: Mapping[str, Any], where: str) -> tuple[DeviceToleration, ...]:
    entries = mappings(raw, "tolerations", where)
    at = f"{where}.tolerations"
    return tuple(
        DeviceToleration(toleration, integer(entry, "tolerationSeconds", f"{at}[{index}]"))
        for index, (entry, toleration) in enumerate(
            zip(entries, parse_tolerations(entries, at), strict=True)
        )
    )


def _constraint(raw: Mapping[str, Any], where: str) -> Constraint:
    return Constraint(
        texts(raw, "requests", where),
        text(raw, "matchAttribute", where) or None,
        text(raw, "distinctAttribute", where) or None,
    )


def _allocation(raw: Mapping[str, Any], where: str) -> Allocation:
    devices, at = mapping(raw, "devices", where), f"{where}.devices"
    selector = optional_mapping(raw, "nodeSelector", where)
    return Allocation(
        results=tuple(
            _result(result, f"{at}.results[{index}]")
            for index, result in enumerate(mappings(devices, "results", at))
        ),
        config=tuple(
            AllocationConfig(
                "FromClass" if text(config, "source", to) == "FromClass" else "FromClaim",
                texts(config, "requests", to),
                parse_opaque_config(config, to),
            )
            for index, config in enumerate(mappings(devices, "config", at))
            for to in [f"{at}.config[{index}]"]
        ),
        node_selector=parse_node_selector(selector, f"{where}.nodeSelector"),
        time=timestamp(raw, "allocationTimestamp", where),
    )


def _result(raw: Mapping[str, Any], where: str) -> DeviceResult:
    consumed = raw.get("consumedCapacity") is not None
    return DeviceResult(
        request=text(raw, "request", where),
        device=_device_id(raw, where),
        admin_access=None if raw.get("adminAccess") is None else boolean(raw, "adminAccess", where),
        tolerations=_tolerations(raw, where),
        binding_conditions=texts(raw, "bindingConditions", where),
        binding_failure_conditions=texts(raw, "bindingFailureConditions", where),
        share_id=text(raw, "shareID", where),
        consumed=parse_quantities(raw, "consumedCapacity", where) if consumed else None,
    )


def _device_id(raw: Mapping[str, Any], where: str) -> DeviceId:
    return DeviceId(
        text(raw, "driver", where), text(raw, "pool", where), text(raw, "device", where)
    )


def _consumers(status: Mapping[str, Any]) -> tuple[ConsumerReference, ...]:
    return tuple(
        ConsumerReference(
            text(consumer, "apiGroup", where),
            text(consumer, "resource", where),
            text(consumer, "name", where),
            text(consumer, "uid", where),
        )
        for index, consumer in enumerate(mappings(status, "reservedFor", "status"))
        for where in [f"status.reservedFor[{index}]"]
    )


def _device_status(raw: Mapping[str, Any], where: str) -> DeviceStatus:
    return DeviceStatus(
        _device_id(raw, where),
        text(raw, "shareID", where),
        tuple(
            DeviceCondition(
                text(condition, "type", at),
                text(condition, "status", at),
                text(condition, "reason", at),
                text(condition, "message", at),
            )
            for index, condition in enumerate(mappings(raw, "conditions", where))
            for at in [f"{where}.conditions[{index}]"]
        ),
    )
