"""Finds the claims of a pod, and whether the pod can be scheduled with these claims.

If members of a group share a claim, the first member at PreBind writes the allocation. The other
members add their reservations.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mooring.claims.model.resource_claims import (
    Allocation,
    ConsumerReference,
    DeviceCondition,
    DeviceRequest,
    DeviceResult,
    PodClaim,
    ResourceClaim,
)
from mooring.claims.plugin.extended_resource_claims import ExtendedResources, NewClaim
from mooring.framework.verdicts import ObjectError, Unschedulable
from mooring.groups.model.pod_group import PodGroup, consumer_of
from mooring.model.pod import Pod
from mooring.model.selectors import NodeSelector
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import NodeView


@dataclass(slots=True, eq=False)
class PodClaims:
    """The claims of a pod, without duplicates, in the order of the pod's spec.

    Attributes:
        in_flight: Allocations in flight for members of the pod's group, by claim uid.
        broken: The uids of allocated claims whose devices could not be bound.
        extended: The extended resources for which PreBind creates a claim.
    """

    claims: tuple[ResourceClaim, ...]
    in_flight: dict[str, Allocation] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    extended: ExtendedResources | None = None

    @property
    def to_allocate(self) -> list[ResourceClaim]:
        """The existing claims without devices."""
        return [c for c in self.claims if self.allocation(c) is None]

    def on_nodes(self, nodes: NodeView) -> Iterator[tuple[IntArray, list[ResourceClaim]]]:
        """Yield pairs: the positions of nodes, and the claims that need devices there.

        Nodes where no claim needs devices are left out.
        """
        known = self.to_allocate
        if self.extended is None:
            kinds: Iterable[tuple[IntArray, NewClaim | None]] = [(np.arange(len(nodes)), None)]
        else:
            kinds = self.extended.kinds(nodes)
        for positions, new in kinds:
            claims = known if new is None else [*known, new.claim]
            if claims:
                yield positions, claims

    def allocation(self, claim: ResourceClaim) -> Allocation | None:
        """Return the devices that the pod's claim already has; None for a claim without devices."""
        return claim.allocation or self.in_flight.get(claim.uid)

    @property
    def node_selectors(self) -> list[NodeSelector]:
        """The node selectors of the allocated devices."""
        allocations = [self.allocation(claim) for claim in self.claims]
        return [a.node_selector for a in allocations if a is not None and a.node_selector]


