"""Random nodes."""

from dataclasses import dataclass

from conformance.scenes.cluster import Raw
from conformance.scenes.draw import Draw
from conformance.scenes.vocabulary import (
    EFFECTS,
    GPU,
    HOSTNAME,
    HUGE_PAGES,
    IMAGES,
    RACK,
    REGION,
    TAINT_KEYS,
    TAINT_VALUES,
    WIDGET,
    ZONE,
    ZONES,
    image,
)

DIGEST = "@sha256:" + "0" * 64
READY_SINCE = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class NodeStyle:
    """The number of nodes, the probabilities of taints and images, and the offered resources."""

    least: int = 4
    most: int = 12
    tainted: float = 0.08
    imaged: float = 0.08
    plain: bool = False
    """Whether all are alike, but for 2 or 4 cpus, and take pods."""


def random_nodes(draw: Draw, label: str, style: NodeStyle) -> list[Raw]:
    """Return random nodes with the names `<label>-n00`, `<label>-n01`, ..."""
    count = draw.randint(style.least, style.most)
    return [_node(draw, f"{label}-n{number:02}", style) for number in range(count)]


def _node(draw: Draw, name: str, style: NodeStyle) -> Raw:
    spec: Raw = {}
    if draw.chance(style.tainted):
        spec["taints"] = _taints(draw)
    if not style.plain and draw.chance(0.06):
        spec["unschedulable"] = True
    amounts = _plain_amounts(draw) if style.plain else _amounts(draw)
    if draw.chance(0.02):
        amounts = {}  # its kubelet has not reported yet
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
    since = {"lastHeartbeatTime": READY_SINCE, "lastTransitionTime": READY_SINCE}
    status: Raw = {"capacity": amounts, "allocatable": amounts, "conditions": [ready | since]}
    if draw.chance(style.imaged):
        status["images"] = [
            {"names": _names_of_image(draw, stem), "sizeBytes": IMAGES[stem]}
            for stem in draw.some(tuple(IMAGES), 1, 4)
        ]
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": _labels(draw, name)},
        "spec": spec,
        "status": status,
    }


def _labels(draw: Draw, name: str) -> dict[str, str]:
    labels = {
        HOSTNAME: name,
        "disk": draw.choice(("ssd", "hdd")),
        "cores": draw.choice(("2", "4", "8", "16", "16", "many")),
    }
    if draw.chance(0.93):
        labels |= {ZONE: draw.choice(ZONES), REGION: draw.choice(("r0", "r0", "r0", "r1"))}
    if draw.chance(0.35):
        labels[RACK] = draw.choice(("k0", "k1", "k2", "k3"))
    if draw.chance(0.4):
        labels["gpu"] = "true"
    return labels


def _amounts(draw: Draw) -> dict[str, str]:
    amounts = {
        "cpu": draw.choice(("2", "3500m", "4", "4", "8")),
        "memory": draw.choice(("4Gi", "8Gi", "7900000Ki", "16Gi")),
        "ephemeral-storage": draw.choice(("10Gi", "50Gi")),
        "pods": draw.choice(("110", "110", "110", "4")),
    }
    if draw.chance(0.37):
        amounts[GPU] = draw.choice(("1", "2", "4"))
    if draw.chance(0.1):
        amounts[WIDGET] = "3"
    if draw.chance(0.2):
        amounts[HUGE_PAGES] = draw.choice(("64Mi", "512Mi"))
    return amounts


def _plain_amounts(draw: Draw) -> dict[str, str]:
    cpu = draw.choice(("2", "4"))
    return {"cpu": cpu, "memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "110"}


def _taints(draw: Draw) -> list[Raw]:
    """Return one to three taints; their keys differ, because key and effect must be unique."""
    return [
        {"key": key, "value": draw.choice(TAINT_VALUES), "effect": draw.choice(EFFECTS)}
        for key in draw.some(TAINT_KEYS, 1, 3)
    ]


def _names_of_image(draw: Draw, stem: str) -> list[str]:
    tag = ":latest" if draw.chance(0.2) else ":v1"
    return [image(stem, tag), image(stem, DIGEST)]
