"""Claims as users have them: templates, shared claims, parts of devices, extended resources."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from conformance.scenes.cluster import Cluster, Raw
from conformance.scenes.devices import (
    ALLOCATED_AT,
    DOMAIN,
    DRIVER,
    add_claim,
    allocate_some,
    gpu,
)
from dra.objects import (
    claim,
    consumption,
    counter_set,
    device,
    device_class,
    exactly,
    first_available,
    on_node,
    request,
    resource_slice,
    result,
)
from node_selectors import named, node_selector

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation by which the claim controller knows for which entry of a pod it made a claim."""
ATTACHED: Final = "net.example.com/attached"
BROKEN: Final = "net.example.com/broken"
SICK: Final = {"key": "sick", "operator": "Exists"}


def claims_in_use(cluster: Cluster, pod: Raw) -> None:
    """Give the pod claims of one random kind, and sometimes one more claim."""
    kinds: tuple[tuple[Callable[[Cluster, Raw], None], int], ...] = (
        (_shared, 4),
        (_to_be_bound, 4),
        (_extended, 5),
        (_partitioned, 3),
        (_with_admin_access, 2),
        (_alternatives, 4),
    )
    options, weights = zip(*kinds, strict=True)
    cluster.draw.choices(options, weights)[0](cluster, pod)
    if cluster.draw.chance(0.1):  # a template's entry for which no claim is needed
        _entries(pod).append({"name": "none", "resourceClaimTemplateName": "none"})


def _shared(cluster: Cluster, pod: Raw) -> None:
    """Give the pod an allocated claim that other pods use or have used."""
    draw = cluster.draw
    slices = _gpus(cluster)
    home = draw.choice(slices)
    raw = claim(f"{cluster.label}-shared", [request("r0", exactly(_class(cluster)))])
    others = [_consumer(cluster, number) for number in range(draw.choice((0, 0, 1, 2, 5)))]
    _allocated(cluster, pod, raw, [_result_of(home, 0)], home["spec"]["nodeName"], others)
    if draw.chance(0.5):
        _use(cluster, pod, "own", [request("r0", exactly(_class(cluster), draw.choice((1, 2))))])
    if draw.chance(0.4):
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": draw.choice(cluster.node_names)}


def _to_be_bound(cluster: Cluster, pod: Raw) -> None:
    """Add devices with binding conditions; sometimes a claim already has such devices."""
    draw = cluster.draw
    conditions: Raw = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [BROKEN]}
    slices = []
    for node in cluster.node_names:
        listed = []
        for number in range(draw.randint(1, 3)):
            fields = conditions | {"bindsToNode": draw.chance(0.5)} if draw.chance(0.5) else {}
            listed.append(device(f"d{number}", **fields))
        slices.append(resource_slice(node, on_node(node), listed, pool=node))
    _store(cluster, slices)
    if draw.chance(0.5):
        wanted = exactly(_class(cluster), draw.choice((1, 1, 2)))
        _use(cluster, pod, "gpu", [request("r0", wanted)])
        return
    home = draw.choice(slices)
    raw = claim(f"{cluster.label}-bound", [request("r0", exactly(_class(cluster)))])
    others = [_consumer(cluster, number) for number in range(draw.choice((0, 0, 0, 1)))]
    results = [_result_of(home, 0) | conditions]
    # Neither of both means overdue to kube-scheduler, but not to a Mooring that has just started.
    attached = draw.chance(0.7)
    said = [
        {
            "type": kind,
            "status": str(is_true),
            "reason": "Said",
            "message": "by the driver",
            "lastTransitionTime": ALLOCATED_AT,
        }
        for kind, is_true in ((ATTACHED, attached), (BROKEN, not attached or draw.chance(0.2)))
    ]
    spec = home["spec"]
    known = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": "d0"}
    devices = [known | {"conditions": said}]
    node = spec["nodeName"]
    _allocated(cluster, pod, raw, results, node, others, devices=devices)


