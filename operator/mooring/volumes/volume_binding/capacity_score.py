"""Scores nodes by the share of their storage that a pod's claims use (volumebinding/scorer.go).

On nodes where claims get available volumes, the storage is the capacity of these volumes. On other
nodes, the storage is the driver's capacity for new volumes. Scores of storage classes are averaged.
"""

from collections import defaultdict

import numpy as np

from mooring.model.events import Kind
from mooring.pausing import pause
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView
from mooring.volumes.model.storage_objects import StorageClass
from mooring.volumes.state.capacities import UNKNOWN
from mooring.volumes.volume_binding.find_volumes import (
    PodVolumeClaims,
    UnboundClaims,
    find_choices,
    least_capacity,
)


class _ClassUsage:
    """The requested bytes and the capacity of a storage class, on each node."""

    def __init__(self, nodes: int) -> None:
        # True for nodes where a volume was found or the capacity is known.
        self.counts = np.zeros(nodes, np.bool_)
        self.requested = np.zeros(nodes, np.int64)
        self.capacity = np.zeros(nodes, np.int64)

    def percent(self) -> IntArray:
        """Return the requested share in percent; 100 if the capacity is 0 or does not suffice."""
        exceeded = (self.capacity == 0) | (self.requested > self.capacity)
        # Beyond 80 PiB the product wraps around as in Go; what is negative scores like 0.
        share = np.maximum(self.requested * 100 // np.maximum(self.capacity, 1), 0)
        return np.where(exceeded, 100, share)

    def add(self, where: BoolArray, requested: int) -> None:
        self.counts |= where
        self.requested += where * requested


def capacity_scores(
    claims: PodVolumeClaims,
    by_percent: IntArray,
    nodes: NodeView,
    cluster: ClusterView,
) -> IntArray:
    """Return int64[nodes]: the mean score of the storage classes; 0 if no capacity is known.

    All of `nodes` must be suitable for all claims. `by_percent` (int64[101]) has the score for each
    percentage of a capacity that claims may request.
    """
    found = find_choices(claims.unbound, nodes, cluster)
    by_class = _usage_by_class(found, nodes, cluster, exact=claims.exact)
    total, classes = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
    for usage in by_class.values():
        total += np.where(usage.counts, by_percent[usage.percent()], 0)
        classes += usage.counts
    # Halves are rounded up; integers because a mean of few scores is exact this way.
    mean: IntArray = (2 * total + classes) // (2 * np.maximum(classes, 1))
    return mean


def _usage_by_class(
    found: UnboundClaims, nodes: NodeView, cluster: ClusterView, *, exact: bool
) -> dict[str, _ClassUsage]:
    by_class: dict[str, _ClassUsage] = defaultdict(lambda: _ClassUsage(len(nodes)))
    static = np.zeros(len(nodes), np.bool_)
    for choice in found.choices:
        pause()
        there = choice.found
        if there.any():
            usage = by_class[choice.claim.storage_class]
            usage.add(there, choice.claim.size.whole)
            usage.capacity[there] += choice.sizes[choice.chosen[there]]
            static |= there
    for claim, where in found.left:
        pause()
        storage_class: StorageClass = cluster.objects(Kind.STORAGE_CLASS)[claim.storage_class]
        least = least_capacity(claim, storage_class, cluster, exact=exact)
        if least is None:
            continue
        capacity = cluster.storage.capacities.capacity(storage_class.name, least, nodes.rows)
        there = where & ~static & (capacity != UNKNOWN)
        usage = by_class[claim.storage_class]
        usage.add(there, claim.size.whole)
        # Not added up: all claims of a class share the one capacity.
        np.copyto(usage.capacity, capacity, where=there)
    return by_class