def claims_of(pod: Pod, cluster: ClusterView) -> list[ResourceClaim] | Unschedulable:
    """Return the claims that the pod names, or why the pod must wait for a claim (PreEnqueue)."""
    found: dict[str, ResourceClaim] = {}
    if pod.spec.resource_claims and cluster.dynamic_resources.unknown is not None:
        return Unschedulable(cluster.dynamic_resources.unknown)
    for entry in pod.spec.resource_claims:
        name = entry.claim or _name_of_created(pod, entry)
        if isinstance(name, Unschedulable):
            return name
        if name is None:
            continue
        claim = cluster.dynamic_resources.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            return Unschedulable(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        if (why_not := _why_unusable(pod, entry, claim, cluster)) is not None:
            return Unschedulable(why_not)
        # If a pod names a claim twice, kube-scheduler tries to allocate it twice and fails.
        found[claim.uid] = claim
    return [*found.values()]


def _why_unusable(
    pod: Pod, entry: PodClaim, claim: ResourceClaim, cluster: ClusterView
) -> str | None:
    if claim.malformed:
        return f"a claim cannot be read: {claim.malformed}"
    if claim.deleting:
        return f'resourceclaim "{claim.name}" is being deleted'
    if entry.claim or is_owned(claim, pod, cluster):
        return None
    group, owners = _group(pod, cluster), "Pod is not"
    if group is not None and group.resource_claims:
        owners = f"neither Pod nor PodGroup {group.name} is the"
    return f"ResourceClaim {claim.key} was not created for Pod {pod.key} ({owners} owner)"


def is_owned(claim: ResourceClaim, pod: Pod, cluster: ClusterView) -> bool:
    """Return whether the claim was created for the pod, or for its group."""
    if claim.controller_uid == pod.uid:
        return True
    group = _group(pod, cluster)
    return group is not None and bool(group.uid) and claim.controller_uid == group.uid


def _group(pod: Pod, cluster: ClusterView) -> PodGroup | None:
    group = cluster.pod_groups.of(pod)
    return group.definition if group is not None else None


def _name_of_created(pod: Pod, entry: PodClaim) -> str | Unschedulable | None:
    if not entry.template:
        return Unschedulable(
            f'pod "{pod.key}", spec.resourceClaim "{entry.name}": '
            "none of the supported fields are set"
        )
    if entry.name not in pod.claim_names:
        return Unschedulable(f'pod "{pod.key}": ResourceClaim not created yet')
    return pod.claim_names[entry.name]


def pod_claims(pod: Pod, cluster: ClusterView) -> PodClaims | Unschedulable:
    """Return the pod's claims, or why no node is suitable (PreFilter)."""
    claims = claims_of(pod, cluster)
    if isinstance(claims, Unschedulable):
        return claims
    found = PodClaims(tuple(claims))
    for claim in claims:
        if claim.allocation is not None:
            continue
        allocation = cluster.dynamic_resources.claims.in_flight(claim.uid)
        if allocation is not None:
            if not _is_of_group(pod, claim, cluster):
                return Unschedulable(
                    f"resource claim {claim.key} is in the process of being allocated"
                )
            found.in_flight[claim.uid] = allocation
            continue
        rejection = _missing_class(claim, cluster)
        if rejection is not None:
            return rejection
    return found


def consumer(claim: ResourceClaim, pod: Pod, cluster: ClusterView) -> ConsumerReference:
    """Return the claim's consumer: the pod's group if the group lists the claim, else the pod."""
    return consumer_of(pod, claim, _group(pod, cluster))


def is_reserved(claim: ResourceClaim, pod: Pod, cluster: ClusterView) -> bool:
    """Return whether the claim is reserved for the pod, or for its group (see `consumer`)."""
    if not claim.reserved_for:
        return False
    uids = {pod.uid, consumer(claim, pod, cluster).uid}
    return any(each.uid in uids for each in claim.reserved_for)


def may_be_freed(claim: ResourceClaim, pod: Pod, cluster: ClusterView) -> bool:
    """Return whether the claim's devices can be freed: no pod on a node uses the claim.

    Reservations for the pod itself, and for members of its group without a node, do not matter.
    """
    group = cluster.pod_groups.of(pod)
    for each in claim.reserved_for:
        if each.uid == pod.uid:
            continue
        if group is None:
            return False
        definition, on_nodes = group.definition, group.scheduled_pods_count + len(group.terminating)
        if definition is not None and each.uid == definition.uid and not on_nodes:
            continue
        if each.uid not in group.unscheduled:
            return False
    return True


def is_bindable(claim: ResourceClaim) -> bool:
    """Return whether all binding conditions of the claim's devices are true."""
    for result, conditions in _with_conditions(claim):
        for name in result.binding_conditions:
            if not any(c.type == name and c.status == _TRUE for c in conditions):
                return False
    return True


def binding_failure(claim: ResourceClaim) -> DeviceCondition | None:
    """Return the condition that says that a device cannot be bound, or None.

    As in kube-scheduler, the search stops at the first device that is not bound yet.
    """
    for result, conditions in _with_conditions(claim):
        for name in result.binding_failure_conditions:
            for condition in conditions:
                if condition.type == name and condition.status == _TRUE:
                    return condition
        if not all(
            any(c.type == name and c.status == _TRUE for c in conditions)
            for name in result.binding_conditions
        ):
            return None
    return None


_TRUE: Final = "True"


def _with_conditions(
    claim: ResourceClaim,
) -> Iterator[tuple[DeviceResult, Sequence[DeviceCondition]]]:
    results = claim.allocation.results if claim.allocation is not None else ()
    for result in results:
        if result.binding_conditions:
            known = (s.conditions for s in claim.device_statuses if s.device == result.device)
            yield result, next(known, ())


def _is_of_group(pod: Pod, claim: ResourceClaim, cluster: ClusterView) -> bool:
    """Return whether only members of the pod's group hold the claim's devices in flight."""
    group = cluster.pod_groups.key_of(pod)
    for holder in cluster.dynamic_resources.claims.holders(claim.uid):
        placed = cluster.pod(holder)
        if holder == pod.uid:
            continue
        if group is None or placed is None or cluster.pod_groups.key_of(placed.pod) != group:
            return False
    return True


def _missing_class(claim: ResourceClaim, cluster: ClusterView) -> Unschedulable | None:
    for request in claim.spec.requests:
        for name, device_class in _classes(request):
            if not device_class:
                raise ObjectError(f"request {name}: unsupported request type")
            if cluster.dynamic_resources.classes.get(device_class) is None:
                return Unschedulable(f"request {name}: device class {device_class} does not exist")
        if request.exactly is None and not request.first_available:
            return Unschedulable(
                f"resource claim {claim.key}, request {request.name}: unknown request type"
            )
    return None


def _classes(request: DeviceRequest) -> Iterator[tuple[str, str]]:
    if request.exactly is not None:
        yield request.name, request.exactly.device_class
        return
    for sub in request.first_available:
        yield f"{request.name}/{sub.name}", sub.device_class
