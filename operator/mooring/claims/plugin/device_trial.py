"""The devices that a search has taken so far, and the devices that it may still take."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mooring.claims.model.resource_claims import DeviceId, ResourceClaim
from mooring.claims.model.resource_slices import Device, Version
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.capacity import (
    CapacityError,
    capacity_left,
    consumed_capacity,
)
from mooring.claims.plugin.constraints import (
    ConstraintState,
    DistinctAttribute,
    LastDistinctAttribute,
    MatchAttribute,
    Value,
)
from mooring.claims.plugin.counters import Counters
from mooring.claims.plugin.pools import Pool
from mooring.claims.plugin.requests import CandidateDevice, NodeDevices, Requests, Slot
from mooring.claims.state.allocated_devices import AllocatedDevices
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.quantity import Quantity

IN_USE: Final = "in use"
LITTLE_CAPACITY: Final = "too little capacity"
FEW_COUNTERS: Final = "too few shared counters"
"""The reason if the devices in use leave too few of the pool's shared counters."""
_CONSTRAINT: Final = "constraint"
_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """A device that the search took for a request, with the data to give the device back.

    `shared`: only a share of the device was taken. `first_share`: this search had no share of the
    device before. `counters`: taking the device consumed counters.
    """

    slot: Slot
    position: int
    consumed: Mapping[str, Quantity]
    """The consumed capacity; {} if the device is not shared."""
    shared: bool
    counters: bool
    first_share: bool


