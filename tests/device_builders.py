"""Builds slices, classes and claims of devices, as `mooring.testing.builders` builds pods."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mooring.claims.model.resource_claims import FINALIZER
from mooring.testing.builders import api_object, given, pod_group, uid_of
from node_selectors import named, node_selector

DRIVER = "gpu.example.com"
"""The driver of devices that do not say otherwise."""


def device(name: str, **fields: Any) -> dict[str, Any]:
    """Return a device; the type of an attribute's value gives the attribute's type."""
    attributes = fields.pop("attributes", {})
    typed = {key: {_type(value): value} for key, value in attributes.items()}
    return {"name": name, **given(attributes=typed), **fields}


def resource_slice(
    name: str,
    devices: Iterable[str | Mapping[str, Any]] = (),
    *,
    node: str | None = None,
    pool: str | None = None,
    driver: str = DRIVER,
    generation: int = 1,
    slices: int = 1,
    **spec: Any,
) -> dict[str, Any]:
    """Return a slice of a node's devices; without `node` and `spec`, of devices for all nodes.

    A device may be given as its name. The pool has the name of the node, or else of the slice.
    """
    where = {"nodeName": node} if node is not None else {} if spec else {"allNodes": True}
    named = [device(each) if isinstance(each, str) else dict(each) for each in devices]
    return api_object(
        "ResourceSlice",
        name,
        spec={
            "driver": driver,
            "pool": {
                "name": pool or node or name,
                "generation": generation,
                "resourceSliceCount": slices,
            },
            **where,
            **given(devices=named),
            **spec,
        },
    )


def device_class(name: str = "gpu", *selectors: str, **spec: Any) -> dict[str, Any]:
    cel = [{"cel": {"expression": expression}} for expression in selectors]
    return api_object("DeviceClass", name, spec={**given(selectors=cel), **spec})


def request(
    name: str = "r", count: int = 1, *, device_class: str = "gpu", **fields: Any
) -> dict[str, Any]:
    """Return a request for `count` devices of a class."""
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    return {"name": name, "exactly": exactly | fields}


def device_claim(
    name: str = "claim",
    *requests: Mapping[str, Any],
    namespace: str = "default",
    owner: str | None = None,
    group: str | None = None,
    version: int = 1,
    allocation: Mapping[str, Any] | None = None,
    reserved_for: Sequence[str] = (),
    status: Mapping[str, Any] | None = None,
    **devices: Any,
) -> dict[str, Any]:
    """Return a claim; `owner` and `reserved_for` name pods of its namespace, `group` a PodGroup.

    The pod `owner` or the PodGroup `group` owns the claim. Without `requests` the claim requests
    one device of the class gpu. `devices` are further fields of the claim's spec.devices.
    """
    raw = api_object("ResourceClaim", name, namespace=namespace)
    raw["metadata"]["resourceVersion"] = str(version)
    if owner is not None:
        reference = {"kind": "Pod", "name": owner, "uid": uid_of(owner, namespace)}
        raw["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    if group is not None:
        uid = group_consumer(group, namespace)["uid"]
        reference = {"kind": "PodGroup", "name": group, "uid": uid}
        raw["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    if allocation is not None:
        raw["metadata"]["finalizers"] = [FINALIZER]
    raw["spec"] = {"devices": {"requests": [*(requests or [request()])], **devices}}
    consumers = [
        {"resource": "pods", "name": pod, "uid": uid_of(pod, namespace)} for pod in reserved_for
    ]
    raw["status"] = {**given(allocation=allocation, reservedFor=consumers), **(status or {})}
    return raw


def group_consumer(name: str, namespace: str = "default") -> dict[str, str]:
    """Return the reference to a PodGroup for which a claim is reserved."""
    uid = pod_group(name, namespace=namespace)["metadata"]["uid"]
    return {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": name, "uid": uid}


def allocated(
    *devices: str | Mapping[str, Any], node: str | None = None, **fields: Any
) -> dict[str, Any]:
    """Return the allocation of these devices (names or results) from the pool of a node."""
    results = [
        device_result(each, pool=node or "pool") if isinstance(each, str) else dict(each)
        for each in devices
    ]
    selector = {"nodeSelector": node_selector(named(node))} if node else {}
    return {"devices": {"results": results}, **selector, **fields}


def device_result(
    name: str, *, request: str = "r", pool: str = "pool", driver: str = DRIVER, **fields: Any
) -> dict[str, Any]:
    """Return the result for one device in an allocation."""
    return {"request": request, "driver": driver, "pool": pool, "device": name, **fields}


def device_taint_rule(name: str, taint: str, **selector: str) -> dict[str, Any]:
    """Return a rule that puts a taint (for example `sick:NoSchedule`) on the selected devices."""
    key, _, effect = taint.partition(":")
    spec = {"deviceSelector": selector, "taint": {"key": key, "effect": effect}}
    return api_object("DeviceTaintRule", name, spec=spec)


def _type(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "string"
