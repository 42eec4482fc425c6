"""Requirements of pods: amounts, host ports, images and priority."""

from conformance.scenes.cluster import Cluster, Feature, Raw
from conformance.scenes.draw import Draw
from conformance.scenes.nodes import DIGEST
from conformance.scenes.vocabulary import (
    CPU,
    GPU,
    HUGE_PAGES,
    IMAGES,
    MEMORY,
    STORAGE,
    WIDGET,
    image,
)

_HUGE_OFFERED = {
    "cpu": ("8", "2P", "9P"),
    "memory": ("80Pi", "4E", "7Ei", "9E"),
    "ephemeral-storage": ("90P", "6Ei", "9223372036854775807"),
}
_HUGE_REQUESTS = {
    "cpu": ("1", "1P", "2P"),
    "memory": ("1Pi", "80P", "1E", "5Ei"),
    "ephemeral-storage": ("40Pi", "1E", "5Ei"),
}


def requests(cluster: Cluster, pod: Raw) -> None:
    """Give each container random requests of cpu, memory and disk."""
    for container in pod["spec"]["containers"]:
        container["resources"] = {"requests": _amounts(cluster.draw)}


def modest_requests(cluster: Cluster, pod: Raw) -> None:
    """Give each container small requests: even small nodes have several times the amounts."""
    for container in pod["spec"]["containers"]:
        container["resources"] = {
            "requests": {
                "cpu": cluster.draw.choice(("500m", "500m", "1", "1500m", "2")),
                "memory": cluster.draw.choice(("256Mi", "1Gi")),
            }
        }


def scarce(cluster: Cluster, pod: Raw) -> None:
    """Give one container a request for a resource of few nodes: devices or huge pages."""
    name, amounts = cluster.draw.choice(
        ((GPU, ("1", "2")), (GPU, ("1", "2")), (WIDGET, ("1", "2")), (HUGE_PAGES, ("32Mi", "64Mi")))
    )
    container = cluster.draw.choice(pod["spec"]["containers"])
    asked = container.setdefault("resources", {}).setdefault("requests", {})
    if name == HUGE_PAGES and not asked.keys() & {"cpu", "memory"}:
        asked["cpu"] = "100m"  # the API refuses huge pages alone
    amount = cluster.draw.choice(amounts)
    asked[name] = amount
    container["resources"].setdefault("limits", {})[name] = amount


def limits_only(cluster: Cluster, pod: Raw) -> None:
    """Give one container either limits without requests, or requests of zero."""
    container = cluster.draw.choice(pod["spec"]["containers"])
    if cluster.draw.chance(0.7):
        container["resources"] = {"limits": _amounts(cluster.draw)}
    else:
        container["resources"] = {"requests": {"cpu": "0", "memory": "0"}}


def init_containers(cluster: Cluster, pod: Raw) -> None:
    """Add one to three init containers, half of them sidecars."""
    pod["spec"]["initContainers"] = [
        {
            "name": f"i{number}",
            "image": image("init"),
            "resources": {"requests": _amounts(cluster.draw)},
            **({"restartPolicy": "Always"} if cluster.draw.chance(0.5) else {}),
        }
        for number in range(cluster.draw.randint(1, 3))
    ]


def pod_level(cluster: Cluster, pod: Raw) -> None:
    """Give the pod pod-level requests, and its containers smaller requests or none."""
    for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
        container["resources"] = (
            {"requests": {"cpu": "100m", "memory": "64Mi"}} if cluster.draw.chance(0.3) else {}
        )
    whole = {"requests": {"cpu": "3500m", "memory": "6Gi"}}
    if cluster.draw.chance(0.3):
        whole = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "2Gi"}}
    pod["spec"]["resources"] = whole


def huge_amounts(cluster: Cluster, pod: Raw) -> None:
    """Let nodes offer, and this and some bound pods request, amounts of up to 2**63 - 1."""
    draw = cluster.draw
    for node in cluster.nodes:
        offered = {name: draw.choice(amounts) for name, amounts in _HUGE_OFFERED.items()}
        node["status"]["allocatable"] |= offered
        node["status"]["capacity"] |= offered
    for each in (*draw.some(cluster.pods, 0, 15), pod):
        for container in each["spec"]["containers"]:
            some = draw.some(tuple(_HUGE_REQUESTS), 1, len(_HUGE_REQUESTS))
            asked = {name: draw.choice(_HUGE_REQUESTS[name]) for name in some}
            container["resources"] = {"requests": asked}


def overhead(_: Cluster, pod: Raw) -> None:
    """Give the pod a runtime class with an overhead."""
    pod["spec"]["runtimeClassName"] = "heavy"


def resize(cluster: Cluster, pod: Raw) -> None:
    """Make the bound pod's in-place resize pending: a container still has larger amounts."""
    container = pod["spec"]["containers"][0]
    had = {"cpu": cluster.draw.choice(CPU), "memory": cluster.draw.choice(MEMORY)}
    status = pod.setdefault("status", {})
    status["containerStatuses"] = [
        {**_state(container), "allocatedResources": had, "resources": {"requests": had}}
    ]
    if cluster.draw.chance(0.5):
        _leave_pending(cluster.draw, status)


