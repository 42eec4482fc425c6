"""Confines a pod group to one topology domain (topologyaware/).

A group may name several node labels, the widest domain first. The domains of the last label are the
tightest, and are tried first. Domains with less free are preferred to those with more. In place of
labels, a group of Volcano may name HyperNodes, those of lower tiers first.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import ClassVar

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.placements import Placement
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Unschedulable
from mooring.groups.model.hyper_node import HYPER_NODE_KEY, HyperNode
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.events import Kind
from mooring.pausing import pause
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT


class TopologyPlacementGenerator:
    """Makes a placement of each domain of the node labels that a group names."""

    name: ClassVar[str] = "TopologyPlacementGenerator"
    depends_on_node_only: ClassVar[bool] = False

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def generate_placements(
        self, group: PodGroupState, parent: Placement, cluster: ClusterView
    ) -> tuple[Placement, ...] | Unschedulable:
        """Return the domains, tightest first; the parent if the group has no topology keys."""
        topology = group.definition.topology if group.definition is not None else None
        if topology is None or not topology.keys:
            return (parent,)
        placed = (*group.assumed.values(), *group.assigned.values())
        rows = np.array(sorted({state.row for state in placed}), np.int64)
        found = list[Placement]()
        for tier, key in enumerate(reversed(topology.keys), parent.tier):
            if key == HYPER_NODE_KEY:
                found += _hyper_nodes(topology.highest_tier, parent, tier, rows, cluster)
            else:
                found += _domains(key, parent, tier, rows, cluster)
        if not topology.required:
            nowhere = max((p.tier for p in found), default=parent.tier) + 1
            found.append(Placement(parent.rows, parent.key, parent.value, nowhere))
        if not found and topology.highest_tier is not None:
            where = "has all members that are placed already" if placed else "has nodes"
            why = f"no HyperNode of tier {topology.highest_tier} or lower {where}"
            return Unschedulable(why, resolvable=False)
        if not found:
            keys = ", ".join(topology.keys)
            where = "of all members that are placed already" if placed else "with this label"
            return Unschedulable(f"no topology domain {where}: {keys}", resolvable=False)
        return tuple(found)


def _hyper_nodes(
    highest: int | str | None, parent: Placement, tier: int, placed: IntArray, cluster: ClusterView
) -> list[Placement]:
    """Return the parent's nodes by HyperNode: of lower tiers first, then with the least free.

    A HyperNode has members of lower tiers only, so that none is in itself. See `_domains`.
    """
    objects: Mapping[str, HyperNode] = cluster.objects(Kind.HYPER_NODE)
    known = sorted(objects.values(), key=lambda each: each.tier)
    if isinstance(highest, str):
        highest = max((each.tier for each in known if each.tier_name == highest), default=-1)
    rows_of, found = dict[str, IntArray](), list[tuple[float, Placement]]()
    for _, of_tier in groupby(known, key=attrgetter("tier")):
        resolved = {each.name: _rows_of(each, rows_of, cluster) for each in of_tier}
        rows_of |= resolved
        for name, its in resolved.items():
            rows, its_tier = parent.rows[np.isin(parent.rows, its)], objects[name].tier
            is_allowed = highest is None or its_tier <= highest
            if is_allowed and len(rows) and np.isin(placed, rows).all():
                placement = Placement(rows, HYPER_NODE_KEY, name, tier + its_tier)
                found.append((float(_free(rows, cluster).sum()), placement))
    found.sort(key=lambda each: (each[1].tier, each[0]))
    return [placement for _, placement in found]


def _rows_of(each: HyperNode, lower: Mapping[str, IntArray], cluster: ClusterView) -> IntArray:
    """Return the rows of the nodes in the HyperNode; `lower` has those of lower tiers."""
    rows, names = set[int](cluster.rows(each.nodes).tolist()), cluster.node_names
    for name, its in lower.items():
        if name in each.hyper_nodes or any(p.search(name) for p in each.hyper_node_patterns):
            rows.update(its.tolist())
    for pattern in each.node_patterns:
        rows.update(row for row in cluster.nodes_in_order.tolist() if pattern.search(names[row]))
        pause()
    for selector in each.node_selectors:
        for row in cluster.nodes_in_order.tolist():
            node = cluster.node(row)
            if node is not None and selector.matches(node.labels):
                rows.add(row)
        pause()
    pause()
    return np.array(sorted(rows - {-1}), np.int64)


def _domains(
    key: str, parent: Placement, tier: int, placed: IntArray, cluster: ClusterView
) -> Iterator[Placement]:
    """Yield the parent's nodes by their value of the label, those with the least free first.

    `placed` are the int64 rows of members that are on a node: only a domain with all of them is a
    placement. The nodes are sorted once, because each node may be a domain of its own.
    """
    column, rows = cluster.nodes.label(key), parent.rows
    if len(placed):
        if not np.isin(placed, rows).all():
            return
        common = np.unique(cluster.nodes.take(placed).label_codes(key))
        if len(common) > 1:
            return
        rows = rows[cluster.nodes.take(rows).label_codes(key) == common[0]]
    codes = cluster.nodes.take(rows).label_codes(key)
    rows, codes = rows[codes != ABSENT], codes[codes != ABSENT]
    if not len(rows):
        return
    by_code = np.argsort(codes, kind="stable")
    rows, codes = rows[by_code], codes[by_code]
    known, starts = np.unique(codes, return_index=True)
    sums = np.add.reduceat(_free(rows, cluster), starts)
    domains = np.split(rows, starts[1:])
    for i in np.argsort(sums, kind="stable").tolist():
        yield Placement(domains[i], key, column.values[int(known[i])], tier)


def _free(rows: IntArray, cluster: ClusterView) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return float64[rows]: the free millicores of each node."""
    nodes = cluster.nodes.take(rows)
    free: np.ndarray[tuple[int], np.dtype[np.float64]] = np.maximum(
        nodes.allocatable("cpu") - nodes.requested("cpu"), 0
    ).astype(np.float64)
    return free
