"""What the claims of a pod get on many nodes, with one search for all nodes that are alike."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mooring.framework.evaluations import StillEvaluating
from mooring.model.resource_claims import Allocation, ResourceClaim
from mooring.plugins.dynamic_resources.allocation_error import AllocationError
from mooring.plugins.dynamic_resources.allocator import Allocator
from mooring.plugins.dynamic_resources.budget import Budget
from mooring.plugins.dynamic_resources.fleet import Fleet
from mooring.plugins.dynamic_resources.patterns import Patterns
from mooring.plugins.dynamic_resources.projection import Reads, reads_of
from mooring.plugins.dynamic_resources.search import Moves
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

__all__ = ["Answer", "Answers", "AnswersOnNodes", "score_of"]

_MOST_BYTES: Final = 64 * 2**20
_MOST_CLAIMS: Final = 1024
"""Kinds of claims whose answers are remembered, each for all patterns of nodes."""
_BYTES_PER_KIND: Final = 16 * 2**10
_BYTES_PER_ANSWER: Final = 200
_BYTES_PER_RESULT: Final = 600
_BYTES_PER_MOVE: Final = 200

Answer = list[Allocation] | AllocationError | None
"""An allocation per claim, of some node that is alike; what is wrong; None: too few devices."""


_UNKNOWN: Final = -1
_TOO_FEW: Final = 0
_FITS: Final = 1
"""What is known of a pattern."""
_MOST_SUBREQUESTS: Final = 8
"""A request has so many subrequests at most; the first one of them scores highest."""


class _Kind:
    """What claims that ask for the same get on nodes of each pattern.

    `paused` is the allocator whose search has not ended, with the pattern and the node's name.
    """

    __slots__ = (
        "answers",
        "budget",
        "bytes",
        "counted",
        "generation",
        "moves",
        "paused",
        "reads",
        "scores",
        "verdicts",
    )

    def __init__(self, reads: Reads, generation: int) -> None:
        self.reads = reads
        self.generation = generation
        """That of the patterns."""
        self.answers: dict[int, Answer] = {}
        self.moves: dict[int, Moves] = {}
        """The solutions, which any node of the pattern repeats without a search."""
        self.verdicts = np.zeros(0, np.int8)
        """By pattern whether it has an answer, and whether that is an allocation."""
        self.scores: IntArray | None = None
        """By pattern the score of the alternatives that are allocated; None: always 0."""
        self.budget: Budget | None = None
        """That of the searches for all patterns that are there, until each has an answer."""
        self.paused: tuple[int, str, Allocator] | None = None
        self.bytes = self.counted = _BYTES_PER_KIND
        """About how many bytes it takes, and took when that was last counted."""

    def resize(self, patterns: int) -> None:
        """Have room for so many patterns."""
        more = patterns - len(self.verdicts)
        if more > 0:
            more += len(self.verdicts)
            self.verdicts = np.concatenate((self.verdicts, np.full(more, _UNKNOWN, np.int8)))
            if self.scores is not None:
                self.scores = np.concatenate((self.scores, np.zeros(more, np.int64)))
            self.bytes += more * (1 if self.scores is None else 9)

    def put(self, pattern: int, answer: Answer, moves: Moves | None, score: int) -> None:
        """Remember the answer for a pattern that has none."""
        self.answers[pattern] = answer
        self.bytes += _bytes_of(answer)
        self.verdicts[pattern] = _FITS if isinstance(answer, list) else _TOO_FEW
        if score and self.scores is None:
            self.scores = np.zeros(len(self.verdicts), np.int64)
            self.bytes += self.scores.nbytes
        if score and self.scores is not None:
            self.scores[pattern] = score
        if moves is not None:
            self.moves[pattern] = moves
            self.bytes += _BYTES_PER_MOVE * len(moves)

    def keep(self, patterns: Iterable[int]) -> None:
        """Forget the answers for all other patterns."""
        kept = [pattern for pattern in patterns if pattern in self.answers]
        answers, moves, scores = self.answers, self.moves, self.scores
        self.answers, self.moves, self.scores = {}, {}, None
        self.verdicts[:] = _UNKNOWN
        self.bytes = _BYTES_PER_KIND + self.verdicts.nbytes
        for each in kept:
            score = int(scores[each]) if scores is not None else 0
            self.put(each, answers[each], moves.get(each), score)


@dataclass(frozen=True, slots=True, eq=False)
class AnswersOnNodes:
    """The answers for the nodes of a view: which pattern each has, and what is known of these."""

    patterns: IntArray
    _kind: _Kind

    def of(self, index: int) -> Answer:
        """Return the answer for the node at a position of the view; its devices are another's."""
        return self._kind.answers[int(self.patterns[index])]

    def moves_of(self, index: int) -> Moves | None:
        """Return the solution for the node at a position of the view; None if there is none."""
        return self._kind.moves.get(int(self.patterns[index]))

    def by_pattern(self) -> tuple[list[Answer], IntArray]:
        """Return the answers of all patterns of the view, and for each node which one it has."""
        distinct, which = np.unique(self.patterns, return_inverse=True)
        return [self._kind.answers[each] for each in distinct.tolist()], which.astype(np.int64)

    @property
    def fits(self) -> BoolArray:
        """True where the claims can have devices."""
        fits: BoolArray = self._kind.verdicts[self.patterns] == _FITS
        return fits

    @property
    def scores(self) -> IntArray | int:
        """What the alternatives of requests score that the claims can have."""
        return 0 if self._kind.scores is None else self._kind.scores[self.patterns]


