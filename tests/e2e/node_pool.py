"""A namespace with nodes that only its pods select, for one test on a shared cluster."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from controlplane import Access
from controlplane.client import Client
from controlplane.nodes import create_nodes
from e2e.replicas import bound, create_pods, eventually, pod, pods

Raw = dict[str, Any]

"""An extended resource."""


@dataclass(frozen=True)
class NodePool:
    """The namespace `name`, and nodes whose label `pool` has this name as its value."""

    name: str
    access: Access
    client: Client

    def add_nodes(self, count: int = 1, *, cpu: str = "4", prefix: str = "n") -> list[str]:
        """Add nodes with this cpu each; return their names."""
        return create_nodes(
            self.access,
            count,
            prefix=f"{self.name}-{prefix}",
            capacity={"cpu": cpu, "memory": "8Gi", "pods": "110"},
            labels={"pool": self.name},
        )

    def delete_node(self, name: str) -> None:
        """Delete the node; the pods on it stay."""
        self.client.delete(f"/api/v1/nodes/{name}")

    def add_pod(self, name: str, **fields: Any) -> None:
        """Add a pod that selects the nodes of this pool; for `fields` see `replicas.pod`."""
        create_pods(self.client, self.name, pod(name, nodeSelector={"pool": self.name}, **fields))

    def patch_pod(self, name: str, patch: Raw) -> None:
        """Change the pod by a JSON merge patch."""
        self.client.patch(f"/api/v1/namespaces/{self.name}/pods/{name}", patch)

    def notes(self, reason: str) -> list[str]:
        """Return the notes of all events with this reason."""
        events = self.client.get(f"/apis/events.k8s.io/v1/namespaces/{self.name}/events")["items"]
        return [event["note"] for event in events if event["reason"] == reason]

    def bound(self) -> dict[str, str]:
        """Return the node of every bound pod, by the pod's name."""
        return bound(self.client, self.name)

    def wait_until_bound(self, *names: str) -> Counter[str]:
        """Wait until these pods are bound; return how many pods each node has."""
        nodes = eventually(self.bound, lambda b: b.keys() >= set(names), f"{names} bound")
        return Counter(nodes.values())

    def wait_until_unschedulable(self, name: str) -> Raw:
        """Return the pod's PodScheduled condition once it has reason Unschedulable."""
        raw = eventually(lambda: pods(self.client, self.name)[name], _rejection, f"{name} rejected")
        rejection = _rejection(raw)
        assert rejection is not None
        return rejection

    def events(self, reason: str) -> list[Raw]:
        """Return the events of this reason about pods of this pool."""
        events = self.client.get(f"/apis/events.k8s.io/v1/namespaces/{self.name}/events")["items"]
        return [event for event in events if event["reason"] == reason]

    def node_count(self) -> int:
        """Return how many nodes the whole cluster has."""
        return len(self.client.get("/api/v1/nodes")["items"])


def _rejection(raw: Raw) -> Raw | None:
    conditions: Iterable[Raw] = raw["status"].get("conditions", ())
    for condition in conditions:
        if condition["type"] == "PodScheduled" and condition["reason"] == "Unschedulable":
            return condition
    return None
