"""Moves pod groups whole, for Violations: if the node of a member rejects it by now."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mooring.engine.rebalancing.improving import VIOLATION_GAIN
from mooring.engine.rebalancing.plan import Move, Step
from mooring.engine.rebalancing.planning import NOWHERE_ELSE, Planning
from mooring.framework.decision import PodRef, TextAboutPods
from mooring.model.pod import Pod
from mooring.policy.rebalancing import Goal
from mooring.state.pod_groups import PodGroupState

__all__ = ["move_groups"]

_BUDGET: Final = "is in a group whose disruption budgets do not allow to evict all members"
_NOT_WHOLE: Final = "is in a group of which not all members are on nodes"


def move_groups(planning: Planning) -> None:
    """Add a step for each group of which a member's node rejects it, if all members fit then."""
    for key in sorted(group.key for group in planning.cluster.pod_groups):
        group = planning.cluster.pod_groups.get(key)
        if planning.done:
            return
        if group is None or not group.assigned:
            continue
        members = [placed.pod for placed in group.assigned.values()]
        if not all(map(planning.takes, members)):
            continue
        violating = list[Pod]()
        for pod in members:
            planning.looked_at.add(pod.uid)
            planning.budget.spend(1)
            if planning.trial.violates(pod):
                violating.append(pod)
        if violating:
            _move(planning, group, members, violating)


def _move(
    planning: Planning, group: PodGroupState, members: Sequence[Pod], violating: Sequence[Pod]
) -> None:
    if (why := _refusal(planning, group, members)) is not None:
        for pod in violating:
            planning.refuse(pod, why)
        return
    if len(members) > planning.moves_left:
        return
    trial = planning.trial
    mark, leaving = len(trial), trial.leaving(members)
    anew = [trial.anew(move) for move in leaving]
    for pod in members:
        trial.remove(pod)
    targets = trial.decided_group(group, anew)
    if len(targets) < len(members):
        trial.back_to(mark)
        for pod in violating:
            planning.refuse(pod, NOWHERE_ELSE)
        return
    for pod in anew:
        trial.add(pod, targets[pod.uid])
    moves = tuple(replace(each, target=targets[each.pod.uid]) for each in leaving)
    planning.accept(_step(group, moves, len(violating)))


def _refusal(planning: Planning, group: PodGroupState, members: Sequence[Pod]) -> str | None:
    """Return why the group may not be moved; None if it may."""
    if group.unscheduled or group.assumed or group.terminating:
        return _NOT_WHOLE
    for pod in members:
        if (why := planning.trial.movable.refusal(pod, with_group=True)) is not None:
            return why
    return _BUDGET if planning.cluster.evictions.exhausted_budget(members) else None


def _step(group: PodGroupState, moves: tuple[Move, ...], violating: int) -> Step:
    how_many = "the node of 1 member does" if violating == 1 else f"the nodes of {violating} do"
    otherwise = f"{how_many} not pass the filters any more"
    refs = tuple(PodRef.of(move.pod) for move in moves)
    reason = TextAboutPods(f"group {group.key}: {otherwise}", refs, otherwise)
    gain = VIOLATION_GAIN * violating
    return Step(Goal.VIOLATIONS, moves, reason, gain, group=str(group.key))
