"""What the claims of a pod get on many nodes, with one search for all nodes that are alike."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mooring.framework.evaluations import StillEvaluating
from mooring.model.resource_claims import Allocation, ResourceClaim
from mooring.plugins.dynamic_resources.allocation_error import AllocationError
from mooring.plugins.dynamic_resources.allocator import Allocator
from mooring.plugins.dynamic_resources.budget import Budget
from mooring.plugins.dynamic_resources.fleet import Fleet, Patterns
from mooring.plugins.dynamic_resources.projection import Reads, reads_of
from mooring.plugins.dynamic_resources.search import Moves
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

__all__ = ["Answer", "Answers", "AnswersOnNodes"]

_MOST_BYTES: Final = 64 * 2**20
_MOST_CLAIMS: Final = 256
"""Kinds of claims whose answers are remembered, each for all patterns of nodes."""
_BYTES_PER_KIND: Final = 16 * 2**10
_BYTES_PER_ANSWER: Final = 200
_BYTES_PER_RESULT: Final = 600
_BYTES_PER_MOVE: Final = 200

Answer = list[Allocation] | AllocationError | None
"""An allocation per claim, of some node that is alike; what is wrong; None: too few devices."""


@dataclass(frozen=True, slots=True, eq=False)
class AnswersOnNodes:
    """The answers for the nodes of a view: those of its patterns, and which pattern each has.

    `moves` are the solutions, by pattern.
    """

    patterns: IntArray
    by_pattern: Mapping[int, Answer]
    moves: Mapping[int, Moves]

    def of(self, index: int) -> Answer:
        """Return the answer for the node at a position of the view; its devices are another's."""
        return self.by_pattern[int(self.patterns[index])]

    def moves_of(self, index: int) -> Moves | None:
        """Return the solution for the node at a position of the view; None if there is none."""
        return self.moves.get(int(self.patterns[index]))

    def where(self, holds: Callable[[Answer], bool]) -> BoolArray:
        """Return True for the nodes for whose answer it holds."""
        good = [pattern for pattern, answer in self.by_pattern.items() if holds(answer)]
        return np.isin(self.patterns, good)

    @property
    def fits(self) -> BoolArray:
        """True where the claims can have devices."""
        return self.where(lambda answer: isinstance(answer, list))


class _Kind:
    """What claims that ask for the same get on nodes of each pattern.

    `paused` is the allocator whose search has not ended, with the pattern and the node's name.
    """

    __slots__ = ("answers", "budget", "bytes", "moves", "paused")

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.moves: dict[int, Moves] = {}
        """The solutions, which any node of the pattern repeats without a search."""
        self.budget: Budget | None = None
        """That of the searches for all patterns that are there, until each has an answer."""
        self.paused: tuple[int, str, Allocator] | None = None
        self.bytes = 0

    def put(self, pattern: int, answer: Answer, moves: Moves | None) -> None:
        """Remember the answer for a pattern that has none."""
        self.answers[pattern] = answer
        self.bytes += _bytes_of(answer)
        if moves is not None:
            self.moves[pattern] = moves
            self.bytes += _BYTES_PER_MOVE * len(moves)

    def keep(self, patterns: Iterable[int]) -> None:
        """Forget the answers for all other patterns."""
        kept = [pattern for pattern in patterns if pattern in self.answers]
        before, moves = self.answers, self.moves
        self.answers, self.moves, self.bytes = {}, {}, 0
        for pattern in kept:
            self.put(pattern, before[pattern], moves.get(pattern))


