"""A few names and amounts that all scenes share, so that objects often match by chance."""

from collections.abc import Mapping
from typing import Any, Final

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOSTNAME: Final = "kubernetes.io/hostname"
RACK: Final = "rack"
ZONES: Final = ("z0", "z1", "z2")
TOPOLOGY_KEYS: Final = (ZONE, HOSTNAME, RACK)

TEAMS: Final[Mapping[str, Mapping[str, str]]] = {
    "team-a": {"env": "prod"},
    "team-b": {"env": "dev"},
}
"""The namespaces of all pods, with their labels."""

ADMIN_ACCESS: Final = {"resource.kubernetes.io/admin-access": "true"}
"""The label of namespaces whose claims may have access to devices that others use."""

APPS: Final = ("a", "b", "c", "d")
TIERS: Final = ("web", "db")
HASH: Final = "pod-template-hash"
HASHES: Final = ("h1", "h2")

GPU: Final = "example.com/gpu"
WIDGET: Final = "vendor.io/widget"
HUGE_PAGES: Final = "hugepages-2Mi"

CPU: Final = ("50m", "100m", "250m", "300m", "500m", "750m", "1", "1500m", "2", "3")
MEMORY: Final = (
    "64Mi",
    "100M",
    "128Mi",
    "256Mi",
    "300000Ki",
    "512Mi",
    "1Gi",
    "1536Mi",
    "2Gi",
    "3G",
)
STORAGE: Final = ("500Mi", "1Gi", "4Gi")

TAINT_KEYS: Final = ("dedicated", "spot", "maint", "level")
TAINT_VALUES: Final = ("a", "b", "")
EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule")

IMAGES: Final[Mapping[str, int]] = {
    "small": 5_000_000,
    "web": 60_000_000,
    "mid": 150_000_000,
    "big": 700_000_000,
    "huge": 3_000_000_000,
}
"""Bytes of each image that nodes may have."""
PAUSE: Final = "registry.example/pause:v1"

PRIORITIES: Final[Mapping[str, int]] = {
    "negative": -10,
    "lower": 5,
    "low": 10,
    "mid": 100,
    "high": 1000,
}
"""Priority classes whose pods preempt others; one named `never` has the value of `high`."""

HEAVY: Final[Mapping[str, str]] = {"cpu": "250m", "memory": "120Mi"}
"""What a pod of the runtime class `heavy` needs beside its containers."""


def image(name: str, suffix: str = ":v1") -> str:
    return f"registry.example/{name}{suffix}"


def surroundings() -> list[dict[str, Any]]:
    """Return the objects of every scene: namespaces, priority classes and a runtime class."""
    classes = [(name, value, "PreemptLowerPriority") for name, value in PRIORITIES.items()]
    classes.append(("never", PRIORITIES["high"], "Never"))
    return [
        *(
            {"kind": "Namespace", "metadata": {"name": team, "labels": {**labels, **ADMIN_ACCESS}}}
            for team, labels in TEAMS.items()
        ),
        *(
            {
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "preemptionPolicy": policy,
            }
            for name, value, policy in classes
        ),
        {
            "kind": "RuntimeClass",
            "metadata": {"name": "heavy"},
            "handler": "heavy",
            "overhead": {"podFixed": dict(HEAVY)},
        },
    ]
