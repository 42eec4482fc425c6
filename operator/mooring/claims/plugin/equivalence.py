"""Divides nodes into classes with equal devices, so that one search answers for many nodes.

The result of a search on a node depends on the node's pools: their order, their devices, the
devices in use, and the attribute values that the claims read. A node's signature is a number for
all of this except the values. Several nodes may share a pool. Of such a pool, the signature has
only the names of the pool and of its slices, and which devices the node can use.

For each set of attributes that claims read, `NodeClasses` has the class of each node: the nodes of
a class have equal attribute values, and equal pools except for names.

Classes and results are in one cache, with a limit in bytes. The classes and results for the last
claims are always kept, so that the next attempt can continue interrupted work.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from mooring.claims.model.resource_claims import Allocation, DeviceId, ResourceClaim
from mooring.claims.model.resource_slices import ResourceSlice
from mooring.claims.plugin.allocation_error import AllocationError
from mooring.claims.plugin.allocator import Allocator
from mooring.claims.plugin.attempt_budget import Budget
from mooring.claims.plugin.attribute_reads import Reads, attributes_among, reads_of, value_seen
from mooring.claims.plugin.cel_selectors import cel_selectors
from mooring.claims.plugin.counters import Counters
from mooring.claims.plugin.device_search import Moves
from mooring.claims.plugin.pools import (
    Inventory,
    Pool,
    PoolKey,
    node_matches,
    pools_of_slices,
    slices_of_node,
)
from mooring.claims.state.allocated_devices import AllocatedDevices
from mooring.framework.evaluations import AttemptTooLongError, Evaluations
from mooring.model.indexes import drop_item
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.node import Node
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

_MOST_BYTES: Final = 128 * 2**20
"""The most bytes of the cache (in large clusters: twice the bytes that the nodes need); the least
recently used entries are dropped."""
_BYTES_PER_COLUMN: Final = 16 * 2**10
_BYTES_PER_ENTRY: Final = 200
_BYTES_PER_PART: Final = 60
"""The estimated bytes of memory for an entry of a dict, or for an item of a tuple."""
_BYTES_PER_RESULT: Final = 600
_BYTES_PER_MOVE: Final = 200
_UNITS_PER_POOLS: Final = 200
_UNITS_PER_SIGNATURE: Final = 100
_UNITS_PER_CLASS: Final = 40
_UNITS_PER_VALUE: Final = 2
"""The units of the attempt's budget (`Evaluations`) for reading one attribute value."""
_ROWS_AT_ONCE: Final = 32
"""The number of nodes that are computed before the budget is checked."""
_LEAST_STEPS: Final = 1_000
"""The steps that a search may take on every node, even if the budget is used up."""
_MOST_SUBREQUESTS: Final = 8
"""The most subrequests that the API allows in a request; also the score of the first subrequest."""

Result = list[Allocation] | AllocationError | None
"""An allocation for each claim; or an error; or None if a node has too few devices."""

_UNKNOWN: Final = -1
_TOO_FEW: Final = 0
_FITS: Final = 1
"""The verdict for a class of nodes with enough devices."""
_NOT_KNOWN: Final = -1
_serials: Final = count()
_NO_NODE: Final = 0
"""The signature of a row without a node."""
_FREE: Final = False
"""Marks a free device in the state of a pool."""


class _Numbers:
    """Gives each value a number; equal values get the same number."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def of(self, value: Hashable) -> int:
        before = len(self._known)
        number = self._known.setdefault(value, before)
        if number == before:
            self.bytes += _BYTES_PER_ENTRY + _bytes_of(value)
        return number


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A node with its pools; other nodes may use its `shared` pools, too."""

    node: Node
    # Also the pools whose newer generation has no slice for the node; `pools` lacks these.
    keys: Iterable[PoolKey]
    pools: Sequence[Pool]
    shared: Sequence[Pool]
    own: Sequence[ResourceSlice]


