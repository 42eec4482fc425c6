"""Finds the nodes that a spread constraint counts, by nodeAffinityPolicy and nodeTaintsPolicy."""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from mooring.model.affinity import SpreadConstraint
from mooring.model.bounded_cache import BoundedCache, bytes_of, cached
from mooring.model.node import Node
from mooring.model.pod_spec import PodSpec
from mooring.model.taints import repelled
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT, EACH_NODE, LabelColumn
from mooring.state.topology.domain_counts import CountArray
from mooring.state.topology.pod_selection import Selection
from mooring.state.view import BoolArray, NodeView

_Key = tuple[str, tuple[str, ...], int | None, int | None]

_MOST_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of cached sets of nodes, per profile: enough for 200 sets of 5,000 nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class CountedNodes:
    """The nodes that a topology spread constraint counts.

    `rows` is None if all nodes with the constraint's label are counted. `inhabited` says, by code
    of the label's value, whether the domain has a counted node.
    """

    domains: LabelColumn
    rows: IntArray | None
    inhabited: BoolArray

    @property
    def key(self) -> str:
        """The label by which pods are counted.

        This is the constraint's label if all nodes with this label are counted, else EACH_NODE.
        """
        return self.domains.key if self.rows is None else EACH_NODE

    def counts(self, cluster: ClusterView, pods: Selection | None) -> CountArray | IntArray:
        """Return the number of selected pods on these nodes, by code of the label's value."""
        if pods is None:
            return np.zeros(len(self.inhabited), np.int64)
        by_code = cluster.counts(pods, self.key).by_code
        if self.rows is None:
            return by_code
        on_node = by_code[self.rows]
        codes = self.domains.codes.data[self.rows]
        return np.bincount(codes, on_node, len(self.inhabited)).astype(np.int64)


class NodeInclusion:
    """Finds the nodes that a constraint counts; keeps the result until labels or taints change."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._kept: BoundedCache[_Key, tuple[int, CountedNodes]]
        self._kept = BoundedCache(most_bytes, _bytes_of_nodes)

    def counted_nodes(
        self, spec: PodSpec, constraint: SpreadConstraint, keys: tuple[str, ...], nodes: NodeView
    ) -> CountedNodes:
        """Return the nodes that the constraint counts for a pod with this spec.

        A counted node has all labels in `keys` (matchNodeInclusionPolicies in
        podtopologyspread/common.go). `nodes` is a view of all nodes.
        """
        selects = bool(spec.required_nodes or spec.node_selector.requirements)
        by_affinity = constraint.honor_affinity and selects
        by_taints = constraint.honor_taints and len(nodes.taint_sets) > 1
        of_spec = spec if by_affinity or by_taints else None
        selects_like, tolerates_like = (0, 0) if of_spec is None else _numbers_for(of_spec)
        selected = selects_like if by_affinity else None
        tolerated = tolerates_like if by_taints else None
        key = (constraint.topology_key, keys, selected, tolerated)
        known = self._kept.get(key)
        if known is not None and known[0] == nodes.topology_version:
            return known[1]
        counted = _counted_nodes(of_spec, constraint, keys, nodes)
        self._kept.put(key, (nodes.topology_version, counted))
        return counted


def _bytes_of_nodes(key: _Key, value: tuple[int, CountedNodes]) -> int:
    _, counted = value
    rows = 0 if counted.rows is None else counted.rows.nbytes
    return bytes_of(key) + rows + counted.inhabited.nbytes


class _HashedOnce:
    """A value, perhaps large, that computes its hash only once."""

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
def _numbers_for(spec: PodSpec) -> tuple[int, int]:
    selects = _HashedOnce((spec.node_selector, spec.required_nodes))
    return _number(selects), _number(_HashedOnce(spec.tolerations))


@cached(8 * 1024 * 1024)
def _number(_selecting: _HashedOnce) -> int:
    # The cache gives equal values equal numbers.
    return next(_numbers)


def _counted_nodes(
    spec: PodSpec | None, constraint: SpreadConstraint, keys: tuple[str, ...], nodes: NodeView
) -> CountedNodes:
    # `spec` is None if no policy excludes a node.
    domains = nodes.label(constraint.topology_key)
    partial = [k for k in keys if k != domains.key and nodes.label(k).held < nodes.node_count]
    if spec is None and not partial:
        return CountedNodes(domains, None, domains.inhabited)
    included = nodes.label_codes(domains.key) != ABSENT
    for key in partial:
        included &= nodes.label_codes(key) != ABSENT
    if spec is not None and constraint.honor_affinity:
        included &= nodes.admitted(spec.node_selector, spec.required_nodes)
    if spec is not None and constraint.honor_taints:
        included &= _tolerated(spec, nodes)
    rows = np.flatnonzero(included)
    inhabited = np.zeros(len(domains.values) + 1, np.bool_)
    inhabited[domains.codes.data[rows]] = True
    return CountedNodes(domains, rows, inhabited)


def includes(spec: PodSpec, constraint: SpreadConstraint, node: Node) -> bool:
    """Return whether the constraint's node inclusion policies accept the node for the spec."""
    if constraint.honor_affinity and not spec.selects(node):
        return False
    return not (constraint.honor_taints and repelled(node.taints, spec.tolerations))


def _tolerated(spec: PodSpec, nodes: NodeView) -> BoolArray:
    by_code = [not repelled(taints, spec.tolerations) for taints in nodes.taint_sets]
    passed: BoolArray = np.array(by_code)[nodes.taint_codes]
    return passed