class DeviceTrial:
    """The devices of one node that a search has taken for all claims."""

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        node: NodeDevices,
        requests: Requests,
        in_use: AllocatedDevices,
        rules: KubernetesRules,
    ) -> None:
        self._claims = claims
        self._candidates: Sequence[CandidateDevice] = node.candidates
        self._requests = requests
        self._dedicated, self._shared = in_use.dedicated, in_use.shares
        self._consumed = in_use.consumed
        self._rules = rules
        self.size = len(node.candidates)
        """The number of devices; their positions are 0 to `size` - 1."""
        self.taken: list[Taken] = []
        """The devices in the order in which they were taken."""
        self._results = [0] * len(claims)
        self._holders: dict[int, list[int]] = {}
        self._shares: dict[int, dict[str, int]] = {}
        self._counters = Counters(self._allocated, by_driver=rules.counters_by_driver)
        self._constraints = [self._constraints_of(claim) for claim in claims]
        self._constraints_on = {
            slot: [c for c in self._constraints[slot.claim] if c.applies(slot.name, slot.full_name)]
            for slot in requests.slots
        }

    def number_of_results(self, claim: int) -> int:
        """Return the number of devices that the claim has so far."""
        return self._results[claim]

    def may_take(self, slot: Slot, position: int) -> bool:
        """Return whether the device is free, selected by the request, and large enough.

        Raises AllocationError if a selector fails, or if the capacity cannot be computed.
        """
        return (
            self._free(slot, position)
            and self._requests.selectable(slot, position)
            and self._capacity_left(slot, position)
        )

    def take(self, slot: Slot, position: int, *, must: bool = False) -> bool:
        """Take a device that the request selects; return False if that is impossible now.

        Raises AllocationError if the capacity cannot be computed, or if `must` is True and a
        constraint does not admit the device.
        """
        candidate = self._candidates[position]
        device = candidate.device
        if not self._free(slot, position):
            return False
        counters = self._needs_counters(candidate, position)
        if counters and not self._counters.fit(candidate.pool, device):
            return False
        if not slot.tolerates(device):
            return False
        added = self._constrain(slot, position)
        if not added and must:
            raise AllocationError(
                f"claim {self._claims[slot.claim].key}, request {slot.wanted.name}: cannot add "
                f"device {candidate.text} because a claim constraint would not be satisfied"
            )
        if added and not self._capacity_left(slot, position):
            self._unconstrain(slot, len(self._constraints_on[slot]))
            added = False
        if not added:
            return False
        if counters:
            self._counters.take(candidate.pool, device)
        self._results[slot.claim] += 1
        self.taken.append(self._hold(slot, position, counters=counters))
        return True

    def give_back(self) -> None:
        """Give back the device that was taken last."""
        taken = self.taken.pop()
        slot, position = taken.slot, taken.position
        self._results[slot.claim] -= 1
        if taken.first_share:
            del self._shares[position]
        elif taken.shared:
            for name, amount in taken.consumed.items():
                self._shares[position][name] -= amount.nano
        else:
            self._holders[position].remove(slot.claim)
            if not self._holders[position]:
                del self._holders[position]
        self._unconstrain(slot, len(self._constraints_on[slot]))
        if taken.counters:
            candidate = self._candidates[position]
            self._counters.release(candidate.pool, candidate.device)

    def could_take(self, slot: Slot, position: int) -> bool:
        """Return whether the request may take the device, now or after taking further devices."""
        return self.may_take(slot, position) and not self._obstacle(slot, position)

    def why_not(self, slot: Slot, position: int) -> str:
        """Return the first reason why the device cannot be taken now; "" without a reason.

        Raises AllocationError if a selector fails, or if the capacity cannot be computed.
        """
        candidate = self._candidates[position]
        taint = slot.first_untolerated(candidate.device)
        return (
            self._requests.why_not_selected(slot, candidate)
            or (f"taint {taint.text}" if taint is not None else "")
            or ("" if self._free(slot, position) else IN_USE)
            or ("" if self._capacity_left(slot, position) else LITTLE_CAPACITY)
            or self._constraint_or(self._obstacle(slot, position), slot, position)
        )

    def _constraint_or(self, obstacle: str, slot: Slot, position: int) -> str:
        """Return `obstacle`; for a constraint whose attribute is missing, name the attribute."""
        if obstacle != _CONSTRAINT:
            return obstacle
        specs = self._claims[slot.claim].spec.constraints
        for each, spec in zip(self._constraints[slot.claim], specs, strict=True):
            if each in self._constraints_on[slot] and each.values[position] is None:
                return f"no attribute {spec.match_attribute or spec.distinct_attribute}"
        return obstacle

    def _obstacle(self, slot: Slot, position: int) -> str:
        candidate = self._candidates[position]
        if self._needs_counters(candidate, position) and not self._counters.fit(
            candidate.pool, candidate.device
        ):
            return FEW_COUNTERS
        if not slot.tolerates(candidate.device):
            return "taint"
        for each in self._constraints_on[slot]:
            if not each.may_ever_admit(each.values[position]):
                return _CONSTRAINT
        return ""

    def most_together(self, positions: Iterable[int]) -> int:
        """Return an upper bound for the number of these devices that the counters allow together.

        The caller must know that each of the devices can be taken alone.
        """
        others, consuming = 0, dict[int, tuple[Pool, list[Device]]]()
        for position in positions:
            candidate = self._candidates[position]
            if self._needs_counters(candidate, position):
                pool = candidate.pool
                consuming.setdefault(id(pool), (pool, []))[1].append(candidate.device)
            else:
                others += 1
        return others + sum(self._counters.most(pool, some) for pool, some in consuming.values())

    def distinct_values(self, slot: Slot) -> list[Sequence[Value]]:
        """Return all devices' values for each `DistinctAttribute` constraint on the request."""
        return [c.values for c in self._constraints_on[slot] if isinstance(c, DistinctAttribute)]

    def suits(self, slot: Slot, position: int) -> bool:
        """Return whether the device could be taken if this pod had no other devices.

        Constraints and counters are ignored. Raises AllocationError if a selector fails, or if the
        capacity cannot be computed.
        """
        candidate = self._candidates[position]
        return (
            (slot.wanted.admin_access or self._was_free(candidate))
            and self._requests.selectable(slot, position)
            and self._capacity_left(slot, position, _NOTHING)
            and slot.tolerates(candidate.device)
        )

    def former_use(self, position: int) -> Hashable:
        """Return a key for the way in which other pods use the device."""
        device = self._candidates[position].id
        consumed = self._consumed.get(device)
        return (
            device in self._dedicated,
            device in self._shared,
            None if consumed is None else tuple(sorted(consumed.items())),
        )

    def uses(self, claim: int) -> list[tuple[int, tuple[Hashable, ...]]]:
        """Return pairs: a taken device's position, and a key of its use that depends on `claim`."""
        held: list[tuple[int, tuple[Hashable, ...]]] = [
            (position, (len(claims), claim in claims)) for position, claims in self._holders.items()
        ]
        return held + [
            (position, tuple(sorted(amounts.items()))) for position, amounts in self._shares.items()
        ]

    @property
    def order_matters(self) -> bool:
        """Whether a constraint depends on the order in which devices are taken."""
        return any(isinstance(c, LastDistinctAttribute) for some in self._constraints for c in some)

    def constrained(self, claim: int) -> bool:
        """Return whether the claim has constraints."""
        return bool(self._constraints[claim])

    def constraint_states(self, claim: int) -> Hashable:
        """Return a key for the present states of the claim's constraints."""
        return tuple(each.state() for each in self._constraints[claim])

    def constrained_values(self, position: int) -> Hashable:
        """Return the device's value for each constraint of each claim."""
        return tuple(each.values[position] for claim in self._constraints for each in claim)

    def untouched(self, position: int) -> bool:
        """Return whether the search has taken neither the device nor a share of it."""
        return position not in self._holders and position not in self._shares

    def _hold(self, slot: Slot, position: int, *, counters: bool) -> Taken:
        device = self._candidates[position].device
        if not device.allow_multiple_allocations:
            self._holders.setdefault(position, []).append(slot.claim)
            return Taken(slot, position, {}, shared=False, counters=counters, first_share=False)
        consumed = consumed_capacity(slot.wanted.capacity, device, self._rules)
        first = position not in self._shares
        shares = self._shares.setdefault(position, {})
        for name, amount in consumed.items():
            shares[name] = shares.get(name, 0) + amount.nano
        return Taken(slot, position, consumed, shared=True, counters=counters, first_share=first)

    def _constrain(self, slot: Slot, position: int) -> bool:
        for added, each in enumerate(self._constraints_on[slot]):
            value = each.values[position]
            if not each.admits(value):
                self._unconstrain(slot, added)
                return False
            each.add(slot.name, value)
        return True

    def _unconstrain(self, slot: Slot, added: int) -> None:
        for each in reversed(self._constraints_on[slot][:added]):
            each.remove(slot.name)

    def _free(self, slot: Slot, position: int) -> bool:
        holders = self._holders.get(position, ())
        if slot.wanted.admin_access:
            return slot.claim not in holders
        return not holders and self._was_free(self._candidates[position])

    def _was_free(self, candidate: CandidateDevice) -> bool:
        """Return whether the claims of other pods leave the device, or a share of it, free."""
        if self._rules.shares_exclude_whole and not candidate.device.allow_multiple_allocations:
            return not self._allocated(candidate.id)
        return candidate.id not in self._dedicated

    def _capacity_left(
        self, slot: Slot, position: int, allocating: Mapping[str, int] | None = None
    ) -> bool:
        candidate, wanted = self._candidates[position], slot.wanted.capacity
        if not candidate.device.capacity:
            return not wanted
        try:
            return capacity_left(
                wanted,
                candidate.device,
                self._consumed.get(candidate.id, _NOTHING),
                self._shares.get(position, _NOTHING) if allocating is None else allocating,
                self._rules,
            )
        except CapacityError as error:
            said = error.said_of(candidate.id.driver, self._rules)
            raise AllocationError(
                f"claim {self._claims[slot.claim].key}, request {slot.wanted.name}: checking "
                f"capacity for device {candidate.text}: {said}"
            ) from None

    def _needs_counters(self, candidate: CandidateDevice, position: int) -> bool:
        """Return whether the device consumes counters if taken; only its first share does."""
        device, id_ = candidate.device, candidate.id
        if not device.consumes or not device.allow_multiple_allocations:
            return bool(device.consumes)
        return (
            position not in self._shares
            and id_ not in self._consumed
            and not (self._rules.shares_without_capacity and id_ in self._shared)
        )

    def _allocated(self, device: DeviceId) -> bool:
        return device in self._dedicated or device in self._shared or device in self._consumed

    def _constraints_of(self, claim: ResourceClaim) -> list[ConstraintState]:
        constraints: list[ConstraintState] = []
        for each in claim.spec.constraints:
            requests = frozenset(each.requests)
            if each.match_attribute is not None:
                constraints.append(MatchAttribute(requests, self._values(each.match_attribute)))
                continue
            values = self._values(each.distinct_attribute or "")
            if self._rules.distinct_attribute_exact:
                constraints.append(DistinctAttribute(requests, values))
            else:
                constraints.append(LastDistinctAttribute(requests, values))
        return constraints

    def _values(self, attribute: str) -> list[Value]:
        by_text = not self._rules.versions_by_precedence
        devices = ((each.id.driver, each.device) for each in self._candidates)
        return [_value(attribute, driver, device, by_text=by_text) for driver, device in devices]


def _value(attribute: str, driver: str, device: Device, *, by_text: bool) -> Value:
    if attribute not in device.attributes:
        domain, _, name = attribute.partition("/")
        # A name without a domain is in the driver's domain.
        if domain != driver or name not in device.attributes:
            return None
        attribute = name
    value = device.attributes[attribute]
    if type(value) is Version and not by_text:
        # Versions that differ only in build metadata are equal.
        value = Version(value.text.partition("+")[0])
    return None if value is None else (type(value), value)
