"""Gives pods the best-connected free GPU cards of a node.

The Binding names the cards in an annotation, which a device plugin or container runtime obeys.
"""

from typing import ClassVar, Final

import numpy as np

from mooring.framework.plugin import Normalize
from mooring.framework.verdicts import SKIP, Explanation, Skip
from mooring.gpu_cards.card_args import CardArgs
from mooring.gpu_cards.card_plugin import CardPlugin
from mooring.gpu_cards.gpu_topology.subsets import Subsets, subsets
from mooring.gpu_cards.model.cards import (
    MAX_CARDS,
    Assignment,
    CardRequest,
    assignment_text,
)
from mooring.model.pod import Pod
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

_BITS: Final = 1 << np.arange(MAX_CARDS)
_REASONS: Final = (
    "node(s) had no usable GPU",
    "node(s) had no GPU of the requested type or memory",
    "node(s) had fewer GPUs than requested",
    "node(s) had no GPUs linked as requested",
    "Insufficient free GPUs",
    "node(s) had no free GPUs linked as requested",
)
_RESOLVABLE: Final = 4
"""The index in `_REASONS` of the first reason that preemption may resolve."""
_MAX: Final = 100


class GPUTopology(CardPlugin):
    """Rejects nodes without enough free cards, and chooses the best-connected cards."""

    name: ClassVar[str] = "GPUTopology"
    depends_on_node_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[CardArgs]] = CardArgs

    def filter(self, _pod: Pod, nodes: NodeView, request: CardRequest) -> BoolArray:
        """Return bool[nodes]: True where enough free cards have the requested links."""
        free = self._free(nodes.rows, request)
        fits = np.bitwise_count(free) >= request.whole_cards
        if request.link_required:
            for index in np.flatnonzero(fits).tolist():
                row = int(nodes.rows[index])
                fits[index] = self._best(row, int(free[index]), request) is not None
        return fits

    def explain(self, _pod: Pod, nodes: NodeView, request: CardRequest) -> Explanation:
        """Return for each node the first of `_REASONS` that applies."""
        rows, wanted = nodes.rows, request.whole_cards
        usable = self._cards.remaining(rows).usable
        suitable = self._cards.suitable(request, rows)
        suits = _masks(usable if suitable is None else usable & suitable)
        free = self._free(rows, request)
        linked = [
            self._best(row, mask, request) is not None
            for row, mask in zip(rows.tolist(), suits.tolist(), strict=True)
        ]
        case = np.select(
            [
                ~usable.any(axis=1),
                suits == 0,
                np.bitwise_count(suits) < wanted,
                ~np.array(linked, np.bool_),
                np.bitwise_count(free) < wanted,
            ],
            [0, 1, 2, 3, 4],
            5,
        )
        bits = np.left_shift(np.uint64(1), case.astype(np.uint64))
        return Explanation(_REASONS, bits, case >= _RESOLVABLE)

    def score(self, _pod: Pod, nodes: NodeView, request: CardRequest) -> IntArray:
        """Return int64[nodes], 0-100.

        A node scores high if the cards for the pod are well connected, and if few groups of 4 or 8
        free cards are broken up.
        """
        free = self._free(nodes.rows, request)
        scores = np.zeros(len(nodes), np.int64)
        seen: dict[tuple[Subsets, int, int], int] = {}
        all_free = self._cards.free_cards(nodes.rows)
        for index, row in enumerate(nodes.rows.tolist()):
            key = (self._subsets(row), int(free[index]), int(all_free[index]))
            if key not in seen:
                seen[key] = _score(*key, request)
            scores[index] = seen[key]
        return scores

    def _handled(self, request: CardRequest) -> CardRequest | Skip:
        return request if request.is_whole else SKIP

    def _chosen(self, pod: Pod, request: CardRequest, row: int) -> Assignment | None:
        # The cards that the pod has now are free for it.
        remaining = self._cards.remaining_without(row, pod.uid)
        suitable = self._cards.suitable(request, np.array([row], np.int64))
        untouched = remaining.untouched if suitable is None else remaining.untouched & suitable
        chosen = self._best(row, int(_masks(untouched)[0]), request)
        if chosen is None:
            return None
        numbers = iter([card for card in range(MAX_CARDS) if chosen >> card & 1])
        return tuple(tuple(next(numbers) for _ in range(share.cards)) for share in request.shares)

    def _annotations(
        self, _request: CardRequest, assignment: Assignment, _row: int
    ) -> dict[str, str]:
        return {self._format.cards_annotation: assignment_text(assignment)}

    def _free(self, rows: IntArray, request: CardRequest) -> IntArray:
        free = self._cards.free_cards(rows)
        suitable = self._cards.suitable(request, rows)
        return free if suitable is None else free & _masks(suitable)

    def _subsets(self, row: int) -> Subsets:
        cards = self._cards.known(row)
        return subsets(cards.links, len(cards))

    def _best(self, row: int, free: int, request: CardRequest) -> int | None:
        sets = self._subsets(row)
        chosen = sets.best(free, request.whole_cards)
        if chosen is None or sets.weakest_link(chosen) < request.link_required:
            return None
        return chosen


def _masks(cards: BoolArray) -> IntArray:
    masks: IntArray = cards @ _BITS
    return masks


def _score(sets: Subsets, free: int, all_free: int, request: CardRequest) -> int:
    chosen = sets.best(free, request.whole_cards)
    if chosen is None:
        return 0
    # The score is high if few groups of 4 or 8 free cards are broken up.
    before, after = all_free.bit_count(), (all_free & ~chosen).bit_count()
    broken = 60 * (before // 8 > after // 8) + 30 * (before // 4 > after // 4)
    packed = _MAX - broken - 10 * after // max(1, sets.count)
    if request.whole_cards == 1:
        return packed
    # The links between several cards decide two thirds of the score.
    weakest = sets.weakest_link(chosen)
    if request.link_preferred:
        linked = _MAX * (weakest >= request.link_preferred)
    else:
        linked = _MAX * min(weakest, 30) // 30
    return (2 * linked + packed) // 3
