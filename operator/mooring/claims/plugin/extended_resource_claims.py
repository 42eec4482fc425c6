"""The claim for a pod's extended resources that DeviceClasses offer.

A node may offer such a resource itself; on other nodes, the pod gets devices of the class. PreBind
creates one claim for all such resources, so the claim depends on the node. See
extendeddynamicresources.go of kube-scheduler's plugin.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

import numpy as np

from mooring.claims.model.device_classes import CLASS_PREFIX
from mooring.claims.model.resource_claims import (
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    DeviceRequest,
    ExactRequest,
    ResourceClaim,
    claim_of_scheduler,
)
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.resources import ContainerRequests
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

_NAME: Final = "<extended-resources>"
"""The claim's name in messages until it is created; no object can have this name."""
_CANNOT_FIT: Final = "cannot fit resource"
_STALE: Final = "cannot schedule extended resource claim"

Mapped = tuple[str, str, str]
"""The names of a container, of a resource that the container requests, and of the request in the
claim that stands for the resource."""


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A claim to create on nodes that lack some extended resources, and its use by containers."""

    claim: ResourceClaim
    mappings: tuple[Mapped, ...]

    def fields(self, pod: Pod) -> dict[str, Any]:
        """Return the ResourceClaim to create for the pod, as API fields."""
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "uid": pod.uid,
            "controller": True,
        }
        requests = [
            {
                "name": request.name,
                "exactly": {
                    "deviceClassName": request.exactly.device_class,
                    "allocationMode": request.exactly.mode,
                    "count": request.exactly.count,
                },
            }
            for request in self.claim.spec.requests
            if request.exactly is not None
        ]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "generateName": f"{pod.name}-extended-resources-",
                "namespace": pod.namespace,
                "ownerReferences": [owner],
                "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
                # kube-scheduler adds it with another write; nobody looks at the claim before.
                "finalizers": [FINALIZER],
            },
            "spec": {"devices": {"requests": requests}},
        }

    def status_fields(self, claim: ResourceClaim) -> dict[str, Any]:
        """Return the pod's status, as API fields, with the name of the created `claim`."""
        mappings = [
            {"containerName": container, "resourceName": resource, "requestName": request}
            for container, resource, request in self.mappings
        ]
        status = {"resourceClaimName": claim.name, "requestMappings": mappings}
        return {"extendedResourceClaimStatus": status}


@dataclass(slots=True, eq=False)
class ExtendedResources:
    """The extended resources of a pod; at least one of them has a DeviceClass.

    `classes` maps resources to their DeviceClasses; `others` are resources without a class. `stale`
    is a claim of an earlier attempt; the pod fits no node until this claim is deleted.
    """

    pod: Pod
    classes: Mapping[str, str]
    others: Sequence[str]
    stale: ResourceClaim | None
    _new: dict[tuple[str, ...], NewClaim | None] = field(default_factory=dict)

    def new_claim(self, node: Node) -> NewClaim | None:
        """Return the claim to create on this node; None if the node offers all resources."""
        return self._claim_for(
            tuple(name for name in self.classes if not node.allocatable.get(name))
        )

    def _claim_for(self, resources: tuple[str, ...]) -> NewClaim | None:
        if resources not in self._new:
            self._new[resources] = new_claim(self.pod, {r: self.classes[r] for r in resources})
        return self._new[resources]

    @property
    def fits_anywhere(self) -> bool:
        """Whether every node with enough devices is suitable, whatever resources it offers."""
        return self.stale is None and not self.others

    def kinds(self, nodes: NodeView) -> Iterator[tuple[IntArray, NewClaim | None]]:
        """Yield pairs: positions of nodes that lack the same resources, and the claim to create."""
        lacking = [nodes.allocatable(name) == 0 for name in self.classes]
        kind, first = np.zeros(len(nodes), np.int64), [0][: len(nodes)]
        for lacks in lacking:
            # One resource after the other: to sort rows of several costs thirty times as much.
            if 0 < np.count_nonzero(lacks) < len(nodes):
                split = 2 * kind + lacks
                _, positions, kind = np.unique(split, return_index=True, return_inverse=True)
                first = positions.tolist()
        for number, position in enumerate(first):
            resources = tuple(compress(self.classes, (lacks[position] for lacks in lacking)))
            yield np.flatnonzero(kind == number), self._claim_for(resources)

    def rejections(self, nodes: NodeView) -> list[str]:
        """Return for each node why free devices would not help the pod; "" if they might help."""
        if self.stale is not None:
            return [_STALE] * len(nodes)
        if not self.others:
            return [""] * len(nodes)
        offers = [node.allocatable if (node := nodes.node(i)) else {} for i in range(len(nodes))]
        return ["" if all(name in o for name in self.others) else _CANNOT_FIT for o in offers]


