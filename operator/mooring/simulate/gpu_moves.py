"""Draws the GPU cards and devices of nodes; finds pods to move so that a pending pod fits."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import combinations
from typing import Any, Final

from mooring.claims.device_view import FREE, IN_USE, NodeDevice
from mooring.gpu_cards.card_plugin import assign_devices
from mooring.gpu_cards.card_view import Card, NodeGPUs
from mooring.gpu_cards.model.cards import CardFormat, CardRequestError, card_request
from mooring.model.pod import Pod, Uid
from mooring.observe.documents import plain
from mooring.scheduling.outcome import ScheduleResult
from mooring.scheduling.profiles_in_force import ActiveProfile
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.what_if import WhatIf
from mooring.simulate.inputs import Inputs
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView

_MOST_MOVED: Final = 3
_MOST_NODES: Final = 200
_MOST_SETS: Final = 2_000
"""The most sets of pods to move that are tried for one pending pod."""


@dataclass(frozen=True, slots=True)
class CardMove:
    """A pod with cards, its node, and the node to which it would move."""

    pod: str
    from_: str
    to: str


@dataclass(frozen=True, slots=True)
class CardPlan:
    """The moves that make space for a pending pod.

    `node` is the node on which the pod then fits; None if there is no plan. `fits` is True if the
    pod fits without moves.
    """

    pod: str
    node: str | None
    moves: tuple[CardMove, ...]
    fits: bool = False

    def document(self) -> dict[str, Any]:
        """Return the plan as the JSON object that `mooring gpus -o json` prints."""
        about = {"pod": self.pod, "node": self.node, "fits": self.fits}
        return {**about, "moves": plain(self.moves)}


def plans(inputs: Inputs, profile: ActiveProfile, form: CardFormat) -> Iterator[CardPlan]:
    """Yield a plan for each pending pod that requests cards, as if no other pod were pending.

    A plan moves at most three other pods, as few as possible. `form` says how pods request cards.
    """
    planner = _Planner(inputs.state, profile, form)
    for pod in inputs.pending:
        try:
            requests = card_request(pod.spec, form) is not None
        except CardRequestError:
            requests = False
        if requests:
            yield planner.plan(pod)


class _Planner:
    def __init__(self, state: ClusterState, profile: ActiveProfile, form: CardFormat) -> None:
        self._state = state
        self._pipeline = profile.pipeline
        self._what_if = WhatIf(ResultCache(ClusterView(state)))
        self._books = state.track_cards(form)

    def plan(self, pod: Pod) -> CardPlan:
        placed = self._decided(pod)
        if placed is not None:
            return CardPlan(pod.key, placed.node, (), fits=True)
        for row, uids in self._sets():
            plan = self._moved(pod, row, uids)
            if plan is not None:
                return plan
        return CardPlan(pod.key, None, ())

    def _sets(self) -> Iterator[tuple[int, tuple[Uid, ...]]]:
        """Yield the row of a node and uids of pods to move away from it, small sets first."""
        ordered = self._state.nodes.order()
        free = dict(zip(ordered.tolist(), self._books.free_cards(ordered).tolist(), strict=True))
        with_cards = (row for row in free if len(self._books.known(row)))
        rows = sorted(with_cards, key=lambda row: -free[row])
        owners = {
            row: [
                owner.uid
                for owner in self._books.owners(row)
                if (placed := self._state.pods.get(owner.uid)) and not placed.pod.terminating
            ]
            for row in rows[:_MOST_NODES]
        }
        left = _MOST_SETS
        for size in range(1, _MOST_MOVED + 1):
            for row, uids in owners.items():
                for chosen in combinations(uids, size):
                    left -= 1
                    if left < 0:
                        return
                    yield row, chosen

    def _moved(self, pod: Pod, row: int, uids: Sequence[Uid]) -> CardPlan | None:
        """Return a plan that moves the pods `uids` off the node and places `pod`, or None."""
        node, moves = self._state.nodes.names[row], []
        moved = [
            replace(placed.pod, node_name=None)
            for uid in uids
            if (placed := self._state.pods.get(uid)) is not None
        ]
        with self._what_if.trial() as trial:
            for uid in uids:
                trial.remove(uid)
            found = self._decided(pod)
            if found is None:
                return None
            trial.add(pod, found.row)
            assign_devices(self._pipeline.reserve, pod, found.row)
            for each in moved:
                target = self._decided(each)
                if target is None:
                    return None
                trial.add(each, target.row)
                assign_devices(self._pipeline.reserve, each, target.row)
                moves.append(CardMove(each.key, node, target.node))
        return CardPlan(pod.key, found.node, tuple(moves))

    def _decided(self, pod: Pod) -> ScheduleResult | None:
        outcome = self._what_if.decide(pod, self._pipeline)
        return outcome if isinstance(outcome, ScheduleResult) else None


_CELL: Final = 64
_HIGH: Final = 26
_CHARACTER: Final = 7
"""The largest width of a character of a node's name, in the units of the drawing."""
_LEGEND: Final = (
    ("in use", "#9cc3e8"),
    ("free; the number is the free memory", "#f4f4f4"),
    ("not usable", "#b0b0b0"),
    ("overcommitted", "#f0a0a0"),
)
"""Pairs of the meaning and the colour of a card; the text on all colours is black."""
_IN_USE, _FREE, _NOT_USABLE, _OVERCOMMITTED = (colour for _, colour in _LEGEND)


