"""Devices of the nodes, and claims for them; the shapes follow scheduler_perf's.

There is no driver, so no device is prepared and no pod runs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bench.workloads import Devices
from device_builders import (
    allocated,
    device,
    device_claim,
    device_class,
    device_result,
    request,
    resource_slice,
)
from mooring.claims.model.resource_claims import FINALIZER

Raw = dict[str, Any]
Write = tuple[str, Raw]
"""The path and the object of a write."""

RESOURCES = "/apis/resource.k8s.io/v1"
DRIVER = "devices.example.com"
CLASS = "bench-0"
"""The class of all claims; further classes exist only for extended resources."""
TEMPLATE = "bench"
IN_USE = "bench-in-use"
"""The namespace of the claims that are allocated before the run."""
ROOT = "resource.kubernetes.io/pciRoot"
ROOTS = 2
"""How many PCI roots a node has: device `n` is on the root `n % ROOTS`."""
CARD = "card"


def slices(nodes: int, devices: Devices) -> Iterator[Write]:
    """Yield a ResourceSlice for each node."""
    listed = [_device(devices, number) for number in range(devices.per_node)]
    counters = {f"counter-{each}": {"value": "1"} for each in range(2 * len(listed))}
    for index in range(nodes):
        node = f"node-{index:05}"
        common: Raw = {"node": node, "driver": DRIVER, "slices": 1 + devices.partitions}
        yield _creation("resourceslices", resource_slice(f"{node}-devices", listed, **common))
        if devices.partitions:
            shared = [{"name": CARD, "counters": counters}]
            raw = resource_slice(f"{node}-counters", sharedCounters=shared, **common)
            yield _creation("resourceslices", raw)


def classes(devices: Devices) -> Iterator[Write]:
    """Yield the class of all devices, or one for each extended resource."""
    for number in range(max(1, devices.resources)):
        backs = {"extendedResourceName": resource_name(number)} if devices.resources else {}
        selector = f'device.driver == "{DRIVER}"'
        yield _creation("deviceclasses", device_class(f"bench-{number}", selector, **backs))


def resource_name(number: int) -> str:
    return f"{DRIVER}/gpu-{number}"


def template(devices: Devices, namespace: str) -> Write:
    """Return the template of the measured pods' claims."""
    body = {"metadata": {"name": TEMPLATE}, "spec": {"spec": claim_spec(devices)}}
    return f"{RESOURCES}/namespaces/{namespace}/resourceclaimtemplates", body


def claims_in_use(number: int, devices: Devices) -> Iterator[Write]:
    """Yield this number of claims, which are allocated before the run."""
    spec = claim_spec(devices)
    for each in range(number):
        metadata = {"name": f"in-use-{each:05}", "finalizers": [FINALIZER]}
        yield (
            f"{RESOURCES}/namespaces/{IN_USE}/resourceclaims",
            {"metadata": metadata, "spec": spec},
        )


def allocations(number: int, nodes: int, devices: Devices) -> Iterator[Write]:
    """Yield the statuses of these claims, which are spread evenly over the nodes."""
    for each in range(number):
        path = f"{RESOURCES}/namespaces/{IN_USE}/resourceclaims/in-use-{each:05}/status"
        yield path, {"status": {"allocation": allocation(devices, nodes, each)}}


def allocation(devices: Devices, nodes: int, number: int) -> Raw:
    """Return the devices of claim `number`; claims share devices only when all are taken."""
    node = f"node-{number % nodes:05}"
    first = (number // nodes) * devices.per_claim
    results = [
        device_result(
            f"device-{(first + each) % devices.per_node}",
            request=f"r{each // devices.count}",
            pool=node,
            driver=DRIVER,
        )
        for each in range(devices.per_claim)
    ]
    return allocated(*results, node=node)


def claim_spec(devices: Devices) -> Raw:
    requests = [
        request(f"r{number}", devices.count, device_class=CLASS)
        for number in range(devices.requests)
    ]
    constraints: Raw = {"constraints": [{"matchAttribute": ROOT}]} if devices.one_root else {}
    spec: Raw = device_claim("claim", *requests, **constraints)["spec"]
    return spec


def _device(devices: Devices, number: int) -> Raw:
    if devices.partitions:
        counters = {f"counter-{2 * number + each}": {"value": "1"} for each in range(2)}
        consumed = [{"counterSet": CARD, "counters": counters}]
        return device(f"device-{number}", consumesCounters=consumed)
    address, root = f"0000:{number:02}:00.0", number % ROOTS
    raw = device(
        f"device-{number}",
        attributes={
            "driver": "gpu",
            ROOT: f"pci0000:{root:02}",
            "resource.kubernetes.io/pciBusID": address,
            "family": "Big",
            "health": "Healthy",
            "model": "G60",
            "pciAddress": address,
            "pciId": "0xe211",
            "pciRoot": f"{root:02}",
            "sriov": True,
            "type": "gpu",
        },
        capacity={"memory": {"value": "24480Mi"}, "millicores": {"value": "1k"}},
    )
    raw["attributes"]["driverVersion"] = {"version": "1.2.3"}
    return raw


def _creation(resource: str, raw: Mapping[str, Any]) -> Write:
    return f"{RESOURCES}/{resource}", {**raw, "metadata": {"name": raw["metadata"]["name"]}}
