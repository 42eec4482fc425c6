"""Does the kubelets' work that the cases need and kwok does not do."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from threading import Event
from typing import Any, Final

from controlplane import Access, ApiError

_INTERVAL: Final = 0.2
"""Seconds between two looks at the nodes."""


def copy_extended_resources(access: Access, stop: Event) -> None:
    """Copy extended resources from the nodes' capacity to allocatable, until `stop` is set."""
    with access.client() as client:
        while not stop.wait(_INTERVAL):
            for node in client.get("/api/v1/nodes")["items"]:
                missing = missing_allocatable(node["status"])
                path = f"/api/v1/nodes/{node['metadata']['name']}/status"
                if missing:
                    with suppress(ApiError):  # the node may go meanwhile
                        client.patch(path, {"status": {"allocatable": missing}})


def run_required_pods(access: Access, nodes: Iterable[str]) -> None:
    """Run a pod on each node, with a name that the cases look for.

    Without these pods, cases that preempt wait for a minute each (WaitForTotalHealthy in
    node/wait.go).
    """
    pods = "/api/v1/namespaces/kube-system/pods"
    with access.client() as client:
        for node in nodes:
            name = f"kube-proxy-fluentd-elasticsearch-node-problem-detector-{node}"
            container = {"name": "main", "image": "registry.example/main:v1"}
            spec = {
                "schedulerName": "nobody",  # bound below, so that it has the condition PodScheduled
                "automountServiceAccountToken": False,
                "containers": [container],
            }
            client.post(pods, {"metadata": {"name": name}, "spec": spec})
            target = {"kind": "Node", "name": node}
            client.post(f"{pods}/{name}/binding", {"metadata": {"name": name}, "target": target})


def set_addresses(access: Access, nodes: Iterable[str]) -> None:
    """Give each node an address; cases with host ports read the address."""
    with access.client() as client:
        for number, node in enumerate(nodes, start=1):
            address = {"type": "InternalIP", "address": f"192.0.2.{number}"}
            client.patch(f"/api/v1/nodes/{node}/status", {"status": {"addresses": [address]}})


def missing_allocatable(status: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the changes of allocatable to equal capacity; None for resources that have gone."""
    capacity, allocatable = _extended(status, "capacity"), _extended(status, "allocatable")
    changed: dict[str, str | None] = dict.fromkeys(allocatable.keys() - capacity.keys())
    changed |= {name: n for name, n in capacity.items() if allocatable.get(name) != n}
    return changed


def _extended(status: Mapping[str, Any], field: str) -> dict[str, str]:
    return {name: amount for name, amount in status.get(field, {}).items() if "/" in name}