class NodeClasses:
    """The class of each node, for claims that read the same attributes.

    A node's key is a number for its signature (see the module) and the attribute values of its own
    pools. Nodes are of one class if their keys are equal. They are also of one class if their keys
    differ only in the names of shared pools, and these pools are in equal states.
    """

    def __init__(self, reads: Reads) -> None:
        self.reads = reads
        self.serial = next(_serials)
        """Identifies this object; class numbers are comparable only within one object."""
        self.numbers: IntArray = np.zeros(0, np.int64)
        """int64[rows]: the class number of each node."""
        self._classes = _Numbers()
        self._keys = _Numbers()
        self._row_keys: IntArray = np.zeros(0, np.int64)
        self._row_versions: IntArray = np.zeros(0, np.int64)
        """For each row, the value of `EquivalentNodes.versions` when the row's key was computed."""
        self._key_signatures: IntArray = np.zeros(0, np.int64)
        self._key_versions: IntArray = np.zeros(0, np.int64)
        """For each key, the value of `signature_versions` when the key's class was computed."""
        self._key_classes: IntArray = np.zeros(0, np.int64)
        self._unused: set[int] = set()
        """Keys that no node had when their class should have been computed."""
        self._read: dict[Hashable, list[tuple[int, str, frozenset[str] | None]]] = {}
        """The attributes that claims read from a slice, by the slice's `alike`: the device's index,
        the attribute's name, and the texts with which it is compared (see `attributes_among`)."""
        self.counted = 0
        """The bytes that the cache has counted for this object."""

    @property
    def count(self) -> int:
        """The number of classes; the classes are 0 to `count` - 1."""
        return len(self._classes)

    @property
    def bytes(self) -> int:
        """Estimated bytes, for the limit of the cache."""
        arrays = 8 * (3 * len(self.numbers) + 3 * len(self._key_classes))
        read = _BYTES_PER_PART * sum(map(len, self._read.values()))
        return _BYTES_PER_COLUMN + arrays + self._classes.bytes + self._keys.bytes + read

    def update(self, nodes: "EquivalentNodes") -> None:
        """Compute the classes of all nodes that have changed.

        Raises PluginFailed if the attempt has used up its budget; the next call continues.
        """
        self._row_keys = _resized(self._row_keys, len(nodes.versions))
        self._row_versions = _resized(self._row_versions, len(nodes.versions))
        changed = np.flatnonzero(self._row_versions != nodes.versions)
        for start in range(0, len(changed), _ROWS_AT_ONCE):
            self._take_rows(changed[start : start + _ROWS_AT_ONCE], nodes)
        size = len(self._keys)
        now = nodes.signature_versions[self._key_signatures[:size]]
        for key in np.flatnonzero(self._key_versions[:size] != now).tolist():
            self._take_key(key, nodes)
        self.numbers = self._key_classes[self._row_keys]

    def _take_rows(self, rows: IntArray, nodes: "EquivalentNodes") -> None:
        signatures, keys, units = nodes.signatures[rows], list[int](), 0
        for row, signature in zip(rows.tolist(), signatures.tolist(), strict=True):
            known = nodes.row(row)
            values = self._values(known.own) if known is not None else ()
            keys.append(self._keys.of((signature, values)))
            units += _UNITS_PER_CLASS + _UNITS_PER_VALUE * len(values)
        size = len(self._keys)
        if size > len(self._key_classes):
            self._key_signatures = _resized(self._key_signatures, 2 * size)
            self._key_classes = _resized(self._key_classes, 2 * size)
            self._key_versions = _resized(self._key_versions, 2 * size)
        self._key_signatures[keys] = signatures
        self._row_keys[rows], self._row_versions[rows] = keys, nodes.versions[rows]
        for key in self._unused.intersection(keys):
            self._unused.discard(key)
            self._key_versions[key] = _UNKNOWN
        nodes.spend(units)

    def _take_key(self, key: int, nodes: "EquivalentNodes") -> None:
        signature = int(self._key_signatures[key])
        part, units = nodes.own_part(signature), 1
        if part is None:
            self._key_classes[key] = self._classes.of(key)
        elif len(rows := np.flatnonzero(self._row_keys == key)):
            known = nodes.row(int(rows[0]))
            shared = known.shared if known is not None else ()
            seen = tuple([(nodes.state(pool), self._values(pool.slices)) for pool in shared])
            values = self._values(known.own) if known is not None else ()
            self._key_classes[key] = self._classes.of((part, values, seen))
            units = _UNITS_PER_SIGNATURE * (1 + len(shared))
        else:
            self._unused.add(key)
            signature = self._key_signatures[key] = _NO_NODE  # which never changes
        self._key_versions[key] = nodes.signature_versions[signature]
        nodes.spend(units)

    def _values(self, slices: Iterable[ResourceSlice]) -> tuple[Hashable, ...]:
        """Return keys of the attribute values that claims read, as `value_seen` makes them."""
        values = list[Hashable]()
        for each in slices:
            read, devices = self._read.get(each.alike), each.devices
            if read is None:
                read = self._read[each.alike] = [
                    (index, name, texts)
                    for index, device in enumerate(devices)
                    for name, texts in attributes_among(device.attributes, self.reads)
                ]
            values += [
                value if texts is None else value_seen(value, texts)
                for index, name, texts in read
                for value in (devices[index].attributes[name],)
            ]
        return tuple(values)


