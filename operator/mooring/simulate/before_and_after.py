"""Draws nodes before and after moves, as SVG or PNG: a bar per node, a block per pod."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mooring.model.pod import Pod, Uid
from mooring.model.resources import CPU, MEMORY
from mooring.model.wording import plural
from mooring.rebalancing.plan import Move, Plan
from mooring.simulate.drawing import WIDTH, Box, DrawnText, Shape, legend, write_drawing
from mooring.state.cluster_view import ClusterView

_MOST_NODES: Final = 40
"""The most nodes that are drawn; nodes that change take precedence."""
_LEFT: Final = 24
_TOP: Final = 92
_ROW: Final = 22
_BAR: Final = 15
_GAP: Final = 24
_CHARACTER: Final = 6.2
"""The largest width of a character of a node's name, in units of the drawing (pixels in a PNG)."""
_NAME_SIZE: Final = 11
_STAYS: Final = "#8da0b3"
_MOVES: Final = "#d9772b"
_FREE: Final = "#efefef"
_OVER: Final = "#c23b3b"


@dataclass(frozen=True, slots=True)
class _Block:
    """A pod on a node, with its share of the node's resource."""

    pod: str
    share: float
    moves: bool


_Bars = Mapping[str, Sequence[_Block]]


def write_before_and_after(cluster: ClusterView, plans: Sequence[Plan], path: str) -> None:
    """Draw the nodes before and after the plans into an SVG or PNG file.

    Raises InputError if `path` ends with neither .svg nor .png, if the file cannot be written, or
    if Pillow is missing for PNG.
    """
    moves = [move for plan in plans for move in plan.moves]
    names = _shown(cluster, moves)
    resource = _resource(cluster)
    before = _bars(cluster, names, resource, moves)
    after = _moved(cluster, before, resource, moves)
    height = _TOP + _ROW * len(names) + 30
    title = _title(plans)
    emptied = {node for plan in plans for step in plan.steps for node in step.emptied}
    write_drawing(_drawing(cluster, title, resource, (before, after), emptied), height, path)


def _shown(cluster: ClusterView, moves: Iterable[Move]) -> list[str]:
    changing = {name for move in moves for name in (move.source, move.target)}
    every = [cluster.nodes.name(row) for row in cluster.nodes_in_order.tolist()]
    chosen = sorted(every, key=lambda name: (name not in changing, name))[:_MOST_NODES]
    return sorted(chosen)


def _resource(cluster: ClusterView) -> str:
    def share(resource: str) -> float:
        nodes = cluster.nodes.take(cluster.nodes_in_order)
        there = int(nodes.allocatable(resource).sum())
        return int(nodes.requested(resource).sum()) / there if there else 0.0

    return max((CPU, MEMORY), key=share)


def _allocatable(cluster: ClusterView, name: str, resource: str) -> int:
    row = cluster.row(name)
    if row is None:
        return 0
    return int(cluster.nodes.take(np.array([row], np.int64)).allocatable(resource)[0])


def _block(pod: Pod, resource: str, allocatable: int, *, moves: bool) -> _Block:
    requested = pod.spec.demand.resources.get(resource, 0)
    return _Block(pod.key, requested / allocatable if allocatable else 0.0, moves)


def _bars(
    cluster: ClusterView, names: Iterable[str], resource: str, moves: Iterable[Move]
) -> dict[str, list[_Block]]:
    moving: set[Uid] = {move.pod.uid for move in moves}
    bars: dict[str, list[_Block]] = {}
    for name in names:
        there = _allocatable(cluster, name, resource)
        blocks = [
            _block(placed.pod, resource, there, moves=placed.pod.uid in moving)
            for placed in cluster.pods_of(name)
        ]
        bars[name] = sorted(blocks, key=lambda each: (each.moves, -each.share, each.pod))
    return bars


def _moved(
    cluster: ClusterView, before: _Bars, resource: str, moves: Iterable[Move]
) -> dict[str, list[_Block]]:
    after = {name: [each for each in blocks if not each.moves] for name, blocks in before.items()}
    for move in moves:
        there = _allocatable(cluster, move.target, resource)
        if move.target in after:
            after[move.target].append(_block(move.pod, resource, there, moves=True))
    return after


def _drawing(
    cluster: ClusterView,
    title: str,
    resource: str,
    bars: tuple[_Bars, _Bars],
    emptied: Container[str],
) -> Iterator[Shape]:
    before, after = bars
    longest = max(map(len, before), default=0)
    first = _LEFT + longest * _CHARACTER + 16
    width = (WIDTH - _LEFT - _GAP - first) / 2
    second = first + width + _GAP
    others = cluster.node_count - len(before)
    yield DrawnText(_LEFT, 28, title, 16)
    yield from _legend(resource, others)
    yield DrawnText(first, _TOP - 12, "before", 13)
    yield DrawnText(second, _TOP - 12, "after", 13)
    for number, name in enumerate(before):
        y = _TOP + number * _ROW
        yield DrawnText(_LEFT, y + _BAR - 3, name, _NAME_SIZE)
        yield from _bar(before[name], first, y, width, "")
        yield from _bar(after[name], second, y, width, "emptied" if name in emptied else "")


def _title(plans: Sequence[Plan]) -> str:
    steps = [step for plan in plans for step in plan.steps]
    emptied, fits = (sum(len(getattr(s, gain)) for s in steps) for gain in ("emptied", "fits"))
    gains = []
    if emptied:
        gains.append(f"{plural(emptied, 'node')} emptied")
    if fits:
        gains.append(f"{plural(fits, 'pending pod')} that {'fits' if fits == 1 else 'fit'} then")
    moves = plural(sum(len(step.moves) for step in steps), "move")
    return f"{moves}: {', '.join(gains)}" if gains else moves


def _legend(resource: str, others: int) -> Iterator[Shape]:
    said = f"requested {resource}, a block per pod"
    if others > 0:
        said += f"; {others:,} more nodes, not drawn"
    yield DrawnText(_LEFT, 52, said)
    yield from legend(52, (164, _STAYS, "stays"), (84, _MOVES, "moves"))


def _bar(blocks: Sequence[_Block], x: float, y: float, width: float, note: str) -> Iterator[Shape]:
    yield Box(x, y, width, _BAR, _FREE)
    if note:
        yield DrawnText(x + width - 6, y + _BAR - 4, note, 10, "end")
    at, end = x, x + width
    for block in blocks:
        tall = min(width * block.share, end - at)
        if tall > 0:
            shown = max(tall - 1, tall / 2)
            yield Box(at, y, shown, _BAR, _MOVES if block.moves else _STAYS, block.pod)
        at += tall
    # The pods request more than the node has.
    if sum(block.share for block in blocks) > 1 + 1e-9:
        yield Box(end - 3, y, 3, _BAR, _OVER)
