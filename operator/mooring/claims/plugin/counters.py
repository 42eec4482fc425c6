"""Counts how much devices consume of their pool's shared counters (partitionable devices).

Amounts are integers, in billionths.
"""

from collections.abc import Callable, Hashable, Iterable
from itertools import accumulate

from mooring.claims.model.resource_claims import DeviceId
from mooring.claims.model.resource_slices import Device
from mooring.claims.plugin.pools import Pool

_Sets = dict[str, dict[str, int]]
"""Maps the name of a counter set, and then the name of a counter, to an amount in billionths."""


class Counters:
    """The unused counters of a node's pools while a search tries devices.

    Args:
        in_use: Returns whether a device is allocated, even in part.
        by_driver: Whether two drivers' pools of the same name have separate counters.
    """

    def __init__(self, in_use: Callable[[DeviceId], bool], *, by_driver: bool) -> None:
        self._in_use = in_use
        self._by_driver = by_driver
        self._left: dict[Hashable, _Sets] = {}
        self._consumed: dict[Hashable, _Sets] = {}

    def take(self, pool: Pool, device: Device) -> None:
        """Subtract the amounts that the device consumes; `fit` must have returned True."""
        self._add(pool, device, 1)

    def release(self, pool: Pool, device: Device) -> None:
        """Give back the amounts that the device consumes."""
        self._add(pool, device, -1)

    def fit(self, pool: Pool, device: Device) -> bool:
        """Return whether the pool's counters have enough left for the device.

        No device fits if more of a counter is in use than the pool has.
        """
        key = self._key(pool)
        left = self._left.get(key)
        if left is None:
            left = self._left[key] = self.unused(pool)
        consumed = self._consumed.setdefault(key, {})
        wanted: dict[tuple[str, str], int] = {}
        for taken in device.consumes:
            for name, amount in taken.counters.items():
                counter = (taken.counter_set, name)
                wanted[counter] = wanted.get(counter, 0) + amount.nano
        return all(
            amount >= consumed.get(counters, {}).get(name, 0) + wanted.get((counters, name), 0)
            for counters, amounts in left.items()
            for name, amount in amounts.items()
        )

    def most(self, pool: Pool, devices: Iterable[Device]) -> int:
        """Return an upper bound for the number of these devices that fit together.

        Each device must fit alone. The bound is computed from the first counter set of each device.
        """
        of_set: dict[str, list[Device]] = {}
        for device in devices:
            of_set.setdefault(device.consumes[0].counter_set, []).append(device)
        key = self._key(pool)
        left, consumed = self._left[key], self._consumed[key]
        total = 0
        for name, some in of_set.items():
            amounts, used = left.get(name, {}), consumed.get(name, {})
            most = len(some)
            for counter, amount in amounts.items():
                taken = sorted(_taken(device, counter) for device in some)
                sums = accumulate(taken)
                rest = amount - used.get(counter, 0)
                most = min(most, sum(1 for each in sums if each <= rest))
            total += most
        return total

    def _add(self, pool: Pool, device: Device, sign: int) -> None:
        consumed = self._consumed[self._key(pool)]
        for taken in device.consumes:
            counters = consumed.setdefault(taken.counter_set, {})
            for name, amount in taken.counters.items():
                counters[name] = counters.get(name, 0) + sign * amount.nano

    def _key(self, pool: Pool) -> Hashable:
        return (pool.driver, pool.name) if self._by_driver else pool.name

    def unused(self, pool: Pool) -> dict[str, dict[str, int]]:
        """Return the unused amount of each counter; negative if devices use more than exists."""
        left = {
            name: {counter: amount.nano for counter, amount in each.counters.items()}
            for name, each in pool.counter_sets.items()
        }
        for each in (*pool.slices, *pool.others):
            for device in each.devices:
                if not self._in_use(DeviceId(each.driver, each.pool, device.name)):
                    continue
                for taken in device.consumes:
                    counters = left.get(taken.counter_set, {})
                    for name, amount in taken.counters.items():
                        if name in counters:
                            counters[name] -= amount.nano
        return left


def _taken(device: Device, counter: str) -> int:
    amount = device.consumes[0].counters.get(counter)
    return amount.nano if amount is not None else 0
