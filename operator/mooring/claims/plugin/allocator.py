"""Allocates devices to the claims of a pod, as kube-scheduler does (structured/incubating).

The result depends on nothing but the arguments.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mooring.claims.model.device_classes import DeviceClass
from mooring.claims.model.resource_claims import Allocation, ResourceClaim
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.allocation_results import allocation_of
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.cel_selectors import Selectors
from mooring.claims.plugin.device_search import Moves, Search
from mooring.claims.plugin.device_trial import DeviceTrial
from mooring.claims.plugin.node_explanation import ExplainedRequest, explained
from mooring.claims.plugin.pools import Pool
from mooring.claims.plugin.requests import NodeDevices, Requests
from mooring.claims.state.allocated_devices import AllocatedDevices
from mooring.model.kubernetes_rules import KubernetesRules

_UNITS_PER_NODE: Final = 300
_UNITS_PER_DEVICE: Final = 25
"""The fewest units of the attempt's budget (`Evaluations`) that a search uses per device."""
_MOST_SLOTS: Final = 256
"""The most requests in all claims of a pod, including subrequests; the API allows as many in one
claim. A pod with more requests gets no devices."""


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    node: NodeDevices
    requests: Requests
    trial: DeviceTrial


@dataclass(eq=False, repr=False)
class Allocator:
    """Finds devices for the claims of one pod, on one node after the other.

    `claims` have no allocation, and are in the order of the pod's spec. `budget` limits the work on
    all nodes together.
    """

    claims: Sequence[ResourceClaim]
    allocated: AllocatedDevices
    classes: Callable[[str], DeviceClass | None]
    selectors: Selectors
    rules: KubernetesRules
    budget: Budget

    def __post_init__(self) -> None:
        self._slots = sum(
            len(request.first_available) or 1
            for claim in self.claims
            for request in claim.spec.requests
        )
        self.moves: Moves | None = None
        """The last solution, for `repeat`; None if the last search found none."""

    def allocate(
        self,
        node_name: str,
        node_labels: Mapping[str, str],
        share_id: Callable[[], str],
        pools: Sequence[Pool],
    ) -> list[Allocation] | None:
        """Return an allocation for each claim on this node; None if the node has too few devices.

        `share_id` makes a new id for each share of a device. Raises AllocationError, or
        PluginFailed if the attempt's budget is used up.
        """
        self.moves = None
        begun = self._begin(node_name, node_labels, pools)
        claims, trial = begun.requests.claims, begun.trial
        self.budget.begin_node()
        self.budget.work(_UNITS_PER_NODE + _UNITS_PER_DEVICE * trial.size)
        search = Search(claims, begun.node, trial, self.rules, self.budget)
        if not search.run():
            if any(pool.invalid for pool in begun.node.pools):
                raise AllocationError("invalid resource pools were encountered", on_node=True)
            return None
        self.moves = search.moves
        return self._results(begun, search.chosen(), share_id)

    def repeat(
        self,
        node_name: str,
        node_labels: Mapping[str, str],
        share_id: Callable[[], str],
        pools: Sequence[Pool],
        moves: Moves,
    ) -> list[Allocation]:
        """Return the allocations of the solution `moves`, without a search.

        `allocate` has found the solution on an equal node. Raises AllocationError as `allocate`
        does.
        """
        begun = self._begin(node_name, node_labels, pools)
        for claim, request, alternative, position in moves:
            slot = begun.requests.claims[claim][request][alternative]
            if not begun.trial.take(slot, position):
                raise ValueError(f"device {position} of node {node_name} is not free")
        chosen = {(claim, request): number for claim, request, number, _ in moves}
        return self._results(begun, chosen, share_id)

    def explain(
        self, node_name: str, node_labels: Mapping[str, str], pools: Sequence[Pool]
    ) -> list[ExplainedRequest]:
        """Return for each request and sub-request why it cannot have the node's devices.

        Raises AllocationError if a request is malformed or asks for too many devices.
        """
        begun = self._begin(node_name, node_labels, pools)
        slots = begun.requests.slots
        return [explained(slot, self.claims, begun.node, begun.trial) for slot in slots]

    def _begin(
        self, node_name: str, node_labels: Mapping[str, str], pools: Sequence[Pool]
    ) -> _Begun:
        if self._slots > _MOST_SLOTS:
            raise AllocationError(
                f"the pod's claims have {self._slots} requests for devices with all alternatives; "
                f"Mooring looks for at most {_MOST_SLOTS} together",
                on_node=True,
            )
        node, consumed = NodeDevices(node_name, node_labels, pools), self.allocated.consumed
        requests = Requests(self.claims, node, self.classes, self.selectors, self.rules, consumed)
        trial = DeviceTrial(self.claims, node, requests, self.allocated, self.rules)
        return _Begun(node, requests, trial)

    def _results(
        self,
        begun: _Begun,
        chosen: Mapping[tuple[int, int], int],
        share_id: Callable[[], str],
    ) -> list[Allocation]:
        node = begun.node
        return [
            allocation_of(
                claim,
                [
                    alternatives[chosen.get((index, request), 0)]
                    for request, alternatives in enumerate(begun.requests.claims[index])
                ],
                [
                    (taken, node.candidates[taken.position])
                    for taken in begun.trial.taken
                    if taken.slot.claim == index
                ],
                node.name,
                self.rules,
                share_id,
            )
            for index, claim in enumerate(self.claims)
        ]
