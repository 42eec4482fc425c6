"""What claims see of nodes: the same number for all nodes on which they get the same.

A node's pattern is all that a search on it depends on: its pools in order, the projections of
their devices, and how these are in use. It follows from the node's look (`looks`), unless claims
read an attribute by which devices are told apart, such as a UUID, or slices do not tell.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final, Protocol

import numpy as np

from mooring.framework.evaluations import Evaluations, StillEvaluating
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.node import Node
from mooring.model.resource_claims import DeviceId
from mooring.model.resource_slices import Device, Likeness, ResourceSlice
from mooring.plugins.dynamic_resources.counters import Counters
from mooring.plugins.dynamic_resources.looks import UNLIKE, Looks
from mooring.plugins.dynamic_resources.pools import Pool, PoolKey, node_matches, place_in_search
from mooring.plugins.dynamic_resources.projection import (
    Reads,
    compared,
    fixed_part,
    individual_reads,
    read_part,
)
from mooring.state.columns import IntArray
from mooring.state.dynamic_resources.allocated_devices import AllocatedDevices

__all__ = ["Numbers", "Patterns", "Rows", "spend"]

_BYTES_PER_ENTRY: Final = 200
_BYTES_IF_ALIKE: Final = 600
_BYTES_PER_PART: Final = 60
"""What entries of dicts take, and a place in a tuple with its value."""
_UNITS_IF_ALIKE: Final = 40
_UNITS_PER_ROW: Final = 300
_UNITS_PER_DEVICE: Final = 40
_ROWS_PER_UNIT: Final = 10
"""What rows that are made anew cost a decision, in the units of `Evaluations`."""
_FEW_ROWS: Final = 8
"""So many rows are looked up faster one by one than as arrays."""

_UNKNOWN: Final = -1
_BY_ROW: Final = -2
"""Stand for the pattern of a look: it is not known yet, or rows of the look have several."""


class Rows(Protocol):
    """The rows of which patterns are made, as they are now."""

    rules: KubernetesRules
    looks: Looks

    @property
    def size(self) -> int:
        """The number of rows."""

    def node(self, row: int) -> Node | None:
        """Return the node of a row."""

    def pools(self, row: int) -> Sequence[Pool]:
        """Return the pools of a row."""

    def own(self, node: str) -> Collection[ResourceSlice] | None:
        """Return the slices of all pools that only this node uses."""


class Numbers:
    """Numbers for equal values, and for what all claims see of a pool."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._known: dict[Hashable, int] = {}
        self._patterns: dict[Hashable, int] = {}
        self._contents: dict[Hashable, tuple[Sequence[Device], tuple[int, ...]]] = {}
        """By identity of the devices, which equal slices share."""
        self._pools: dict[PoolKey, dict[int, tuple[Pool, int]]] = {}
        """By pool and its identity: a pool may look different from node to node."""
        self.bytes = 0
        """About how many bytes all values take."""
        self.devices = 0
        """How many devices were looked at."""

    @property
    def patterns(self) -> int:
        """How many patterns there are: their numbers are below."""
        return len(self._patterns)

    def of(self, value: Hashable) -> int:
        """Return the number of the value: a new one if it has none."""
        return self._number(self._known, value)

    def of_pattern(self, value: Hashable) -> int:
        """Return the number of a pattern, which are numbered by themselves."""
        return self._number(self._patterns, value)

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
        terms = len(each.node_selector.terms) if each.node_selector is not None else 0
        key = id(each.devices), each.driver, each.per_device_node_selection, terms
        known = self._contents.get(key)
        if known is None:
            numbers = tuple([self.of(fixed_part(each, device)) for device in each.devices])
            known = self._contents[key] = each.devices, numbers
            self.devices += len(each.devices)
            self.bytes += _BYTES_PER_ENTRY
        return known[1]

    def _number(self, known: dict[Hashable, int], value: Hashable) -> int:
        before = len(known)
        number = known.setdefault(value, before)
        if len(known) > before:
            self.bytes += _BYTES_PER_ENTRY + _bytes_of(value)
        return number