def extended_resources_of(
    pod: Pod, cluster: ClusterView, rules: KubernetesRules
) -> ExtendedResources | None:
    """Return the pod's extended resources; None if no DeviceClass offers any.

    Before Kubernetes 1.36, the result is always None.
    """
    if not pod.spec.containers or not rules.devices_of_extended_resources:
        return None
    devices = cluster.dynamic_resources
    names = [name for name in pod.spec.demand.resources if "/" in name]
    found = {name: devices.classes.of_resource(name) for name in names}
    classes = {name: each.name for name, each in found.items() if each is not None}
    if not classes:
        return None
    left = devices.claims.for_extended_resources(pod)
    others = [name for name in names if name not in classes and _is_extended(name)]
    return ExtendedResources(pod, classes, others, left[0] if left else None)


def new_claim(pod: Pod, classes: Mapping[str, str]) -> NewClaim | None:
    """Return the claim that requests devices for a pod's extended resources.

    `classes` maps each resource to its DeviceClass; the result is None if `classes` is empty.
    """
    if not classes:
        return None
    requests: list[DeviceRequest] = []
    mappings: list[Mapped] = []
    for resource in sorted(classes):
        found = _of_resource(pod.spec.containers, resource, classes[resource])
        requests += found[0]
        mappings += found[1]
    requests.sort(key=lambda each: each.name)
    uid = f"{pod.uid}/extended-resources"
    claim = claim_of_scheduler(pod.namespace, _NAME, uid, pod.uid, requests)
    return NewClaim(claim, tuple(mappings))


def _of_resource(
    containers: Sequence[ContainerRequests], resource: str, device_class: str
) -> tuple[list[DeviceRequest], list[Mapped]]:
    """Return the device requests for the resource, and which container uses which request."""
    lasting = [
        (index, container.name, f"container-{index}-request-{_index_of(resource, container)}", n)
        for index, container in enumerate(containers)
        if container.kind != "init" and (n := container.requests.get(resource, 0))
    ]
    mappings = [(name, resource, request) for _, name, request, _ in lasting]
    requests = [_request(request, device_class, n) for _, _, request, n in lasting]
    # An init container ends earlier and uses the devices of later containers. One more request asks
    # for the devices that these lack.
    extra: dict[str, int] = {}
    of_init: list[Mapped] = []
    for index, container in enumerate(containers):
        wanted = container.requests.get(resource, 0)
        if container.kind != "init" or not wanted:
            continue
        for later, _, request, amount in lasting:
            if later > index and wanted > 0:
                of_init.append((container.name, resource, request))
                wanted -= amount
        if wanted > 0:
            request = f"container-{index}-request-{_index_of(resource, container)}"
            of_init.append((container.name, resource, request))
            extra[request] = wanted
    if extra:
        largest = max(extra, key=lambda request: extra[request])
        requests.insert(0, _request(largest, device_class, extra[largest]))
        of_init = [(c, r, largest if name in extra else name) for c, r, name in of_init]
    return requests, [*mappings, *of_init]


def _index_of(resource: str, container: ContainerRequests) -> int:
    return sorted(container.requests).index(resource)


def _request(name: str, device_class: str, count: int) -> DeviceRequest:
    exactly = ExactRequest(
        name=name,
        device_class=device_class,
        selectors=(),
        mode="ExactCount",
        count=count,
        admin_access=False,
        tolerations=(),
        capacity={},
    )
    return DeviceRequest(name, exactly, ())


def _is_extended(name: str) -> bool:
    if name.startswith(CLASS_PREFIX):
        return True
    return "kubernetes.io/" not in name and not name.startswith("requests.")
