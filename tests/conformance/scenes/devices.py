"""Devices of nodes, and ResourceClaims."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from conformance.scenes.cluster import Cluster, Raw
from conformance.scenes.vocabulary import ZONE, ZONES
from dra.objects import (
    attributes,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    on_node,
    request,
    resource_slice,
    result,
    selected_by,
)
from node_selectors import named, node_selector

DRIVER: Final = "gpu.example.com"
NETWORK: Final = "net.example.com"
DOMAIN: Final = f'device.attributes["{DRIVER}"]'
MODELS: Final = ("a100", "h100", "l4")
ALLOCATED_AT: Final = "2026-11-23T08:00:00Z"
"""Without this, an API server refuses what kube-scheduler writes into an allocated claim."""
FINALIZER: Final = "resource.kubernetes.io/delete-protection"


def device_claims(cluster: Cluster, pod: Raw) -> None:
    """Give the pod one or two claims for devices; some devices are in use."""
    slices = _devices(cluster)
    namespace = pod["metadata"]["namespace"]
    allocate_some(cluster, namespace, slices)
    entries = []
    for number in range(cluster.draw.choice((1, 1, 1, 2))):
        name = f"{cluster.label}-claim{number}"
        raw = _claim(cluster, name)
        status = _status(cluster) if number == 0 else {}
        add_claim(cluster, namespace, raw, status)
        entries.append({"name": f"c{number}", "resourceClaimName": name})
    pod["spec"]["resourceClaims"] = entries


def _devices(cluster: Cluster) -> list[Raw]:
    """Add slices for most nodes, network devices of a zone, and classes; return the slices.

    The name of each class contains the scene's label.
    """
    draw = cluster.draw
    slices = []
    for node in cluster.node_names:
        if draw.chance(0.85):
            listed = [gpu(cluster, f"d{number}") for number in range(draw.randint(1, 4))]
            count = 2 if draw.chance(0.06) else 1
            slices.append(resource_slice(node, on_node(node), listed, pool=node, count=count))
    zone = selected_by(ZONE, draw.choice(ZONES))
    ports = [device(f"port{number}") for number in range(2)]
    slices.append(
        resource_slice(f"{cluster.label}-net", zone, ports, driver=NETWORK, pool=cluster.label)
    )
    for raw in slices:
        cluster.others.append({"kind": "ResourceSlice", **raw})
    for name, driver in (("gpu", DRIVER), ("net", NETWORK)):
        raw = device_class(f"{cluster.label}-{name}", f'device.driver == "{driver}"')
        cluster.others.append({"kind": "DeviceClass", **raw})
    return slices


def gpu(cluster: Cluster, name: str, tainted: float = 0.15) -> Raw:
    """Return a device; `tainted` is the probability of a taint."""
    draw = cluster.draw
    fields: dict[str, Any] = {"capacity": {"memory": {"value": draw.choice(("40Gi", "80Gi"))}}}
    if draw.chance(tainted):
        effect = draw.choice(("NoSchedule", "NoExecute"))
        fields["taints"] = [{"key": "sick", "effect": effect}]
    if draw.chance(0.15):
        fields["allowMultipleAllocations"] = True
    values = attributes(model=draw.choice(MODELS), index=draw.randrange(3))
    return device(name, values, **fields)


def allocate_some(
    cluster: Cluster, namespace: str, slices: Sequence[Raw], share: float = 0.3
) -> None:
    """Add an unused claim that is allocated about this share of the devices."""
    results = [
        result(raw["spec"]["driver"], raw["spec"]["pool"]["name"], each["name"])
        for raw in slices
        for each in raw["spec"]["devices"]
        if cluster.draw.chance(share) and not each.get("allowMultipleAllocations")
    ]
    if results:
        wanted = claim(f"{cluster.label}-taken", [request("r", exactly("any"))])
        add_claim(
            cluster, namespace, wanted, {"allocation": {"devices": {"results": results[:32]}}}
        )


def _claim(cluster: Cluster, name: str) -> Raw:
    draw = cluster.draw
    gpu, net = f"{cluster.label}-gpu", f"{cluster.label}-net"
    requests = [request("r0", _wanted(cluster, gpu))]
    if draw.chance(0.3):
        several = [_wanted(cluster, gpu) for _ in range(2)]
        requests.insert(draw.randrange(2), first_available("f", *several))
    if draw.chance(0.2):
        requests.append(request("net", exactly(net)))
    if draw.chance(0.05):
        requests.append(request("gone", exactly(f"{cluster.label}-gone")))
    constraints: list[Raw] = []
    if draw.chance(0.25):
        kind = draw.choice(("matchAttribute", "distinctAttribute"))
        constraints.append({kind: f"{DRIVER}/model", "requests": ["r0"]})
    return claim(name, requests, constraints)


def _wanted(cluster: Cluster, class_name: str) -> Raw:
    draw = cluster.draw
    expressions = (
        f'{DOMAIN}.model == "h100"',
        f"{DOMAIN}.index < 2",
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("60Gi")) > 0',
        f"{DOMAIN}.nothing == 1",
    )
    chosen = [draw.choices(expressions, (5, 5, 5, 1))[0]] if draw.chance(0.4) else []
    wanted = exactly(class_name, None if draw.chance(0.08) else draw.choice((1, 1, 2)), *chosen)
    if draw.chance(0.2):
        wanted["tolerations"] = [{"key": "sick", "operator": "Exists"}]
    return wanted


def _status(cluster: Cluster) -> Raw:
    """Return the status of a claim; sometimes another pod already has the claim."""
    draw = cluster.draw
    other = {"resource": "pods", "name": "other", "uid": f"{cluster.label}-other"}
    if not draw.chance(0.15):
        return {}
    selector = node_selector(named(draw.choice(cluster.node_names)))
    devices = {"results": [result(DRIVER, "elsewhere", "d0", request="r0")]}
    return {
        "allocation": {"devices": devices, "nodeSelector": selector},
        "reservedFor": [other],
    }


def add_claim(
    cluster: Cluster, namespace: str, raw: Raw, status: Mapping[str, Any] | None = None
) -> None:
    """Add the claim; an allocated claim also gets its finalizer and allocation time."""
    status = dict(status or {})
    metadata = {"name": raw["metadata"]["name"], "namespace": namespace}
    if "allocation" in status:
        metadata["finalizers"] = [FINALIZER]
        status["allocation"] = {**status["allocation"], "allocationTimestamp": ALLOCATED_AT}
    full = {"kind": "ResourceClaim", "metadata": metadata, "spec": raw["spec"]}
    cluster.others.append({**full, "status": status} if status else full)
