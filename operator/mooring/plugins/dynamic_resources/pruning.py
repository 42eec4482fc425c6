"""Which branches of a search cannot have a solution, where to leave them out changes nothing.

All of it is about one node and what the trial has taken so far. Devices are of one kind if nothing
that the search looks at tells them apart: a branch that fails with one fails with the other.
"""

from collections.abc import Hashable, Mapping, Sequence

from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.quantity import Quantity
from mooring.plugins.dynamic_resources.allocation_error import AllocationError
from mooring.plugins.dynamic_resources.capacity import CapacityError, consumed_capacity
from mooring.plugins.dynamic_resources.matching import enough_devices
from mooring.plugins.dynamic_resources.requests import NodeDevices, Slot
from mooring.plugins.dynamic_resources.trial import Trial

__all__ = ["Pruning", "may_prune"]

_PLENTY = 2**31
"""How often a device can be taken that is not taken for one request alone."""


def may_prune(node: NodeDevices, rules: KubernetesRules) -> bool:
    """Return whether branches may be left out: the result must not depend on what was tried.

    It does before Kubernetes 1.37 if pools of one name have counters: the one that is looked at
    first says how many there are.
    """
    names = [pool.name for pool in node.pools if pool.counter_sets]
    return rules.counters_by_driver or len(names) == len(set(names))


class Pruning:
    """What is known of the devices of a node, for the requests of all claims."""

    def __init__(
        self,
        claims: Sequence[Sequence[Sequence[Slot]]],
        node: NodeDevices,
        trial: Trial,
        rules: KubernetesRules,
    ) -> None:
        self._claims = claims
        self._slots = [slot for claim in claims for request in claim for slot in request]
        self._node = node
        self._trial = trial
        self._rules = rules
        may_fail = any(s.every is not None and trial.constrained(s.claim) for s in self._slots)
        self._fails = may_fail
        """The search may end in an error: a selector or a capacity fails for a device, or a
        constraint does not admit one of a request for all devices."""
        numbers: dict[Hashable, int] = {}
        kinds = [
            numbers.setdefault(self._kind(position), len(numbers)) for position in range(trial.size)
        ]
        self.kinds = range(trial.size) if may_fail or trial.order_matters else kinds
        """The kind of each device, by its position."""

    def too_few(self, slot: Slot, count: int, start: int) -> bool:
        """Return whether fewer than `count` devices from `start` on could be taken."""
        trial = self._trial
        try:
            for position in range(start, trial.size):
                if trial.could_take(slot, position):
                    count -= 1
                    if count <= 0:
                        return False
        except AllocationError:
            return False  # the search ends in this error, if it gets there
        return True

    def state(self, claim: int) -> Hashable:
        """Return a key that is equal where all that follows in the claim and later ones is."""
        kinds, trial = self.kinds, self._trial
        return (
            trial.number_of_results(claim),
            trial.constraint_states(claim),
            tuple(sorted((kinds[p], use) for p, use in trial.uses(claim))),
        )

    def too_many_requests(self, rest: Sequence[Sequence[Slot]]) -> bool:
        """Return whether requests (and their alternatives) need more devices than they can have."""
        if self._fails:
            return False
        counted = [slots for slots in rest if not any(s.wanted.admin_access for s in slots)]
        devices: dict[int, int] = {}
        for position, candidate in enumerate(self._node.candidates):
            mask = 0
            for bit, slots in enumerate(counted):
                if any(self._trial.could_take(slot, position) for slot in slots):
                    mask |= 1 << bit
            if mask:
                many = candidate.device.allow_multiple_allocations
                devices[mask] = devices.get(mask, 0) + (_PLENTY if many else 1)
        counts = [min(slot.count for slot in slots) for slots in counted]
        return not enough_devices(counts, devices)

    def _kind(self, position: int) -> Hashable:
        candidate = self._node.candidates[position]
        device = candidate.device
        return (
            tuple(self._answer(slot, position) for slot in self._slots),
            self._trial.constrained_values(position),
            self._trial.former_use(position),
            device.allow_multiple_allocations,
            tuple((name, each.value.nano) for name, each in sorted(device.capacity.items()))
            if device.allow_multiple_allocations
            else (),
            bool(device.consumes) and (candidate.pool.driver, candidate.pool.name),
            tuple((each.counter_set, _amounts(each.counters)) for each in device.consumes),
        )

    def _answer(self, slot: Slot, position: int) -> Hashable:
        """Return all that the request makes of the device alone."""
        device = self._node.candidates[position].device
        in_all = slot.every is not None and position in slot.every
        try:
            if not self._trial.suits(slot, position):
                return in_all
            if not device.allow_multiple_allocations:
                return in_all, True
            consumed = consumed_capacity(slot.wanted.capacity, device, self._rules)
            return in_all, _amounts(consumed)
        except (AllocationError, CapacityError):
            self._fails = True
            return ("fails", position)


def _amounts(quantities: Mapping[str, Quantity]) -> Hashable:
    return tuple((name, amount.nano) for name, amount in sorted(quantities.items()))