def _resized(array: IntArray, size: int) -> IntArray:
    if len(array) == size:
        return array
    resized = np.full(size, _UNKNOWN, np.int64)
    resized[: len(array)] = array[:size]
    return resized


class _Results:
    """The results for equal claims, by node class."""

    def __init__(self, classes: NodeClasses) -> None:
        self.classes = classes
        self.results: dict[int, Result] = {}
        self.moves: dict[int, Moves] = {}
        """The solution for each class; it is valid on every node of the class."""
        self.verdicts = np.zeros(0, np.int8)
        """int8: `_UNKNOWN`, `_TOO_FEW` (also for an error) or `_FITS`, for each class."""
        self.scores = np.zeros(0, np.int64)
        """int64: the score of each class, from the alternatives that claims get on its nodes."""
        self.budget: Budget | None = None
        """The budget of searches that were interrupted; None if none were."""
        self._bytes = self.counted = 0
        """The estimated bytes of this object now, and the bytes that the cache has counted for
        it."""

    @property
    def bytes(self) -> int:
        return _BYTES_PER_COLUMN + self._bytes + 9 * len(self.verdicts)

    def resize(self, classes: int) -> None:
        if classes > len(self.verdicts):
            more = np.full(2 * classes - len(self.verdicts), _UNKNOWN, np.int8)
            self.verdicts = np.concatenate((self.verdicts, more))
            self.scores = np.concatenate((self.scores, np.zeros(len(more), np.int64)))

    def put(self, number: int, result: Result, moves: Moves | None, score: int) -> None:
        self.results[number] = result
        self.verdicts[number] = _FITS if isinstance(result, list) else _TOO_FEW
        self.scores[number] = score
        self._bytes += _bytes_of_result(result)
        if moves is not None:
            self.moves[number] = moves
            self._bytes += _BYTES_PER_MOVE * len(moves)


@dataclass(frozen=True, slots=True, eq=False)
class ResultsOnNodes:
    """The results of a search for devices; `numbers` has the class of each node of a NodeView."""

    numbers: IntArray
    _known: _Results

    def of(self, index: int) -> Result:
        """Return the result for the node at this index of the view."""
        return self._known.results[int(self.numbers[index])]

    def moves_of(self, index: int) -> Moves | None:
        """Return the solution for the node at this index of the view; None if there is none."""
        return self._known.moves.get(int(self.numbers[index]))

    def by_class(self) -> tuple[list[Result], IntArray]:
        """Return the distinct results, and for each node the index of its result."""
        distinct, which = np.unique(self.numbers, return_inverse=True)
        return [self._known.results[each] for each in distinct.tolist()], which.astype(np.int64)

    @property
    def fits(self) -> BoolArray:
        """bool[nodes]: True where the claims can get devices."""
        fits: BoolArray = self._known.verdicts[self.numbers] == _FITS
        return fits

    @property
    def scores(self) -> IntArray:
        """int64[nodes]: the score of each node for the alternatives that claims get on it."""
        return self._known.scores[self.numbers]


