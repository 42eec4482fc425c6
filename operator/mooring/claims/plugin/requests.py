"""The requests of a pod's claims, checked before the search (validateDeviceRequest)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mooring.claims.model.device_classes import DeviceClass
from mooring.claims.model.resource_claims import MOST_RESULTS, DeviceId, ExactRequest, ResourceClaim
from mooring.claims.model.resource_slices import Device, ResourceSlice
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.capacity import CapacityError, capacity_left
from mooring.claims.plugin.cel_selectors import Selectors
from mooring.claims.plugin.pools import Pool, node_matches
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.taints import Taint

ELSEWHERE: Final = "on other nodes"
"""The reason if a device's own node selector does not select the node."""
_BLOCKING: Final = ("NoSchedule", "NoExecute")


class CandidateDevice(NamedTuple):
    """A device in a slice that the node can use; the device itself may be for other nodes."""

    id: DeviceId
    device: Device
    slice: ResourceSlice
    pool: Pool

    @property
    def text(self) -> str:
        """The device as `driver/pool/device`."""
        return "/".join(self.id)


class NodeDevices:
    """The pools of a node, and the devices of its usable pools in the order of the search."""

    def __init__(self, name: str, labels: Mapping[str, str], pools: Sequence[Pool]) -> None:
        self.name = name
        self.labels = labels
        self.pools = pools
        self.candidates: list[CandidateDevice] = []
        self.starts: list[int] = []
        """The position of each pool's first device; the last entry is the number of devices."""
        for pool in pools:
            self.starts.append(len(self.candidates))
            if pool.usable:
                driver, name = pool.driver, pool.name
                self.candidates += [
                    CandidateDevice(DeviceId(driver, name, device.name), device, each, pool)
                    for each in pool.slices
                    for device in each.devices
                ]
        self.starts.append(len(self.candidates))


@dataclass(slots=True, eq=False)
class Slot:
    """A request or sub-request, on one node.

    Attributes:
        claim: The claim's index.
        request: The request's index in the claim.
        wanted: The parsed request or sub-request.
        parent: The name of the request if this is a sub-request; else "".
        every: The positions of all matching devices if the request is for all; else None.
        selectable: The results of `Requests.selectable` so far, by position.
    """

    claim: int
    request: int
    wanted: ExactRequest
    parent: str
    device_class: DeviceClass
    count: int = 0
    every: tuple[int, ...] | None = None
    selectable: dict[int, bool] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the request; for a sub-request, the name of its parent."""
        return self.parent or self.wanted.name

    @property
    def full_name(self) -> str:
        """The name as `request` or `request/sub-request`."""
        return f"{self.parent}/{self.wanted.name}" if self.parent else self.wanted.name

    def tolerates(self, device: Device) -> bool:
        """Return whether the request tolerates the device's taints NoSchedule and NoExecute."""
        return self.first_untolerated(device) is None

    def first_untolerated(self, device: Device) -> Taint | None:
        """Return the first untolerated taint NoSchedule or NoExecute; None if there is none."""
        for taint in device.taints:
            if taint.effect in _BLOCKING and not any(
                each.toleration.tolerates(taint) for each in self.wanted.tolerations
            ):
                return taint
        return None


