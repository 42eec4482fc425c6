"""The goals Violations and Spread: pods that would be placed elsewhere today, one by one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from mooring.engine.rebalancing.alike import AlikePods
from mooring.engine.rebalancing.comparing import Compared, compared, violation
from mooring.engine.rebalancing.estimates import Estimate, estimates
from mooring.engine.rebalancing.movable import created_anew
from mooring.engine.rebalancing.plan import Move, Step
from mooring.engine.rebalancing.planning import NOWHERE_ELSE, Planning
from mooring.framework.evaluations import AttemptTooLongError
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.policy.rebalancing import Goal

__all__ = ["VIOLATION_GAIN", "Candidate", "find", "improve", "improvement", "step_of", "violates"]

VIOLATION_GAIN: Final = 1_000
_FEW: Final = 3
"""Up to so many alike pods are decided about one by one."""
_MOST_PLACES: Final = 16
"""Kinds of places of alike pods at which estimates are corrected by a decision."""
_CHECKS_PER_STEP: Final = 4
"""A filter of one node costs about a quarter of a decision."""
_FAILED = "is one that a plugin fails for"


@dataclass(order=True, slots=True)
class Candidate:
    """A pod that may gain by a move; those that may gain most come first.

    `as_of` counts the moves of the plan when the gain was found out by a decision; -1: estimated.
    """

    cost: int
    """The gain with the other sign."""
    key: str
    uid: str
    pod: Pod = field(compare=False)
    as_of: int = field(default=-1, compare=False)


def find(planning: Planning, alike: AlikePods) -> list[Candidate]:
    """Return those of these pods that may gain by Violations or Spread; note who may not move.

    For Violations they do gain, unless they fit nowhere else.
    """
    movable, moved = planning.movable, planning.moved
    pods = [pod for pod in alike.pods if not movable.stays(pod) and pod.uid not in moved]
    planning.looked_at.update({pod.uid for pod in alike.pods}.difference(pod.uid for pod in pods))
    reasons = {pod.uid: movable.refusal(pod) for pod in pods}
    estimated = None
    if len(pods) > _FEW:
        estimated = _estimated(planning, pods)
    if estimated is not None:
        candidates = _by_estimates(planning, estimated)
    else:
        candidates = _one_by_one(planning, pods)
    found = list[Candidate]()
    for candidate in candidates:
        if (reason := reasons[candidate.pod.uid]) is None:
            found.append(candidate)
        else:
            planning.refuse(candidate.pod, reason)
    return found


def improve(planning: Planning, candidates: list[Candidate]) -> None:
    """Add steps for the candidates, those that gain most first.

    A gain may be another after the moves before it. So each is found out anew, and if it is less
    than another may be, that one is looked at first.
    """
    heapify(candidates)
    while candidates and not planning.done:
        candidate = heappop(candidates)
        if candidate.uid in planning.moved:
            continue
        improved = improvement(planning, candidate.pod)
        if improved is None:
            continue
        found, gain = improved
        if candidate.as_of != len(planning.moved) and candidates and -gain > candidates[0].cost:
            again = _candidate(candidate.pod, gain)
            again.as_of = len(planning.moved)
            heappush(candidates, again)
            continue
        planning.trial.move(found.pod, found.anew, found.target)
        planning.accept(step_of(found, gain))
        pause()


def improvement(planning: Planning, pod: Pod) -> tuple[Compared, int] | None:
    """Return where the pod would be placed today, and what it gains; None if not enough.

    A pod that fits on no other node is noted as refused.
    """
    found, goals = _compared(planning, pod), planning.section.goals
    if found is None or not found.violation:
        gain = found.gain if found is not None and Goal.SPREAD in goals else 0
        return (found, gain) if found and gain >= planning.section.minimum_gain else None
    if Goal.VIOLATIONS not in goals:
        return None
    if not found.target:
        planning.refuse(pod, NOWHERE_ELSE)
        return None
    return found, VIOLATION_GAIN


def _compared(planning: Planning, pod: Pod) -> Compared | None:
    planning.budget.spend(1)
    try:
        found = compared(pod, planning.pipeline, planning.what_if, planning.trial)
    except AttemptTooLongError:
        return None
    except PluginFailed:
        planning.refuse(pod, _FAILED)
        return None
    pause()
    return found


def _one_by_one(planning: Planning, pods: Sequence[Pod]) -> list[Candidate]:
    """Return which pods gain, by a decision about each."""
    candidates = list[Candidate]()
    for pod in pods:
        if planning.budget.spent:
            break
        planning.looked_at.add(pod.uid)
        improved = improvement(planning, pod)
        if improved is not None:
            candidates.append(_candidate(pod, improved[1]))
    return candidates


def step_of(found: Compared, gain: int) -> Step:
    """Return the step that moves the pod there."""
    moves = (Move(found.pod, found.source, found.target),)
    if found.violation:
        return Step(Goal.VIOLATIONS, moves, f"its node does not pass {found.violation}", gain)
    higher, lower = found.scores
    reason = f"the total score is {higher} instead of {lower}"
    return Step(Goal.SPREAD, moves, reason, gain)


def _candidate(pod: Pod, gain: int) -> Candidate:
    return Candidate(-gain, pod.key, pod.uid, pod)


def _estimated(planning: Planning, pods: Sequence[Pod]) -> list[Estimate] | None:
    planning.budget.spend(1)
    try:
        found = estimates(pods, planning.pipeline, planning.what_if)
    except PluginFailed:
        return None
    pause()
    if found is not None:
        planning.looked_at.update(pod.uid for pod in pods)
    return found


def _by_estimates(planning: Planning, found: list[Estimate]) -> list[Candidate]:
    """Return which pods gain, as far as filters of one node and corrected estimates tell."""
    candidates, on_good_nodes = list[Candidate](), list[Estimate]()
    for number, estimate in enumerate(found):
        if estimate.suspect and Goal.VIOLATIONS in planning.section.goals:
            planning.budget.spend(number % _CHECKS_PER_STEP == 0)
            if violates(planning, estimate.pods[0]):
                candidates += [_candidate(pod, VIOLATION_GAIN) for pod in estimate.pods]
                continue
        on_good_nodes.append(estimate)
    if Goal.SPREAD in planning.section.goals:
        candidates += _spread(planning, on_good_nodes)
    return candidates


def violates(planning: Planning, pod: Pod) -> bool:
    """Return whether the pod's own node rejects it."""

    def found() -> bool:
        placed = planning.cluster.pod(pod.uid)
        node = planning.cluster.node(placed.row) if placed is not None else None
        if placed is None or node is None:
            return False
        row = placed.row
        with planning.trial.without(pod):
            search = planning.what_if.search(created_anew(pod, node), planning.pipeline)
            return bool(violation(search, row))

    try:
        violates = found()
    except PluginFailed:
        return False
    pause()
    return violates


def _spread(planning: Planning, found: list[Estimate]) -> list[Candidate]:
    """Return the pods for which another node may score higher by the least gain or more."""
    least = planning.section.minimum_gain
    errors: dict[tuple[int, ...], int] = {}
    candidates = list[Candidate]()
    for estimate in sorted(found, key=lambda each: (-each.gain, each.pods[0].uid)):
        if estimate.gain < least and (estimate.exact or not _may_be_low(estimate)):
            break
        if not estimate.exact and estimate.place not in errors and len(errors) < _MOST_PLACES:
            better = _compared(planning, estimate.pods[0])
            errors[estimate.place] = estimate.gain - (better.gain if better is not None else 0)
        gain = estimate.gain - errors.get(estimate.place, 0)
        if gain >= least:
            candidates += [_candidate(pod, gain) for pod in estimate.pods]
    return candidates


def _may_be_low(estimate: Estimate) -> bool:
    """Return whether the pods may gain more than estimated, as their nodes attract them."""
    affinity = estimate.pods[0].spec.affinity
    return any(preferred.weight > 0 for preferred in affinity.preferred)
