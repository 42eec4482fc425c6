"""Finds the nodes of pods for the demo's tables."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mooring.model.quantity import parse_count, parse_milli

ZONE = "topology.kubernetes.io/zone"
Raw = Mapping[str, Any]


@dataclass(frozen=True)
class NodeUse:
    """A node: its earlier and its new pods, and the share of the node that they request."""

    name: str
    zone: str
    earlier: int
    new: int
    cpu: float
    memory: float

    @property
    def pods(self) -> int:
        return self.earlier + self.new


def node_uses(
    nodes: Iterable[Raw], pods: Sequence[Raw], *, earlier: Collection[str] | None = None
) -> list[NodeUse]:
    """Return every node's use, by zone and name.

    `earlier` has the names of earlier pods; None means that all pods are earlier ones.
    """
    by_node: dict[str, list[Raw]] = {}
    for pod in pods:
        by_node.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
    uses = [_use(node, by_node.get(node["metadata"]["name"], []), earlier) for node in nodes]
    return sorted(uses, key=lambda use: (use.zone, use.name))


def bound_nodes(pods: Iterable[Raw]) -> dict[str, str]:
    """Return the node of each bound pod, by the names of the pods."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods
        if pod["spec"].get("nodeName")
    }


def _use(node: Raw, pods: Sequence[Raw], earlier: Collection[str] | None) -> NodeUse:
    allocatable = node["status"]["allocatable"]
    there = sum(earlier is None or pod["metadata"]["name"] in earlier for pod in pods)
    return NodeUse(
        name=node["metadata"]["name"],
        zone=node["metadata"]["labels"][ZONE],
        earlier=there,
        new=len(pods) - there,
        cpu=sum(map(_cpu, pods)) / parse_milli(allocatable["cpu"]),
        memory=sum(map(_memory, pods)) / parse_count(allocatable["memory"]),
    )


def _cpu(pod: Raw) -> int:
    return sum(parse_milli(requests.get("cpu", "0")) for requests in _requests(pod))


def _memory(pod: Raw) -> int:
    return sum(parse_count(requests.get("memory", "0")) for requests in _requests(pod))


def _requests(pod: Raw) -> list[Mapping[str, str]]:
    containers = pod["spec"]["containers"]
    return [container.get("resources", {}).get("requests", {}) for container in containers]