@dataclass(eq=False, repr=False)
class EquivalentNodes:
    """The pools and classes of all nodes, and the results of searches for devices.

    The methods `classes` and `results` first apply the changes of the cluster. If `allocated` is
    set, it replaces the cluster's devices in use.
    """

    rules: KubernetesRules
    evaluations: Evaluations
    most_bytes: int = _MOST_BYTES
    allocated: AllocatedDevices | None = None

    def __post_init__(self) -> None:
        self._needed = 0
        """Estimated bytes that the existing nodes need, measured after each `_forget`."""
        self.inventory = Inventory((), self.rules)
        """All slices of the cluster."""
        self._seen = (-1, -1, -1, 0)
        """At the last update: the versions of slices and of devices in use, the number of rows, and
        the position in the log of nodes."""
        self._in_use = AllocatedDevices()
        self._nodes: list[Node | None] = []
        self._rows: list[_Row | None] = []
        self._rows_of: dict[PoolKey, set[int]] = {}
        """Maps a pool to the rows of the nodes that have a slice of the pool."""
        self._moved: set[int] = set()
        """Rows whose node, labels or slices have changed, until `_take_rows` computes them."""
        self._outdated: set[int] = set()
        """Rows whose signature may have changed, until `_take_rows` computes them."""
        self.versions: IntArray = np.zeros(0, np.int64)
        """For each row, a new serial number when its signature or attribute values may change.

        No number comes again, so that classes do not take a node for another that had its row.
        """
        self.signatures: IntArray = np.zeros(0, np.int64)
        self._forget()

    def _forget(self) -> None:
        self._parts, self._signatures = _Numbers(), _Numbers()
        self._signatures.of(None)
        self._own_parts: list[int | None] = [None]
        """For each signature, a number for the node's unshared pools; None if the node shares no
        pool."""
        self._shared: dict[PoolKey, set[int]] = {}
        """Maps a pool to the signatures of the nodes that share it."""
        self._states: dict[PoolKey, dict[int, tuple[Pool, int]]] = {}
        """Numbers for the states of shared pools, by key and by the `id()` of a node's Pool."""
        self.signature_versions: IntArray = np.zeros(16, np.int64)
        """For each signature, a count that grows when a shared pool of its nodes changes."""
        self._cache: OrderedDict[Hashable, NodeClasses | _Results] = OrderedDict()
        """Node classes by the attributes that claims read, and results by the claims' requests."""
        self._cached = 0
        self._outdated.update(range(len(self._rows)))
        self.versions[:] = next(_serials)

    @property
    def bytes(self) -> int:
        """Estimated bytes of signatures, classes and results, without pools."""
        return self._parts.bytes + self._signatures.bytes + self._cached

    def row(self, row: int) -> _Row | None:
        """Return the node of this row with its pools; None if the row has no node."""
        return self._rows[row]

    def pools(self, row: int) -> Sequence[Pool]:
        """Return the pools of the node of this row, as the last call of `classes` found them."""
        known = self._rows[row]
        return known.pools if known is not None else ()

    def own_part(self, signature: int) -> int | None:
        """Return a number for the unshared pools of nodes with this signature.

        Returns None if the nodes share no pool.
        """
        return self._own_parts[signature]

    def spend(self, units: int) -> None:
        """Subtract units of work from the attempt's budget; raise PluginFailed if it is used up."""
        self.evaluations.spend(units)
        self.evaluations.pause("reading the devices of the nodes")

    def classes(self, cluster: ClusterView, claims: Sequence[ResourceClaim]) -> NodeClasses:
        """Return the classes of all nodes for these claims.

        Raises PluginFailed if the attempt has used up its budget; the next call continues.
        """
        found = self._classes(cluster, reads_of(claims, cluster.dynamic_resources.classes.get))
        self._bound(found)
        return found

    def results(
        self,
        nodes: NodeView,
        claims: Sequence[ResourceClaim],
        cluster: ClusterView,
    ) -> ResultsOnNodes:
        """Return the results for the claims on these nodes.

        Raises the first AllocationError that concerns all nodes. Raises PluginFailed if the attempt
        has used up its budget; the pod's next attempt continues.
        """
        devices = cluster.dynamic_resources
        key = (*(claim.spec.asked for claim in claims), devices.classes.version)
        known = self._cache.get(key)
        reads = known.classes.reads if isinstance(known, _Results) else None
        if known is None:
            reads = reads_of(claims, devices.classes.get)
        classes = self._classes(cluster, reads)
        known = self._cache.get(key)
        if not isinstance(known, _Results) or known.classes is not classes:
            self._drop(key)
            known = _Results(classes)
        self._use(key, known)
        known.resize(classes.count)
        numbers = classes.numbers[nodes.rows]
        try:
            self._search(nodes, numbers, known, claims, cluster)
        finally:
            self._bound(classes, known)
        return ResultsOnNodes(numbers, known)

    def allocator(
        self,
        claims: Sequence[ResourceClaim],
        cluster: ClusterView,
        budget: Budget,
        allocated: AllocatedDevices | None = None,
    ) -> Allocator:
        """Return an allocator for the claims, with the limits of `budget`.

        If `allocated` is set, it replaces the cluster's devices in use.
        """
        devices = cluster.dynamic_resources
        return Allocator(
            claims,
            devices.claims.allocated if allocated is None else allocated,
            devices.classes.get,
            cel_selectors(self.rules, budget),
            self.rules,
            budget,
        )

    def _classes(self, cluster: ClusterView, reads: Reads) -> NodeClasses:
        self._follow(cluster)
        if self._needed != _NOT_KNOWN and self.bytes > max(self.most_bytes, 2 * self._needed):
            self._forget()
            self._needed = _NOT_KNOWN
        self._take_rows()
        key = ("reads", reads)
        found = self._cache.get(key)
        if not isinstance(found, NodeClasses):
            found = NodeClasses(reads)
        self._use(key, found)
        found.update(self)
        return found

    def _use(self, key: Hashable, entry: NodeClasses | _Results) -> None:
        self._cache[key] = entry
        self._cache.move_to_end(key)

    def _drop(self, key: Hashable) -> None:
        entry = self._cache.pop(key, None)
        if entry is not None:
            self._cached -= entry.counted

    def _bound(self, *used: NodeClasses | _Results) -> None:
        """Update the sizes of the `used` cache entries; drop others if the cache is too large."""
        for each in used:
            self._cached += each.bytes - each.counted
            each.counted = each.bytes
        while self.bytes > self.most_bytes and len(self._cache) > len(used):
            self._drop(next(iter(self._cache)))
        if self._needed == _NOT_KNOWN:
            self._needed = self.bytes

    def _follow(self, cluster: ClusterView) -> None:
        devices, log = cluster.dynamic_resources, cluster.node_changes
        self._in_use = devices.claims.allocated if self.allocated is None else self.allocated
        slices, allocated, before, position = self._seen
        size = len(cluster.nodes)
        now = devices.slices.version, self._in_use.version, size, log.position
        if self._seen == now:
            return
        self._seen = now
        changed = log.since(position)
        if before != size:
            self._resize(size)
        if changed is None or before != size:
            self._take_nodes(range(size), cluster)
        else:  # rows beyond the table are of nodes that came and went
            self._take_nodes(changed[changed < size].tolist(), cluster)
        if slices != now[0]:
            self._take_slices(devices.slices.changed_since(slices), cluster)
        if allocated != now[1]:
            self._take_uses(self._in_use.changed_since(allocated))

    def _resize(self, size: int) -> None:
        for row in range(size, len(self._rows)):
            self._put(row, None)
        more = [None] * (size - len(self._rows))
        self._rows[size:], self._nodes[size:] = more, more
        self.versions = _resized(self.versions, size)
        self.signatures = _resized(self.signatures, size)

    def _take_nodes(self, rows: Iterable[int], cluster: ClusterView) -> None:
        for row in rows:
            node, before = cluster.node(row), self._nodes[row]
            self._nodes[row] = node
            if (
                self.versions[row] == _UNKNOWN
                or node is None
                or before is None
                or (before.name, before.labels) != (node.name, node.labels)
            ):
                self._moved.add(row)

    def _take_slices(self, changed: Collection[str] | None, cluster: ClusterView) -> None:
        devices = cluster.dynamic_resources
        if changed is None:
            self.inventory = Inventory(devices.slices.all(), self.rules)
            self._moved.update(range(len(self._rows)))
            self._outdate_shared(*self._shared)
            return
        for name in changed:
            before, after = self.inventory.get(name), devices.slices.get(name)
            for each in (before, after):
                if each is not None:
                    key = each.driver, each.pool
                    self._outdate_shared(key)
                    self._moved.update(self._rows_of.get(key, ()))
            self.inventory.put(name, after)
            if after is not None:
                self._moved.update(self._rows_for(after, cluster))

    def _rows_for(self, each: ResourceSlice, cluster: ClusterView) -> Iterator[int]:
        if self.inventory.is_on_node(each):
            if (row := cluster.row(each.node_name)) is not None:
                yield row
            return
        for row, node in enumerate(self._nodes):
            if node is not None and self.inventory.is_relevant(each, node.name, node.labels):
                yield row

    def _take_uses(self, changed: Iterable[DeviceId] | None) -> None:
        if changed is None:
            self._outdated.update(range(len(self._rows)))
            self._outdate_shared(*self._shared)
            return
        for key in {(device.driver, device.pool): None for device in changed}:
            self._outdate_shared(key)
            if self.inventory.is_of_one_node(key):
                self._outdated.update(self._rows_of.get(key, ()))

    def _outdate_shared(self, *keys: PoolKey) -> None:
        for key in keys:
            self._states.pop(key, None)
            for signature in self._shared.get(key, ()):
                self.signature_versions[signature] += 1

    def _take_rows(self) -> None:
        # If the attempt's budget ends (`spend`), the next call continues.
        while self._moved:
            row = self._moved.pop()
            if row < len(self._rows):
                self._put(row, self._nodes[row])
                self._outdated.discard(row)
                self.signatures[row] = self._signature(self._rows[row])
                self.versions[row] = next(_serials)
                self.spend(_UNITS_PER_POOLS)
        while self._outdated:
            row = self._outdated.pop()
            if row < len(self._rows):
                signature = self._signature(self._rows[row])
                if signature != self.signatures[row]:
                    self.signatures[row] = signature
                    self.versions[row] = next(_serials)
                self.spend(_UNITS_PER_SIGNATURE)

    def _put(self, row: int, node: Node | None) -> None:
        before, after = self._rows[row], None
        if node is not None:
            inventory = self.inventory
            slices = slices_of_node(inventory, node.name, node.labels, self.rules)
            pools, shared, own = (
                pools_of_slices(inventory, slices, self.rules),
                list[Pool](),
                list[ResourceSlice](),
            )
            for pool in pools:
                if inventory.is_of_one_node((pool.driver, pool.name)):
                    own += pool.slices
                else:
                    shared.append(pool)
            after = _Row(node, slices.keys(), pools, shared, own)
        self._rows[row] = after
        for key in before.keys if before is not None else ():
            drop_item(self._rows_of, key, row)
        for key in after.keys if after is not None else ():
            self._rows_of.setdefault(key, set()).add(row)

    def _signature(self, known: _Row | None) -> int:
        """Return a number for all that searches read of the node, except attribute values."""
        if known is None:
            return _NO_NODE
        parts, shared, names = list[Hashable](), list[PoolKey](), list[str]()
        seen = list[Hashable]()
        for pool in known.pools:
            if pool.name not in names:
                names.append(pool.name)  # pools of one name may share counters
            state = None
            if any(each is pool for each in known.shared):
                shared.append((pool.driver, pool.name))
                # The state of a shared pool is compared in `NodeClasses`.
                seen += pool.driver, pool.name, tuple([each.name for each in pool.slices])
            else:
                state = self._state(pool)
            parts.append((pool.driver, names.index(pool.name), _matches(pool, known.node), state))
        part = self._parts.of(tuple(parts))
        number = self._signatures.of((part, *seen))
        if number == len(self._own_parts):
            self._own_parts.append(part if shared else None)
            if number >= len(self.signature_versions):
                more = np.zeros(2 * number, np.int64)
                more[:number] = self.signature_versions[:number]
                self.signature_versions = more
        for key in shared:
            self._shared.setdefault(key, set()).add(number)
        return number

    def state(self, pool: Pool) -> int:
        """Return a number that is equal for equal states of a shared pool."""
        of_key = self._states.setdefault((pool.driver, pool.name), {})
        known = of_key.get(id(pool))
        if known is None:
            known = of_key[id(pool)] = pool, self._parts.of(self._state(pool))
        return known[1]

    def _state(self, pool: Pool) -> Hashable:
        slices = tuple(
            [
                (each.alike, len(each.node_selector.terms) if each.node_selector else 0)
                for each in pool.slices
            ]
        )
        uses, used = None, self._in_use.of_pool(pool.driver, pool.name)
        if used:
            listed = [device.name for each in pool.slices for device in each.devices]
            uses = tuple([used.get(name, _FREE) for name in listed])
        unused = _unused(pool, self._in_use) if pool.counter_sets else None
        return pool.incomplete, bool(pool.invalid), slices, uses, unused

    def _search(
        self,
        nodes: NodeView,
        numbers: IntArray,
        known: _Results,
        claims: Sequence[ResourceClaim],
        cluster: ClusterView,
    ) -> None:
        """Search on one node of each class without a result, and add the results to `known`."""
        places = np.flatnonzero(known.verdicts[numbers] == _UNKNOWN)
        if not len(places):
            return
        distinct, first = np.unique(numbers[places], return_index=True)
        new = sorted(zip(places[first].tolist(), distinct.tolist(), strict=True))
        if known.budget is None:
            known.budget = Budget(least_on_node=_LEAST_STEPS, evaluations=self.evaluations)
        searches, budget = self.allocator(claims, cluster, known.budget), known.budget
        for index, number in new:
            node = nodes.node(index)
            if node is None:
                known.put(number, None, None, 0)
                continue
            pools = self.pools(int(nodes.rows[index]))
            result: Result
            try:
                result = searches.allocate(node.name, node.labels, str, pools)
            except AllocationError as error:
                if not error.on_node:
                    raise AllocationError(_said_of(claims, searches.claims, error.text)) from None
                result = error
            except AttemptTooLongError:
                # The next attempt continues with these results and this budget.
                budget.undo_node()
                raise
            score = sum(map(score_of, claims, result)) if isinstance(result, list) else 0
            known.put(number, result, searches.moves, score)
            budget.pause()
        known.budget = None


