"""Which nodes are alike, so that one search answers for all of them.

A node's pattern is all that a search on it depends on: its pools in order, the projections of
their devices, and how these are in use. Claims get equal answers on nodes of equal patterns, but
for names. So they are searched for once per pattern. Patterns are numbers in a column, of which
only the rows are made anew whose slices, labels or devices in use have changed.

The devices of most nodes are alike but for UUIDs, and slices tell that without a look at devices
(`Likeness`). A node with such slices has the pattern of the first one.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mooring.framework.evaluations import Evaluations, StillEvaluating
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.node import Node
from mooring.model.resource_claims import DeviceId
from mooring.model.resource_slices import Likeness, ResourceSlice
from mooring.plugins.dynamic_resources.counters import Counters
from mooring.plugins.dynamic_resources.pools import (
    Inventory,
    Pool,
    PoolKey,
    node_matches,
    pools_of_node,
)
from mooring.plugins.dynamic_resources.projection import (
    Reads,
    compared,
    fixed_part,
    individual_reads,
    read_part,
)
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.dynamic_resources.allocated_devices import AllocatedDevices

__all__ = ["Fleet", "Patterns"]

_MOST_PATTERNS: Final = 8
"""Kinds of claims, by what they read, for which all patterns are kept."""
_MOST_BYTES: Final = 128 * 2**20
"""What is remembered before all begins anew, unless the nodes that there are need half of it."""
_BYTES_PER_ENTRY: Final = 200
_BYTES_IF_ALIKE: Final = 600
_BYTES_PER_PART: Final = 60
"""What entries of dicts take, and a place in a tuple with its value."""
_UNITS_TO_LOOK: Final = 20
_UNITS_IF_ALIKE: Final = 40
_UNITS_PER_ROW: Final = 300
_UNITS_PER_DEVICE: Final = 40
"""What rows that are made anew cost a decision, in the units of `Evaluations`."""

_NOT_KNOWN: Final = -1


@dataclass(slots=True, eq=False)
class _Row:
    """A node as it was looked at.

    `anywhere` are the pools that other nodes may use, too; `pools` all of them, once they are made.
    """

    node: Node
    anywhere: Collection[PoolKey]
    pools: list[Pool] | None = None


class _Numbers:
    """Numbers for equal values, and for what all claims see of a pool."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._known: dict[Hashable, int] = {}
        self._sized = 0
        self._slices: dict[int, tuple[ResourceSlice, tuple[int, ...]]] = {}
        self._pools: dict[PoolKey, dict[int, tuple[Pool, int]]] = {}
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

    def outdate(self, key: PoolKey) -> None:
        """Forget what a pool looked like."""
        self._pools.pop(key, None)

    def outdate_all(self) -> None:
        """Forget what all pools looked like."""
        self._pools.clear()

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
        self._alike: dict[Hashable, int] = {}
        """The numbers of nodes by what their slices say."""
        self._individual: dict[Likeness, tuple[tuple[str, frozenset[str]], ...] | None] = {}
        """What is read of the attributes in which slices differ, see `individual_reads`."""

    @property
    def generation(self) -> int:
        """Differs where equal numbers mean different patterns."""
        return self._known.generation

    @property
    def bytes(self) -> int:
        """About how many bytes are remembered, without what all patterns share."""
        entries = len(self._slices) + len(self._individual)
        return self.numbers.nbytes + _BYTES_PER_ENTRY * entries + _BYTES_IF_ALIKE * len(self._alike)

    def outdate(self, rows: Iterable[int]) -> None:
        """Have these rows made anew when they are read."""
        self._stale.update(rows)

    def update(self, fleet: "Fleet", allocated: AllocatedDevices, evaluations: Evaluations) -> None:
        """Make the patterns of all rows that are out of date.

        Raises:
            StillEvaluating: the decision has done enough; the next call goes on.
        """
        if len(self.numbers) != fleet.size:
            self._stale.update(range(len(self.numbers), fleet.size))
            self.numbers = np.resize(self.numbers, fleet.size)
        while self._stale:
            row = self._stale.pop()
            if row < fleet.size:
                self.numbers[row], units = self._number(fleet, row, allocated)
                _spend(evaluations, units)

    def _number(self, fleet: "Fleet", row: int, allocated: AllocatedDevices) -> tuple[int, int]:
        """Return the number of the row's pattern, and what finding it has cost."""
        node = fleet.node(row)
        if node is None:
            return self._known.of(None), _UNITS_IF_ALIKE
        likeness = self._likeness(fleet.inventory.own(node.name), allocated)
        number = self._alike.get(likeness) if likeness is not None else None
        if number is not None:
            return number, _UNITS_IF_ALIKE
        before = self._known.devices
        number = self._pattern(node, fleet.pools(row), allocated, fleet.rules)
        if likeness is not None:
            self._alike[likeness] = number
        return number, _UNITS_PER_ROW + _UNITS_PER_DEVICE * (self._known.devices - before)

    def _likeness(
        self, slices: Collection[ResourceSlice] | None, allocated: AllocatedDevices
    ) -> Hashable | None:
        """Return what is equal only for nodes of one pattern; None if that is not so simple.

        `slices` are those of all pools of the node, which no other node has a part in.
        """
        if slices is None:
            return None
        if len(slices) > 1:
            slices = sorted(slices, key=_place_in_search)
        parts, pools = list[Hashable](), list[str]()
        for each in slices:
            if each.per_device_node_selection or each.node_selector is not None or each.all_nodes:
                return None
            if each.pool not in pools:
                pools.append(each.pool)
            used = allocated.of_pool(each.driver, each.pool)
            if used and any(
                DeviceId(each.driver, each.pool, name) in allocated.shares for name in used
            ):
                return None
            parts += (
                self._told_apart_by(each),
                each.driver,
                pools.index(each.pool),
                each.generation if len(slices) > 1 else 0,
                each.slice_count,
                frozenset(used) if used else None,
            )
        return tuple(parts)

    def _told_apart_by(self, each: ResourceSlice) -> Hashable:
        """Return what is equal only for slices of which the claims read the same."""
        alike = each.alike
        if not alike.individual:
            return each.equal
        if alike not in self._individual:
            self._individual[alike] = individual_reads(self._reads, alike.individual)
        read = self._individual[alike]
        if not read:
            return each.equal if read is None else alike
        values = [
            compared(value, texts)
            for name, texts in read
            for device in each.devices
            if isinstance(value := device.attributes[name], str)
        ]
        return alike, *values

    def _pattern(
        self, node: Node, pools: Sequence[Pool], allocated: AllocatedDevices, rules: KubernetesRules
    ) -> int:
        looks = tuple(
            [
                (self._known.of_pool(pool, allocated), *self._attributes(pool, node))
                for pool in pools
            ]
        )
        if rules.counters_by_driver:
            return self._known.of(looks)
        names = [pool.name for pool in pools]  # those of one name share counters
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


