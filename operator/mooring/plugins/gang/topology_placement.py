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
from mooring.state.columns import IntArray
from mooring.state.labels import ABSENT
from mooring.state.pod_groups import PodGroupState
from mooring.state.snapshot import Snapshot

__all__ = ["TopologyPlacementGenerator"]


class TopologyPlacementGenerator:
    """Makes a placement of each domain of the node labels that a group names."""

    name: ClassVar[str] = "TopologyPlacementGenerator"
    row_local: ClassVar[bool] = False

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def generate_placements(
        self, group: PodGroupState, parent: Placement, cluster: Snapshot
    ) -> tuple[Placement, ...] | Unschedulable:
        """The domains, tightest first; the parent if the group has no topology constraint."""
        topology = group.definition.topology if group.definition is not None else None
        if topology is None or not topology.keys:
            return (parent,)
        placed = (*group.assumed.values(), *group.assigned.values())
        rows = np.array(sorted({state.row for state in placed}), np.int64)
        found = [
            placement
            for tier, key in enumerate(reversed(topology.keys))
            for placement in _domains(key, parent, parent.tier + tier, cluster)
            if np.isin(rows, placement.rows).all()
        ]
        if not topology.required:
            nowhere = parent.tier + len(topology.keys)
            found.append(Placement(parent.rows, parent.key, parent.value, nowhere))
        if not found:
            keys = ", ".join(topology.keys)
            where = "of all members that are placed already" if placed else "with this label"
            return Unschedulable(f"no topology domain {where}: {keys}", resolvable=False)
        return tuple(found)


def _domains(key: str, parent: Placement, tier: int, cluster: Snapshot) -> Iterator[Placement]:
    """The parent's nodes by their value of the label, those with the least free first."""
    nodes, column = cluster.nodes.take(parent.rows), cluster.nodes.label(key)
    codes = nodes.label_codes(key)
    free = _free(parent.rows, cluster)
    known = np.unique(codes[codes != ABSENT])
    sums = [float(free[codes == code].sum()) for code in known.tolist()]
    for code in known[np.argsort(sums, kind="stable")].tolist():
        yield Placement(parent.rows[codes == code], key, column.values[code], tier)


def _free(rows: IntArray, cluster: Snapshot) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """float64[rows]: the share of each node's cpu that is free; the node's size counts, too."""
    nodes = cluster.nodes.take(rows)
    free: np.ndarray[tuple[int], np.dtype[np.float64]] = np.maximum(
        nodes.allocatable("cpu") - nodes.requested("cpu"), 0
    ).astype(np.float64)
    return free