def _extended(cluster: Cluster, pod: Raw) -> None:
    """Let containers request extended resources of classes; some nodes also offer the resources."""
    draw = cluster.draw
    _gpus(cluster, in_use=0.2)
    resources = [f"{cluster.label}.example.com/gpu"]
    _set_resource(cluster, _class(cluster), resources[0])
    if draw.chance(0.4):
        small = device_class(f"{cluster.label}-l4", f'{DOMAIN}.model == "l4"')
        cluster.others.append({"kind": "DeviceClass", **small})
        resources.append(f"deviceclass.resource.kubernetes.io/{cluster.label}-l4")
    for node in cluster.nodes:
        if draw.chance(0.3):
            node["status"]["allocatable"][resources[0]] = str(draw.randint(0, 3))
            node["status"].setdefault("capacity", {})[resources[0]] = "3"
    containers = [*pod["spec"]["containers"]]
    if draw.chance(0.4):
        for number, lasting in enumerate(draw.sample((True, False, False), 2)):
            policy = {"restartPolicy": "Always"} if lasting else {}
            containers.append({"name": f"i{number}", "image": "registry.example/i:v1", **policy})
        pod["spec"]["initContainers"] = containers[-2:]
    for container in draw.some(containers, 1, len(containers)):
        for resource in draw.some(resources, 1, 2):
            amount = str(draw.choice((1, 1, 2)))
            for part in ("requests", "limits"):
                container.setdefault("resources", {}).setdefault(part, {})[resource] = amount


def _partitioned(cluster: Cluster, pod: Raw) -> None:
    """Add devices that are parts of others and consume counters of their pool."""
    draw = cluster.draw
    slices = []
    for node in cluster.node_names:
        sets = [counter_set(f"gpu{number}", memory="80Gi") for number in range(draw.randint(1, 2))]
        listed = []
        for each in sets:
            for part, memory in (("whole", "80Gi"), ("half0", "40Gi"), ("half1", "40Gi")):
                needs = [consumption(each["name"], memory=memory)]
                values = {"memory": {"value": memory}}
                name = f"{each['name']}-{part}"
                listed.append(device(name, capacity=values, consumesCounters=needs))
        draw.shuffle(listed)
        counted = resource_slice(f"{node}-c", on_node(node), pool=node, counters=sets, count=2)
        slices += [counted, resource_slice(node, on_node(node), listed, pool=node, count=2)]
    _store(cluster, slices)
    namespace = pod["metadata"]["namespace"]
    allocate_some(cluster, namespace, [raw for raw in slices if "devices" in raw["spec"]], 0.15)
    memory = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("%s")) == 0'
    sizes = [draw.choice((memory % "80Gi", memory % "40Gi")) for _ in range(draw.randint(1, 2))]
    requests = [
        request(f"r{number}", exactly(_class(cluster), draw.choice((1, 1, 2)), size))
        for number, size in enumerate(sizes)
    ]
    _use(cluster, pod, "part", requests)


def _with_admin_access(cluster: Cluster, pod: Raw) -> None:
    """Give the pod a claim with admin access to devices in use."""
    draw = cluster.draw
    _gpus(cluster, in_use=0.5)
    watched = exactly(_class(cluster), draw.choice((1, 2, None)), adminAccess=True)
    requests = [request("watched", watched)]
    if draw.chance(0.4):
        requests.append(request("own", exactly(_class(cluster))))
    _use(cluster, pod, "admin", requests)


def _alternatives(cluster: Cluster, pod: Raw) -> None:
    """Give the pod a claim with alternative requests, sometimes for tainted devices."""
    draw = cluster.draw
    _gpus(cluster, tainted=0.4)

    def wanted() -> Raw:
        model = f'{DOMAIN}.model == "{draw.choice(("a100", "h100", "l4"))}"'
        raw = exactly(_class(cluster), draw.choice((1, 1, 2, 3, None)), model)
        if draw.chance(0.5):
            effect = {"effect": "NoSchedule"} if draw.chance(0.3) else {}
            raw["tolerations"] = [{**SICK, **effect}]
        return raw

    for number in range(draw.choice((1, 1, 2))):
        subs = [wanted() for _ in range(draw.randint(2, 4))]
        requests = [first_available("f", *subs)]
        if draw.chance(0.3):
            requests.append(request("r0", wanted()))
        _use(cluster, pod, f"either{number}", requests)