class Requests:
    """The requests of all claims on one node: `claims[i][j]` is a sequence of alternatives."""

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        node: NodeDevices,
        classes: Callable[[str], DeviceClass | None],
        selectors: Selectors,
        rules: KubernetesRules,
        consumed: Mapping[DeviceId, Mapping[str, int]],
    ) -> None:
        """Check all requests; `consumed` has the consumed capacities of shared devices."""
        self._claims = claims
        self._node = node
        self._classes = classes
        self._selectors = selectors
        self._rules = rules
        self._consumed = consumed
        self.claims: list[list[list[Slot]]] = []
        for index, claim in enumerate(claims):
            self.claims.append([])
            least = 0
            for request in range(len(claim.spec.requests)):
                alternatives = self._alternatives(index, request)
                self.claims[-1].append(alternatives)
                fewest = min(slot.count for slot in alternatives)
                if rules.limit_names_request and least + fewest > MOST_RESULTS:
                    raise AllocationError(
                        f"claim {claim.key}, request {claim.spec.requests[request].name}: adding "
                        f"{fewest} devices exceeds the claim limit of {MOST_RESULTS}, with "
                        f"{least} already accounted for"
                    )
                least += fewest
            if least > MOST_RESULTS:
                raise AllocationError(
                    f"claim {claim.key}: number of requested devices {least} exceeds the claim "
                    f"limit of {MOST_RESULTS}"
                )
            self._check_constraints(claim)

    @property
    def slots(self) -> list[Slot]:
        """All requests and sub-requests of all claims, in their order."""
        return [slot for claim in self.claims for request in claim for slot in request]

    def selectable(self, slot: Slot, position: int) -> bool:
        """Return whether the selectors select the device and the node can use it.

        Raises AllocationError if a selector fails.
        """
        known = slot.selectable.get(position)
        if known is None:
            why_not = self.why_not_selected(slot, self._node.candidates[position])
            known = slot.selectable[position] = not why_not
        return known

    def _check_constraints(self, claim: ResourceClaim) -> None:
        for index, each in enumerate(claim.spec.constraints):
            if each.match_attribute is None and each.distinct_attribute is None:
                raise AllocationError(
                    f"claim {claim.key}, constraint #{index}: empty constraint (unsupported "
                    "constraint type?)"
                )

    def _alternatives(self, claim: int, request: int) -> list[Slot]:
        asked = self._claims[claim].spec.requests[request]
        if asked.first_available:
            return [self._slot(claim, request, sub, asked.name) for sub in asked.first_available]
        if asked.exactly is None:
            raise AllocationError(
                f"claim {self._claims[claim].key}, request {asked.name}: missing device class name "
                "(unsupported request type?)"
            )
        return [self._slot(claim, request, asked.exactly, "")]

    def _slot(self, claim: int, request: int, wanted: ExactRequest, parent: str) -> Slot:
        where = f"claim {self._claims[claim].key}, request {wanted.name}"
        for index, expression in enumerate(wanted.selectors):
            if expression is None:
                raise AllocationError(
                    f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)"
                )
        if not wanted.device_class:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        device_class = self._classes(wanted.device_class)
        if device_class is None:
            raise AllocationError(
                f"{where}: could not retrieve device class {wanted.device_class}: "
                f'deviceclass.resource.k8s.io "{wanted.device_class}" not found'
            )
        slot = Slot(claim, request, wanted, parent, device_class)
        if wanted.mode == "All":
            slot.every = tuple(self._all_devices(slot, where))
            slot.count = len(slot.every)
        elif wanted.mode == "ExactCount":
            slot.count = wanted.count
        else:
            raise AllocationError(f"{where}: unsupported count mode {wanted.mode}")
        return slot

    def _all_devices(self, slot: Slot, where: str) -> list[int]:
        positions = []
        for pool, start, end in zip(
            self._node.pools, self._node.starts, self._node.starts[1:], strict=False
        ):
            if not pool.usable:
                state = "being updated" if pool.incomplete else "invalid"
                raise AllocationError(
                    f"{where}: asks for all devices, but resource pool {pool.driver}/{pool.name} "
                    f"is currently {state}",
                    on_node=self._rules.unusable_pool_on_node,
                )
            positions += [
                position
                for position in range(start, end)
                if self.selectable(slot, position) and self._large_enough(slot, position, where)
            ]
        return positions

    def _large_enough(self, slot: Slot, position: int, where: str) -> bool:
        candidate = self._node.candidates[position]
        in_use = {} if self._rules.all_devices_by_size else self._consumed.get(candidate.id, {})
        try:
            return capacity_left(slot.wanted.capacity, candidate.device, in_use, {}, self._rules)
        except CapacityError as error:
            said = error.said_of(candidate.id.driver, self._rules)
            raise AllocationError(
                f"{where}: checking capacity for device {candidate.id.device}: {said}"
            ) from None

    def why_not_selected(self, slot: Slot, candidate: CandidateDevice) -> str:
        """Return which selector rejects the device; "" if the device is selected.

        Returns ELSEWHERE if the device cannot be used on this node. Raises AllocationError if a
        selector fails.
        """
        of_class, claim = slot.device_class, self._claims[slot.claim]
        device, device_id, first = candidate.device, candidate.id, self._selectors.first_against
        against = first(of_class.selectors, device, device_id, f"class {of_class.name}")
        if against is not None:
            return f"selector #{against} of class {of_class.name}"
        against = first(slot.wanted.selectors, device, device_id, f"claim {claim.key}")
        if against is not None:
            return f"selector #{against} of request {slot.full_name}"
        elsewhere = candidate.slice.per_device_node_selection and not node_matches(
            device, self._node.name, self._node.labels
        )
        return ELSEWHERE if elsewhere else ""
