"""ResourceSlice and DeviceTaintRule objects of resource.k8s.io: the devices of a cluster.

Names of attributes and capacities are kept as written, with or without a domain.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import orjson

from mooring.model.bounded_cache import BoundedCache
from mooring.model.fields import (
    boolean,
    integer,
    mapping,
    mappings,
    name_of,
    naming_the_object,
    optional_mapping,
    text,
    texts,
)
from mooring.model.manifest_error import ManifestError
from mooring.model.quantity import Quantity, parse_quantity
from mooring.model.selectors import NodeSelector, parse_node_selector
from mooring.model.taints import Taint, parse_taints


@dataclass(frozen=True, slots=True)
class Version:
    """An attribute's value of type version; versions are compared as texts."""

    text: str


AttributeValue = str | int | bool | Version | None
"""The value of an attribute; None if its type is unknown, for example a list."""


@dataclass(frozen=True, slots=True)
class CapacityRange:
    """The amounts that a claim may request: from `least` to `most`, in steps of `step`."""

    least: Quantity | None
    most: Quantity | None
    step: Quantity | None


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """The amounts of a capacity that a request may consume; `default` if it names no amount."""

    default: Quantity | None
    valid_values: tuple[Quantity, ...]
    valid_range: CapacityRange | None


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """A capacity of a device, such as memory; the policy says how requests are rounded."""

    value: Quantity
    policy: CapacityPolicy | None


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Named amounts that the devices of a pool share."""

    name: str
    counters: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class CounterConsumption:
    """The amounts that a device takes from a counter set of its pool once it is allocated."""

    counter_set: str
    counters: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a slice.

    If the slice has `per_device_node_selection`, the fields `node_name` ("" if not set),
    `node_selector` and `all_nodes` select the nodes that can use the device.
    """

    name: str
    attributes: Mapping[str, AttributeValue]
    capacity: Mapping[str, DeviceCapacity]
    consumes: tuple[CounterConsumption, ...]
    node_name: str
    node_selector: NodeSelector | None
    all_nodes: bool
    taints: tuple[Taint, ...]
    binds_to_node: bool
    binding_conditions: tuple[str, ...]
    binding_failure_conditions: tuple[str, ...]
    allow_multiple_allocations: bool


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """A part of a driver's pool: devices, or counters that the pool's devices share.

    Attributes:
        node_name: "" if not set.
        slice_count: The number of slices in this generation of the pool.
        alike: A key. Slices with equal keys have equal devices and counters, apart from names of
            devices and the values of attributes.
    """

    name: str
    uid: str
    resource_version: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    node_name: str
    node_selector: NodeSelector | None
    all_nodes: bool
    per_device_node_selection: bool
    devices: tuple[Device, ...]
    shared_counters: tuple[CounterSet, ...]
    alike: Hashable = field(compare=False)


@dataclass(frozen=True, slots=True)
class DeviceTaintRule:
    """A taint for all devices with this driver, pool and name; None stands for any value.

    `selects` is False for a rule without a selector; such a rule taints no device.
    """

    name: str
    uid: str
    selects: bool
    driver: str | None
    pool: str | None
    device: str | None
    taint: Taint


@naming_the_object("ResourceSlice")
def parse_resource_slice(raw: Mapping[str, Any]) -> ResourceSlice:
    """Parse a ResourceSlice; ManifestError names the object and the wrong field."""
    metadata, spec = mapping(raw, "metadata"), mapping(raw, "spec")
    pool = mapping(spec, "pool", "spec")
    node_selector = optional_mapping(spec, "nodeSelector", "spec")
    content = _content(spec)
    return ResourceSlice(
        name=name_of(raw),
        uid=text(metadata, "uid", "metadata"),
        resource_version=text(metadata, "resourceVersion", "metadata"),
        driver=text(spec, "driver", "spec"),
        pool=text(pool, "name", "spec.pool"),
        generation=integer(pool, "generation", "spec.pool") or 0,
        slice_count=integer(pool, "resourceSliceCount", "spec.pool") or 0,
        node_name=text(spec, "nodeName", "spec"),
        node_selector=parse_node_selector(node_selector, "spec.nodeSelector"),
        all_nodes=boolean(spec, "allNodes", "spec"),
        per_device_node_selection=boolean(spec, "perDeviceNodeSelection", "spec"),
        devices=content.devices,
        shared_counters=content.shared_counters,
        alike=content.alike,
    )


@naming_the_object("DeviceTaintRule")
def parse_device_taint_rule(raw: Mapping[str, Any]) -> DeviceTaintRule:
    """Parse a DeviceTaintRule; ManifestError names the object and the wrong field."""
    spec, metadata = mapping(raw, "spec"), mapping(raw, "metadata")
    selector = optional_mapping(spec, "deviceSelector", "spec")
    wanted, where = selector or {}, "spec.deviceSelector"
    return DeviceTaintRule(
        name=name_of(raw),
        uid=text(metadata, "uid", "metadata"),
        selects=selector is not None,
        driver=text(wanted, "driver", where) if wanted.get("driver") is not None else None,
        pool=text(wanted, "pool", where) if wanted.get("pool") is not None else None,
        device=text(wanted, "device", where) if wanted.get("device") is not None else None,
        taint=parse_taints([mapping(spec, "taint", "spec")], "spec.taint")[0],
    )


def parse_quantities(raw: Mapping[str, Any], field: str, where: str) -> Mapping[str, Quantity]:
    """Parse a map of quantities; {} if it is absent."""
    return {
        name: parse_quantity(amount, f"{where}.{field}.{name}")
        for name, amount in mapping(raw, field, where).items()
    }


