"""The nodes that a topology spread constraint counts, by its node inclusion policies."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from mooring.model.affinity import SpreadConstraint
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

_MOST_KEPT: Final = 256


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
        """How many selected pods (None: none) these nodes have per code; a last 0 for ABSENT."""
        if pods is None:
            return np.zeros(len(self.inhabited), np.int64)
        if self.rows is None:
            return cluster.counts(pods, self.domains.key).by_code
        on_node = cluster.counts(pods, EACH_NODE).by_code[self.rows]
        codes = self.domains.codes.data[self.rows]
        return np.bincount(codes, on_node, len(self.inhabited)).astype(np.int64)


class NodeInclusion:
    """Finds the nodes that a constraint counts.

    They are kept until a node's labels or taints change.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], CountedNodes] = {}
        self._numbers: dict[object, int] = {}
        self._numbers_of: dict[PodShape, tuple[int, int]] = {}
        self._version = -1

    def counted_nodes(
        self, shape: PodShape, constraint: SpreadConstraint, keys: tuple[str, ...], nodes: NodeView
    ) -> CountedNodes:
        """The nodes that the constraint counts for a pod of this shape.

        `nodes` is a view of all nodes. The counted ones have the constraint's label and those of
        `keys`, and match its node inclusion policies
        (matchNodeInclusionPolicies in podtopologyspread/common.go).
        """
        most = max(len(self._kept), len(self._numbers_of))
        if self._version != nodes.topology_version or most >= _MOST_KEPT:
            for kept in (self._kept, self._numbers, self._numbers_of):
                kept.clear()
            self._version = nodes.topology_version
        selects = bool(shape.required_nodes or shape.node_selector.requirements)
        by_affinity = constraint.honor_affinity and selects
        by_taints = constraint.honor_taints and len(nodes.taint_sets) > 1
        of_shape = shape if by_affinity or by_taints else None
        selects_like, tolerates_like = (0, 0) if of_shape is None else self._numbers_for(of_shape)
        selected = selects_like if by_affinity else None
        tolerated = tolerates_like if by_taints else None
        key = (constraint.topology_key, keys, selected, tolerated)
        counted = self._kept.get(key)
        if counted is None:
            counted = self._kept[key] = _counted_nodes(of_shape, constraint, keys, nodes)
        return counted

    def _numbers_for(self, shape: PodShape) -> tuple[int, int]:
        """Numbers that are equal for shapes that select the same nodes, and tolerate the same.

        A selector may be large, so it is hashed once per shape and not for each constraint.
        """
        found = self._numbers_of.get(shape)
        if found is None:
            selects, tolerates = (shape.node_selector, shape.required_nodes), shape.tolerations
            numbers = self._numbers
            found = self._numbers_of[shape] = (
                numbers.setdefault(selects, len(numbers)),
                numbers.setdefault(tolerates, len(numbers)),
            )
        return found


def _counted_nodes(
    shape: PodShape | None, constraint: SpreadConstraint, keys: tuple[str, ...], nodes: NodeView
) -> CountedNodes:
    """As `NodeInclusion.counted_nodes`; `shape` is None if neither policy can exclude a node."""
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
    """Whether the node matches the constraint's inclusion policies for a pod of this shape."""
    if constraint.honor_affinity and not shape.selects(node):
        return False
    return not (constraint.honor_taints and repelled(node.taints, shape.tolerations))


def _tolerated(shape: PodShape, nodes: NodeView) -> BoolArray:
    """True where the pod tolerates every taint that would repel it."""
    by_code = [not repelled(taints, shape.tolerations) for taints in nodes.taint_sets]
    passed: BoolArray = np.array(by_code)[nodes.taint_codes]
    return passed
