"""The documents about plans: for `mooring rebalance`, the page, statuses and /debug/rebalancing.

Pods are `PodRef`s, so that their names are hidden from users who may not get these pods.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mooring.framework.decision import PodRef, TextAboutPods
from mooring.model.pod import Pod
from mooring.model.resources import CPU, MEMORY
from mooring.policy.rebalancing import Goal, Rebalancing
from mooring.rebalancing.plan import Move, Plan, Step, Why
from mooring.state.cluster_view import ClusterView

_OTHER_GROUP: Final = "a pod group that you may not get"


@dataclass(frozen=True, slots=True)
class MovedPod:
    """A pod that moves from one node to another; `owner` is the kind of its controller."""

    pod: PodRef
    owner: str
    from_: str
    to: str


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A `Step` as a document: moves that help only together."""

    goal: str
    reason: Why
    gain: int
    moves: tuple[MovedPod, ...]
    fits: tuple[PodRef, ...]
    emptied: tuple[str, ...]
    group: TextAboutPods | None = None


@dataclass(frozen=True, slots=True)
class RefusedPods:
    """The number of pods that would gain but are not moved; `reason` completes "the pod ..."."""

    reason: str
    pods: int


@dataclass(frozen=True, slots=True)
class NodeRequests:
    """The number of pods on a node, and their requests of cpu and memory in percent of the node."""

    pods: int
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class NodeBeforeAndAfter:
    """A node that gains or loses pods, before and after the moves."""

    node: str
    before: NodeRequests
    after: NodeRequests


@dataclass(frozen=True, slots=True)
class PlanReport:
    """A plan of one profile, as users read it.

    Attributes:
        pods: The number of running pods of the profile.
        examined: The number of pods examined for Violations and Spread; absent without these goals.
        moves: The number of pods that would move.
        more: Whether more pods may gain, but the profile's limits allow no more moves.
        spent: Whether the budget of decisions was spent, or pods were left unexamined.
        message: Why there are no steps; empty if moves gain nothing.
        nodes: The nodes that change, with their state when the document is read.
        time: When the leader or the page made the plan.
    """

    profile: str
    mode: str
    goals: tuple[str, ...]
    pods: int
    moves: int
    more: bool
    spent: bool
    violations: int
    emptied: tuple[str, ...]
    fits: tuple[PodRef, ...]
    message: Why
    steps: tuple[PlannedStep, ...]
    refused: tuple[RefusedPods, ...]
    nodes: tuple[NodeBeforeAndAfter, ...] = ()
    examined: int | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class RebalancingReport:
    """The document about a profile in /debug/rebalancing; `plan` is None before the first plan."""

    profile: str
    mode: str
    message: Why
    done: int
    evicted_in_last_hour: int
    under_way: tuple[PlannedStep, ...]
    plan: PlanReport | None = None


def plan_report(
    profile: str, section: Rebalancing, plan: Plan, time: str | None = None
) -> PlanReport:
    """Return the plan as a document; `with_nodes` adds its `nodes`.

    `time` says when the plan was made (RFC 3339); None if this is unknown.
    """
    refused = sorted(plan.refused.items(), key=lambda item: (-item[1], item[0]))
    return PlanReport(
        profile=profile,
        mode=section.mode,
        goals=tuple(section.goals),
        pods=plan.pods,
        examined=plan.examined,
        moves=len(plan.moves),
        more=len(plan.moves) >= section.limits.moves_per_plan,
        spent=plan.spent,
        violations=sum(len(s.moves) for s in plan.steps if s.goal is Goal.VIOLATIONS),
        emptied=tuple(node for step in plan.steps for node in step.emptied),
        fits=tuple(pod for step in plan.steps for pod in step.fits),
        message=plan.message,
        steps=tuple(map(planned_step, plan.steps)),
        refused=tuple(RefusedPods(reason, count) for reason, count in refused if count),
        time=time,
    )


def planned_step(step: Step, only: Move | None = None) -> PlannedStep:
    """Return the step as a document, with all its moves or only with the move `only`."""
    moves = step.moves if only is None else (only,)
    refs = tuple(PodRef.of(move.pod) for move in moves)
    owners = (move.pod.owner.kind if move.pod.owner is not None else "" for move in moves)
    shown = tuple(
        MovedPod(ref, owner, move.source, move.target)
        for ref, owner, move in zip(refs, owners, moves, strict=True)
    )
    group = TextAboutPods(step.group, refs, _OTHER_GROUP) if step.group else None
    return PlannedStep(step.goal, step.reason, step.gain, shown, step.fits, step.emptied, group)


def with_nodes(report: PlanReport, cluster: ClusterView) -> PlanReport:
    """Return the report with `nodes`: how full each node of the moves is now and after the moves.

    Nodes are sorted by name. Nodes that no longer exist, and pods that have left their source, are
    ignored.
    """
    coming: dict[str, list[Pod]] = {}
    leaving: dict[str, list[Pod]] = {}
    for move in (move for step in report.steps for move in step.moves):
        placed = cluster.pod(move.pod.uid)
        is_there = placed is not None and placed.pod.node_name == move.from_
        coming.setdefault(move.to, []).extend([placed.pod] if placed and is_there else [])
        leaving.setdefault(move.from_, []).extend([placed.pod] if placed and is_there else [])
    found = []
    for name in sorted({*coming, *leaving}):
        row = cluster.row(name)
        if row is not None and cluster.node(row) is not None:
            change = _requests(coming.get(name, ()), leaving.get(name, ()))
            found.append(
                NodeBeforeAndAfter(name, _use(cluster, row, {}), _use(cluster, row, change))
            )
    return replace(report, nodes=tuple(found))


def _requests(coming: Iterable[Pod], leaving: Iterable[Pod]) -> Mapping[str, int]:
    """Return how a node's cpu (millicores), memory (bytes) and number of pods change."""
    total = {CPU: 0, MEMORY: 0, "pods": 0}
    for sign, pods in ((1, coming), (-1, leaving)):
        for pod in pods:
            total["pods"] += sign
            for resource in (CPU, MEMORY):
                total[resource] += sign * pod.spec.demand.resources.get(resource, 0)
    return total


def _use(cluster: ClusterView, row: int, change: Mapping[str, int]) -> NodeRequests:
    node = cluster.nodes.take(np.array([row], np.int64))
    shares = []
    for resource in (CPU, MEMORY):
        there = int(node.allocatable(resource)[0])
        requested = int(node.requested(resource)[0]) + change.get(resource, 0)
        shares.append(round(100 * requested / there, 1) if there else 0.0)
    return NodeRequests(int(node.pod_count[0]) + change.get("pods", 0), *shares)
