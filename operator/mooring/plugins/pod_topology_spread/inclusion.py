"""The nodes that a topology spread constraint counts, by its node inclusion policies."""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from mooring.model.affinity import SpreadConstraint
from mooring.model.bounded_cache import BoundedCache, bytes_of, cached
from mooring.model.node import Node
from mooring.model.shape import PodShape
from mooring.model.taints import repelled
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT, EACH_NODE, LabelColumn
from mooring.state.snapshot import Snapshot
from mooring.state.topology.domain_counts import CountArray
from mooring.state.topology.selection import Selection
from mooring.state.view import BoolArray, NodeView

__all__ = ["CountedNodes", "NodeInclusion", "includes"]

_Key = tuple[str, tuple[str, ...], int | None, int | None]

_MOST_BYTES: Final = 8 * 1024 * 1024
"""Enough for 200 sets of 5,000 nodes, of each profile."""


@dataclass(frozen=True, slots=True, eq=False)
class CountedNodes:
    """The nodes that a constraint counts, all of which have its label.

    `rows` is int64, or None for every node with the label. `inhabited` is True at the codes of the
    domains that these nodes are in; its last item is for ABSENT.
    """

    domains: LabelColumn
    rows: IntArray | None
    inhabited: BoolArray

    def counts(self, cluster: Snapshot, pods: Selection | None) -> CountArray | IntArray:
        """Return the number of selected pods (None: 0) on these nodes per code; 0 for ABSENT."""
        if pods is None:
            return np.zeros(len(self.inhabited), np.int64)
        if self.rows is None:
            return cluster.counts(pods, self.domains.key).by_code
        on_node = cluster.counts(pods, EACH_NODE).by_code[self.rows]
        codes = self.domains.codes.data[self.rows]
        return np.bincount(codes, on_node, len(self.inhabited)).astype(np.int64)


class NodeInclusion:
    """Finds the nodes that a constraint counts.

    What was found is kept until a node's labels or taints change, in a bounded number of bytes.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._kept: BoundedCache[_Key, tuple[int, CountedNodes]]
        self._kept = BoundedCache(most_bytes, _bytes_of_nodes)

    def counted_nodes(
        self, shape: PodShape, constraint: SpreadConstraint, keys: tuple[str, ...], nodes: NodeView
    ) -> CountedNodes:
        """Return the nodes that the constraint counts for a pod of this shape.

        `nodes` is a view of all nodes. The counted ones have the constraint's label and those of
        `keys`, and match its node inclusion policies
        (matchNodeInclusionPolicies in podtopologyspread/common.go).
        """
        selects = bool(shape.required_nodes or shape.node_selector.requirements)
        by_affinity = constraint.honor_affinity and selects
        by_taints = constraint.honor_taints and len(nodes.taint_sets) > 1
        of_shape = shape if by_affinity or by_taints else None
        selects_like, tolerates_like = (0, 0) if of_shape is None else _numbers_for(of_shape)
        selected = selects_like if by_affinity else None
        tolerated = tolerates_like if by_taints else None
        key = (constraint.topology_key, keys, selected, tolerated)
        known = self._kept.get(key)
        if known is not None and known[0] == nodes.topology_version:
            return known[1]
        counted = _counted_nodes(of_shape, constraint, keys, nodes)
        self._kept.put(key, (nodes.topology_version, counted))
        return counted


def _bytes_of_nodes(key: _Key, value: tuple[int, CountedNodes]) -> int:
    _, counted = value
    rows = 0 if counted.rows is None else counted.rows.nbytes
    return bytes_of(key) + rows + counted.inhabited.nbytes


class _HashedOnce:
    """A value that may be large, with its hash, which is computed once."""

    __slots__ = ("_hash", "_value")

    def __init__(self, value: Hashable) -> None:
        self._value = value
        self._hash = hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _HashedOnce) and self._value == other._value


_numbers: Final = count()


@cached(8 * 1024 * 1024)
def _numbers_for(shape: PodShape) -> tuple[int, int]:
    """Return two numbers: equal if shapes select the same nodes, and tolerate the same taints.

    A selector may be large, so it is hashed once per shape and not for each constraint.
    """
    selects = _HashedOnce((shape.node_selector, shape.required_nodes))
    return _number(selects), _number(_HashedOnce(shape.tolerations))


@cached(8 * 1024 * 1024)
def _number(_selecting: _HashedOnce) -> int:
    """Return a number for the value, equal for equal values until the value is dropped."""
    return next(_numbers)


def _counted_nodes(
    shape: PodShape | None, constraint: SpreadConstraint, keys: tuple[str, ...], nodes: NodeView
) -> CountedNodes:
    """Count nodes like `NodeInclusion.counted_nodes`; `shape` is None if no policy excludes any."""
    domains = nodes.label(constraint.topology_key)
    partial = [k for k in keys if k != domains.key and nodes.label(k).held < nodes.node_count]
    if shape is None and not partial:
        return CountedNodes(domains, None, domains.inhabited)
    included = nodes.label_codes(domains.key) != ABSENT
    for key in partial:
        included &= nodes.label_codes(key) != ABSENT
    if shape is not None and constraint.honor_affinity:
        included &= nodes.admitted(shape.node_selector, shape.required_nodes)
    if shape is not None and constraint.honor_taints:
        included &= _tolerated(shape, nodes)
    rows = np.flatnonzero(included)
    inhabited = np.zeros(len(domains.values) + 1, np.bool_)
    inhabited[domains.codes.data[rows]] = True
    return CountedNodes(domains, rows, inhabited)


def includes(shape: PodShape, constraint: SpreadConstraint, node: Node) -> bool:
    """Return whether the node matches the constraint's inclusion policies for the shape."""
    if constraint.honor_affinity and not shape.selects(node):
        return False
    return not (constraint.honor_taints and repelled(node.taints, shape.tolerations))


def _tolerated(shape: PodShape, nodes: NodeView) -> BoolArray:
    """Return True where the pod tolerates every taint that would repel it."""
    by_code = [not repelled(taints, shape.tolerations) for taints in nodes.taint_sets]
    passed: BoolArray = np.array(by_code)[nodes.taint_codes]
    return passed
