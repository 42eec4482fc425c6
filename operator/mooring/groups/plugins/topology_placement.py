"""Confines a pod group to one topology domain (topologyaware/).

A group may name several node labels, the widest domain first. The domains of the last label are the
tightest, and are tried first. Domains with less free are preferred to those with more.
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.placements import Placement
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Unschedulable
from mooring.groups.state.pod_groups import PodGroupState
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
        found = [
            placement
            for tier, key in enumerate(reversed(topology.keys))
            for placement in _domains(key, parent, parent.tier + tier, rows, cluster)
        ]
        if not topology.required:
            nowhere = parent.tier + len(topology.keys)
            found.append(Placement(parent.rows, parent.key, parent.value, nowhere))
        if not found:
            keys = ", ".join(topology.keys)
            where = "of all members that are placed already" if placed else "with this label"
            return Unschedulable(f"no topology domain {where}: {keys}", resolvable=False)
        return tuple(found)


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
