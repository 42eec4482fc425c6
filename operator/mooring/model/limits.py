"""Limits the size of a pod: far beyond real pods, and small enough to decide quickly.

One pod of 1 MB, which the API server accepts, could stop a scheduler for seconds. A pod that
exceeds a limit is not scheduled; its PodScheduled condition says how many parts the pod has, and
how many are allowed.
If such a pod is bound already, it is counted on its node, but too many inter-pod terms are ignored.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Counted(StrEnum):
    """The parts of a pod whose number is limited, in the words of messages."""

    BYTES = "bytes of JSON in the fields that scheduling reads"
    NODE_TERMS = "node affinity terms"
    POD_TERMS = "inter-pod affinity and anti-affinity terms"
    SPREAD_CONSTRAINTS = "topology spread constraints"
    REQUIREMENTS = "requirements in selectors"
    VALUES = "values in selectors, plus namespaces in inter-pod terms"
    RESOURCES = "requested resources"
    TOLERATIONS = "tolerations"
    HOST_PORTS = "host ports"
    IMAGES = "images"
    CONTAINERS = "containers"
    RESOURCE_CLAIMS = "claims for devices"
    LABELS = "labels"
    VOLUMES = "volumes"


LIMITS: Final[Mapping[Counted, int]] = MappingProxyType(
    {
        Counted.BYTES: 256 * 1024,
        Counted.NODE_TERMS: 1000,
        Counted.POD_TERMS: 100,
        Counted.SPREAD_CONSTRAINTS: 100,
        Counted.REQUIREMENTS: 2000,
        Counted.VALUES: 10_000,
        Counted.RESOURCES: 200,
        Counted.TOLERATIONS: 1000,
        Counted.HOST_PORTS: 1000,
        Counted.IMAGES: 500,
        Counted.CONTAINERS: 500,
        Counted.RESOURCE_CLAIMS: 256,
        Counted.LABELS: 1000,
        Counted.VOLUMES: 1000,
    }
)


def exceeded(counts: Mapping[Counted, int]) -> str | None:
    """Return a sentence about the first exceeded limit; None if no limit is exceeded."""
    for counted, number in counts.items():
        if number > LIMITS[counted]:
            return f"the pod has {number} {counted}; Mooring schedules at most {LIMITS[counted]}"
    return None
