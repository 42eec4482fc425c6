"""The fields of a node that scheduling decisions read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from mooring.model.declared_features import declared_features
from mooring.model.fields import (
    boolean,
    integer,
    mapping,
    mappings,
    name_of,
    naming_the_object,
    strings,
    text,
    texts,
)
from mooring.model.quantity import parse_count, parse_milli
from mooring.model.taints import Taint, parse_taints

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
_PREFER_AVOID_PODS: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """The fields of a node that decisions read.

    Attributes:
        allocatable: Cpu in millicores, other resources in bytes or counts; without `pods`.
        pod_slots: The allocatable `pods`.
        images: The size in bytes of each image name, as the kubelet reports it.
        conditions: The status of each condition, by type.
        avoids: Kind and uid of the controllers in the annotation
            `scheduler.alpha.kubernetes.io/preferAvoidPods`.
        declared_features: The features that the node's kubelet declares and that a pod may need.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    allocatable: Mapping[str, int]
    unavailable: Mapping[str, int]
    """Maps an extended resource to its capacity minus its allocatable amount, if the difference is
    positive."""
    pod_slots: int
    taints: tuple[Taint, ...]
    unschedulable: bool
    images: Mapping[str, int]
    conditions: Mapping[str, str]
    avoids: frozenset[tuple[str, str]]
    declared_features: frozenset[str]

    @property
    def zone_key(self) -> tuple[str, str]:
        """The node's region and zone from its labels, "" where it has none (GetZoneKey)."""
        labels = self.labels
        return (
            labels.get(BETA_REGION, labels.get(REGION, "")),
            labels.get(BETA_ZONE, labels.get(ZONE, "")),
        )


@naming_the_object("Node")
def parse_node(raw: Mapping[str, Any]) -> Node:
    """Parse a Node; raise ManifestError if a field is malformed."""
    name = name_of(raw)
    metadata, spec, status = raw["metadata"], mapping(raw, "spec"), mapping(raw, "status")
    allocatable = _amounts(mapping(status, "allocatable", "status"), "status.allocatable.")
    slots = allocatable.pop("pods", 0)
    annotations = strings(metadata, "annotations", "metadata")
    return Node(
        name=name,
        labels=strings(metadata, "labels", "metadata"),
        annotations=annotations,
        allocatable=allocatable,
        unavailable=_unavailable(mapping(status, "capacity", "status"), allocatable),
        pod_slots=slots,
        taints=parse_taints(mappings(spec, "taints", "spec")),
        unschedulable=boolean(spec, "unschedulable", "spec"),
        images=_images(mappings(status, "images", "status")),
        conditions=_conditions(mappings(status, "conditions", "status")),
        avoids=_avoided(annotations.get(_PREFER_AVOID_PODS)),
        declared_features=declared_features(texts(status, "declaredFeatures", "status")),
    )


def _amounts(raw: Mapping[str, Any], where: str) -> dict[str, int]:
    return {
        resource: parse_milli(amount, where + resource)
        if resource == "cpu"
        else parse_count(amount, where + resource)
        for resource, amount in raw.items()
    }


def _unavailable(raw: Mapping[str, Any], allocatable: Mapping[str, int]) -> dict[str, int]:
    extended = {name: amount for name, amount in raw.items() if "/" in name}
    capacity = _amounts(extended, "status.capacity.")
    missing = {name: amount - allocatable.get(name, 0) for name, amount in capacity.items()}
    return {name: amount for name, amount in missing.items() if amount > 0}


def _images(raw: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    images = dict[str, int]()
    # The first entry of a name is used, as in addNodeImageStates.
    for index, image in enumerate(raw):
        where = f"status.images[{index}]"
        size = integer(image, "sizeBytes", where) or 0
        for name in texts(image, "names", where):
            images.setdefault(name, size)
    return images


def _conditions(raw: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    where = "status.conditions"
    return {
        text(condition, "type", f"{where}[{index}]"): text(condition, "status", f"{where}[{index}]")
        for index, condition in enumerate(raw)
    }


def _avoided(annotation: str | None) -> frozenset[tuple[str, str]]:
    if annotation is None:
        return frozenset()
    try:
        entries = mappings(orjson.loads(annotation), "preferAvoidPods")
        controllers = [mapping(mapping(e, "podSignature"), "podController") for e in entries]
        return frozenset((text(c, "kind"), text(c, "uid")) for c in controllers)
    except (AttributeError, ValueError):
        return frozenset()


def normalized_image(name: str) -> str:
    """Return the name, with `:latest` if it has no tag (imagelocality/image_locality.go)."""
    # A digest has a colon after the last slash, too, and needs no tag.
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
