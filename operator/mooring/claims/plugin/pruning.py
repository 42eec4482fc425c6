"""Finds branches of a search on one node that cannot succeed, so that the search skips them.

Two devices are of one kind if the search cannot distinguish them: if a branch fails with one
device, it fails with the other.
"""

from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.capacity import CapacityError, consumed_capacity
from mooring.claims.plugin.device_trial import DeviceTrial
from mooring.claims.plugin.requests import NodeDevices, Slot
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.quantity import Quantity

_PLENTY = 2**31
"""Stands for "no limit" as the number of requests that can share a device."""


def may_prune(node: NodeDevices, rules: KubernetesRules) -> bool:
    """Return whether the search may skip branches without a change of its result."""
    # Before Kubernetes 1.37, counters come from the first pool of their name that the search reads.
    names = [pool.name for pool in node.pools if pool.counter_sets]
    return rules.counters_by_driver or len(names) == len(set(names))


@dataclass(eq=False, repr=False)
class Pruning:
    """Tells a search on one node which branches cannot succeed."""

    claims: Sequence[Sequence[Sequence[Slot]]]
    node: NodeDevices
    trial: DeviceTrial
    rules: KubernetesRules

    def __post_init__(self) -> None:
        self._slots = [slot for claim in self.claims for request in claim for slot in request]
        may_fail = any(s.every is not None and self.trial.constrained(s.claim) for s in self._slots)
        self._fails = may_fail
        """Whether a selector, a capacity or a constraint may end the search with an error."""
        numbers: dict[Hashable, int] = {}
        kinds = [
            numbers.setdefault(self._kind(position), len(numbers))
            for position in range(self.trial.size)
        ]
        self.kinds = range(self.trial.size) if may_fail or self.trial.order_matters else kinds
        """For each position of a device in `NodeDevices`, the number of the device's kind.

        If constraints may fail or depend on the order of devices, each device has its own kind.
        """

    def too_few(self, slot: Slot, count: int, start: int) -> bool:
        """Return True if the request surely cannot get `count` devices from position `start` on.

        False means that it may get them.
        """
        trial = self.trial
        try:
            found = [p for p in range(start, trial.size) if trial.could_take(slot, p)]
        except AllocationError:
            return False  # the search ends in this error, if it gets there
        return (
            len(found) < count
            or any(len({v[p] for p in found}) < count for v in trial.distinct_values(slot))
            or trial.most_together(found) < count
        )

    def state(self, claim: int) -> Hashable:
        """Return a key of the search's state; states with equal keys lead to equal results."""
        kinds, trial = self.kinds, self.trial
        return (
            trial.number_of_results(claim),
            trial.constraint_states(claim),
            tuple(sorted((kinds[p], use) for p, use in trial.uses(claim))),
        )

    def too_many_requests(self, rest: Sequence[Sequence[Slot]]) -> bool:
        """Return whether the remaining requests need more devices, values or counters than exist.

        Returns False if the search may still end with an error.
        """
        if self._fails:
            return False
        counted = [slots for slots in rest if not any(s.wanted.admin_access for s in slots)]
        counts = [min(slot.count for slot in slots) for slots in counted]
        masks = [self._mask(counted, position) for position in range(self.trial.size)]
        devices: dict[int, int] = {}
        for candidate, mask in zip(self.node.candidates, masks, strict=True):
            many = candidate.device.allow_multiple_allocations
            devices[mask] = devices.get(mask, 0) + (_PLENTY if many else 1)
        return (
            not enough_devices(counts, devices)
            or self._too_few_values(counted, counts, masks)
            or self._too_few_counters(counts, masks)
        )

    def _mask(self, requests: Sequence[Sequence[Slot]], position: int) -> int:
        could = self.trial.could_take
        return sum(
            1 << bit
            for bit, slots in enumerate(requests)
            if any(could(slot, position) for slot in slots)
        )

    def _too_few_values(
        self, requests: Sequence[Sequence[Slot]], counts: Sequence[int], masks: Sequence[int]
    ) -> bool:
        """Return whether the requests need more different values of an attribute than exist."""
        bound: dict[int, tuple[Sequence[Hashable], int]] = {}
        for bit, slots in enumerate(requests):
            for values in self.trial.distinct_values(slots[0]):
                if all(values in self.trial.distinct_values(slot) for slot in slots[1:]):
                    bound[id(values)] = values, bound.get(id(values), (values, 0))[1] | 1 << bit
        for values, bits in bound.values():
            of_value: dict[Hashable, int] = {}
            for position, mask in enumerate(masks):
                of_value[values[position]] = of_value.get(values[position], 0) | mask & bits
            needed = [count if bits >> bit & 1 else 0 for bit, count in enumerate(counts)]
            if not enough_devices(needed, Counter(of_value.values())):
                return True
        return False

    def _too_few_counters(self, counts: Sequence[int], masks: Sequence[int]) -> bool:
        shared = any(each.device.allow_multiple_allocations for each in self.node.candidates)
        usable = [position for position, mask in enumerate(masks) if mask]
        return not shared and self.trial.most_together(usable) < sum(counts)

    def _kind(self, position: int) -> Hashable:
        candidate = self.node.candidates[position]
        device = candidate.device
        return (
            tuple(self._answer(slot, position) for slot in self._slots),
            self.trial.constrained_values(position),
            self.trial.former_use(position),
            device.allow_multiple_allocations,
            tuple((name, each.value.nano) for name, each in sorted(device.capacity.items()))
            if device.allow_multiple_allocations
            else (),
            bool(device.consumes) and (candidate.pool.driver, candidate.pool.name),
            tuple((each.counter_set, _amounts(each.counters)) for each in device.consumes),
        )

    def _answer(self, slot: Slot, position: int) -> Hashable:
        """Return a key; the request cannot distinguish devices with equal keys."""
        device = self.node.candidates[position].device
        in_all = slot.every is not None and position in slot.every
        try:
            if not self.trial.suits(slot, position):
                return in_all
            if not device.allow_multiple_allocations:
                return in_all, True
            consumed = consumed_capacity(slot.wanted.capacity, device, self.rules)
            return in_all, _amounts(consumed)
        except (AllocationError, CapacityError):
            self._fails = True
            return ("fails", position)