class Answers:
    """Remembers what kinds of claims get on nodes of a pattern.

    What the nodes need that there are now is kept at least for the claims that were last asked
    for; so an attempt that was ended goes on where it was.
    """

    def __init__(self, fleet: Fleet, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._fleet = fleet
        self._known: OrderedDict[Hashable, _Kind] = OrderedDict()
        self._counted = 0
        """How many bytes all kinds took when they were counted; the last one may have grown."""

    @property
    def bytes(self) -> int:
        """About how many bytes all answers take."""
        latest = next(reversed(self._known.values()), None)
        return self._counted + (latest.bytes - latest.counted if latest is not None else 0)

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
        return AnswersOnNodes(numbers, kind)

    def patterns(self, claims: Sequence[ResourceClaim], cluster: ClusterView) -> Patterns:
        """Return the patterns of all rows for these claims."""
        return self._fleet.patterns(cluster, _reads(claims, cluster))

    def _of(self, claims: Sequence[ResourceClaim], cluster: ClusterView) -> tuple[Patterns, _Kind]:
        """Return the patterns of all rows, and what is known of claims that ask for the same."""
        key = (
            *(claim.spec.asked for claim in claims),
            cluster.dynamic_resources.classes_version,
        )
        known = self._known.get(key)
        reads = known.reads if known is not None else _reads(claims, cluster)
        patterns = self._fleet.patterns(cluster, reads)
        kind = self._latest(key, patterns, reads)
        kind.resize(patterns.count)
        while len(self._known) > _MOST_CLAIMS or (
            len(self._known) > 1 and self.bytes > self.most_bytes
        ):
            _, oldest = self._known.popitem(last=False)
            self._counted -= oldest.counted
        if self.bytes > self.most_bytes:
            kind.keep(np.unique(patterns.numbers).tolist())
        return patterns, kind

    def _latest(self, key: Hashable, patterns: Patterns, reads: Reads) -> _Kind:
        """Return the kind of a key, a new one unless it is known, as the one asked for last."""
        self._counted = self.bytes
        if self._known:
            latest = next(reversed(self._known.values()))
            latest.counted = latest.bytes
        kind = self._known.pop(key, None)
        if kind is not None and kind.generation != patterns.generation:
            self._counted -= kind.counted
            kind = None
        if kind is None:
            kind = _Kind(reads, patterns.generation)
            self._counted += kind.bytes
        self._known[key] = kind
        return kind

    def _search(
        self,
        nodes: NodeView,
        numbers: IntArray,
        kind: _Kind,
        claims: Sequence[ResourceClaim],
        allocator: Callable[[Budget | None], Allocator],
    ) -> None:
        """Find the answers for all patterns that have none, with a search each."""
        places = np.flatnonzero(kind.verdicts[numbers] == _UNKNOWN)
        if not len(places):
            return
        distinct, first = np.unique(numbers[places], return_index=True)
        new = sorted(zip(places[first].tolist(), distinct.tolist(), strict=True))
        searches = self._resumed(nodes, new, kind) or allocator(kind.budget)
        kind.budget = searches.budget
        for index, number in new:
            node = nodes.node(index)
            if node is None:
                kind.put(number, None, None, 0)
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
            score = sum(map(score_of, claims, answer)) if isinstance(answer, list) else 0
            kind.put(number, answer, searches.moves, score)
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


def score_of(claim: ResourceClaim, allocation: Allocation) -> int:
    """Return the score of the alternatives that the claim has got."""
    chosen = {result.request for result in allocation.results}
    return sum(
        _MOST_SUBREQUESTS - index
        for request in claim.spec.requests
        if request.exactly is None
        for index, sub in enumerate(request.first_available)
        if f"{request.name}/{sub.name}" in chosen
    )


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
