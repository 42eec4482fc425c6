"""Prefers nodes where the pod makes the least free GPU unusable for typical requests.

See `mooring.gpu_cards.state.fragmentation` for the measure. The pods on nodes show the typical
requests.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.verdicts import SKIP, Skip
from mooring.gpu_cards.card_args import CardArgs
from mooring.gpu_cards.card_plugin import count_cards
from mooring.gpu_cards.model.cards import CardRequest, CardRequestError, card_request
from mooring.gpu_cards.state.fragmentation import (
    Cpu,
    growth_by_cpu,
    growth_by_share,
    growth_by_whole_cards,
)
from mooring.model.pod import Pod
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.view import NodeView

_HALF: Final = 50
_SCALE: Final = 250
"""The growth of a node's fragmentation, in thousandths of a card, for the score 25. An equal
decrease gives 75, no change gives 50."""
_FAR: Final = np.int64(2**40)


@dataclass(frozen=True, slots=True)
class _RequestedCards:
    """The cards that a pod requests; None for no cards."""

    request: CardRequest | None


class GPUFragmentation:
    """Scores a node by how much its fragmentation would grow with the pod."""

    name: ClassVar[str] = "GPUFragmentation"
    depends_on_node_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[CardArgs]] = CardArgs

    def __init__(self, args: CardArgs, handle: Handle) -> None:
        self._format = args.card_format()
        self._cards = handle.assume_cache.track_cards(self._format, demand=True)
        self._evaluations = handle.evaluations

    def pre_score(
        self, pod: Pod, _nodes: NodeView, _cluster: ClusterView
    ) -> _RequestedCards | Skip:
        """Return the cards that the pod requests, if any; SKIP if the request is malformed.

        Raises PluginFailed if too many nodes' cards must still be counted.
        """
        try:
            request = card_request(pod.spec, self._format)
        except CardRequestError:
            return SKIP
        count_cards(self._cards, self._evaluations)
        return _RequestedCards(request)

    def score(self, pod: Pod, nodes: NodeView, wanted: _RequestedCards) -> IntArray:
        """Return int64[nodes]: 50 if fragmentation is unchanged, more if it shrinks, else less."""
        free = nodes.allocatable("cpu") - nodes.requested("cpu")
        cpu = Cpu(free, pod.spec.demand.resources.get("cpu", 0))
        growth = self._growth(nodes.rows, wanted.request, cpu)
        score: IntArray = _HALF - _HALF * growth // (np.abs(growth) + _SCALE)
        return np.clip(score, 0, 2 * _HALF)

    def _growth(self, rows: IntArray, request: CardRequest | None, cpu: Cpu) -> IntArray:
        """Return int64[rows]: how much a node's fragmentation grows if the pod is placed there."""
        remaining, total, typical = (
            self._cards.remaining(rows),
            self._cards.total(rows),
            self._cards.typical,
        )
        if request is None:
            return growth_by_cpu(remaining, total, typical, cpu)
        kind = self._cards.suitable(request, rows)
        suitable = np.ones(total.shape, np.bool_) if kind is None else kind
        if request.is_whole:
            candidates = remaining.untouched & suitable
            chosen = candidates & (np.cumsum(candidates, axis=1) <= request.whole_cards)
            return growth_by_whole_cards(remaining, total, chosen, typical, cpu)
        growth = np.zeros(len(rows), np.int64)
        for share in request.shares:
            part = -(-total * share.permille // 1000) if share.permille else share.memory
            need = np.broadcast_to(part, total.shape)
            each = growth_by_share(remaining, total, need, typical, cpu)
            least = np.where(
                suitable & remaining.usable & (remaining.free >= need), each, _FAR
            ).min(axis=1)
            growth += share.cards * np.where(least == _FAR, 0, least)
        return growth
