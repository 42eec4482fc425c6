"""Creates nodes without machines."""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.access import Access

CAPACITY: Mapping[str, str] = {"cpu": "4", "memory": "32Gi", "pods": "110"}
"""The default capacity of a node, the same as in upstream's benchmark."""


def node_object(
    name: str, zone: str, capacity: Mapping[str, str], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return a Node in a zone; allocatable equals capacity, and kwok makes the node Ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": zone,
                **labels,
            },
        },
        "status": {"capacity": dict(capacity), "allocatable": dict(capacity)},
    }


def create_nodes(
    access: Access,
    count: int,
    *,
    zones: int = 1,
    prefix: str = "node",
    capacity: Mapping[str, str] = CAPACITY,
    labels: Mapping[str, str] | None = None,
) -> list[str]:
    """Create nodes, assigned to zones zone-1, zone-2, ... in turn; return their names."""
    with access.client() as client:
        return [
            client.post("/api/v1/nodes", node)["metadata"]["name"]
            for node in _nodes(count, zones, prefix, capacity, labels or {})
        ]


def delete_nodes(access: Access) -> None:
    with access.client() as client:
        client.delete("/api/v1/nodes")


def _nodes(
    count: int, zones: int, prefix: str, capacity: Mapping[str, str], labels: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    width = len(str(count))
    for number in range(1, count + 1):
        zone = f"zone-{(number - 1) % zones + 1}"
        yield node_object(f"{prefix}-{number:0{width}}", zone, capacity, labels)