@dataclass(frozen=True, slots=True)
class _Content:
    """The devices and counters of slices with equal JSON."""

    devices: tuple[Device, ...]
    shared_counters: tuple[CounterSet, ...]
    alike: Hashable


_PARSED_PER_BYTE: Final = 4
"""The estimated bytes of memory for each byte of a slice's JSON; each device adds
`_BYTES_PER_DEVICE`."""
_BYTES_PER_DEVICE: Final = 350
_contents: Final[BoundedCache[bytes, _Content]] = BoundedCache(
    32 * 2**20,
    lambda key, content: (
        (1 + _PARSED_PER_BYTE) * len(key) + _BYTES_PER_DEVICE * len(content.devices)
    ),
)
_DIGEST_BYTES: Final = 16


def _content(spec: Mapping[str, Any]) -> _Content:
    devices = mappings(spec, "devices", "spec")
    try:
        key = orjson.dumps((devices, spec.get("sharedCounters")))
    except orjson.JSONEncodeError:
        return _parsed_content(devices, spec)
    known = _contents.get(key)
    if known is None:
        known = _parsed_content(devices, spec)
        _contents.put(key, known)
    return known


def _parsed_content(raw: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]) -> _Content:
    devices = tuple(_device(device, f"spec.devices[{index}]") for index, device in enumerate(raw))
    shared_counters = tuple(
        CounterSet(text(counters, "name", where), _counters(counters, where))
        for index, counters in enumerate(mappings(spec, "sharedCounters", "spec"))
        for where in [f"spec.sharedCounters[{index}]"]
    )
    return _Content(devices, shared_counters, _alike(devices, raw, spec))


def _alike(
    devices: Sequence[Device], raw: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]
) -> Hashable:
    others = [
        {
            **given,
            "name": None,
            "taints": [(taint.key, taint.value, taint.effect) for taint in device.taints],
            # Selectors may fail for another type, or for the text of a version.
            "attributes": [
                (name, [value.text] if type(value) is Version else type(value).__name__)
                for name, value in device.attributes.items()
            ],
        }
        for device, given in zip(devices, raw, strict=True)
    ]
    try:
        key = orjson.dumps((others, spec.get("sharedCounters")))
    except orjson.JSONEncodeError:
        return object()
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _device(raw: Mapping[str, Any], where: str) -> Device:
    node_selector = optional_mapping(raw, "nodeSelector", where)
    attributes, at = mapping(raw, "attributes", where), f"{where}.attributes"
    return Device(
        name=text(raw, "name", where),
        attributes={
            name: _attribute(mapping(attributes, name, at), f"{at}.{name}") for name in attributes
        },
        capacity={
            name: _capacity(capacity, f"{where}.capacity.{name}")
            for name in mapping(raw, "capacity", where)
            for capacity in [mapping(raw["capacity"], name, f"{where}.capacity")]
        },
        consumes=tuple(
            CounterConsumption(text(consumed, "counterSet", at), _counters(consumed, at))
            for index, consumed in enumerate(mappings(raw, "consumesCounters", where))
            for at in [f"{where}.consumesCounters[{index}]"]
        ),
        node_name=text(raw, "nodeName", where),
        node_selector=parse_node_selector(node_selector, f"{where}.nodeSelector"),
        all_nodes=boolean(raw, "allNodes", where),
        taints=parse_taints(mappings(raw, "taints", where), f"{where}.taints"),
        binds_to_node=boolean(raw, "bindsToNode", where),
        binding_conditions=texts(raw, "bindingConditions", where),
        binding_failure_conditions=texts(raw, "bindingFailureConditions", where),
        allow_multiple_allocations=boolean(raw, "allowMultipleAllocations", where),
    )


def _attribute(raw: Mapping[str, Any], at: str) -> AttributeValue:
    if raw.get("int") is not None:
        return integer(raw, "int", at)
    if raw.get("bool") is not None:
        return boolean(raw, "bool", at)
    if raw.get("string") is not None:
        return text(raw, "string", at)
    return Version(text(raw, "version", at)) if raw.get("version") is not None else None


def _capacity(raw: Mapping[str, Any], where: str) -> DeviceCapacity:
    value = _quantity(raw, "value", where)
    if value is None:
        raise ManifestError(f"{where}.value", "is missing; every capacity needs a quantity")
    policy, at = optional_mapping(raw, "requestPolicy", where), f"{where}.requestPolicy"
    if policy is None:
        return DeviceCapacity(value, None)
    span = optional_mapping(policy, "validRange", at)
    values = policy.get("validValues") or []
    if not isinstance(values, list):
        raise ManifestError(f"{at}.validValues", "must be a list of quantities")
    return DeviceCapacity(
        value,
        CapacityPolicy(
            default=_quantity(policy, "default", at),
            valid_values=tuple(
                parse_quantity(amount, f"{at}.validValues[{index}]")
                for index, amount in enumerate(values)
            ),
            valid_range=None
            if span is None
            else CapacityRange(
                _quantity(span, "min", f"{at}.validRange"),
                _quantity(span, "max", f"{at}.validRange"),
                _quantity(span, "step", f"{at}.validRange"),
            ),
        ),
    )


def _counters(raw: Mapping[str, Any], where: str) -> Mapping[str, Quantity]:
    return {
        name: parse_quantity(counter.get("value", ""), f"{where}.counters.{name}.value")
        for name in mapping(raw, "counters", where)
        for counter in [mapping(raw["counters"], name, f"{where}.counters")]
    }


def _quantity(raw: Mapping[str, Any], field: str, where: str) -> Quantity | None:
    amount = raw.get(field)
    return None if amount is None else parse_quantity(amount, f"{where}.{field}")
