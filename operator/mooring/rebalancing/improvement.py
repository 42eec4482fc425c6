"""The goals Violations and Spread: moves single pods to nodes that the profile now prefers."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from mooring.framework.evaluations import AttemptTooLongError
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.node import REGION, ZONE, Node
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.estimates import Estimate, estimates
from mooring.rebalancing.movable import created_anew, labels_anew, left_to_others, owner_of
from mooring.rebalancing.plan import Move, Step
from mooring.rebalancing.plan_state import NOWHERE_ELSE, Planning
from mooring.scheduling.outcome import ScheduleResult
from mooring.state.cluster_view import ClusterView

VIOLATION_GAIN: Final = 1_000
_FEW: Final = 3
"""For up to this number of equal pods, a decision is made about each pod, without estimates."""
_MOST_PLACES: Final = 16
"""The most values of `Estimate.place` for which a decision corrects the estimates."""
_CHECKS_PER_STEP: Final = 4
"""The number of calls of `violates` that take as long as a decision, and count as one."""
_FAILED: Final = "is one that a plugin fails for"
_MOST_TOGETHER: Final = 2_000
"""The most equal pods that a plan examines together; more pods are divided into several parts."""

_Labels = dict[tuple[int, str | None, str | None], Hashable]


@dataclass(frozen=True, slots=True)
class EqualPods:
    """Pods that get the same decision, in a stable order.

    `position` is a sort key; it stays the same as long as the first of `pods` exists.
    """

    position: int
    pods: tuple[Pod, ...]


def alike_pods(takes: Callable[[Pod], bool], cluster: ClusterView) -> list[EqualPods]:
    """Return the placed pods for which `takes` is True, as classes of pods with equal decisions.

    The classes are sorted by `position`.
    """
    classes: dict[Hashable, tuple[list[int], list[Pod]]] = {}
    labels: _Labels = {}
    for pod in cluster.pod_columns.pods:
        pause()
        placed = cluster.pod(pod.uid) if pod is not None else None
        if pod is None or placed is None or placed.pod is not pod:
            continue  # a nominated pod has a slot too
        node = cluster.node(placed.row)
        if node is not None and takes(pod):
            numbers, pods = classes.setdefault(_key(pod, node, labels), ([], []))
            numbers.append(_number(pod.uid))
            pods.append(pod)
    found = list[EqualPods]()
    for members in classes.values():
        pause()
        found += _in_order(*members)
    order = np.argsort(np.array([each.position for each in found], np.int64), kind="stable")
    return [found[index] for index in order.tolist()]


def _in_order(numbers: list[int], pods: list[Pod]) -> list[EqualPods]:
    if len(pods) == 1:
        return [EqualPods(numbers[0], (pods[0],))]
    order = np.argsort(np.array(numbers, np.int64), kind="stable").tolist()
    return [
        EqualPods(numbers[part[0]], tuple(pods[index] for index in part))
        for start in range(0, len(order), _MOST_TOGETHER)
        if (part := order[start : start + _MOST_TOGETHER])
    ]


def _key(pod: Pod, node: Node, labels: _Labels) -> Hashable:
    """Return a key that pods share if every decision about them would be the same."""
    if pod.volumes or pod.spec.resource_claims or pod.extended_resource_claim is not None:
        return pod.uid
    # Most pods share their labels with others of their template and zone.
    shared = id(pod.labels), node.labels.get(ZONE), node.labels.get(REGION)
    known = labels.get(shared)
    if known is None:
        known = labels[shared] = frozenset(labels_anew(pod, node).items())
    return pod.spec, owner_of(pod), known, pod.longest_run


def _number(uid: str) -> int:
    return int.from_bytes(blake2b(uid.encode(), digest_size=8).digest()) >> 1


@dataclass(frozen=True, slots=True)
class ComparedNodes:
    """A pod on a node that a decision would not choose now, and the move to the chosen node.

    Attributes:
        move: The move to the node that would be chosen; its target is "" if no node fits.
        violation: Why a filter now rejects the pod's own node; "" if all filters accept it.
        scores: The total scores of target and source, if there is no violation.
    """

    move: Move
    violation: str = ""
    scores: tuple[int, int] = (0, 0)

    @property
    def gain(self) -> int:
        """The target's total score minus the source's total score."""
        return self.scores[0] - self.scores[1]


def compared(planning: Planning, pod: Pod) -> ComparedNodes | None:
    """Compare the pod's node with the node that a decision would choose now.

    Returns None if the pod would stay, if a drain or the node controller will move it, or if the
    decision takes too long or fails.
    """
    pause()
    planning.budget.spend(1)
    node, target = planning.node_of(pod), ""
    if node is None or left_to_others(node, pod):
        return None
    try:
        with planning.undone():
            planning.remove(pod)
            outcome = planning.what_if.decide(created_anew(pod, node), planning.pipeline)
            if isinstance(outcome, ScheduleResult):
                target, row = outcome.node, planning.cluster.row(node.name)
                if target == node.name or row is None:
                    return None
                chosen, own = outcome.score_of(outcome.row), outcome.score_of(row)
                if chosen is not None and own is not None:
                    move = Move(pod, node.name, target)
                    return ComparedNodes(move, scores=(chosen.total, own.total))
        why = planning.violation(pod)
    except AttemptTooLongError:
        return None
    except PluginFailed:
        planning.refuse(pod, _FAILED)
        return None
    return ComparedNodes(Move(pod, node.name, target), why) if why else None


@dataclass(order=True, slots=True)
class GainingPod:
    """A pod that may gain by a move; sorting puts the pod with the largest gain first.

    `as_of` is the number of moves in the plan when `improve` computed the gain; -1 before that.
    """

    cost: int
    """The gain times -1, so that the pod with the largest gain is sorted first."""
    key: str
    uid: str
    pod: Pod = field(compare=False)
    as_of: int = field(default=-1, compare=False)

    @classmethod
    def of(cls, pod: Pod, gain: int, as_of: int = -1) -> "GainingPod":
        """Return a GainingPod that sorts before pods with a smaller gain."""
        return cls(-gain, pod.key, pod.uid, pod, as_of)


def find(planning: Planning, alike: EqualPods) -> list[GainingPod]:
    """Return the pods of `alike` whose move may serve the goals Violations or Spread.

    Pods that must not move are left out; the plan records the reason.
    """
    movable, moved = planning.movable, planning.moved
    pods = [pod for pod in alike.pods if not movable.stays(pod) and pod.uid not in moved]
    planning.looked_at.update({pod.uid for pod in alike.pods}.difference(pod.uid for pod in pods))
    estimated = _estimated(planning, pods) if len(pods) > _FEW else None
    if estimated is not None:
        candidates = _by_estimates(planning, estimated)
    else:
        candidates = _one_by_one(planning, pods)
    found = list[GainingPod]()
    for candidate in candidates:
        if (reason := movable.refusal(candidate.pod)) is None:
            found.append(candidate)
        else:
            planning.refuse(candidate.pod, reason)
    return found


def improve(planning: Planning, candidates: list[GainingPod]) -> None:
    """Add steps for the candidates, the largest gain first; remove them from the list."""
    heapify(candidates)
    while candidates and not planning.done:
        candidate = heappop(candidates)
        if candidate.uid in planning.moved:
            continue
        # Earlier moves may have changed the gain.
        step, as_of = improvement(planning, candidate.pod), len(planning.moved)
        if step is None:
            continue
        if candidate.as_of != as_of and candidates and -step.gain > candidates[0].cost:
            heappush(candidates, GainingPod.of(candidate.pod, step.gain, as_of))
            continue
        planning.make(step.moves)
        planning.accept(step)
        pause()


def improvement(planning: Planning, pod: Pod) -> Step | None:
    """Return a step that moves the pod to the node that a decision would choose now.

    Returns None if the pod would stay or fits nowhere, or if the move serves no goal of the
    profile.
    """
    found, section = compared(planning, pod), planning.section
    if found is None:
        return None
    if not found.violation:
        if Goal.SPREAD not in section.goals or found.gain < section.minimum_gain:
            return None
        higher, lower = found.scores
        reason = f"the total score is {higher} instead of {lower}"
        return Step(Goal.SPREAD, (found.move,), reason, found.gain)
    if Goal.VIOLATIONS not in section.goals:
        return None
    if not found.move.target:
        planning.refuse(pod, NOWHERE_ELSE)
        return None
    reason = f"its node does not pass {found.violation}"
    return Step(Goal.VIOLATIONS, (found.move,), reason, VIOLATION_GAIN)


def _one_by_one(planning: Planning, pods: Sequence[Pod]) -> list[GainingPod]:
    candidates = list[GainingPod]()
    for pod in pods:
        if planning.budget.spent:
            break
        planning.looked_at.add(pod.uid)
        if (step := improvement(planning, pod)) is not None:
            candidates.append(GainingPod.of(pod, step.gain))
    return candidates


def _estimated(planning: Planning, pods: Sequence[Pod]) -> list[Estimate] | None:
    planning.budget.spend(1)
    try:
        found = estimates(planning, pods)
    except PluginFailed:
        return None
    pause()
    if found is not None:
        planning.looked_at.update(pod.uid for pod in pods)
    return found


def _by_estimates(planning: Planning, found: list[Estimate]) -> list[GainingPod]:
    candidates, on_good_nodes = list[GainingPod](), list[Estimate]()
    for number, estimate in enumerate(found):
        if estimate.suspect and Goal.VIOLATIONS in planning.section.goals:
            planning.budget.spend(number % _CHECKS_PER_STEP == 0)
            if planning.violates(estimate.pods[0]):
                candidates += [GainingPod.of(pod, VIOLATION_GAIN) for pod in estimate.pods]
                continue
        on_good_nodes.append(estimate)
    if Goal.SPREAD in planning.section.goals:
        candidates += _spread(planning, on_good_nodes)
    return candidates


def _spread(planning: Planning, found: list[Estimate]) -> list[GainingPod]:
    """Return the pods whose score may grow on another node by at least the minimum gain."""
    least = planning.section.minimum_gain
    errors: dict[tuple[int, ...], int] = {}
    candidates = list[GainingPod]()
    for estimate in sorted(found, key=lambda each: (-each.gain, each.pods[0].uid)):
        preferred = estimate.pods[0].spec.affinity.preferred
        if estimate.gain < least and (estimate.exact or all(p.weight <= 0 for p in preferred)):
            break  # pods may gain more than estimated if their nodes attract them
        if not estimate.exact and estimate.place not in errors and len(errors) < _MOST_PLACES:
            better = compared(planning, estimate.pods[0])
            errors[estimate.place] = estimate.gain - (better.gain if better is not None else 0)
        gain = estimate.gain - errors.get(estimate.place, 0)
        if gain >= least:
            candidates += [GainingPod.of(pod, gain) for pod in estimate.pods]
    return candidates
