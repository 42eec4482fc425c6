"""Which nodes are alike, so that one search answers for all of them.

A node's pattern is all that a search on it depends on: its pools in order, the projections of
their devices, and how these are in use. Claims get equal answers on nodes of equal patterns, but
for names. So they are searched for once per pattern. Patterns are numbers in a column, of which
only the rows are made anew whose slices, labels or devices in use have changed.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Final

import numpy as np

from mooring.framework.evaluations import Evaluations, StillEvaluating
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.node import Node
from mooring.model.resource_claims import DeviceId
from mooring.model.resource_slices import ResourceSlice
from mooring.plugins.dynamic_resources.counters import Counters
from mooring.plugins.dynamic_resources.pools import Inventory, Pool, node_matches, pools_of_node
from mooring.plugins.dynamic_resources.projection import Reads, fixed_part, read_part
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.dynamic_resources.allocated_devices import AllocatedDevices

__all__ = ["Fleet", "Patterns"]

_MOST_PATTERNS: Final = 8
"""Kinds of claims, by what they read, for which all patterns are kept."""
_MOST_BYTES: Final = 128 * 2**20
"""What is remembered before all begins anew, unless the nodes that there are need half of it."""
_BYTES_PER_ENTRY: Final = 200
_BYTES_PER_PART: Final = 60
"""What a tuple takes, and a place in one with its value."""
_UNITS_TO_LOOK: Final = 20
_UNITS_PER_ROW: Final = 100
_UNITS_PER_DEVICE: Final = 10
"""What rows that are made anew cost a decision, in the units of `Evaluations`."""

_NOT_KNOWN: Final = -1
_PoolKey = tuple[str, str]
_Basis = tuple[Sequence[ResourceSlice], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A node, its pools, and what they were made from."""

    node: Node
    basis: _Basis
    pools: list[Pool]


class _Numbers:
    """Numbers for equal values, and for what all claims see of a pool."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._known: dict[Hashable, int] = {}
        self._sized = 0
        self._slices: dict[int, tuple[ResourceSlice, tuple[int, ...]]] = {}
        self._pools: dict[_PoolKey, dict[int, tuple[Pool, int]]] = {}
        """By pool and its identity: a pool may look different from node to node."""
        self.bytes = 0
        """About how many bytes all values take."""
        self.devices = 0
        """How many devices were looked at."""

    def of(self, value: Hashable) -> int:
        """Return the number of the value: a new one if it has none."""
        known = self._known.setdefault(value, len(self._known))
        if known == len(self._known) - 1 and known >= self._sized:
            self._sized = known + 1
            self.bytes += _BYTES_PER_ENTRY + _bytes_of(value)
        return known

    def outdate(self, key: _PoolKey) -> None:
        """Forget what a pool looked like."""
        self._pools.pop(key, None)

    def of_pool(self, pool: Pool, allocated: AllocatedDevices) -> int:
        """Return the number of the pool as all claims see it."""
        of_key = self._pools.setdefault((pool.driver, pool.name), {})
        known = of_key.get(id(pool))
        if known is None:
            looks = (
                pool.incomplete,
                bool(pool.invalid),
                tuple([self._of_slice(each) for each in pool.slices]),
                _uses(pool, allocated),
                _unused(pool, allocated) if pool.counter_sets else None,
            )
            known = of_key[id(pool)] = pool, self.of(looks)
            self.devices += sum(len(each.devices) for each in pool.slices)
            self.bytes += _BYTES_PER_ENTRY
        return known[1]

    def _of_slice(self, each: ResourceSlice) -> tuple[int, ...]:
        known = self._slices.get(id(each))
        if known is None:
            numbers = tuple([self.of(fixed_part(each, device)) for device in each.devices])
            known = self._slices[id(each)] = each, numbers
            self.devices += len(each.devices)
            self.bytes += _BYTES_PER_ENTRY
        return known[1]


class Patterns:
    """The patterns of all rows, for claims that read the same attributes."""

    def __init__(self, reads: Reads, known: _Numbers) -> None:
        self._reads = reads
        self._known = known
        self.numbers: IntArray = np.zeros(0, np.int64)
        """The number of each row's pattern."""
        self._stale: set[int] = set()
        self._slices: dict[int, tuple[ResourceSlice, int]] = {}

    @property
    def generation(self) -> int:
        """Differs where equal numbers mean different patterns."""
        return self._known.generation

    @property
    def bytes(self) -> int:
        """About how many bytes are remembered, without what all patterns share."""
        return self.numbers.nbytes + _BYTES_PER_ENTRY * len(self._slices)

    def outdate(self, rows: Iterable[int]) -> None:
        """Have these rows made anew when they are read."""
        self._stale.update(rows)

    def update(
        self,
        rows: Sequence[_Row | None],
        allocated: AllocatedDevices,
        rules: KubernetesRules,
        evaluations: Evaluations,
    ) -> None:
        """Make the patterns of all rows that are out of date.

        Raises:
            StillEvaluating: the decision has done enough; the next call goes on.
        """
        if len(self.numbers) != len(rows):
            self._stale.update(range(len(self.numbers), len(rows)))
            self.numbers = np.resize(self.numbers, len(rows))
        while self._stale:
            row = self._stale.pop()
            if row < len(rows):
                before = self._known.devices
                self.numbers[row] = self._pattern(rows[row], allocated, rules)
                looked_at = self._known.devices - before
                _spend(evaluations, _UNITS_PER_ROW + _UNITS_PER_DEVICE * looked_at)

    def _pattern(
        self, row: _Row | None, allocated: AllocatedDevices, rules: KubernetesRules
    ) -> int:
        if row is None:
            return self._known.of(None)
        looks = tuple(
            [
                (self._known.of_pool(pool, allocated), *self._attributes(pool, row.node))
                for pool in row.pools
            ]
        )
        if rules.counters_by_driver:
            return self._known.of(looks)
        names = [pool.name for pool in row.pools]  # those of one name share counters
        return self._known.of((looks, tuple([names.index(name) for name in names])))

    def _attributes(self, pool: Pool, node: Node) -> Iterator[Hashable]:
        """Yield for each slice what is read of its devices, and which ones are for the node."""
        for each in pool.slices:
            if each.per_device_node_selection:
                yield tuple(node_matches(device, node.name, node.labels) for device in each.devices)
            known = self._slices.get(id(each))
            if known is None:
                read = tuple([read_part(device, self._reads) for device in each.devices])
                known = self._slices[id(each)] = each, self._known.of(read)
                self._known.devices += len(each.devices)
            yield known[1]


