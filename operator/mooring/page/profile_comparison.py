"""Compares how full nodes would be if each of two profiles chose the nodes of some pods.

The cluster state is not changed: the pods are added to copies of its arrays.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.process.time_slices import REST, TimeSlices
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.scheduling.what_if import stays_on_its_node
from mooring.simulate.compare import (
    COMPARED,
    ChangedNode,
    NodeUse,
    Side,
    comparison_of,
    large_requests,
    merged,
    pool_of,
)
from mooring.state.columns import IntArray

_MOST_NAMED: Final = 10
"""The most nodes that the answer names for each group of equal pods."""


async def compared_nodes(
    scheduler: SchedulerState,
    pods: Sequence[Pod],
    sides: Iterable[Sequence[Mapping[str, Any]]],
    clock: Callable[[], float],
    *,
    running: bool,
) -> dict[str, Any]:
    """Return the result of `mooring simulate --compare` for two profiles, as JSON values.

    Args:
        scheduler: The live state.
        pods: The pods that were decided about.
        sides: For each profile, the `node` and the `cause` of each pod, in the order of `pods`.
        clock: Monotonic, in seconds.
        running: Whether the pods have nodes now. The decisions ignored these nodes.
    """
    nodes = await _Nodes.read(scheduler, clock)
    large = large_requests(pods)
    before, after = (nodes.with_pods(pods, side, large, running=running) for side in sides)
    comparison = comparison_of(pods, before, after)
    document = comparison.document()
    del document["moves"]
    return {**document, "moved": [_row(group) for group in merged(comparison.moves)]}


def _row(group: Sequence[ChangedNode]) -> dict[str, Any]:
    old = sorted({move.old for move in group if move.old is not None})
    new = sorted({move.new for move in group if move.new is not None})
    return {
        "pod": group[0].pod,
        "pods": len(group),
        "old": {"nodes": len(old), "names": old[:_MOST_NAMED]},
        "new": {"nodes": len(new), "names": new[:_MOST_NAMED]},
        "reason": group[0].reason or None,
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """The nodes at one moment, as arrays."""

    names: Mapping[str, int]
    pools: Sequence[str]
    allocatable: Mapping[str, IntArray]
    requested: Mapping[str, IntArray]
    slots: IntArray
    movable: IntArray
    scheduler: SchedulerState

    @classmethod
    async def read(cls, scheduler: SchedulerState, clock: Callable[[], float]) -> "_Nodes":
        """Read the nodes; count the pods in slices, and read the columns at the end."""
        state, movable, pools = scheduler.state, Counter[str | None](), dict[str, str]()

        def steps() -> None:
            for placed in tuple(state.pods):
                pause()
                movable[placed.pod.node_name] += not stays_on_its_node(placed.pod)
            for node in tuple(state.nodes.nodes):
                pause()
                if node is not None:
                    pools[node.name] = pool_of(node.labels)

        await TimeSlices(rest=REST, clock=clock).run(steps)
        rows = state.nodes.order()
        columns = scheduler.cluster.nodes.take(rows)
        names = [state.nodes.names[row] for row in rows.tolist()]
        return cls(
            names={name: position for position, name in enumerate(names)},
            pools=[pools.get(name, "") for name in names],
            allocatable={name: columns.allocatable(name) for name in COMPARED},
            requested={name: columns.requested(name).copy() for name in COMPARED},
            slots=columns.pod_slots - columns.pod_count,
            movable=np.array([movable[name] for name in names], np.int64),
            scheduler=scheduler,
        )

    def with_pods(
        self,
        pods: Sequence[Pod],
        side: Sequence[Mapping[str, Any]],
        large: Mapping[str, int],
        *,
        running: bool,
    ) -> Side:
        """Return the use of nodes if each pod is on the node that this side chose for it.

        `side` and `running` are explained at `compared_nodes`, `large` at `large_requests`.
        """
        requested = {name: column.copy() for name, column in self.requested.items()}
        slots, movable = self.slots.copy(), self.movable.copy()

        def move(pod: Pod, node: str | None, sign: int) -> None:
            at = self.names.get(node) if node is not None else None
            if at is None:
                return
            for name, column in requested.items():
                column[at] += sign * pod.spec.demand.resources.get(name, 0)
            slots[at] -= sign
            movable[at] += sign

        for pod, decided in zip(pods, side, strict=True):
            placed = self.scheduler.cluster.pod(pod.uid) if running else None
            if placed is not None:
                move(pod, placed.pod.node_name, -1)
            move(pod, decided["node"], 1)
        empty = np.asarray(movable == 0)
        use = NodeUse(self.allocatable, requested, np.maximum(slots, 0), empty, large)
        nodes = {pod.key: each["node"] for pod, each in zip(pods, side, strict=True)}
        reasons = {
            pod.key: each["cause"] or ""
            for pod, each in zip(pods, side, strict=True)
            if each["node"] is None
        }
        return Side(nodes, reasons, use.by_pool(self.pools), use.histogram())