def score_of(claim: ResourceClaim, allocation: Allocation) -> int:
    """Return the score of an allocation; an earlier alternative gives a higher score."""
    chosen = {result.request for result in allocation.results}
    return sum(
        _MOST_SUBREQUESTS - index
        for request in claim.spec.requests
        if request.exactly is None
        for index, sub in enumerate(request.first_available)
        if f"{request.name}/{sub.name}" in chosen
    )


def _said_of(claims: Sequence[ResourceClaim], others: Sequence[ResourceClaim], text: str) -> str:
    for mine, other in zip(claims, others, strict=True):
        text = text.replace(f"claim {other.key}", f"claim {mine.key}")
        text = text.replace(f"for claim {other.name}:", f"for claim {mine.name}:")
    return text


def _matches(pool: Pool, node: Node) -> Hashable:
    return tuple(
        [
            node_matches(device, node.name, node.labels)
            for each in pool.slices
            if each.per_device_node_selection
            for device in each.devices
        ]
    )


def _unused(pool: Pool, allocated: AllocatedDevices) -> Hashable:

    def in_use(device: DeviceId) -> bool:
        return (
            device in allocated.dedicated
            or device in allocated.shares
            or device in allocated.consumed
        )

    left = Counters(in_use, by_driver=True).unused(pool)
    return tuple((name, tuple(sorted(amounts.items()))) for name, amounts in sorted(left.items()))


def _bytes_of(value: Hashable) -> int:
    if type(value) is not tuple:
        return _BYTES_PER_PART + (len(value) if isinstance(value, str) else 0)
    return _BYTES_PER_PART + sum(map(_bytes_of, value))


def _bytes_of_result(result: Result) -> int:
    if isinstance(result, list):
        results = sum(len(allocation.results) for allocation in result)
        return _BYTES_PER_ENTRY + _BYTES_PER_RESULT * (results + len(result))
    return _BYTES_PER_ENTRY + (len(result.text) if result is not None else 0)