def _spend(evaluations: Evaluations, units: int) -> None:
    """Charge the decision.

    Raises:
        StillEvaluating: it has done enough.
    """
    evaluations.spend(units)
    if not evaluations.affords(1):
        raise StillEvaluating(
            "the devices of the nodes are still being read; this goes on, and the pod is tried "
            "again"
        )


def _are_same(before: _Basis, after: _Basis) -> bool:
    """Return whether two that are equal have the same objects."""
    return all(all(map(is_, *pair)) for pair in zip(before, after, strict=True))


def _bytes_of(value: Hashable) -> int:
    """Return about how many bytes a value of nested tuples takes."""
    if type(value) is not tuple:
        return _BYTES_PER_PART
    return _BYTES_PER_PART + sum(map(_bytes_of, value))


def _uses(pool: Pool, allocated: AllocatedDevices) -> Hashable:
    """Return how the pool's devices are in use; None if none is."""
    dedicated, shares, consumed = allocated.dedicated, allocated.shares, allocated.consumed
    uses: list[Hashable] = []
    for device in (device for each in pool.slices for device in each.devices):
        key = DeviceId(pool.driver, pool.name, device.name)
        if key in shares or key in consumed:
            amounts = consumed.get(key)
            taken = None if amounts is None else tuple(sorted(amounts.items()))
            uses.append((key in dedicated, key in shares, taken))
        else:
            uses.append(key in dedicated)
    return tuple(uses) if any(uses) else None


def _unused(pool: Pool, allocated: AllocatedDevices) -> Hashable:
    """Return what is left of the pool's counters."""

    def in_use(device: DeviceId) -> bool:
        return (
            device in allocated.dedicated
            or device in allocated.shares
            or device in allocated.consumed
        )

    left = Counters(in_use, by_driver=True).unused(pool)
    return tuple((name, tuple(sorted(amounts.items()))) for name, amounts in sorted(left.items()))


