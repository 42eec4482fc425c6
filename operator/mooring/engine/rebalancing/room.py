"""Searches a node for a pod that fits nowhere, and the fewest moves after which it fits there."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, islice
from typing import Final, NamedTuple

import numpy as np

from mooring.engine.groups.slices import Pausing
from mooring.engine.outcome import FitError
from mooring.engine.rebalancing.comparing import left_to_others
from mooring.engine.rebalancing.movable import created_anew
from mooring.engine.rebalancing.placing import best_fit, decided, fits_on, share_of
from mooring.engine.rebalancing.plan import Move
from mooring.engine.rebalancing.planning import Planning
from mooring.framework.evaluations import StillEvaluating
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.state.columns import IntArray

__all__ = ["Placed", "Room", "RoomSearch", "carry_out"]

_MOST_NODES: Final = 32
"""Nodes on which room is made for one pod, those first that need the fewest moves."""
_MOST_SETS: Final = 24
"""Sets of pods of one size that leave one node."""
_MOST_TOGETHER: Final = 8
"""Pods that leave one node for one pod."""
_MOST_SPECS: Final = 6
"""Pods of so many specs are combined on one node."""
_MOST_COMBINED: Final = 2_000
_DEPTH: Final = 1
"""How often room is made for a pod that leaves its node to make room."""


class Room(NamedTuple):
    """A node for a pod, and the moves after which it fits there, in their order."""

    node: str
    moves: tuple["Placed", ...]


class Placed(NamedTuple):
    """A pod that is moved, as it runs and as it comes back, and where to."""

    pod: Pod
    anew: Pod
    source: str
    target: str

    @property
    def move(self) -> Move:
        """The move as the plan has it."""
        return Move(self.pod, self.source, self.target)


@dataclass(frozen=True, slots=True)
class RoomSearch:
    """Tries which pods have to leave which node, and where they go, in the trial of the plan.

    They may go to the nodes in `within`; None: to all.
    """

    planning: Planning
    within: Collection[str] | None = None

    def room(
        self,
        pod: Pod,
        most: int,
        nodes: Collection[str] | None = None,
        *,
        depth: int = _DEPTH,
    ) -> Pausing[Room | None]:
        """Return a node for the pod, and the fewest moves found, at most `most`, that make it fit.

        With `nodes` it is one of these. The trial is afterwards as it was before.
        """
        planning, best = self.planning, None
        if nodes is None:
            name = yield from decided(planning, pod)
        else:
            name = yield from best_fit(planning, pod, nodes)
        if name is not None:
            return Room(name, ())
        if most <= 0 or depth < 0:
            return None
        for node, fewest in (yield from self._nodes_for(pod, nodes)):
            limit = most if best is None else len(best.moves) - 1
            if fewest > limit or planning.budget.spent:
                break
            best = (yield from self._on(pod, node, fewest, limit, depth)) or best
            yield from planning.pause()
        return best

    def _nodes_for(self, pod: Pod, nodes: Collection[str] | None) -> Pausing[list[tuple[str, int]]]:
        """Return nodes on which pods that leave may help, and how many have to leave at least."""
        planning = self.planning
        try:
            return (yield from planning.trial.tried(lambda: self._ranked(pod, nodes)))
        except (PluginFailed, StillEvaluating):
            return []

    def _ranked(self, pod: Pod, nodes: Collection[str] | None) -> list[tuple[str, int]]:
        planning = self.planning
        outcome = planning.what_if.decide(pod, planning.pipeline)
        if isinstance(outcome, FitError):
            rows = outcome.diagnosis.resolvable_rows
        else:
            rows = planning.cluster.nodes_in_order
        names = planning.cluster.node_names
        if nodes is not None:
            rows = rows[[names[row] in nodes for row in rows.tolist()]]
        if not len(rows):
            return []
        fewest, lacking = self._needed(pod, rows)
        order = np.lexsort((rows, lacking, fewest))
        possible = [i for i in order.tolist() if fewest[i] <= _MOST_TOGETHER]
        return [(names[int(rows[i])], int(fewest[i])) for i in possible[:_MOST_NODES]]

    def _needed(self, pod: Pod, rows: IntArray) -> tuple[IntArray, np.typing.NDArray[np.float64]]:
        """Return how many pods must leave each row at least, and how much the rows lack."""
        nodes, columns = self.planning.cluster.nodes, self.planning.cluster.pod_columns
        at = np.flatnonzero((columns.rows >= 0) & ~columns.nominated)
        fewest, lacking = np.ones(len(rows), np.int64), np.zeros(len(rows))
        for resource, amount in pod.spec.demand.resources.items():
            free = nodes.allocatable(resource)[rows] - nodes.requested(resource)[rows]
            short = np.maximum(amount - free, 0)
            largest = np.zeros(len(nodes), np.int64)
            np.maximum.at(largest, columns.rows[at], columns.requests(resource)[at])
            each = np.maximum(largest[rows], 1)
            fewest = np.maximum(fewest, -(-short // each))
            lacking += short / max(amount, 1)
        return fewest, lacking

    def _on(self, pod: Pod, node: str, fewest: int, most: int, depth: int) -> Pausing[Room | None]:
        """Return the fewest moves found after which the pod fits on this node."""
        best: Room | None = None
        for size in range(fewest, _MOST_TOGETHER + 1):
            for leaving in self._sets(pod, node, size):
                limit = most if best is None else len(best.moves) - 1
                if size > limit or self.planning.budget.spent:
                    return best
                found = yield from self._if_they_leave(pod, node, leaving, limit, depth)
                best = found or best
        return best

    def _sets(self, pod: Pod, node: str, size: int) -> list[tuple[Pod, ...]]:
        """Return sets of pods without which the node has enough for the pod, small pods first."""
        planning = self.planning
        row = planning.cluster.row(node)
        if row is None or planning.cluster.node(row) is None:
            return []
        by_spec = self._movable_on(row)
        short = _short(planning, pod, row)
        found = list[tuple[Pod, ...]]()
        combined = combinations_with_replacement([*by_spec][:_MOST_SPECS], size)
        for specs in islice(combined, _MOST_COMBINED):
            counts = Counter(specs)
            if any(count > len(by_spec[spec]) for spec, count in counts.items()):
                continue
            if all(_freed(specs, resource) >= amount for resource, amount in short.items()):
                found.append(
                    tuple(each for spec, n in counts.items() for each in by_spec[spec][:n])
                )
        found.sort(key=lambda pods: sum(share_of(planning, each) for each in pods))
        return found[:_MOST_SETS]

    def _movable_on(self, row: int) -> dict[PodSpec, list[Pod]]:
        """Return the pods of the row that may move, by spec, in a stable order."""
        planning, by_spec = self.planning, dict[PodSpec, list[Pod]]()
        node = planning.cluster.node(row)
        pods = sorted((each.pod for each in planning.cluster.pods_on(row)), key=lambda p: p.uid)
        for pod in pods:
            if node is not None and planning.may_move(pod) and not left_to_others(node, pod):
                by_spec.setdefault(pod.spec, []).append(pod)
        return by_spec

    def _if_they_leave(
        self, pod: Pod, node: str, leaving: Sequence[Pod], most: int, depth: int
    ) -> Pausing[Room | None]:
        """Return the moves by which these pods leave the node; None if the pod fits not even then.

        Their own moves are where the policy places them, else where they fit best.
        """
        trial, source = self.planning.trial, self._node(node)
        if source is None:
            return None
        mark, anew = len(trial), [(each, created_anew(each, source)) for each in leaving]
        for each in leaving:
            trial.remove(each)
        found: list[Placed] | None = None
        if (yield from fits_on(self.planning, pod, node)):
            trial.add(pod, node)
            for by_policy in (True, False):
                within = len(trial)
                left = most - len(leaving)
                found = yield from self._placed(anew, node, left, depth, by_policy=by_policy)
                trial.back_to(within)
                if found is not None:
                    break
        trial.back_to(mark)
        return None if found is None else Room(node, tuple(found))

    def _placed(
        self,
        leaving: Sequence[tuple[Pod, Pod]],
        source: str,
        more: int,
        depth: int,
        *,
        by_policy: bool,
    ) -> Pausing[list[Placed] | None]:
        """Return the moves of pods that have left the source, with at most so many others."""
        planning, moves = self.planning, list[Placed]()
        within = planning.cluster.node_names if self.within is None else self.within
        others = frozenset(within) - {source}
        for pod, anew in sorted(leaving, key=lambda each: -share_of(planning, each[0])):
            target = (yield from decided(planning, anew)) if by_policy else None
            if target not in others:
                target = yield from best_fit(planning, anew, others)
            if target is None and not by_policy and depth > 0 and more > 0:
                room = yield from self.room(anew, more, others, depth=depth - 1)
                if room is not None:
                    carry_out(planning, room.moves)
                    moves += room.moves
                    more -= len(room.moves)
                    target = room.node
            if target is None:
                return None
            planning.trial.add(anew, target)
            moves.append(Placed(pod, anew, source, target))
        return moves

    def _node(self, name: str) -> Node | None:
        row = self.planning.cluster.row(name)
        return self.planning.cluster.node(row) if row is not None else None


def carry_out(planning: Planning, moves: Iterable[Placed]) -> None:
    """Make the moves in the trial."""
    for placed in moves:
        planning.trial.move(placed.pod, placed.anew, placed.target)


def _short(planning: Planning, pod: Pod, row: int) -> dict[str, int]:
    """Return how much of each resource the row lacks for the pod."""
    nodes = planning.cluster.nodes.take(np.array([row], np.int64))
    found = dict[str, int]()
    for resource, amount in pod.spec.demand.resources.items():
        free = int(nodes.allocatable(resource)[0]) - nodes.requested_at(0, resource)
        if amount > free:
            found[resource] = amount - free
    return found


def _freed(specs: Iterable[PodSpec], resource: str) -> int:
    return sum(spec.demand.resources.get(resource, 0) for spec in specs)
