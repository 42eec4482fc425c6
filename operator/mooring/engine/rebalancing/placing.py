"""Finds nodes for pods and groups in the trial of a plan.

It is the policy's decision that finds them, or they are where a pod fits best.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from mooring.engine.groups.decision import GroupDecision
from mooring.engine.outcome import ScheduleResult
from mooring.engine.rebalancing.planning import Planning
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.state.columns import IntArray
from mooring.state.pod_groups import PodGroupState

__all__ = [
    "best_fit",
    "decided",
    "decided_group",
    "fits_on",
    "free_shares",
    "group_decision",
    "share_of",
]

_Result = TypeVar("_Result")


def decided(planning: Planning, pod: Pod) -> str | None:
    """Return the node that the policy chooses for the pod; None if it fits nowhere."""

    def outcome() -> str | None:
        found = planning.what_if.decide(pod, planning.pipeline)
        return found.node if isinstance(found, ScheduleResult) else None

    return _found(planning, outcome)


def group_decision(
    planning: Planning, group: PodGroupState, members: Sequence[Pod]
) -> GroupDecision:
    """Return the decision about the group; its rows mean nothing after a pause."""
    try:
        return planning.what_if.decide_group(group, members, planning.pipeline, planning.budget)
    except PluginFailed as error:
        return GroupDecision({}, message=str(error))


def decided_group(
    planning: Planning, group: PodGroupState, members: Sequence[Pod]
) -> Mapping[Uid, str]:
    """Return the node of each member that gets one."""
    decision = group_decision(planning, group, members)
    names = planning.cluster.node_names
    return {uid: names[row] for uid, row in decision.rows.items()}


def best_fit(
    planning: Planning, pod: Pod, nodes: Collection[str], *, last: Collection[str] = ()
) -> str | None:
    """Return which of these nodes is the fullest of those that fit; None if the pod fits on none.

    Nodes that are in `last` are taken only if no other fits.
    """

    def fullest() -> str | None:
        names = planning.cluster.node_names
        feasible: list[int] = planning.what_if.feasible_rows(pod, planning.pipeline).tolist()
        here = [row for row in feasible if names[row] in nodes]
        first = [row for row in here if names[row] not in last]
        for chosen in (first, here):
            if chosen:
                free = free_shares(planning, np.array(chosen, np.int64))
                return names[chosen[int(np.argmin(free))]]
        return None

    return _found(planning, fullest)


def fits_on(planning: Planning, pod: Pod, node: str) -> bool:
    """Return whether the node passes all filters, also beside the pods nominated to it."""

    def fits() -> bool:
        row = planning.cluster.row(node)
        if row is None or planning.cluster.node(row) is None:
            return False
        search = planning.what_if.search(pod, planning.pipeline)
        return not search.rejections(row) and not search.rejections_with_nominated(row)

    return bool(_found(planning, fits))


def _found(planning: Planning, search: Callable[[], _Result]) -> _Result | None:
    """Return what is found in the trial, which may pause afterwards; None if a plugin fails."""
    planning.budget.spend(1)
    try:
        found = search()
    except PluginFailed:
        return None
    pause()
    return found


def free_shares(planning: Planning, rows: IntArray) -> np.typing.NDArray[np.float64]:
    """Return by row the sum of what is free of cpu and memory, each as a share of the node's."""
    nodes = planning.cluster.nodes.take(rows)
    total = np.zeros(len(rows))
    for resource in ("cpu", "memory"):
        allocatable = np.maximum(nodes.allocatable(resource), 1)
        total += (allocatable - nodes.requested(resource)) / allocatable
    return total


def share_of(planning: Planning, pod: Pod) -> float:
    """Return the largest share of all that the nodes offer of a resource that the pod requests."""
    nodes = planning.cluster.nodes
    return max(
        (
            amount / max(int(nodes.allocatable(resource).sum()), 1)
            for resource, amount in pod.spec.demand.resources.items()
        ),
        default=0.0,
    )
