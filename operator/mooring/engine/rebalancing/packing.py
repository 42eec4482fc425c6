"""The goal Pack: nodes with little on them are emptied, whole or not at all."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from mooring.engine.rebalancing.comparing import left_to_others
from mooring.engine.rebalancing.movable import created_anew
from mooring.engine.rebalancing.placing import best_fit, fits_on, free_shares, share_of
from mooring.engine.rebalancing.plan import Step
from mooring.engine.rebalancing.planning import Planning
from mooring.engine.rebalancing.room import Placed, RoomSearch, carry_out
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.policy.rebalancing import Goal

__all__ = ["pack"]

_EMPTIED_GAIN: Final = 1_000
_MOST_OTHERS: Final = 4
"""Pods of other nodes that move so that one finds room."""
_ROWS_PER_PAUSE: Final = 16


@dataclass(frozen=True, slots=True)
class _InUse:
    """A node with pods that do not belong to it; `pods` are None if one of them may not move."""

    name: str
    pods: tuple[Pod, ...] | None
    free: float


@dataclass(slots=True)
class _Packing:
    """The nodes that are emptied, in that order, by which moves.

    Attributes:
        planning: The plan; its trial has all moves.
        mark: How many changes the trial had before them.
        left: The nodes that stay in use.
        emptiable: Those to which pods move only if they fit on no other.
        taken: Those to which pods move.
        emptied: By its name, the moves that empty a node.
    """

    planning: Planning
    mark: int
    left: set[str]
    emptiable: set[str]
    taken: set[str] = field(default_factory=set)
    emptied: dict[str, list[Placed]] = field(default_factory=dict)

    def empty(self, node: _InUse) -> None:
        """Empty the node if all its pods fit elsewhere."""
        if len(node.pods or ()) > self.planning.moves_left:
            return
        others = self.left - {node.name}
        moves = _emptied(self.planning, node, others, self.emptiable - self.taken)
        if moves:
            self._accept(node.name, moves)

    def move_past(self, node: _InUse) -> None:
        """Empty a node to which pods move, if they and its own fit elsewhere.

        Those that move to it go there at once, so that no pod is moved twice.
        """
        own = self._own(node.name)
        if not 0 < len(own) <= self.planning.moves_left:
            return
        before = self.emptied
        found = self._places(node.name, own)
        targets = {placed.pod.uid: placed.target for placed in found}
        after = {
            name: [m._replace(target=targets.get(m.pod.uid, m.target)) for m in moves]
            for name, moves in before.items()
        }
        after[node.name] = [m for m in found if m.source == node.name]
        self.planning.trial.back_to(self.mark)
        if found and self._possible(after):
            for name, moves in after.items():
                self._accept(name, moves)
        else:
            self.planning.trial.back_to(self.mark)
            for placed in chain.from_iterable(before.values()):
                carry_out(self.planning, [placed])
                pause()

    def _accept(self, name: str, moves: list[Placed]) -> None:
        self.emptied[name] = moves
        self.left.discard(name)
        self.taken.update(placed.target for placed in moves)
        self.planning.moved.update(placed.pod.uid for placed in moves)

    def _own(self, name: str) -> list[Placed]:
        """Return the pods that are still on the node; none if one of them may not move."""
        planning = self.planning
        row = planning.cluster.row(name)
        node = planning.cluster.node(row) if row is not None else None
        if row is None or node is None:
            return []
        came = {m.pod.uid for m in chain.from_iterable(self.emptied.values()) if m.target == name}
        here = [placed.pod for placed in planning.cluster.pods_on(row)]
        pods = [pod for pod in here if pod.uid not in came and not planning.movable.stays(pod)]
        if not all(map(planning.may_move, pods)):
            return []
        return [Placed(pod, created_anew(pod, node), name, name) for pod in pods]

    def _places(self, name: str, own: Sequence[Placed]) -> list[Placed]:
        """Return where these pods fit, and those that move to the node; none if one does not.

        All other moves are made in the trial.
        """
        planning, leaving = self.planning, list(own)
        planning.trial.back_to(self.mark)
        for placed in chain.from_iterable(self.emptied.values()):
            if placed.target == name:
                leaving.append(placed)
            else:
                carry_out(planning, [placed])
            pause()
        for placed in leaving:
            planning.trial.remove(placed.pod)
        leaving.sort(key=lambda placed: (-share_of(planning, placed.pod), placed.pod.uid))
        others, last = self.left - {name}, self.emptiable - self.taken
        found = list[Placed]()
        for placed in leaving:
            target = best_fit(planning, placed.anew, others, last=last)
            if target is None:
                return []
            planning.trial.add(placed.anew, target)
            found.append(placed._replace(target=target))
        return found

    def _possible(self, emptied: Mapping[str, Sequence[Placed]]) -> bool:
        """Make these moves in the trial; return whether each is possible at its turn."""
        planning, trial = self.planning, self.planning.trial
        for placed in chain.from_iterable(emptied.values()):
            mark = len(trial)
            trial.remove(placed.pod)
            fits = fits_on(planning, placed.anew, placed.target)
            trial.back_to(mark)
            if not fits:
                return False
            carry_out(planning, [placed])
        return True


def pack(planning: Planning) -> None:
    """Add a step for each node that is emptied, those with the fewest pods first.

    Pods move to nodes that are in use and stay so; to such as cannot be emptied if possible. Where
    pods have moved to one that can be emptied in the end, they move past it.
    """
    in_use = {each.name: each for each in _in_use(planning)}
    order = [each for each in in_use.values() if each.pods is not None]
    order.sort(key=lambda each: (len(each.pods or ()), -each.free, each.name))
    emptiable = {each.name for each in order}
    packing = _Packing(planning, len(planning.trial), set(in_use), emptiable)
    for node in order:
        if not planning.done and node.name not in packing.taken:
            packing.empty(node)
    for node in order:
        if not planning.done and node.name in packing.taken:
            packing.move_past(node)
    for name, moves in packing.emptied.items():
        planning.accept(_step(name, moves))


def _step(node: str, placed: Sequence[Placed]) -> Step:
    moves = tuple(each.move for each in placed)
    pods = "its pod has" if len(moves) == 1 else f"its {len(moves)} pods have"
    reason = f"node {node} is empty once {pods} moved"
    return Step(Goal.PACK, moves, reason, _EMPTIED_GAIN, emptied=(node,))


def _emptied(
    planning: Planning, node: _InUse, others: Collection[str], last: Collection[str]
) -> list[Placed] | None:
    """Move all pods from the node; None, and nothing is moved, if one of them fits nowhere.

    To make room for one, pods of other nodes may move too.
    """
    trial, moves = planning.trial, list[Placed]()
    mark = len(trial)
    pods = sorted(node.pods or (), key=lambda pod: (-share_of(planning, pod), pod.uid))
    for number, pod in enumerate(pods, start=1):
        more = planning.moves_left - len(moves) - (len(pods) - number) - 1
        found = _elsewhere(planning, pod, others, last, min(more, _MOST_OTHERS))
        if found is None:
            trial.back_to(mark)
            return None
        carry_out(planning, found)
        moves += found
        pause()
    return moves


def _elsewhere(
    planning: Planning, pod: Pod, others: Collection[str], last: Collection[str], more: int
) -> list[Placed] | None:
    """Return the move of the pod to one of these nodes, after moves that make room for it."""
    placed, trial = planning.cluster.pod(pod.uid), planning.trial
    node = planning.cluster.node(placed.row) if placed is not None else None
    if node is None or more < 0 or planning.budget.spent:
        return None
    source, anew, mark = node.name, created_anew(pod, node), len(trial)
    trial.remove(pod)
    before: tuple[Placed, ...] = ()
    target = best_fit(planning, anew, others, last=last)
    if target is None and more > 0:
        room = RoomSearch(planning, others).room(anew, more, others)
        if room is not None:
            target, before = room.node, room.moves
    trial.back_to(mark)
    return None if target is None else [*before, Placed(pod, anew, source, target)]


def _in_use(planning: Planning) -> list[_InUse]:
    """Return the nodes with pods that do not belong to them, and which of these may all move."""
    found, cluster = list[_InUse](), planning.cluster
    for number, name in enumerate(cluster.node_names):
        if number % _ROWS_PER_PAUSE == 0:
            pause()
        row = cluster.row(name)
        node = cluster.node(row) if row is not None else None
        if row is None or node is None:
            continue
        here = [placed.pod for placed in cluster.pods_on(row)]
        pods = [pod for pod in here if not planning.movable.stays(pod)]
        if not pods:
            continue
        nobody_comes = not cluster.nominations.on(row)
        may_move = nobody_comes and all(planning.may_move(pod) for pod in pods)
        may_move &= not any(left_to_others(node, pod) for pod in pods)
        (free,) = free_shares(planning, np.array([row], np.int64)).tolist()
        found.append(_InUse(name, tuple(pods) if may_move else None, free))
    return found
