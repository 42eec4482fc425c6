"""Finds a node for a pod that fits nowhere, and the fewest moves after which it fits there.

The search tries, on each node, sets of pods that free enough resources. If inter-pod affinity or
topology spread rejects the pod, the search also tries pods on other nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations_with_replacement, islice
from typing import Final, NamedTuple

import numpy as np

from mooring.framework.plugin_failures import PluginFailed
from mooring.model.affinity import AffinityTerm
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.pausing import pause
from mooring.rebalancing.movable import left_to_others
from mooring.rebalancing.plan import Move
from mooring.rebalancing.plan_state import Planning
from mooring.scheduling.outcome import FitError
from mooring.state.columns import IntArray
from mooring.state.topology.pod_selection import term_selector

_MOST_NODES: Final = 32
"""The most nodes on which the search tries to make room for one pod: those that need the fewest
moves."""
_MOST_SETS: Final = 24
"""The most sets of pods of a node that the search tries for each number of moved pods."""
_MOST_TOGETHER: Final = 8
"""The most pods that leave their nodes to make room for one pod."""
_MOST_SPECS: Final = 6
"""The most different specs of pods on one node that the search combines."""
_MOST_COMBINED: Final = 2_000
_BY_OTHERS: Final = frozenset(("InterPodAffinity", "PodTopologySpread"))
"""The filters that may reject a pod because of pods on other nodes."""
_ROWS_PER_STEP: Final = 16
"""Examining the pods of this number of nodes takes as long as a decision, and counts as one."""
_DEPTH: Final = 1
"""How many times the search may call itself to make room for a pod that leaves its node."""


class Room(NamedTuple):
    """A node for a pod, and the moves after which it fits there, in order."""

    node: str
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class RoomSearch:
    """Searches for pods to move so that another pod fits, in the trial of the plan.

    The moved pods may go to the nodes in `within`; None means all nodes.
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
        """Find a node where the pod fits after the fewest moves; return the node and the moves.

        Returns None if `most` moves are not enough. If `nodes` is given, only these nodes are
        tried. The trial stays unchanged.
        """
        planning, best = self.planning, None
        name = planning.decided(pod) if nodes is None else planning.best_fit(pod, nodes)
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
        """Return whether a filter that reads pods of other nodes rejects the pod."""
        planning = self.planning
        try:
            outcome = planning.what_if.decide(pod, planning.pipeline)
        except PluginFailed:
            return False
        if not isinstance(outcome, FitError):
            return False
        return not _BY_OTHERS.isdisjoint(outcome.diagnosis.plugins)

    def _if_others_leave(
        self, pod: Pod, most: int, nodes: Collection[str] | None, depth: int
    ) -> Room | None:
        """Find moves of pods on any nodes after which the pod fits on one of `nodes`."""
        planning = self.planning
        among = frozenset(planning.cluster.node_names if nodes is None else nodes)
        for leaving in self._in_the_way(pod):
            if len(leaving) > min(most, _MOST_TOGETHER) or planning.budget.spent:
                return None
            if not all(map(planning.may_move, leaving)):
                continue
            with planning.undone():
                for each in leaving:
                    planning.remove(each)
                node = planning.best_fit(pod, among)
            if node is None:
                continue
            for within in self._domains(pod, node):
                search = RoomSearch(planning, within)
                found = search._if_they_leave(pod, node, leaving, most, depth)
                if found is not None and self._fits_after(pod, found):
                    return found
        return None

    def _domains(self, pod: Pod, name: str) -> list[Collection[str]]:
        """Return three sets of nodes to which pods may move, to be tried in this order."""
        planning, keys = self.planning, {each.topology_key for each in pod.spec.spread}
        keys |= {term.topology_key for term in pod.spec.affinity.required}
        nodes = {each: planning.node(each) for each in planning.cluster.node_names}
        values = {
            each: [node.labels.get(key) if node is not None else None for key in keys]
            for each, node in nodes.items()
        }
        near = {each for each, own in values.items() if own == values[name]}
        allowed = frozenset(nodes if self.within is None else self.within)
        # all nodes, those in the same domains as `name`, and the rest
        return [allowed, allowed & near, allowed - near]

    def _fits_after(self, pod: Pod, room: Room) -> bool:
        planning = self.planning
        with planning.undone():
            planning.make(room.moves)
            return planning.fits_on(pod, room.node)

    def _in_the_way(self, pod: Pod) -> list[tuple[Pod, ...]]:
        """Return sets of pods that may keep the pod out of a topology domain, small sets first."""
        planning, found = self.planning, defaultdict[Hashable, list[Pod]](list)
        for number, name in enumerate(planning.cluster.node_names):
            planning.budget.spend(number % _ROWS_PER_STEP == 0)
            pause()
            if (node := planning.node(name)) is None:
                continue
            for placed in planning.cluster.pods_of(name):
                if not left_to_others(node, placed.pod):
                    for key in self._ways(pod, placed.pod, node):
                        found[key].append(placed.pod)
        return sorted(map(tuple, found.values()), key=len)[:_MOST_SETS]

    def _ways(self, pod: Pod, other: Pod, node: Node) -> Iterator[Hashable]:
        """Yield a key for each constraint by which `other` may keep `pod` out of a domain."""
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
        """Return names of nodes where moves may help, each with the fewest pods that must leave."""
        planning = self.planning
        try:
            outcome = planning.what_if.decide(pod, planning.pipeline)
        except PluginFailed:
            return []
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
        """Return by row the fewest pods that must leave, and the missing share of requests."""
        columns, count = self.planning.cluster.pod_columns, len(self.planning.cluster.nodes)
        at = np.flatnonzero((columns.rows >= 0) & ~columns.nominated)
        fewest, lacking = np.ones(len(rows), np.int64), np.zeros(len(rows))
        for resource, short in self._short(pod, rows).items():
            largest = np.zeros(count, np.int64)
            np.maximum.at(largest, columns.rows[at], columns.requests(resource)[at])
            each = np.maximum(largest[rows], 1)
            fewest = np.maximum(fewest, -(-short // each))
            # a sum over resources, each as a share of its request
            lacking += short / max(pod.spec.demand.resources[resource], 1)
        return fewest, lacking

    def _short(self, pod: Pod, rows: IntArray) -> dict[str, IntArray]:
        nodes, requests = self.planning.cluster.nodes.take(rows), pod.spec.demand.resources
        free = {each: nodes.allocatable(each) - nodes.requested(each) for each in requests}
        return {each: np.maximum(requests[each] - free[each], 0) for each in requests}

    def _on(self, pod: Pod, node: str, fewest: int, most: int, depth: int) -> Room | None:
        """Return a Room on `node` with at most `most` moves, or None."""
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
        """Return sets of `size` pods of the node that free enough for `pod`, small pods first."""
        by_spec, rows = self._movable_on(node), self.planning.cluster.rows([node])
        short = {name: int(each[0]) for name, each in self._short(pod, rows).items() if each[0]}
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
        found.sort(key=lambda pods: sum(map(self.planning.share_of, pods)))
        return found[:_MOST_SETS]

    def _movable_on(self, name: str) -> dict[PodSpec, list[Pod]]:
        planning, by_spec = self.planning, dict[PodSpec, list[Pod]]()
        node = planning.node(name)
        pods = sorted((each.pod for each in planning.cluster.pods_of(name)), key=lambda p: p.uid)
        for pod in pods:
            if node is not None and planning.may_move(pod) and not left_to_others(node, pod):
                by_spec.setdefault(pod.spec, []).append(pod)
        return by_spec

    def _if_they_leave(
        self, pod: Pod, node: str, leaving: Sequence[Pod], most: int, depth: int
    ) -> Room | None:
        """Return a Room on `node` with moves of the pods in `leaving`, or None."""
        planning, more = self.planning, most - len(leaving)
        moves = planning.leaving(leaving)
        with planning.undone():
            for each in leaving:
                planning.remove(each)
            if not planning.fits_on(pod, node):
                return None
            planning.add(pod, node)
            # First to the nodes that the profile chooses, then to the fullest nodes.
            for by_policy in (True, False):
                with planning.undone():
                    found = self._placed(moves, more, depth, by_policy=by_policy)
                if found is not None:
                    return Room(node, tuple(found))
        return None

    def _placed(
        self, leaving: Sequence[Move], more: int, depth: int, *, by_policy: bool
    ) -> list[Move] | None:
        """Return moves for the `leaving` pods, after at most `more` that make room, or None."""
        planning, moves = self.planning, list[Move]()
        within = planning.cluster.node_names if self.within is None else self.within
        for each in sorted(leaving, key=lambda each: -planning.share_of(each.pod)):
            anew, others = planning.anew(each), frozenset(within) - {each.source}
            target = planning.decided(anew) if by_policy else None
            if target not in others:
                target = planning.best_fit(anew, others)
            if target is None and not by_policy and depth > 0 and more > 0:
                room = self.room(anew, more, others, depth=depth - 1)
                if room is not None:
                    planning.make(room.moves)
                    moves += room.moves
                    more -= len(room.moves)
                    target = room.node
            if target is None:
                return None
            planning.add(anew, target)  # the caller undoes this
            moves.append(replace(each, target=target))
        return moves


def _freed(specs: Iterable[PodSpec], resource: str) -> int:
    return sum(spec.demand.resources.get(resource, 0) for spec in specs)
