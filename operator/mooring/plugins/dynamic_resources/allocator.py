"""Allocates devices to the claims of a pod, as kube-scheduler does (structured/incubating).

Values in and values out: no clock, no random source, nothing is remembered from one allocator to
the next but what its caller gives it.
"""

from collections.abc import Callable, Mapping, Sequence

from mooring.model.device_classes import DeviceClass
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.resource_claims import Allocation, ResourceClaim
from mooring.plugins.dynamic_resources.allocation_error import AllocationError
from mooring.plugins.dynamic_resources.explanation import ExplainedRequest, explained
from mooring.plugins.dynamic_resources.pools import Inventory, Pool, pools_of_node
from mooring.plugins.dynamic_resources.pruning import Pruning, may_prune
from mooring.plugins.dynamic_resources.requests import NodeDevices, Requests
from mooring.plugins.dynamic_resources.results import allocation_of
from mooring.plugins.dynamic_resources.search import Budget, Search
from mooring.plugins.dynamic_resources.selectors import Selectors
from mooring.plugins.dynamic_resources.trial import Trial
from mooring.state.dynamic_resources.allocated_devices import AllocatedDevices

__all__ = ["Allocator"]


class Allocator:
    """Finds devices on one node after the other for the claims of one pod.

    Args:
        claims: The claims that have no allocation yet, in the order of the pod's.
        inventory: All slices of the cluster.
        allocated: The devices that are in use.
        classes: Returns the device class of a name, None if there is none.
        selectors: What CEL expressions say of devices.
        rules: The rules of the Kubernetes version.
        budget: The work that searches may take on all nodes together.
    """

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        inventory: Inventory,
        allocated: AllocatedDevices,
        classes: Callable[[str], DeviceClass | None],
        selectors: Selectors,
        rules: KubernetesRules,
        budget: Budget,
    ) -> None:
        self._claims = claims
        self._inventory = inventory
        self._allocated = allocated
        self._classes = classes
        self._selectors = selectors
        self._rules = rules
        self._budget = budget

    def allocate(
        self,
        node_name: str,
        node_labels: Mapping[str, str],
        share_id: Callable[[], str],
        pools: Sequence[Pool] | None = None,
    ) -> list[Allocation] | None:
        """Return an allocation for each claim on this node; None if there are too few devices.

        `share_id` makes a new id for each share of a device. `pools` are those of the node, if
        they are known.

        Raises:
            AllocationError: with kube-scheduler's text, if the claims or the devices are at fault.
        """
        if pools is None:
            pools = pools_of_node(self._inventory, node_name, node_labels, self._rules)
        node = NodeDevices(node_name, node_labels, pools)
        requests = self._checked(node)
        trial = Trial(self._claims, node, requests, self._allocated, self._rules)
        prune = may_prune(node, self._rules)
        self._budget.begin_node()
        search = Search(
            requests.claims,
            trial,
            (lambda: Pruning(requests.claims, node, trial, self._rules)) if prune else None,
            self._budget,
        )
        if not search.run():
            if any(pool.invalid for pool in pools):
                raise AllocationError("invalid resource pools were encountered", on_node=True)
            return None
        return self._results(node, requests, trial, search, share_id)

    def explain(self, node_name: str, node_labels: Mapping[str, str]) -> list[ExplainedRequest]:
        """Return for each request, and sub-request, what keeps it from the node's devices.

        Raises:
            AllocationError: if a request cannot be understood or asks for too many devices.
        """
        pools = pools_of_node(self._inventory, node_name, node_labels, self._rules)
        node = NodeDevices(node_name, node_labels, pools)
        requests = self._checked(node)
        trial = Trial(self._claims, node, requests, self._allocated, self._rules)
        return [explained(slot, self._claims, node, trial) for slot in requests.slots]

    def _checked(self, node: NodeDevices) -> Requests:
        return Requests(
            self._claims,
            node,
            self._classes,
            self._selectors,
            self._rules,
            self._allocated.consumed,
        )

    def _results(
        self,
        node: NodeDevices,
        requests: Requests,
        trial: Trial,
        search: Search,
        share_id: Callable[[], str],
    ) -> list[Allocation]:
        chosen = search.chosen()
        return [
            allocation_of(
                claim,
                [
                    alternatives[chosen.get((index, request), 0)]
                    for request, alternatives in enumerate(requests.claims[index])
                ],
                [
                    (taken, node.candidates[taken.position])
                    for taken in trial.taken
                    if taken.slot.claim == index
                ],
                node.name,
                self._rules,
                share_id,
            )
            for index, claim in enumerate(self._claims)
        ]
