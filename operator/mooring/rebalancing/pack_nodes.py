"""The goal Pack: empties nodes that have few pods. A node is emptied completely or not at all."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np

from mooring.framework.plugin_failures import PluginFailed
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.policy.rebalancing import Goal
from mooring.rebalancing.movable import left_to_others
from mooring.rebalancing.plan import Move, Step
from mooring.rebalancing.plan_state import Planning
from mooring.rebalancing.room import RoomSearch

_EMPTIED_GAIN: Final = 1_000
_MOST_OTHERS: Final = 4
"""The most pods of other nodes that move to make room for one pod of an emptied node."""


@dataclass(frozen=True, slots=True)
class _InUse:
    """A node with pods other than static pods and pods of DaemonSets."""

    name: str
    pods: tuple[Pod, ...] | None  # None if the node cannot be emptied
    free: float  # the free share of cpu plus the free share of memory


@dataclass(slots=True)
class _Packing:
    """A search for nodes to empty, with the moves that empty them."""

    planning: Planning
    mark: int  # how many changes the trial had before these moves
    left: set[str]  # the nodes that stay in use
    emptiable: set[str]  # pods move to these nodes only if they fit on no other node
    taken: set[str] = field(default_factory=set)  # the nodes to which pods move
    emptied: dict[str, list[Move]] = field(default_factory=dict)  # by the emptied node's name

    def empty(self, node: _InUse) -> None:
        if len(node.pods or ()) > self.planning.moves_left:
            return
        others = self.left - {node.name}
        moves = _emptied(self.planning, node, others, self.emptiable - self.taken)
        if moves:
            self._accept(node.name, moves)

    def move_past(self, node: _InUse) -> None:
        """Empty a target of earlier moves, if the arriving pods and its own pods fit elsewhere.

        The moves of the arriving pods get new targets, because no pod may move twice.
        """
        own = self._own(node.name)
        if not 0 < len(own) <= self.planning.moves_left:
            return
        before = self.emptied
        found = self._places(node.name, own)
        targets = {move.pod.uid: move.target for move in found}
        after = {
            name: [replace(m, target=targets.get(m.pod.uid, m.target)) for m in moves]
            for name, moves in before.items()
        }
        after[node.name] = [m for m in found if m.source == node.name]
        planning = self.planning
        planning.back_to(self.mark)
        if found and self._possible(after):
            for name, moves in after.items():
                self._accept(name, moves)
        else:
            planning.back_to(self.mark)
            planning.make(chain.from_iterable(before.values()))

    def _accept(self, name: str, moves: list[Move]) -> None:
        self.emptied[name] = moves
        self.left.discard(name)
        self.taken.update(move.target for move in moves)
        self.planning.moved.update(move.pod.uid for move in moves)

    def _own(self, name: str) -> list[Move]:
        planning = self.planning
        # Pods that came in this plan have a move in `emptied` already.
        came = {m.pod.uid for m in chain.from_iterable(self.emptied.values()) if m.target == name}
        pods = [pod for pod in _own_pods(planning, name) if pod.uid not in came]
        return planning.leaving(pods) if all(map(planning.may_move, pods)) else []

    def _places(self, name: str, own: Sequence[Move]) -> list[Move]:
        """Find targets for `own` and for the moves to the node `name`; [] if a pod fits nowhere."""
        planning, leaving = self.planning, list(own)
        planning.back_to(self.mark)
        for move in chain.from_iterable(self.emptied.values()):
            if move.target == name:
                leaving.append(move)
            else:
                planning.make([move])
        for move in leaving:
            planning.remove(move.pod)
        leaving.sort(key=lambda move: (-planning.share_of(move.pod), move.pod.uid))
        others, last = self.left - {name}, self.emptiable - self.taken
        found = list[Move]()
        for move in leaving:
            anew = planning.anew(move)
            target = planning.best_fit(anew, others, last=last)
            if target is None:
                return []
            planning.add(anew, target)
            found.append(replace(move, target=target))
        return found

    def _possible(self, emptied: Mapping[str, Sequence[Move]]) -> bool:
        planning, moves = self.planning, chain.from_iterable(emptied.values())
        try:
            return all(planning.why_impossible([move]) is None for move in moves)
        except PluginFailed:
            return False


def pack(planning: Planning) -> None:
    """Add a step to the plan for each node that can be emptied; nodes with few pods come first.

    Pods move to nodes that stay in use, preferably to nodes that cannot be emptied.
    """
    in_use = {each.name: each for each in _in_use(planning)}
    order = [each for each in in_use.values() if each.pods is not None]
    order.sort(key=lambda each: (len(each.pods or ()), -each.free, each.name))
    emptiable = {each.name for each in order}
    packing = _Packing(planning, len(planning), set(in_use), emptiable)
    for node in order:
        if not planning.done and node.name not in packing.taken:
            packing.empty(node)
    for node in order:
        if not planning.done and node.name in packing.taken:
            # the pods that would come go directly to their final nodes
            packing.move_past(node)
    for name, moves in packing.emptied.items():
        planning.accept(_step(name, moves))


def _step(node: str, moves: Sequence[Move]) -> Step:
    pods = "its pod has" if len(moves) == 1 else f"its {len(moves)} pods have"
    reason = f"node {node} is empty once {pods} moved"
    return Step(Goal.PACK, tuple(moves), reason, _EMPTIED_GAIN, emptied=(node,))


def _emptied(
    planning: Planning, node: _InUse, others: Collection[str], last: Collection[str]
) -> list[Move] | None:
    """Move all pods of the node to `others` and return the moves, or move none and return None."""
    moves = list[Move]()
    mark = len(planning)
    pods = sorted(node.pods or (), key=lambda pod: (-planning.share_of(pod), pod.uid))
    for number, pod in enumerate(pods, start=1):
        more = planning.moves_left - len(moves) - (len(pods) - number) - 1
        found = _elsewhere(planning, pod, others, last, min(more, _MOST_OTHERS))
        if found is None:
            planning.back_to(mark)
            return None
        planning.make(found)
        moves += found
    return moves


def _elsewhere(
    planning: Planning, pod: Pod, others: Collection[str], last: Collection[str], more: int
) -> list[Move] | None:
    """Return the pod's move to one of `others`, after at most `more` moves that make room."""
    if more < 0 or planning.budget.spent:
        return None
    before = tuple[Move, ...]()
    (move,) = planning.leaving([pod])
    with planning.undone():
        planning.remove(pod)
        anew = planning.anew(move)
        target = planning.best_fit(anew, others, last=last)
        if target is None and more > 0:
            room = RoomSearch(planning, others).room(anew, more, others)
            if room is not None:
                target, before = room
    return None if target is None else [*before, replace(move, target=target)]


def _own_pods(planning: Planning, name: str) -> list[Pod]:
    here = (placed.pod for placed in planning.cluster.pods_of(name))
    return [pod for pod in here if not planning.movable.stays(pod)]


def _in_use(planning: Planning) -> list[_InUse]:
    found, cluster = list[_InUse](), planning.cluster
    for name in cluster.node_names:
        pause()
        row, node, pods = cluster.row(name), planning.node(name), _own_pods(planning, name)
        if row is None or node is None or not pods:
            continue
        nobody_comes = not cluster.nominations.on(row)
        may_move = nobody_comes and all(planning.may_move(pod) for pod in pods)
        may_move &= not any(left_to_others(node, pod) for pod in pods)
        (free,) = planning.free_shares(np.array([row], np.int64)).tolist()
        found.append(_InUse(name, tuple(pods) if may_move else None, free))
    return found
