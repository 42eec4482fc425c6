"""Confines a pod group to one topology domain (topologyaware/).

A group may name several node labels, the widest domain first. The domains of the last label are the
smallest, and are tried first. A domain with little free cpu is preferred. A group of Volcano may
name HyperNodes instead of labels; lower tiers are tried first.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.placements import Placement
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Unschedulable
from mooring.groups.model.hyper_node import HYPER_NODE_KEY, HyperNode
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.bounded_cache import BoundedCache
from mooring.model.events import Kind
from mooring.pausing import pause
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT

_MOST_BYTES: Final = 64 * 2**20


class TopologyPlacementGenerator:
    """Makes one placement for each domain of the group's topology keys."""

    name: ClassVar[str] = "TopologyPlacementGenerator"
    depends_on_node_only: ClassVar[bool] = False

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self._kept: BoundedCache[tuple[int, int], Mapping[str, IntArray]]
        self._kept = BoundedCache(_MOST_BYTES)
        """Caches the rows of each HyperNode's nodes, by the versions of nodes and HyperNodes."""

    def generate_placements(
        self, group: PodGroupState, parent: Placement, cluster: ClusterView
    ) -> tuple[Placement, ...] | Unschedulable:
        """Return a placement for each domain in the nodes of `parent`, the smallest domains first.

        A preferred topology adds `parent` as the last placement. Without a topology, return only
        `parent`. Return Unschedulable if a required topology has no possible domain.
        """
        topology = group.definition.topology if group.definition is not None else None
        if topology is None or not topology.keys:
            return (parent,)
        placed = (*group.assumed.values(), *group.assigned.values())
        rows = np.array(sorted({state.row for state in placed}), np.int64)
        found, tier = list[Placement](), parent.tier
        for key in reversed(topology.keys):
            if key == HYPER_NODE_KEY:
                found += self._hyper_nodes(topology.highest_tier, parent, tier, rows, cluster)
            else:
                found += _domains(key, parent, tier, rows, cluster)
            tier = max((tier, *(p.tier for p in found))) + 1
        if not topology.required:
            found.append(Placement(parent.rows, parent.key, parent.value, tier))
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
        self,
        highest: int | str | None,
        parent: Placement,
        tier: int,
        placed: IntArray,
        cluster: ClusterView,
    ) -> list[Placement]:
        objects: Mapping[str, HyperNode] = cluster.objects(Kind.HYPER_NODE)
        if isinstance(highest, str):
            of_name = (each.tier for each in objects.values() if each.tier_name == highest)
            highest = max(of_name, default=-1)
        free, found = _free(cluster.nodes.rows, cluster), list[tuple[float, Placement]]()
        is_parents = np.zeros(len(free), np.bool_)
        is_parents[parent.rows] = True
        for name, its in self._rows_of_all(cluster).items():
            pause()
            if highest is not None and objects[name].tier > highest:
                break
            is_in = np.zeros(len(free), np.bool_)
            is_in[its] = is_parents[its]
            rows = parent.rows[is_in[parent.rows]]
            # A placement must contain the nodes of members that are already placed.
            if len(rows) and is_in[placed].all():
                placement = Placement(rows, HYPER_NODE_KEY, name, tier + objects[name].tier)
                found.append((float(free[rows].sum()), placement))
        # Lower tiers come first, then HyperNodes with less free cpu.
        found.sort(key=lambda each: (each[1].tier, each[0]))
        return [placement for _, placement in found]

    def _rows_of_all(self, cluster: ClusterView) -> Mapping[str, IntArray]:
        version = cluster.nodes.topology_version, cluster.object_changes(Kind.HYPER_NODE)
        if (kept := self._kept.get(version)) is not None:
            return kept
        known = sorted(cluster.objects(Kind.HYPER_NODE).values(), key=attrgetter("tier"))
        rows_of = dict[str, IntArray]()
        # A HyperNode contains only HyperNodes of lower tiers.
        for _, of_tier in groupby(known, key=attrgetter("tier")):
            rows_of |= {each.name: _rows_of(each, rows_of, cluster) for each in of_tier}
        self._kept.clear()
        self._kept.put(version, rows_of)
        return rows_of


def _rows_of(each: HyperNode, lower: Mapping[str, IntArray], cluster: ClusterView) -> IntArray:
    is_in, named = np.zeros(len(cluster.nodes.rows), np.bool_), cluster.rows(each.nodes)
    is_in[named[named >= 0]] = True
    for name, its in lower.items():
        pause()
        if name in each.hyper_nodes or _match(each.hyper_node_patterns, name):
            is_in[its] = True
    chooses = each.node_patterns or each.node_selectors
    for row in cluster.nodes_in_order.tolist() if chooses else ():
        pause()
        if (node := cluster.node(row)) is not None:
            selected = any(selector.matches(node.labels) for selector in each.node_selectors)
            is_in[row] |= selected or _match(each.node_patterns, node.name)
    pause()
    return np.flatnonzero(is_in)


def _match(patterns: tuple[Any, ...], name: str) -> bool:
    for pattern in patterns:
        pause()
        if pattern.search(name):
            return True
    return False


def _domains(
    key: str, parent: Placement, tier: int, placed: IntArray, cluster: ClusterView
) -> Iterator[Placement]:
    """Yield a placement for each value of the node label `key`, the least free cpu first."""
    column, rows = cluster.nodes.label(key), parent.rows
    # A placement must contain the nodes of members that are already placed.
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
    nodes = cluster.nodes.take(rows)
    free: np.ndarray[tuple[int], np.dtype[np.float64]] = np.maximum(
        nodes.allocatable("cpu") - nodes.requested("cpu"), 0
    ).astype(np.float64)
    return free