class Fleet:
    """The pools of all nodes and their patterns; brought up to date before each use."""

    def __init__(
        self, rules: KubernetesRules, evaluations: Evaluations, most_bytes: int = _MOST_BYTES
    ) -> None:
        self._rules = rules
        self._evaluations = evaluations
        self.most_bytes = most_bytes
        self._needed = 0
        """How many bytes were remembered when that was last only what the nodes needed."""
        self.inventory = Inventory((), rules)
        """All slices."""
        self._seen = (-1, -1, -1, 0)
        """Versions of slices and devices in use, of the set of nodes, the position of its log."""
        self._rows: list[_Row | None] = []
        self._unseen: dict[int, None] = {}
        """Rows of which node or slices may have changed."""
        self._rows_of: dict[_PoolKey, set[int]] = {}
        self._patterns: dict[Reads, Patterns] = {}
        self._numbers = _Numbers(0)

    def patterns(self, cluster: ClusterView, reads: Reads) -> Patterns:
        """Return the patterns of all rows for claims that read these attributes.

        Raises:
            StillEvaluating: the decision has done enough; the next call goes on.
        """
        self._see(cluster)
        self._take_nodes(cluster)
        if self.bytes > max(self.most_bytes, 2 * self._needed) and self._needed != _NOT_KNOWN:
            self._patterns.clear()
            self._numbers = _Numbers(self._numbers.generation + 1)
            self._needed = _NOT_KNOWN
        found = self._patterns.pop(reads, None) or Patterns(reads, self._numbers)
        while len(self._patterns) >= _MOST_PATTERNS:
            del self._patterns[next(iter(self._patterns))]
        self._patterns[reads] = found
        allocated = cluster.dynamic_resources.allocated
        found.update(self._rows, allocated, self._rules, self._evaluations)
        if self._needed == _NOT_KNOWN:
            self._needed = self.bytes
        return found

    @property
    def bytes(self) -> int:
        """About how many bytes are remembered besides pools."""
        return self._numbers.bytes + sum(each.bytes for each in self._patterns.values())

    def pools(self, row: int) -> Sequence[Pool]:
        """Return the pools of a row, as they were when patterns were last asked for."""
        known = self._rows[row]
        return known.pools if known is not None else ()

    def _see(self, cluster: ClusterView) -> None:
        """Take over what has changed in the cluster."""
        devices, log = cluster.dynamic_resources, cluster.node_changes
        versions = devices.slices_version, devices.allocated.version, len(cluster.nodes)
        slices, allocated, count, position = self._seen
        if self._seen == (*versions, log.position):
            return
        self._seen = (*versions, log.position)
        changed = log.since(position)
        rows = range(versions[2]) if changed is None else changed.tolist()
        if slices != versions[0]:
            self.inventory = Inventory(devices.slices, self._rules)
            rows = range(versions[2])
        elif count != versions[2]:
            rows = [*rows, *range(count, versions[2])]
        self._unseen.update(dict.fromkeys(rows))
        for row in range(versions[2], len(self._rows)):
            self._put(row, None)
        self._rows[versions[2] :] = [None] * (versions[2] - len(self._rows))
        self._take_uses(devices.allocated.changed_since(allocated))

    def _take_nodes(self, cluster: ClusterView) -> None:
        """Find the pools of rows of which node or slices have changed."""
        of_all = self.inventory.basis_of_all()
        while self._unseen:
            row, _ = self._unseen.popitem()
            if row >= len(self._rows):
                continue
            self._evaluations.spend(_UNITS_TO_LOOK)
            node, before = cluster.node(row), self._rows[row]
            if node is None:
                self._put(row, None)
                continue
            basis = (*of_all, *self.inventory.basis(node.name))
            if before is not None and (before.node.name, before.node.labels, before.basis) == (
                node.name,
                node.labels,
                basis,
            ):
                if not _are_same(before.basis, basis):  # each was compared, field by field
                    _spend(self._evaluations, _UNITS_PER_ROW)
                continue
            pools = pools_of_node(self.inventory, node.name, node.labels, self._rules)
            self._put(row, _Row(node, basis, pools))
            _spend(self._evaluations, _UNITS_PER_ROW)

    def _put(self, row: int, after: _Row | None) -> None:
        before = self._rows[row]
        self._rows[row] = after
        gone = [(p.driver, p.name) for p in before.pools] if before is not None else []
        for key in gone:
            self._rows_of[key].discard(row)
            self._numbers.outdate(key)
        for pool in after.pools if after is not None else ():
            self._rows_of.setdefault((pool.driver, pool.name), set()).add(row)
        for patterns in self._patterns.values():
            patterns.outdate((row,))

    def _take_uses(self, changed: Iterable[DeviceId] | None) -> None:
        pools = self._rows_of if changed is None else {(d.driver, d.pool): None for d in changed}
        for key in pools:
            self._numbers.outdate(key)
            for patterns in self._patterns.values():
                patterns.outdate(self._rows_of.get(key, ()))
