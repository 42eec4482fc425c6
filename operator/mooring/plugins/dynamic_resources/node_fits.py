"""On which nodes claims of one shape can be allocated, kept until something there changes.

Most pods are copies of a template, and so are their claims. What was found for one of them holds
for the next one on every node whose devices, and whose labels, are as they were.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from mooring.model.bounded_cache import BoundedCache
from mooring.model.resource_claims import ResourceClaim
from mooring.plugins.dynamic_resources.pools import Inventory
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray

__all__ = ["LACKS", "UNKNOWN", "NodeFits"]

UNKNOWN: Final = -2
LACKS: Final = -1
"""The node lacks devices; numbers from 0 on are the scores of the others."""

_MOST_BYTES: Final = 16 * 2**20
_ARRAY: Final = 128


class NodeFits:
    """By shape of claims: int64[rows], UNKNOWN, LACKS or the score of the row."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._by_shape: BoundedCache[str, IntArray] = BoundedCache(
            _MOST_BYTES, lambda shape, fits: len(shape) + fits.nbytes + _ARRAY
        )
        self._classes = self._slices = -1
        self._devices = self._nodes = 0

    def of(self, claims: Iterable[ResourceClaim], inventory: Inventory) -> IntArray:
        """Return what is known of each row; the caller adds what it finds out.

        Only until the next change of the cluster: the caller must not keep it.
        """
        rows = len(self._cluster.nodes)
        self._follow(inventory)
        shape = "\n".join(repr(claim.spec) for claim in claims)
        fits = self._by_shape.get(shape)
        if fits is None or len(fits) < rows:
            fits = np.full(2 * rows, UNKNOWN, np.int64)
            self._by_shape.put(shape, fits)
        return fits

    def _follow(self, inventory: Inventory) -> None:
        """Forget the rows on which something has changed."""
        devices = self._cluster.dynamic_resources
        changed = self._changed(inventory)
        if changed is None or devices.classes_version != self._classes:
            self._by_shape.clear()
        elif len(changed):
            for fits in self._by_shape.values():
                fits[changed[changed < len(fits)]] = UNKNOWN
        self._classes, self._slices = devices.classes_version, devices.slices_version
        self._devices = devices.allocated.version
        self._nodes = self._cluster.node_changes.position

    def _changed(self, inventory: Inventory) -> IntArray | None:
        """Return the rows (int64) of changed nodes, slices and devices; None for all rows."""
        view = self._cluster.dynamic_resources
        devices = view.allocated.changed_since(self._devices)
        slices = view.slices_since(self._slices)
        nodes = self._cluster.node_changes.since(self._nodes)
        if devices is None or slices is None or nodes is None:
            return None
        pools = {(each.driver, each.pool) for each in (*devices, *slices)}
        concerned = [*slices, *(each for pool in pools for each in inventory.of_pool(pool))]
        # Counters of a pool are used by devices on any node, and by other pools of its name.
        if any(not each.node_name or each.shared_counters for each in concerned):
            return None
        names = {each.node_name for each in concerned}
        rows = [row for name in names if (row := self._cluster.row(name)) is not None]
        return np.concatenate((nodes, np.array(rows, np.int64)))
