"""Places several pods on one GPU card, in the formats of gpushare, HAMi and KAI."""

from typing import ClassVar, Final

import numpy as np

from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.verdicts import SKIP, Explanation, Skip, Unschedulable
from mooring.gpu_cards.card_args import GPUShareArgs
from mooring.gpu_cards.card_plugin import CardPlugin
from mooring.gpu_cards.gpu_share.card_placement import (
    PlacedShares,
    fitting,
    needed,
    place_plain_share,
    place_shares,
)
from mooring.gpu_cards.model.cards import (
    Assignment,
    CardRequest,
    CardShare,
    assignment_text,
)
from mooring.gpu_cards.state.card_counts import RemainingCards
from mooring.gpu_cards.state.fragmentation import Cpu
from mooring.model.pod import Pod
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray, NodeView

_MIXED: Final = "requests whole GPUs and shares of GPUs at once; request one of both"
_MAX: Final = 100


class GPUShare(CardPlugin):
    """Rejects nodes without a card that has room for a share, and chooses the cards."""

    name: ClassVar[str] = "GPUShare"
    depends_on_node_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[GPUShareArgs]] = GPUShareArgs

    def __init__(self, args: GPUShareArgs, handle: Handle) -> None:
        super().__init__(args, handle, demand=args.cards == "LeastFragmentation")
        self._nodes = args.nodes
        self._choice = args.cards

    def filter(self, pod: Pod, nodes: NodeView, request: CardRequest) -> BoolArray:
        """Return bool[nodes]: True where every share has a usable card with room."""
        rows, (share, *others) = nodes.rows, request.shares
        if _is_plain(request):
            return self._cards.largest_free(rows) >= share.memory
        if others:
            return self._placed(nodes, pod, request).fits
        suitable = self._cards.suitable(request, rows)
        need = needed(share, self._cards.total(rows))
        fits = fitting(share, self._cards.remaining(rows), need, suitable)
        enough: BoolArray = np.count_nonzero(fits, axis=1) >= share.cards
        return enough

    def explain(self, _pod: Pod, nodes: NodeView, request: CardRequest) -> Explanation:
        """Return the reason for each rejected node.

        Preemption may help only if the node's cards are large enough for the shares.
        """
        rows = nodes.rows
        left, total = self._cards.remaining(rows), self._cards.total(rows)
        usable, suitable = left.usable, self._cards.suitable(request, rows)
        suits = usable if suitable is None else usable & suitable
        empty = RemainingCards(
            np.where(usable, total, -1), np.where(usable, _MAX, -1), np.zeros(len(rows), np.int64)
        )
        large = place_shares(request, empty, total, suitable, "Binpack", {}, None).fits
        wanted = np.sum(
            [share.cards * needed(share, total).max(axis=1) for share in request.shares], axis=0
        )
        enough = (left.free * suits).sum(axis=1) >= wanted
        all_cores = RemainingCards(left.free, empty.free_cores, left.free_cards)
        without_cores = place_shares(request, all_cores, total, suitable, "Binpack", {}, None).fits
        case = np.select(
            [~usable.any(axis=1), ~suits.any(axis=1), ~large, without_cores, ~enough],
            [0, 1, 2, 3, 4],
            5,
        )
        resource = self._format.memory_resource or "GPU memory"
        reasons = (
            "node(s) had no usable GPU",
            "node(s) had no GPU of the requested type or memory",
            "node(s) had no GPU large enough",
            "Insufficient GPU cores",
            f"Insufficient {resource}",
            "node(s) had enough free GPU memory in sum but not on a single GPU",
        )
        return Explanation(reasons, np.left_shift(np.uint64(1), case.astype(np.uint64)), case >= 3)

    def score(self, pod: Pod, nodes: NodeView, request: CardRequest) -> IntArray:
        """Return int64[nodes], 0-100: how full (for `Spread`, how empty) the pod makes a node."""
        rows, share = nodes.rows, request.shares[0]
        index, total, sums = np.arange(len(rows)), self._cards.total(rows), self._cards.sums(rows)
        if self._choice != "LeastFragmentation" and _is_plain(request):
            free = self._cards.free(rows)
            card = place_plain_share(free, share.memory, self._choice)
            left, taken = free[index, card] - share.memory, np.int64(share.memory)
        else:
            placed = self._placed(nodes, pod, request)
            card = placed.chosen[0][:, 0]
            left = placed.remaining.free[index, card]
            taken = np.sum(
                [
                    each.cards * needed(each, total)[index, on[:, 0]]
                    for each, on in zip(request.shares, placed.chosen, strict=True)
                ],
                axis=0,
            )
        of_card = total[index, card]
        # The mean of two percentages: the used memory of the first chosen card, and of all cards.
        card_part = _percent(of_card - left, of_card)
        node_part = _percent(sums[:, 0] - sums[:, 1] + taken, sums[:, 0])
        full = (card_part + node_part) // 2
        return full if self._nodes == "Binpack" else _MAX - full

    def _handled(self, request: CardRequest) -> CardRequest | Skip | Unschedulable:
        if request.is_whole:
            return SKIP
        return request if request.is_shared else Unschedulable(_MIXED)

    def _chosen(self, pod: Pod, request: CardRequest, row: int) -> Assignment | None:
        left = self._cards.remaining_without(row, pod.uid)
        if self._choice != "LeastFragmentation" and _is_plain(request):
            memory = request.shares[0].memory
            card = int(place_plain_share(left.free, memory, self._choice)[0])
            return ((card,),) if left.free[0, card] >= memory else None
        rows = np.array([row], np.int64)
        cpu = _cpu(self._cluster.nodes.take(rows), pod)
        before = Cpu(cpu.free + cpu.taken, cpu.taken)
        placed = self._place(request, left, rows, before)
        return placed.assignment(0) if placed.fits[0] else None

    def _placed(self, nodes: NodeView, pod: Pod, request: CardRequest) -> PlacedShares:
        return self._place(request, self._cards.remaining(nodes.rows), nodes.rows, _cpu(nodes, pod))

    def _place(
        self, request: CardRequest, left: RemainingCards, rows: IntArray, cpu: Cpu
    ) -> PlacedShares:
        total, suitable = self._cards.total(rows), self._cards.suitable(request, rows)
        typical = self._cards.typical
        return place_shares(request, left, total, suitable, self._choice, typical, cpu)

    def _annotations(
        self, request: CardRequest, assignment: Assignment, row: int
    ) -> dict[str, str]:
        prefix, share = self._format.annotation_prefix, request.shares[0]
        if not self._format.writes_index(request):
            return {self._format.cards_annotation: assignment_text(assignment)}
        ((card,),) = assignment
        total = self._cards.known(row).memory[card]
        return {
            f"{prefix}_IDX": str(card),
            f"{prefix}_DEV": str(total),
            f"{prefix}_POD": str(share.memory_on(total)),
            f"{prefix}_ASSIGNED": "false",
            f"{prefix}_ASSUME_TIME": str(self._api.unix_nanoseconds()),
        }


def _cpu(nodes: NodeView, pod: Pod) -> Cpu:
    free = nodes.allocatable("cpu") - nodes.requested("cpu")
    return Cpu(free, pod.spec.demand.resources.get("cpu", 0))


def _is_plain(request: CardRequest) -> bool:
    share = request.shares[0]
    return request == CardRequest((CardShare(1, share.memory),))


def _percent(used: IntArray, total: IntArray) -> IntArray:
    percent: IntArray = np.maximum(np.minimum(used, total), 0) * _MAX // np.maximum(total, 1)
    return percent
