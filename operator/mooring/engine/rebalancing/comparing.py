"""Compares a running pod's node with the one that would be chosen for the pod today."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mooring.engine.filtering import NodeSearch
from mooring.engine.outcome import FitError, ScheduleResult
from mooring.engine.rebalancing.movable import created_anew
from mooring.engine.rebalancing.trial import PlanTrial
from mooring.engine.what_if import WhatIf
from mooring.framework.diagnosis import RejectedNodes
from mooring.framework.pipeline import Pipeline
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.taints import repelled

__all__ = ["Compared", "compared", "left_to_others", "violation"]

_OF_THE_NODE_CONTROLLER: Final = "node.kubernetes.io/"
"""Taints that begin so come from the node controller, the kubelet and `kubectl cordon`."""
_MOST_REASONS: Final = 3
_LONGEST_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class Compared:
    """A pod that would be placed elsewhere today.

    Attributes:
        pod: As it runs.
        anew: What its controller would make in its place.
        source: Its node.
        target: The node that would be chosen; "" if there is none.
        violation: Why its own node would not be chosen; "" if it could be.
        scores: The total scores of target and source, if there is no violation.
    """

    pod: Pod
    anew: Pod
    source: str
    target: str
    violation: str = ""
    scores: tuple[int, int] = (0, 0)

    @property
    def gain(self) -> int:
        """By how much the total score of the target is higher."""
        return self.scores[0] - self.scores[1]


def left_to_others(node: Node, pod: Pod) -> bool:
    """Return whether drains or the node controller take care of the pods on the node.

    It is cordoned, not ready, or has a taint of theirs that the pod does not tolerate.
    """
    theirs = (taint for taint in node.taints if taint.key.startswith(_OF_THE_NODE_CONTROLLER))
    return (
        node.unschedulable
        or node.conditions.get("Ready", "True") != "True"
        or repelled(theirs, pod.spec.tolerations)
    )


def compared(pod: Pod, pipeline: Pipeline, what_if: WhatIf, trial: PlanTrial) -> Compared | None:
    """Return where the pod would be placed today; None if on its node, or no better elsewhere.

    Nodes that others take care of are not compared.
    """
    cluster = what_if.cluster
    placed = cluster.pod(pod.uid)
    node = cluster.node(placed.row) if placed is not None else None
    if placed is None or node is None or left_to_others(node, pod):
        return None
    row, anew = placed.row, created_anew(pod, node)
    with trial.without(pod):
        outcome = what_if.decide(anew, pipeline)
        if isinstance(outcome, FitError):
            why = violation(what_if.search(anew, pipeline), row)
            return Compared(pod, anew, node.name, "", why) if why else None
        if outcome.row == row:
            return None
        scores = _scores(outcome, row)
        if scores is not None:
            return Compared(pod, anew, node.name, outcome.node, scores=scores)
        why = violation(what_if.search(anew, pipeline), row)
        return Compared(pod, anew, node.name, outcome.node, why) if why else None


def violation(search: NodeSearch, row: int) -> str:
    """Return which filter rejects the row in the present state, and why; "" if none does.

    What is kept there for nominated pods does not count: these come and go.
    """
    return _text(search.rejections(row))


def _scores(outcome: ScheduleResult, row: int) -> tuple[int, int] | None:
    """Return the total scores of the chosen node and of the row; None if that does not fit."""
    chosen, own = outcome.score_of(outcome.row), outcome.score_of(row)
    return (chosen.total, own.total) if chosen is not None and own is not None else None


def _text(rejected: Sequence[RejectedNodes]) -> str:
    if not rejected:
        return ""
    reasons = ", ".join(islice(rejected[0].explanation.reasons_at(0), _MOST_REASONS))
    return f"{rejected[0].plugin}: {reasons}"[:_LONGEST_REASON]