def _gpus(cluster: Cluster, *, in_use: float = 0.0, tainted: float = 0.15) -> list[Raw]:
    """Add the class, and slices of one to four devices for most nodes; return the slices."""
    slices: list[Raw] = []
    for node in cluster.node_names:
        if cluster.draw.chance(0.9) or not slices:
            count = cluster.draw.randint(1, 4)
            listed = [gpu(cluster, f"d{number}", tainted) for number in range(count)]
            slices.append(resource_slice(node, on_node(node), listed, pool=node))
    _store(cluster, slices)
    if in_use:
        allocate_some(cluster, "team-a", slices, in_use)
    return slices


def _store(cluster: Cluster, slices: Sequence[Raw]) -> None:
    raw = device_class(_class(cluster), f'device.driver == "{DRIVER}"')
    cluster.others.append({"kind": "DeviceClass", **raw})
    cluster.others += [{"kind": "ResourceSlice", **each} for each in slices]


def _class(cluster: Cluster) -> str:
    return f"{cluster.label}-gpu"


def _set_resource(cluster: Cluster, device_class_name: str, resource: str) -> None:
    for raw in cluster.others:
        if raw["kind"] == "DeviceClass" and raw["metadata"]["name"] == device_class_name:
            raw["spec"]["extendedResourceName"] = resource


def _entries(pod: Raw) -> list[Raw]:
    entries: list[Raw] = pod["spec"].setdefault("resourceClaims", [])
    return entries


def _use(cluster: Cluster, pod: Raw, name: str, requests: Sequence[Raw]) -> None:
    """Give the pod a new claim, by its name or from a template."""
    namespace = pod["metadata"]["namespace"]
    raw = claim(f"{cluster.label}-{name}", requests)
    if cluster.draw.chance(0.4):
        add_claim(cluster, namespace, raw)
        _entries(pod).append({"name": name, "resourceClaimName": raw["metadata"]["name"]})
        return
    template = f"{cluster.label}-template-{name}"
    _entries(pod).append({"name": name, "resourceClaimTemplateName": template})
    metadata = {
        "name": f"{pod['metadata']['name']}-{name}-x2v4k",
        "namespace": namespace,
        "annotations": {POD_CLAIM_NAME: name},
    }
    cluster.made.append({"kind": "ResourceClaim", "metadata": metadata, "spec": raw["spec"]})


def _allocated(
    cluster: Cluster,
    pod: Raw,
    raw: Raw,
    results: Sequence[Raw],
    node: str,
    consumers: Sequence[Raw],
    **status: Any,
) -> None:
    """Give the pod a claim that is allocated these devices of the node."""
    allocation = {
        "devices": {"results": list(results)},
        "nodeSelector": node_selector(named(node)),
    }
    status |= {"allocation": allocation}
    if consumers:
        status["reservedFor"] = list(consumers)
    add_claim(cluster, pod["metadata"]["namespace"], raw, status)
    _entries(pod).append({"name": "known", "resourceClaimName": raw["metadata"]["name"]})


def _consumer(cluster: Cluster, number: int) -> Raw:
    return {"resource": "pods", "name": f"other{number}", "uid": f"{cluster.label}-other{number}"}


def _result_of(raw: Raw, index: int) -> Raw:
    """Return the allocation result of request r0 for the slice's device at this index."""
    spec = raw["spec"]
    name = spec["devices"][index]["name"]
    return result(spec["driver"], spec["pool"]["name"], name, request="r0")
