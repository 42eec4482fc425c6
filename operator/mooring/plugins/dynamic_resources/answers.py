"""What the claims of a pod get on many nodes, with one search for all nodes that are alike."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mooring.model.resource_claims import Allocation, ResourceClaim
from mooring.plugins.dynamic_resources.allocation_error import AllocationError, BudgetError
from mooring.plugins.dynamic_resources.allocator import Allocator
from mooring.plugins.dynamic_resources.fleet import Fleet, Patterns
from mooring.plugins.dynamic_resources.projection import Reads, reads_of
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

__all__ = ["Answer", "Answers", "AnswersOnNodes"]

_MOST_CLAIMS: Final = 32
"""Kinds of claims whose answers are remembered, each for all patterns of nodes."""

Answer = list[Allocation] | AllocationError | None
"""An allocation per claim, of some node that is alike; what is wrong; None: too few devices."""


@dataclass(frozen=True, slots=True, eq=False)
class AnswersOnNodes:
    """The answers for the nodes of a view: those of its patterns, and which pattern each has."""

    patterns: IntArray
    by_pattern: Mapping[int, Answer]

    def of(self, index: int) -> Answer:
        """Return the answer for the node at a position of the view; its devices are another's."""
        return self.by_pattern[int(self.patterns[index])]

    def where(self, holds: Callable[[Answer], bool]) -> BoolArray:
        """Return True for the nodes for whose answer it holds."""
        good = [pattern for pattern, answer in self.by_pattern.items() if holds(answer)]
        return np.isin(self.patterns, good)

    @property
    def fits(self) -> BoolArray:
        """True where the claims can have devices."""
        return self.where(lambda answer: isinstance(answer, list))


class Answers:
    """Remembers what kinds of claims get on nodes of a pattern."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: OrderedDict[Hashable, dict[int, Answer]] = OrderedDict()

    def on(
        self,
        nodes: NodeView,
        claims: Sequence[ResourceClaim],
        cluster: ClusterView,
        allocator: Callable[[], Allocator],
    ) -> AnswersOnNodes:
        """Return what the claims get on the nodes; `allocator` makes theirs on all slices.

        Raises:
            AllocationError: that of the first node with one that is about more than the node.
        """
        reads = _reads(claims, cluster)
        patterns = self._fleet.patterns(cluster, reads)
        key = (
            *((repr(claim.spec.requests), repr(claim.spec.constraints)) for claim in claims),
            cluster.dynamic_resources.classes_version,
            reads,
            patterns.generation,
        )
        known = self._known.setdefault(key, {})
        self._known.move_to_end(key)
        while len(self._known) > _MOST_CLAIMS:
            self._known.popitem(last=False)
        numbers = patterns.numbers[nodes.rows]
        found = self._searched(nodes, numbers, known, allocator)
        return AnswersOnNodes(numbers, found)

    def patterns(self, claims: Sequence[ResourceClaim], cluster: ClusterView) -> Patterns:
        """Return the patterns of all rows for these claims."""
        return self._fleet.patterns(cluster, _reads(claims, cluster))

    def _searched(
        self,
        nodes: NodeView,
        numbers: IntArray,
        known: dict[int, Answer],
        allocator: Callable[[], Allocator],
    ) -> Mapping[int, Answer]:
        """Return the answers for all patterns, those that were not known from a search each."""
        distinct, first = np.unique(numbers, return_index=True)
        new = sorted(
            (index, number)
            for number, index in zip(distinct.tolist(), first.tolist(), strict=True)
            if number not in known
        )
        if not new:
            return known
        searches, unsure = allocator(), dict[int, Answer]()
        for index, number in new:
            node = nodes.node(index)
            answer: Answer = None
            if node is not None:
                pools = self._fleet.pools(int(nodes.rows[index]))
                try:
                    answer = searches.allocate(node.name, node.labels, str, pools)
                except AllocationError as error:
                    if not error.on_node:
                        raise
                    answer = error
            (unsure if isinstance(answer, BudgetError) else known)[number] = answer
        return known | unsure


def _reads(claims: Sequence[ResourceClaim], cluster: ClusterView) -> Reads:
    """Return the attributes that the claims and their classes may read."""
    names = {
        wanted.device_class
        for claim in claims
        for request in claim.spec.requests
        for wanted in (*request.first_available, request.exactly)
        if wanted is not None
    }
    found = (cluster.dynamic_resources.device_class(name) for name in names)
    return reads_of(claims, [each for each in found if each is not None])
