"""Which nodes look alike to every claim, whatever its expressions read.

A node's look is what slices say without a look at devices: how its own ones are alike (`Likeness`)
and in use, and which ones it shares with other nodes. Looks are numbers in a column. What claims
read is found out once per look, so that neither a claim that reads something new nor the use of a
shared device is a matter of every node.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Final

import numpy as np

from mooring.model.resource_slices import ResourceSlice
from mooring.plugins.dynamic_resources.pools import PoolKey, place_in_search
from mooring.state.columns import IntArray
from mooring.state.dynamic_resources.allocated_devices import AllocatedDevices

__all__ = ["UNLIKE", "Looks", "Shared"]

UNLIKE: Final = -1
"""The look of a row that has to be looked at device by device."""
_MOST_SHARED: Final = 64
"""Slices that a node may share with others if its look is to have a number."""
_BYTES_PER_LOOK: Final = 600
_BYTES_PER_PART: Final = 80

Shared = Mapping[PoolKey, Sequence[ResourceSlice]]
"""The slices of pools that a node can use and others may."""


class Looks:
    """The looks of all rows, and what is to be known of each look."""

    def __init__(self) -> None:
        self.numbers: IntArray = np.zeros(0, np.int64)
        """The number of each row's look, or `UNLIKE`."""
        self._known: dict[Hashable, int] = {}
        self._individual: set[int] = set()
        self._of_pool: dict[PoolKey, set[int]] = {}
        self.bytes = 0
        """About how many bytes all looks take."""

    @property
    def count(self) -> int:
        """How many looks there are."""
        return len(self._known)

    def resize(self, size: int) -> None:
        """Have so many rows."""
        if size != len(self.numbers):
            self.numbers = np.resize(self.numbers, size)

    def is_individual(self, look: int) -> bool:
        """Return whether slices of the look may differ in individual attributes, such as UUIDs."""
        return look in self._individual

    @property
    def pools(self) -> Collection[PoolKey]:
        """The pools that nodes of any look share."""
        return self._of_pool.keys()

    def with_pool(self, key: PoolKey) -> Collection[int]:
        """Return the looks of nodes that share the pool."""
        return self._of_pool.get(key, ())

    def of(
        self, own: Collection[ResourceSlice] | None, shared: Shared, allocated: AllocatedDevices
    ) -> int:
        """Return the number of a look; `own` are the slices of pools that no other node uses.

        None: such a pool depends on slices of other nodes.
        """
        key = _look(own, shared, allocated) if own is not None else None
        if own is None or key is None:
            return UNLIKE
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self._known)
            self.bytes += _BYTES_PER_LOOK + _BYTES_PER_PART * sum(len(each.devices) for each in own)
            if any(each.alike.individual for each in own):
                self._individual.add(known)
            for pool in shared:
                self._of_pool.setdefault(pool, set()).add(known)
        return known


def _look(
    own: Collection[ResourceSlice], shared: Shared, allocated: AllocatedDevices
) -> Hashable | None:
    """Return what is equal for nodes that look alike; None if slices do not tell."""
    slices: Collection[ResourceSlice] = own
    if len(own) == 1 and not shared:
        return _look_of_one(next(iter(own)), allocated)
    if shared:
        slices = [*own, *(each for some in shared.values() for each in some)]
        if len(slices) > _MOST_SHARED + len(own):
            return None
    if len(slices) > 1:
        slices = sorted(slices, key=place_in_search)
    parts, pools = list[Hashable](), list[str]()
    for each in slices:
        if each.per_device_node_selection:
            return None
        if each.pool not in pools:
            pools.append(each.pool)
        if shared and (each.driver, each.pool) in shared:
            parts += each.driver, each.pool, each.name, pools.index(each.pool)
            continue
        if each.node_selector is not None or each.all_nodes:
            return None
        parts += (
            each.alike,
            each.driver,
            pools.index(each.pool),
            each.generation if len(slices) > 1 else 0,
            each.slice_count,
            allocated.use_of_pool(each.driver, each.pool),
        )
    return tuple(parts)


def _look_of_one(each: ResourceSlice, allocated: AllocatedDevices) -> Hashable | None:
    """Return what `_look` does for nodes with a single slice, which most are."""
    if each.per_device_node_selection or each.node_selector is not None or each.all_nodes:
        return None
    use = allocated.use_of_pool(each.driver, each.pool)
    return each.alike, each.driver, 0, 0, each.slice_count, use
