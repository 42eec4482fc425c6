"""A score against fragmentation: least free GPU becomes unusable for typical requests.

The measure is in `mooring.state.devices.fragmentation`; what is typical follows from the pods that
are on nodes.
"""

from typing import ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalise
from mooring.framework.verdicts import SKIP, Skip
from mooring.model.devices import (
    MAX_CARDS,
    CardRequest,
    CardRequestError,
    CardShare,
    card_request,
)
from mooring.model.pod import Pod
from mooring.policy.device_args import GPUFragmentationArgs
from mooring.state.columns import IntArray
from mooring.state.devices.cards import CardsLeft
from mooring.state.devices.fragmentation import growth_by_share, growth_by_whole_cards
from mooring.state.snapshot import Snapshot
from mooring.state.view import BoolArray, NodeView

__all__ = ["GPUFragmentation"]

_HALF: Final = 50
_SCALE: Final = 250
"""Growth, in thousandths of a card, by which a score is halfway from the middle to its end."""
_FAR: Final = np.int64(2**40)


class GPUFragmentation:
    """Prefers nodes whose fragmentation grows least, or shrinks most."""

    name: ClassVar[str] = "GPUFragmentation"
    row_local: ClassVar[bool] = True
    normalise: ClassVar[Normalise] = Normalise.NONE
    Args: ClassVar[type[GPUFragmentationArgs]] = GPUFragmentationArgs

    def __init__(self, args: GPUFragmentationArgs, handle: Handle) -> None:
        self._format = args.card_format()
        self._cards = handle.assume_cache.track_cards(self._format, demand=True)

    def pre_score(self, pod: Pod, _nodes: NodeView, _cluster: Snapshot) -> CardRequest | Skip:
        """The cards that the pod requests."""
        try:
            return card_request(pod.shape, self._format) or SKIP
        except CardRequestError:
            return SKIP

    def score(self, _pod: Pod, nodes: NodeView, request: CardRequest) -> IntArray:
        """50 where fragmentation stays the same, more where it shrinks."""
        growth = np.zeros(len(nodes), np.int64)
        kind = self._cards.suitable(request, nodes.rows)
        suitable = np.ones((len(nodes), MAX_CARDS), np.bool_) if kind is None else kind
        for share in request.shares:
            growth += self._growth(nodes.rows, share, suitable)
        score: IntArray = _HALF - _HALF * growth // (np.abs(growth) + _SCALE)
        return np.clip(score, 0, 2 * _HALF)

    def _growth(self, rows: IntArray, share: CardShare, suitable: BoolArray) -> IntArray:
        """By how much each node's fragmentation grows with the share on the best cards."""
        left, total = self._cards.left(rows), self._cards.total(rows)
        typical = self._cards.typical
        if share.whole:
            candidates = left.untouched & suitable
            chosen = candidates & (np.cumsum(candidates, axis=1) <= share.cards)
            return growth_by_whole_cards(left, total, chosen, typical)
        need = -(-total * share.permille // 1000) if share.permille else share.memory
        need = np.broadcast_to(need, total.shape)
        return share.cards * self._least_growth(left, total, need, suitable)

    def _least_growth(
        self, left: CardsLeft, total: IntArray, need: IntArray, suitable: BoolArray
    ) -> IntArray:
        fits = suitable & left.usable & (left.free >= need)
        growth = growth_by_share(left, total, need, self._cards.typical)
        least: IntArray = np.where(fits, growth, _FAR).min(axis=1)
        return np.where(least == _FAR, 0, least)