def resize_stages(cluster: Cluster, pod: Raw) -> None:
    """Give the bound pod different desired, allocated and actual resources, as in a resize.

    Its status reports them for each container and init container, and sometimes for the whole pod.
    """
    draw, spec = cluster.draw, pod["spec"]
    status = pod.setdefault("status", {})
    status["containerStatuses"] = [_in_stages(draw, each) for each in spec["containers"]]
    status["initContainerStatuses"] = [
        _in_stages(draw, each) for each in spec.get("initContainers", ()) if draw.chance(0.85)
    ]
    if draw.chance(0.35):
        status |= _stages_of(draw)
    if draw.chance(0.5):
        _leave_pending(draw, status)


def _in_stages(draw: Draw, container: Raw) -> Raw:
    """Return the container's status with its allocated and actual resources."""
    return {**_state(container), **_stages_of(draw)}


def _stages_of(draw: Draw) -> Raw:
    """Return random allocated and actual amounts; each of them may be absent."""
    amounts: Raw = {}
    if draw.chance(0.85):
        amounts["allocatedResources"] = _amounts(draw)
    if draw.chance(0.85):
        amounts["resources"] = {"requests": _amounts(draw)}
    return amounts


def _state(container: Raw) -> Raw:
    named = {"name": container["name"], "image": container["image"]}
    return {**named, "imageID": "", "ready": True, "restartCount": 0}


def _leave_pending(draw: Draw, status: Raw) -> None:
    """Add the condition that the node cannot do the resize now (or never)."""
    reason = draw.choice(("Infeasible", "Deferred"))
    status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]


def host_ports(cluster: Cluster, pod: Raw) -> None:
    """Give the pod one or two host ports, and sometimes the host's network."""
    draw = cluster.draw
    wanted = [_host_port(draw, number) for number in draw.some((8080, 8081, 9000), 1, 2)]
    wanted = [port for port in wanted if _is_free(cluster, pod, port)]
    holder = pod["spec"]["containers"][0]
    if draw.chance(0.15):
        holder = {"name": "i9", "image": image("init"), "restartPolicy": "Always"}
        pod["spec"].setdefault("initContainers", []).append(holder)
    elif draw.chance(0.15):
        pod["spec"]["hostNetwork"] = True
        wanted = [{**port, "containerPort": port["hostPort"]} for port in wanted]
    holder["ports"] = wanted


def _is_free(cluster: Cluster, pod: Raw, port: Raw) -> bool:
    """Return whether no other pod on the bound pod's node has the port, as the kubelet requires."""
    node = pod["spec"].get("nodeName")
    if node is None:
        return True
    taken = (node, port["hostPort"], port.get("protocol"))
    free = taken not in cluster.taken_ports
    cluster.taken_ports.add(taken)
    return free


def _host_port(draw: Draw, number: int) -> Raw:
    port: Raw = {"containerPort": 80, "hostPort": number}
    if draw.chance(0.4):
        port["protocol"] = draw.choice(("UDP", "SCTP"))
    if draw.chance(0.5):
        port["hostIP"] = draw.choice(("127.0.0.1", "10.1.1.1", "0.0.0.0"))
    return port


def images(cluster: Cluster, pod: Raw) -> None:
    """Give the pod one to three containers with images that nodes may have."""
    draw = cluster.draw
    pod["spec"]["containers"] = [
        {"name": f"c{number}", "image": _image_name(draw)} for number in range(draw.randint(1, 3))
    ]
    if draw.chance(0.2):
        pod["spec"]["initContainers"] = [{"name": "i0", "image": _image_name(draw)}]
    if draw.chance(0.1):
        volume = {"name": "files", "image": {"reference": _image_name(draw)}}
        pod["spec"].setdefault("volumes", []).append(volume)


def image_volumes(cluster: Cluster, pod: Raw) -> None:
    """Give the pod one to three volumes with images that nodes may have."""
    draw = cluster.draw
    pod["spec"].setdefault("volumes", []).extend(
        {"name": f"files{number}", "image": {"reference": _image_name(draw)}}
        for number in range(draw.randint(1, 3))
    )


def _image_name(draw: Draw) -> str:
    stem = draw.choice((*IMAGES, "huge", "absent"))
    return image(stem, draw.choice((":v1", ":v1", ":v1", "", DIGEST)))


def priority(*classes: str) -> Feature:
    def apply(cluster: Cluster, pod: Raw) -> None:
        pod["spec"]["priorityClassName"] = cluster.draw.choice(classes)

    return apply


def _amounts(draw: Draw) -> dict[str, str]:
    amounts = {}
    if draw.chance(0.72):
        amounts["cpu"] = draw.choice(CPU)
    if draw.chance(0.6):
        amounts["memory"] = draw.choice(MEMORY)
    if draw.chance(0.18):
        amounts["ephemeral-storage"] = draw.choice(STORAGE)
    return amounts