def _place_in_search(each: ResourceSlice) -> tuple[bytes, bytes, bytes]:
    return each.driver.encode(), each.pool.encode(), each.name.encode()


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
    """The pools of all nodes and their patterns; brought up to date before each use.

    `allocated` are the devices that count as in use; None: those of the cluster.
    """

    def __init__(
        self,
        rules: KubernetesRules,
        evaluations: Evaluations,
        most_bytes: int = _MOST_BYTES,
        allocated: AllocatedDevices | None = None,
    ) -> None:
        self._allocated = allocated
        self.rules = rules
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
        """Rows of which the node may have changed."""
        self._outdated: set[int] = set()
        """Those of them whose slices have changed."""
        self._rows_of: dict[PoolKey, set[int]] = {}
        """The rows of nodes with a slice of the pool that others may use, too."""
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
        found.update(self, self._in_use(cluster), self._evaluations)
        if self._needed == _NOT_KNOWN:
            self._needed = self.bytes
        return found

    @property
    def bytes(self) -> int:
        """About how many bytes are remembered besides pools."""
        return self._numbers.bytes + sum(each.bytes for each in self._patterns.values())

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self._rows)

    def node(self, row: int) -> Node | None:
        """Return the node of a row, as it was when patterns were last asked for."""
        known = self._rows[row]
        return known.node if known is not None else None

    def pools(self, row: int) -> Sequence[Pool]:
        """Return the pools of a row, as they were when patterns were last asked for."""
        known = self._rows[row]
        if known is None:
            return ()
        if known.pools is None:
            node = known.node
            known.pools = pools_of_node(self.inventory, node.name, node.labels, self.rules)
        return known.pools

    def _in_use(self, cluster: ClusterView) -> AllocatedDevices:
        return cluster.dynamic_resources.allocated if self._allocated is None else self._allocated

    def _see(self, cluster: ClusterView) -> None:
        """Take over what has changed in the cluster."""
        devices, log = cluster.dynamic_resources, cluster.node_changes
        in_use = self._in_use(cluster)
        versions = devices.slices_version, in_use.version, len(cluster.nodes)
        slices, allocated, count, position = self._seen
        if self._seen == (*versions, log.position):
            return
        self._seen = (*versions, log.position)
        changed = log.since(position)
        rows = range(versions[2]) if changed is None else changed.tolist()
        if count != versions[2]:
            rows = [*rows, *range(count, versions[2])] if count >= 0 else range(versions[2])
        self._unseen.update(dict.fromkeys(rows))
        for row in range(versions[2], len(self._rows)):
            self._put(row, None)
        self._rows[versions[2] :] = [None] * (versions[2] - len(self._rows))
        if slices != versions[0]:
            self._take_slices(cluster, devices.slices_changed_since(slices))
        self._take_uses(cluster, in_use.changed_since(allocated))

    def _take_slices(self, cluster: ClusterView, changed: Collection[str] | None) -> None:
        """Take over the slices of these names, None: all, and find the rows that have them."""
        devices = cluster.dynamic_resources
        if changed is None:
            self.inventory = Inventory(devices.slices, self.rules)
            self._numbers.outdate_all()
            self._have_seen_again(range(len(self._rows)))
            return
        for name in changed:
            before, after = self.inventory.get(name), devices.resource_slice(name)
            for each in (before, after):
                if each is not None:
                    self._outdate((each.driver, each.pool), cluster)
            self.inventory.put(name, after)
            if after is not None and self.inventory.is_on_node(after):
                self._outdate((after.driver, after.pool), cluster)
            elif after is not None:
                self._have_seen_again(self._rows_for(after))

    def _outdate(self, key: PoolKey, cluster: ClusterView) -> None:
        """Have the rows looked at again that have slices of a pool."""
        self._numbers.outdate(key)
        self._have_seen_again(self._rows_with(key, cluster))

    def _have_seen_again(self, rows: Iterable[int]) -> None:
        for row in rows:
            self._unseen[row] = None
            self._outdated.add(row)

    def _rows_with(self, key: PoolKey, cluster: ClusterView) -> list[int]:
        """Return the rows of nodes with slices of a pool."""
        rows = [cluster.row(name) for name in self.inventory.nodes_of(key)]
        return [*self._rows_of.get(key, ()), *(row for row in rows if row is not None)]

    def _rows_for(self, each: ResourceSlice) -> Iterator[int]:
        """Yield the rows of nodes that can use a slice."""
        for row, known in enumerate(self._rows):
            if known is not None and self.inventory.is_relevant(
                each, known.node.name, known.node.labels
            ):
                yield row

    def _take_nodes(self, cluster: ClusterView) -> None:
        """Look at the rows of which node or slices have changed."""
        while self._unseen:
            row, _ = self._unseen.popitem()
            if row >= len(self._rows):
                continue
            node, before = cluster.node(row), self._rows[row]
            if (
                row not in self._outdated
                and node is not None
                and before is not None
                and (before.node.name, before.node.labels) == (node.name, node.labels)
            ):
                self._evaluations.spend(_UNITS_TO_LOOK)
                continue
            self._outdated.discard(row)
            after = None
            if node is not None:
                anywhere = self.inventory.size_anywhere > 0
                after = _Row(
                    node,
                    self.inventory.pools_anywhere(node.name, node.labels) if anywhere else (),
                )
            self._put(row, after)
            _spend(self._evaluations, _UNITS_TO_LOOK * (2 + self.inventory.size_anywhere))

    def _put(self, row: int, after: _Row | None) -> None:
        before = self._rows[row]
        self._rows[row] = after
        for key in before.anywhere if before is not None else ():
            rows = self._rows_of[key]
            rows.discard(row)
            if not rows:
                del self._rows_of[key]
        for key in after.anywhere if after is not None else ():
            self._rows_of.setdefault(key, set()).add(row)
        for patterns in self._patterns.values():
            patterns.outdate((row,))

    def _take_uses(self, cluster: ClusterView, changed: Iterable[DeviceId] | None) -> None:
        if changed is None:
            self._numbers.outdate_all()
            for patterns in self._patterns.values():
                patterns.outdate(range(len(self._rows)))
            return
        for key in {(device.driver, device.pool): None for device in changed}:
            self._numbers.outdate(key)
            rows = self._rows_with(key, cluster)
            for patterns in self._patterns.values():
                patterns.outdate(rows)
