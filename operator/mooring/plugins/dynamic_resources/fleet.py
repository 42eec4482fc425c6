"""The pools of all nodes, and which nodes are alike, so that one search answers for all of them.

Nodes of equal patterns get equal answers but for names (`patterns`). Patterns are numbers in a
column, of which only the rows are made anew whose slices, labels or devices in use have changed.
The devices of most nodes are alike but for UUIDs, and slices tell that without a look at devices
(`looks`).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mooring.framework.evaluations import Evaluations
from mooring.model.kubernetes_rules import KubernetesRules
from mooring.model.node import Node
from mooring.model.resource_claims import DeviceId
from mooring.model.resource_slices import ResourceSlice
from mooring.plugins.dynamic_resources.looks import UNLIKE, Looks, Shared
from mooring.plugins.dynamic_resources.patterns import Numbers, Patterns, spend
from mooring.plugins.dynamic_resources.pools import Inventory, Pool, PoolKey, pools_of_node
from mooring.plugins.dynamic_resources.projection import Reads
from mooring.state.cluster_view import ClusterView
from mooring.state.dynamic_resources.allocated_devices import AllocatedDevices

__all__ = ["Fleet"]

_MOST_PATTERNS: Final = 64
"""Kinds of claims, by what they read, for which all patterns are kept."""
_MOST_BYTES: Final = 128 * 2**20
"""What is remembered before all begins anew, unless the nodes that there are need half of it."""
_UNITS_TO_LOOK: Final = 20
_UNITS_PER_LOOK: Final = 40
"""What rows that are made anew cost a decision, in the units of `Evaluations`."""

_NOT_KNOWN: Final = -1


@dataclass(slots=True, eq=False)
class _Row:
    """A node as it was looked at.

    `shared` are slices that other nodes may use, too; `pools` are all, once they are made.
    """

    node: Node
    shared: Shared
    pools: list[Pool] | None = None


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
        self.looks = Looks()
        """How rows look to all claims."""
        self._unlooked: set[int] = set()
        """Rows of which the look may have changed."""
        self._patterns: dict[Reads, Patterns] = {}
        self._numbers = Numbers(0)

    def patterns(self, cluster: ClusterView, reads: Reads) -> Patterns:
        """Return the patterns of all rows for claims that read these attributes.

        Raises:
            StillEvaluating: the decision has done enough; the next call goes on.
        """
        self._see(cluster)
        self._take_nodes(cluster)
        if self.bytes > max(self.most_bytes, 2 * self._needed) and self._needed != _NOT_KNOWN:
            self._patterns.clear()
            self._numbers = Numbers(self._numbers.generation + 1)
            self.looks = Looks()
            self._unlooked.update(range(self.size))
            self._needed = _NOT_KNOWN
        self._take_looks(self._in_use(cluster))
        found = self._patterns.pop(reads, None) or Patterns(reads, self._numbers)
        while len(self._patterns) >= _MOST_PATTERNS or (
            self._patterns and self._bytes_of_patterns > self.most_bytes // 2
        ):
            del self._patterns[next(iter(self._patterns))]
        self._patterns[reads] = found
        found.update(self, self._in_use(cluster), self._evaluations)
        if self._needed == _NOT_KNOWN:
            self._needed = self.bytes
        return found

    @property
    def bytes(self) -> int:
        """About how many bytes are remembered besides pools."""
        return self._numbers.bytes + self.looks.bytes + self._bytes_of_patterns

    @property
    def _bytes_of_patterns(self) -> int:
        return sum([each.bytes for each in self._patterns.values()])

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

    def own(self, node: str) -> Collection[ResourceSlice] | None:
        """Return the slices of all pools that only this node uses, see `Inventory.own`."""
        return self.inventory.own(node)

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
            for key in self.looks.pools:
                self._outdate_shared(key)
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
        self._outdate_shared(key)
        self._have_seen_again(self._rows_of.get(key, ()))
        self._have_seen_again(self._rows_on_nodes(key, cluster))

    def _have_seen_again(self, rows: Iterable[int]) -> None:
        again = [*rows]
        self._unseen.update(dict.fromkeys(again))
        self._outdated.update(again)

    def _rows_on_nodes(self, key: PoolKey, cluster: ClusterView) -> list[int]:
        """Return the rows of nodes on which slices of a pool are looked for."""
        rows = [cluster.row(name) for name in self.inventory.nodes_of(key)]
        return [row for row in rows if row is not None]

    def _rows_for(self, each: ResourceSlice) -> Iterator[int]:
        """Yield the rows of nodes that can use a slice."""
        for row, known in enumerate(self._rows):
            if known is not None and self.inventory.is_relevant(
                each, known.node.name, known.node.labels
            ):
                yield row

    def _take_nodes(self, cluster: ClusterView) -> None:
        """Look at the rows of which node or slices have changed."""
        inventory, units = self.inventory, 0
        affords = self._evaluations.affords
        while self._unseen and affords(units + 1):
            row, _ = self._unseen.popitem()
            if row >= len(self._rows):
                continue
            node, before = cluster.node(row), self._rows[row]
            units += _UNITS_TO_LOOK
            if (
                row not in self._outdated
                and node is not None
                and before is not None
                and (before.node.name, before.node.labels) == (node.name, node.labels)
            ):
                continue
            self._outdated.discard(row)
            after = None
            if node is not None:
                anywhere = inventory.size_anywhere
                after = _Row(node, inventory.shared(node.name, node.labels) if anywhere else {})
                units += _UNITS_TO_LOOK * (1 + anywhere)
            self._put(row, after)
        spend(self._evaluations, units)

    def _put(self, row: int, after: _Row | None) -> None:
        before = self._rows[row]
        self._rows[row] = after
        for key in before.shared if before is not None else ():
            rows = self._rows_of[key]
            rows.discard(row)
            if not rows:
                del self._rows_of[key]
        for key in after.shared if after is not None else ():
            self._rows_of.setdefault(key, set()).add(row)
        self._unlooked.add(row)

    def _take_looks(self, allocated: AllocatedDevices) -> None:
        """Look at rows again of which slices, or the use of their devices, have changed."""
        if not self._unlooked:
            return
        self.looks.resize(self.size)
        own, units, affords = self.inventory.own, 0, self._evaluations.affords
        seen = list[int]()
        while self._unlooked and affords(units + 1):
            row = self._unlooked.pop()
            if row < self.size:
                known, look = self._rows[row], UNLIKE
                if known is not None:
                    look = self.looks.of(own(known.node.name), known.shared, allocated)
                self.looks.numbers[row] = look
                seen.append(row)
                units += _UNITS_PER_LOOK
        for patterns in self._patterns.values():
            patterns.outdate(seen)
        spend(self._evaluations, units)

    def _take_uses(self, cluster: ClusterView, changed: Iterable[DeviceId] | None) -> None:
        """Find the rows that have devices of which the use has changed; None: any may have."""
        if changed is None:
            self._numbers.outdate_all()
            self._unlooked.update(range(self.size))
            changed_pools: Iterable[PoolKey] = self.looks.pools
        else:
            changed_pools = {(device.driver, device.pool): None for device in changed}
        for key in changed_pools:
            self._outdate_shared(key)
            if changed is not None:
                self._unlooked.update(self._rows_on_nodes(key, cluster))

    def _outdate_shared(self, key: PoolKey) -> None:
        """Have the patterns of the rows made anew that share a pool."""
        self._numbers.outdate(key)
        rows, looks = self._rows_of.get(key, ()), self.looks.with_pool(key)
        if rows or looks:
            for patterns in self._patterns.values():
                patterns.outdate(rows, looks)
