"""Carries the steps of a plan out in trials again, in their final order."""

from collections.abc import Sequence

from mooring.engine.rebalancing.improving import improvement, step_of
from mooring.engine.rebalancing.movable import created_anew
from mooring.engine.rebalancing.placing import fits_on
from mooring.engine.rebalancing.plan import Move, Step
from mooring.engine.rebalancing.planning import Planning
from mooring.model.pod import Pod
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
        if step.goal in (Goal.VIOLATIONS, Goal.SPREAD) and not step.group:
            again = _improved(planning, step)
        else:
            again = _moved(planning, step)
        if again is not None:
            planning.moved.update(move.pod.uid for move in again.moves)
            done.append(again)
        pause()
    return done


def _improved(planning: Planning, step: Step) -> Step | None:
    (move,) = step.moves
    placed = planning.cluster.pod(move.pod.uid)
    if placed is None or not planning.may_move(placed.pod):
        return None
    improved = improvement(planning, placed.pod)
    if improved is None:
        return None
    found, gain = improved
    planning.trial.move(found.pod, found.anew, found.target)
    return step_of(found, gain)


def _moved(planning: Planning, step: Step) -> Step | None:
    """Make the moves, and give the pods that fit then their places; None if that is impossible."""
    trial = planning.trial
    mark = len(trial)
    if step.group:
        possible = _group_moved(planning, step.moves)
    else:
        possible = _all_moved(planning, step.moves)
    if not possible:
        trial.back_to(mark)
        return None
    for ref in step.fits:
        pod, node = planning.places[ref.uid]
        if not fits_on(planning, pod, node):
            trial.back_to(mark)
            return None
        trial.add(pod, node)
    return step


def _all_moved(planning: Planning, moves: Sequence[Move]) -> bool:
    """Make the moves one after the other; return whether each is possible."""
    trial = planning.trial
    for move in moves:
        found = _on_its_source(planning, move, with_group=False)
        if found is None:
            return False
        (pod, anew), mark = found, len(trial)
        trial.remove(pod)
        fits = fits_on(planning, anew, move.target)
        trial.back_to(mark)
        if not fits:
            return False
        trial.move(pod, anew, move.target)
    return True


def _group_moved(planning: Planning, moves: Sequence[Move]) -> bool:
    """Have all members leave their nodes, and then come to their targets."""
    trial, comes = planning.trial, list[Pod]()
    for move in moves:
        found = _on_its_source(planning, move, with_group=True)
        if found is None:
            return False
        comes.append(found[1])
        trial.remove(found[0])
    for anew, move in zip(comes, moves, strict=True):
        if not fits_on(planning, anew, move.target):
            return False
        trial.add(anew, move.target)
    return True


def _on_its_source(planning: Planning, move: Move, *, with_group: bool) -> tuple[Pod, Pod] | None:
    """Return the pod, and as it is created anew; None if it has left or may not move any more."""
    placed = planning.cluster.pod(move.pod.uid)
    node = planning.cluster.node(placed.row) if placed is not None else None
    if placed is None or node is None or node.name != move.source:
        return None
    if planning.movable.refusal(placed.pod, with_group=with_group) is not None:
        return None
    return placed.pod, created_anew(placed.pod, node)
