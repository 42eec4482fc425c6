"""Searches a node for a pod that fits nowhere, and the fewest moves after which it fits there.

On each node sets of its pods are tried that free enough. Where inter-pod affinity or topology
spread rejects the pod, the pods in the way may be on other nodes: those are tried together.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations_with_replacement, islice
from typing import Final, NamedTuple

import numpy as np

from mooring.engine.outcome import FitError
from mooring.engine.rebalancing.comparing import left_to_others
from mooring.engine.rebalancing.movable import created_anew
from mooring.engine.rebalancing.placing import best_fit, decided, fits_on, share_of
from mooring.engine.rebalancing.plan import Move
from mooring.engine.rebalancing.planning import Planning
from mooring.framework.plugin_failures import PluginFailed
from mooring.model.affinity import AffinityTerm
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.pausing import pause
from mooring.state.columns import IntArray
from mooring.state.topology.selection import term_selector

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
_BY_OTHERS: Final = frozenset(("InterPodAffinity", "PodTopologySpread"))
"""Filters that reject a pod because of pods on other nodes."""
_ROWS_PER_PAUSE: Final = 16
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
    ) -> Room | None:
        """Return a node for the pod, and the fewest moves found, at most `most`, that make it fit.

        With `nodes` it is one of these. The trial is afterwards as it was before.
        """
        planning, best = self.planning, None
        name = decided(planning, pod) if nodes is None else best_fit(planning, pod, nodes)
        if name is not None:
            return Room(name, ())
        if most <= 0 or depth < 0:
            return None
        for node, fewest in self._nodes_for(pod, nodes):
            limit = most if best is None else len(best.moves) - 1
            if fewest > limit or planning.budget.spent:
                break
            best = self._on(pod, node, fewest, limit, depth) or best
            pause()
        if best is None and self._is_kept_by_others(pod):
            best = self._if_others_leave(pod, most, nodes, depth)
        return best

    def _is_kept_by_others(self, pod: Pod) -> bool:
        """Return whether the filters reject the pod that look at pods of other nodes."""

        def is_kept() -> bool:
            outcome = self.planning.what_if.decide(pod, self.planning.pipeline)
            if not isinstance(outcome, FitError):
                return False
            return not _BY_OTHERS.isdisjoint(outcome.diagnosis.plugins)

        try:
            return is_kept()
        except PluginFailed:
            return False

    def _if_others_leave(
        self, pod: Pod, most: int, nodes: Collection[str] | None, depth: int
    ) -> Room | None:
        """Return moves of pods on any nodes that are in the way together, the fewest first."""
        planning, trial = self.planning, self.planning.trial
        among = frozenset(planning.cluster.node_names if nodes is None else nodes)
        for leaving in self._in_the_way(pod):
            if len(leaving) > min(most, _MOST_TOGETHER) or planning.budget.spent:
                return None
            if not all(map(planning.may_move, leaving)):
                continue
            mark = len(trial)
            for each in leaving:
                trial.remove(each)
            node = best_fit(planning, pod, among)
            trial.back_to(mark)
            if node is None:
                continue
            for within in self._domains(pod, node):
                search = RoomSearch(planning, within)
                found = search._if_they_leave(pod, node, leaving, most, depth)
                if found is not None and self._fits_after(pod, found):
                    return found
        return None

    def _domains(self, pod: Pod, node: str) -> list[Collection[str]]:
        """Return where pods in the way may go: anywhere, where the pod goes, and not there."""
        cluster, keys = self.planning.cluster, {each.topology_key for each in pod.spec.spread}
        keys |= {term.topology_key for term in pod.spec.affinity.required}
        labels = {name: self._labels(name) for name in cluster.node_names}
        here = [labels[node].get(key) for key in keys]
        near = {name for name, own in labels.items() if [own.get(key) for key in keys] == here}
        allowed = frozenset(labels if self.within is None else self.within)
        return [allowed, allowed & near, allowed - near]

    def _labels(self, name: str) -> Mapping[str, str]:
        row = self.planning.cluster.row(name)
        node = self.planning.cluster.node(row) if row is not None else None
        return node.labels if node is not None else {}

    def _fits_after(self, pod: Pod, room: Room) -> bool:
        """Return whether the pod fits once the moves are made, which are made before it comes."""
        trial = self.planning.trial
        mark = len(trial)
        carry_out(self.planning, room.moves)
        fits = fits_on(self.planning, pod, room.node)
        trial.back_to(mark)
        return fits

    def _in_the_way(self, pod: Pod) -> list[tuple[Pod, ...]]:
        """Return sets of pods without which another domain may take the pod, small ones first.

        All pods to which it has affinity; the pods of a domain that it, or that do not bear it,
        keep apart; and each pod that counts for the spread of the pod.
        """
        planning, found = self.planning, defaultdict[Hashable, list[Pod]](list)
        for number, name in enumerate(planning.cluster.node_names):
            if number % _ROWS_PER_PAUSE == 0:
                planning.budget.spend(1)
                pause()
            row = planning.cluster.row(name)
            node = planning.cluster.node(row) if row is not None else None
            if row is None or node is None:
                continue
            for placed in planning.cluster.pods_on(row):
                if not left_to_others(node, placed.pod):
                    for key in self._ways(pod, placed.pod, node):
                        found[key].append(placed.pod)
        return sorted(map(tuple, found.values()), key=len)[:_MOST_SETS]

    def _ways(self, pod: Pod, other: Pod, node: Node) -> Iterator[Hashable]:
        """Yield what the other pod, which is on the node, has in common with others in the way."""
        affinity, theirs = pod.spec.affinity, other.spec.affinity
        if affinity.required and all(self._selects(term, other) for term in affinity.required):
            yield "affinity"
        apart = chain(
            (term for term in affinity.required_anti if self._selects(term, other)),
            (term for term in theirs.required_anti if self._selects(term, pod)),
        )
        for key in {term.topology_key for term in apart}:
            yield key, node.labels.get(key)
        for spread in pod.spec.spread:
            is_counted = spread.selector is not None and spread.selector.matches(other.labels)
            if spread.hard and is_counted and other.namespace == pod.namespace:
                yield other.uid

    def _selects(self, term: AffinityTerm, pod: Pod) -> bool:
        labels = self.planning.cluster.namespace_labels(pod.namespace)
        return term_selector(term).selects(pod.namespace, labels, pod.labels)

    def _nodes_for(self, pod: Pod, nodes: Collection[str] | None) -> list[tuple[str, int]]:
        """Return nodes on which pods that leave may help, and how many have to leave at least."""
        try:
            return self._ranked(pod, nodes)
        except PluginFailed:
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

    def _on(self, pod: Pod, node: str, fewest: int, most: int, depth: int) -> Room | None:
        """Return the fewest moves found after which the pod fits on this node."""
        best: Room | None = None
        for size in range(fewest, _MOST_TOGETHER + 1):
            for leaving in self._sets(pod, node, size):
                limit = most if best is None else len(best.moves) - 1
                if size > limit or self.planning.budget.spent:
                    return best
                found = self._if_they_leave(pod, node, leaving, limit, depth)
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
    ) -> Room | None:
        """Return the moves by which these pods leave their nodes for the pod, which goes to `node`.

        None if the pod fits not even then. Their own moves are where the policy places them, else
        where they fit best.
        """
        trial, anew = self.planning.trial, self._anew(leaving)
        mark = len(trial)
        for each in leaving:
            trial.remove(each)
        found: list[Placed] | None = None
        if fits_on(self.planning, pod, node) and len(anew) == len(leaving):
            trial.add(pod, node)
            for by_policy in (True, False):
                within = len(trial)
                left = most - len(leaving)
                found = self._placed(anew, left, depth, by_policy=by_policy)
                trial.back_to(within)
                if found is not None:
                    break
        trial.back_to(mark)
        return None if found is None else Room(node, tuple(found))

    def _anew(self, leaving: Iterable[Pod]) -> list[Placed]:
        """Return the pods as they come back, each on its node; those without one are left out."""
        cluster, found = self.planning.cluster, list[Placed]()
        for pod in leaving:
            placed = cluster.pod(pod.uid)
            node = cluster.node(placed.row) if placed is not None else None
            if node is not None:
                found.append(Placed(pod, created_anew(pod, node), node.name, node.name))
        return found

    def _placed(
        self,
        leaving: Sequence[Placed],
        more: int,
        depth: int,
        *,
        by_policy: bool,
    ) -> list[Placed] | None:
        """Return the moves of pods that have left their nodes, with at most so many others."""
        planning, moves = self.planning, list[Placed]()
        within = planning.cluster.node_names if self.within is None else self.within
        for each in sorted(leaving, key=lambda each: -share_of(planning, each.pod)):
            anew, others = each.anew, frozenset(within) - {each.source}
            target = decided(planning, anew) if by_policy else None
            if target not in others:
                target = best_fit(planning, anew, others)
            if target is None and not by_policy and depth > 0 and more > 0:
                room = self.room(anew, more, others, depth=depth - 1)
                if room is not None:
                    carry_out(planning, room.moves)
                    moves += room.moves
                    more -= len(room.moves)
                    target = room.node
            if target is None:
                return None
            planning.trial.add(anew, target)
            moves.append(each._replace(target=target))
        return moves


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