def picture(nodes: Iterable[NodeGPUs], unit: str) -> str:
    """Return an SVG picture with a row for each node and a cell for each card or device.

    The used memory of a card, and a device in use, are filled. `unit` is the unit of memory.
    """
    rows = list(nodes)
    widest = max((len(node.cards) + len(node.devices) for node in rows), default=0)
    left = 14 + _CHARACTER * max((len(node.node) for node in rows), default=0)
    width, height = max(left + _CELL * widest, 560) + 10, _HIGH * (len(rows) + 1) + 10
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for index, node in enumerate(rows):
        y = 5 + index * _HIGH
        parts.append(f'<text x="4" y="{y + 15}">{escape(node.node)}</text>')
        parts += [_cell(card, left + _CELL * card.number, y) for card in node.cards]
        parts += [
            _device_cell(device, left + _CELL * number, y)
            for number, device in enumerate(node.devices, len(node.cards))
        ]
    x, y = 4, 5 + _HIGH * len(rows)
    for text, colour in _LEGEND:
        meaning = f"{text} in {unit}" if colour == _FREE else text
        parts.append(
            f'<rect x="{x}" y="{y + 5}" width="12" height="12" fill="{colour}" stroke="#808080"/>'
            f'<text x="{x + 17}" y="{y + 15}">{meaning}</text>'
        )
        x += 34 + _CHARACTER * len(meaning)
    return "\n".join((*parts, "</svg>", ""))


def _cell(card: Card, x: int, y: int) -> str:
    width, height = _CELL - 4, _HIGH - 4
    used = card.memory - card.free if card.usable else 0
    filled = width * min(used, card.memory) // max(1, card.memory)
    if card.owners and not card.memory:
        filled = width
    colour = _OVERCOMMITTED if card.overcommitted else _IN_USE
    background = _FREE if card.usable else _NOT_USABLE
    title = escape(", ".join(card.owners) or ("free" if card.usable else "not usable"))
    number = card.free if card.memory else ""
    return (
        f"<g><title>{card.number} {escape(card.product)}: {title}</title>"
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{background}" '
        f'stroke="#808080"/><rect x="{x}" y="{y}" width="{filled}" height="{height}" '
        f'fill="{colour}"/><text x="{x + 4}" y="{y + 15}">{number}</text></g>'
    )


def _device_cell(device: NodeDevice, x: int, y: int) -> str:
    colour = {IN_USE: _IN_USE, FREE: _FREE}.get(device.state, _NOT_USABLE)
    holders = ", ".join(holder.claim for holder in device.holders) or device.state
    return (
        f"<g><title>{escape('/'.join(device.id))}: {escape(holders)}</title>"
        f'<rect x="{x}" y="{y}" width="{_CELL - 4}" height="{_HIGH - 4}" fill="{colour}" '
        'stroke="#808080"/></g>'
    )