class Patterns:
    """The patterns of all rows, for claims that read the same attributes."""

    def __init__(self, reads: Reads, known: Numbers) -> None:
        self._reads = reads
        self._known = known
        self.numbers: IntArray = np.zeros(0, np.int64)
        """The number of each row's pattern."""
        self._stale: set[int] = set()
        self._of_look: IntArray = np.zeros(0, np.int64)
        """The pattern of each look, `_UNKNOWN` or `_BY_ROW`."""
        self._told_apart: dict[Hashable, int] = {}
        """The patterns of rows of one look by what claims read of individual attributes."""
        self._slices: dict[int, tuple[Sequence[Device], int]] = {}
        """By identity of the devices."""
        self._individual: dict[Likeness, tuple[tuple[str, frozenset[str]], ...] | None] = {}
        """What is read of the attributes in which slices differ, see `individual_reads`."""

    @property
    def generation(self) -> int:
        """Differs where equal numbers mean different patterns."""
        return self._known.generation

    @property
    def count(self) -> int:
        """All numbers are below."""
        return self._known.patterns

    @property
    def bytes(self) -> int:
        """About how many bytes are remembered, without what all patterns share."""
        entries = len(self._slices) + len(self._individual)
        arrays = self.numbers.nbytes + self._of_look.nbytes
        return arrays + _BYTES_PER_ENTRY * entries + _BYTES_IF_ALIKE * len(self._told_apart)

    def outdate(self, rows: Iterable[int], looks: Collection[int] = ()) -> None:
        """Have these rows made anew when they are read, and the patterns of these looks."""
        self._stale.update(rows)
        for look in looks:
            if look < len(self._of_look):
                self._of_look[look] = _UNKNOWN
        if looks:
            self._told_apart.clear()

    def update(self, rows: Rows, allocated: AllocatedDevices, evaluations: Evaluations) -> None:
        """Make the patterns of all rows that are out of date.

        Raises:
            StillEvaluating: the decision has done enough; the next call goes on.
        """
        if len(self.numbers) != rows.size:
            self._stale.update(range(len(self.numbers), rows.size))
            self.numbers = np.resize(self.numbers, rows.size)
        if not self._stale:
            return
        if len(self._of_look) <= rows.looks.count:
            more = np.full(2 * rows.looks.count + 1 - len(self._of_look), _UNKNOWN, np.int64)
            self._of_look = np.concatenate((self._of_look, more))
        if len(self._stale) > _FEW_ROWS:
            self._take_looks(rows, allocated, evaluations)
        while self._stale:
            row = self._stale.pop()
            if row < rows.size:
                self.numbers[row], units = self._number(rows, row, allocated)
                spend(evaluations, units)

    def _take_looks(
        self, rows: Rows, allocated: AllocatedDevices, evaluations: Evaluations
    ) -> None:
        """Make the patterns of all looks of these rows, and of the rows that have just one."""
        stale = np.fromiter(self._stale, np.int64, len(self._stale))
        stale = stale[stale < rows.size]
        looks = rows.looks.numbers[stale]
        distinct, first = np.unique(looks, return_index=True)
        new = (distinct != UNLIKE) & (self._of_look[distinct] == _UNKNOWN)
        for row in stale[first[new]].tolist():
            self.numbers[row], units = self._number(rows, row, allocated)
            spend(evaluations, units)
        known = np.where(looks == UNLIKE, _BY_ROW, self._of_look[looks])
        self.numbers[stale] = known
        self._stale = set(stale[known < 0].tolist())
        evaluations.spend(len(stale) // _ROWS_PER_UNIT)

    def _number(self, rows: Rows, row: int, allocated: AllocatedDevices) -> tuple[int, int]:
        """Return the number of the row's pattern, and what finding it has cost."""
        look, node = int(rows.looks.numbers[row]), rows.node(row)
        if node is None:
            return self._known.of_pattern(None), 1
        if look == UNLIKE:
            return self._new(rows, row, node, allocated)
        known = int(self._of_look[look])
        if known >= 0:
            return known, 1
        key = None
        if rows.looks.is_individual(look):
            key = self._told_apart_by(look, rows.own(node.name))
        if key is None:
            number, units = self._new(rows, row, node, allocated)
            self._of_look[look] = number
            return number, units
        self._of_look[look] = _BY_ROW
        number = self._told_apart.get(key, _UNKNOWN)
        if number != _UNKNOWN:
            return number, _UNITS_IF_ALIKE
        number, units = self._new(rows, row, node, allocated)
        self._told_apart[key] = number
        return number, units

    def _new(
        self, rows: Rows, row: int, node: Node, allocated: AllocatedDevices
    ) -> tuple[int, int]:
        before = self._known.devices
        number = self._pattern(node, rows.pools(row), allocated, rows.rules)
        return number, _UNITS_PER_ROW + _UNITS_PER_DEVICE * (self._known.devices - before)

    def _told_apart_by(self, look: int, own: Collection[ResourceSlice] | None) -> Hashable | None:
        """Return what is equal for rows of the look of which the claims read the same.

        None: that is the same for all rows of the look.
        """
        parts = list[Hashable]()
        for each in sorted(own or (), key=place_in_search):
            read = self._read_of(each.alike) if each.alike.individual else ()
            if read is None:
                parts.append(each.equal)
                continue
            parts += [
                compared(value, texts)
                for name, texts in read
                for device in each.devices
                if isinstance(value := device.attributes[name], str)
            ]
        return (look, *parts) if parts else None

    def _read_of(self, alike: Likeness) -> tuple[tuple[str, frozenset[str]], ...] | None:
        if alike not in self._individual:
            self._individual[alike] = individual_reads(self._reads, alike.individual)
        return self._individual[alike]

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
            return self._known.of_pattern(looks)
        names = [pool.name for pool in pools]  # those of one name share counters
        return self._known.of_pattern((looks, tuple([names.index(name) for name in names])))

    def _attributes(self, pool: Pool, node: Node) -> Iterator[Hashable]:
        """Yield for each slice what is read of its devices, and which ones are for the node."""
        for each in pool.slices:
            if each.per_device_node_selection:
                yield tuple(node_matches(device, node.name, node.labels) for device in each.devices)
            known = self._slices.get(id(each.devices))
            if known is None:
                read = tuple([read_part(device, self._reads) for device in each.devices])
                known = self._slices[id(each.devices)] = each.devices, self._known.of(read)
                self._known.devices += len(each.devices)
            yield known[1]


def spend(evaluations: Evaluations, units: int) -> None:
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