class Answers:
    """Remembers what kinds of claims get on nodes of a pattern.

    What the nodes need that there are now is kept at least for the claims that were last asked
    for; so an attempt that was ended goes on where it was.
    """

    def __init__(self, fleet: Fleet, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._fleet = fleet
        self._known: OrderedDict[Hashable, _Kind] = OrderedDict()

    @property
    def bytes(self) -> int:
        """About how many bytes all answers take."""
        return sum(_BYTES_PER_KIND + kind.bytes for kind in self._known.values())

    def on(
        self,
        nodes: NodeView,
        claims: Sequence[ResourceClaim],
        cluster: ClusterView,
        allocator: Callable[[Budget | None], Allocator],
    ) -> AnswersOnNodes:
        """Return what the claims get on the nodes; `allocator` makes theirs on all slices.

        Raises:
            AllocationError: that of the first node with one that is about more than the node.
            StillEvaluating: the decision has done enough; the pod's next attempt goes on.
        """
        patterns, kind = self._of(claims, cluster)
        numbers = patterns.numbers[nodes.rows]
        self._search(nodes, numbers, kind, claims, allocator)
        return AnswersOnNodes(numbers, kind.answers, kind.moves)

    def patterns(self, claims: Sequence[ResourceClaim], cluster: ClusterView) -> Patterns:
        """Return the patterns of all rows for these claims."""
        return self._fleet.patterns(cluster, _reads(claims, cluster))

    def _of(self, claims: Sequence[ResourceClaim], cluster: ClusterView) -> tuple[Patterns, _Kind]:
        """Return the patterns of all rows, and what is known of claims that ask for the same."""
        reads = _reads(claims, cluster)
        patterns = self._fleet.patterns(cluster, reads)
        key = (
            *((repr(claim.spec.requests), repr(claim.spec.constraints)) for claim in claims),
            cluster.dynamic_resources.classes_version,
            reads,
            patterns.generation,
        )
        kind = self._known.setdefault(key, _Kind())
        self._known.move_to_end(key)
        while len(self._known) > _MOST_CLAIMS or (
            len(self._known) > 1 and self.bytes > self.most_bytes
        ):
            self._known.popitem(last=False)
        if self.bytes > self.most_bytes:
            kind.keep(np.unique(patterns.numbers).tolist())
        return patterns, kind

    def _search(
        self,
        nodes: NodeView,
        numbers: IntArray,
        kind: _Kind,
        claims: Sequence[ResourceClaim],
        allocator: Callable[[Budget | None], Allocator],
    ) -> None:
        """Find the answers for all patterns that have none, with a search each."""
        distinct, first = np.unique(numbers, return_index=True)
        new = sorted(
            (index, number)
            for number, index in zip(distinct.tolist(), first.tolist(), strict=True)
            if number not in kind.answers
        )
        if not new:
            return
        searches = self._resumed(nodes, new, kind) or allocator(kind.budget)
        kind.budget = searches.budget
        for index, number in new:
            node = nodes.node(index)
            if node is None:
                kind.put(number, None, None)
                continue
            pools = self._fleet.pools(int(nodes.rows[index]))
            answer: Answer
            try:
                answer = searches.allocate(node.name, node.labels, str, pools)
            except AllocationError as error:
                if not error.on_node:
                    raise AllocationError(_said_of(claims, searches.claims, error.text)) from None
                answer = error
            except StillEvaluating:
                kind.paused = number, node.name, searches
                raise
            kind.put(number, answer, searches.moves)
            searches.budget.pause()
        kind.budget = None

    def _resumed(
        self, nodes: NodeView, new: list[tuple[int, int]], kind: _Kind
    ) -> Allocator | None:
        """Return the allocator whose search goes on, and put its node first; None if there is none.

        The node must look as it did, which its pattern tells.
        """
        paused, kind.paused = kind.paused, None
        if paused is None:
            return None
        pattern, name, searches = paused
        for place, (index, number) in enumerate(new):
            node = nodes.node(index)
            if number == pattern and node is not None and node.name == name:
                new.insert(0, new.pop(place))
                return searches
        return None


def _said_of(claims: Sequence[ResourceClaim], others: Sequence[ResourceClaim], text: str) -> str:
    """Return what is said of other claims, which ask for the same, about these."""
    for mine, other in zip(claims, others, strict=True):
        text = text.replace(f"claim {other.key}", f"claim {mine.key}")
        text = text.replace(f"for claim {other.name}:", f"for claim {mine.name}:")
    return text


def _bytes_of(answer: Answer) -> int:
    """Return about how many bytes an answer takes; what is the claims' own they share."""
    if isinstance(answer, list):
        results = sum(len(allocation.results) for allocation in answer)
        return _BYTES_PER_ANSWER + _BYTES_PER_RESULT * (results + len(answer))
    return _BYTES_PER_ANSWER + (len(answer.text) if answer is not None else 0)


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
