"""Carries the steps of a plan out in trials again, in their final order."""

from collections.abc import Sequence

from mooring.engine.rebalancing.improving import improvement
from mooring.engine.rebalancing.plan import Move, Step
from mooring.engine.rebalancing.planning import Planning
from mooring.framework.plugin_failures import PluginFailed
from mooring.pausing import pause
from mooring.policy.rebalancing import Goal

__all__ = ["in_order"]


def in_order(planning: Planning) -> list[Step]:
    """Return the steps with those first that gain most per move, as they are in that order.

    Where a step is not possible in that order, they are in the order in which they were found.
    """
    found = planning.steps
    wanted = sorted(found, key=lambda step: -step.gain_per_move)
    steps = _possible(planning, wanted)
    if len(steps) < len(found) and wanted != found:
        steps = _possible(planning, found)
    return steps


def _possible(planning: Planning, steps: Sequence[Step]) -> list[Step]:
    """Return those steps that are possible after the ones before them."""
    trial, done = planning.trial, list[Step]()
    trial.back_to(0)
    planning.moved.clear()
    with_moves = {ref.uid for step in steps for ref in step.fits}
    for uid, (pod, node) in planning.places.items():
        if uid not in with_moves:
            trial.add(pod, node)
    for step in steps:
        mark, again = len(trial), _made(planning, step)
        if again is None:
            trial.back_to(mark)
        else:
            planning.moved.update(move.pod.uid for move in again.moves)
            done.append(again)
        pause()
    return done


def _made(planning: Planning, step: Step) -> Step | None:
    """Make the moves, and give the pods that fit then their places; None if that is impossible.

    A pod that moves alone for its own good goes where it would be placed now.
    """
    trial = planning.trial
    if step.goal in (Goal.VIOLATIONS, Goal.SPREAD) and not step.group:
        pod = step.moves[0].pod
        again = improvement(planning, pod) if planning.may_move(pod) else None
        trial.make(again.moves if again is not None else ())
        return again
    try:
        for moves in step.batches:
            is_refused = any(_is_refused(planning, step, move) for move in moves)
            if is_refused or trial.why_impossible(moves) is not None:
                return None
    except PluginFailed:
        return None
    for ref in step.fits:
        pod, node = planning.places[ref.uid]
        if not trial.fits_on(pod, node):
            return None
        trial.add(pod, node)
    return step


def _is_refused(planning: Planning, step: Step, move: Move) -> bool:
    """Return whether the pod has left its node, or may not move any more."""
    trial, node = planning.trial, planning.trial.node_of(move.pod)
    if node is None or node.name != move.source:
        return True
    return trial.movable.refusal(move.pod, with_group=bool(step.group)) is not None