def _amounts(quantities: Mapping[str, Quantity]) -> Hashable:
    return tuple((name, amount.nano) for name, amount in sorted(quantities.items()))


def enough_devices(counts: Sequence[int], devices: Mapping[int, int]) -> bool:
    """Return whether all requests can get their devices, if each device serves only one request.

    `counts` has the number of devices for each request. `devices` has the number of devices by bit
    mask of the requests that they suit.
    """
    left = dict(devices)
    given = [dict.fromkeys(devices, 0) for _ in counts]
    return all(
        _give_one(request, left, given)
        for request, count in enumerate(counts)
        for _ in range(count)
    )


def _give_one(request: int, left: dict[int, int], given: list[dict[int, int]]) -> bool:
    """Give the request a device; if necessary, give other requests different devices."""
    # This is a shortest augmenting path of a bipartite matching in which equal devices are one
    # node. `left` has the free devices by mask, and `given` the devices of each request.
    came_by: dict[int, tuple[int, int]] = {}
    waiting = deque([request])
    looked_at = set[int]()
    while waiting:
        taker = waiting.popleft()
        for mask, number in left.items():
            if mask in looked_at or not mask >> taker & 1:
                continue
            looked_at.add(mask)
            if number:
                left[mask] = number - 1
                given[taker][mask] += 1
                while taker != request:
                    former, between = came_by[taker]
                    given[taker][between] -= 1
                    given[former][between] += 1
                    taker = former
                return True
            for other, has in enumerate(given):
                if has[mask] and other != request and other not in came_by:
                    came_by[other] = (taker, mask)
                    waiting.append(other)
    return False
