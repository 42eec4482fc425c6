"""How many feasible nodes a search looks for, and from where (schedule_one.go)."""

from typing import Final

import numpy as np

from mooring.framework.pipeline import Pipeline
from mooring.state.columns import IntArray
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray

__all__ = ["nodes_to_find", "sampled"]

_FEWEST_NODES: Final = 100
_LEAST_PERCENTAGE: Final = 5


def nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes are enough among `nodes` (numFeasibleNodesToFind)."""
    if nodes < _FEWEST_NODES:
        return nodes
    if percentage == 0:
        percentage = max(_LEAST_PERCENTAGE, 50 - nodes // 125)
    return max(_FEWEST_NODES, nodes * percentage // 100)


def sampled(
    fits: BoolArray, cluster: Snapshot, pipeline: Pipeline, candidates: int, start: int
) -> tuple[IntArray, int]:
    """The feasible rows (int64) a search finds, and how many nodes it looked at to find them.

    `fits` is bool[rows]; `candidates` counts the nodes that pre_filter left. The search goes
    through the zone-interleaved order from position `start`, round the end, until it has enough.
    """
    wanted = nodes_to_find(candidates, pipeline.percentage)
    rows = np.flatnonzero(fits)
    if len(rows) <= wanted:
        return rows, candidates
    order = np.roll(cluster.nodes_in_order, -start)
    found = np.flatnonzero(fits[order])[:wanted]
    return order[found], int(found[-1]) + 1
