"""Draws a comparison of two policies, as SVG or PNG."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mooring.model.wording import plural
from mooring.simulate.compare import Comparison, PoolUse
from mooring.simulate.drawing import Box, DrawnText, Shape, legend, write_drawing

_LEFT: Final = 40
_TOP: Final = 70
_PANEL_WIDTH: Final = 420
_PANEL_HEIGHT: Final = 170
_GAP_X: Final = 40
_GAP_Y: Final = 70
_OLD: Final = "#8da0b3"
_NEW: Final = "#d9772b"
_GRID: Final = "#e4e4e4"
_MOST_POOLS: Final = 6


_Pairs = Sequence[tuple[str, float, float]]


def write_picture(comparison: Comparison, path: str) -> None:
    """Draw the comparison into an SVG or PNG file.

    Raises InputError if `path` ends with neither .svg nor .png, if the file cannot be written, or
    if Pillow is missing for PNG.
    """
    write_drawing(_drawing(comparison), _TOP + 2 * (_PANEL_HEIGHT + _GAP_Y), path)


def _drawing(comparison: Comparison) -> Iterator[Shape]:
    moved, lost = len(comparison.moved), len(comparison.lost)
    title = (
        f"{plural(comparison.pods, 'pod')}: {moved:,} would move, {lost:,} would lose their place"
    )
    yield DrawnText(_LEFT, 28, title, 16)
    yield from legend(28, (150, _OLD, "old"), (80, _NEW, "new"))
    pools = _largest(comparison)
    panels: Mapping[str, _Pairs] = {
        "Requested cpu, % of allocatable": [
            (name, 100 * old.cpu, 100 * new.cpu) for name, (old, new) in pools
        ],
        "Requested memory, % of allocatable": [
            (name, 100 * old.memory, 100 * new.memory) for name, (old, new) in pools
        ],
        "Fragmentation, % of large pods that fit on no node": [
            (name, 100 * old.fragmentation, 100 * new.fragmentation) for name, (old, new) in pools
        ],
        "Nodes by requested cpu, in %": [
            (f"{10 * tenth}-{10 * tenth + 10}", float(old), float(new))
            for tenth, (old, new) in enumerate(zip(*comparison.utilisation, strict=True))
        ],
    }
    for number, (title, pairs) in enumerate(panels.items()):
        x = _LEFT + (number % 2) * (_PANEL_WIDTH + _GAP_X)
        y = _TOP + (number // 2) * (_PANEL_HEIGHT + _GAP_Y)
        yield from _panel(x, y, title, pairs, 100.0 if number < 3 else None)


def _largest(comparison: Comparison) -> list[tuple[str, tuple[PoolUse, PoolUse]]]:
    ranked = sorted(comparison.pools.items(), key=lambda pool: (-pool[1][0].nodes, pool[0]))
    return sorted(ranked[:_MOST_POOLS])


def _panel(x: float, y: float, title: str, pairs: _Pairs, top: float | None) -> Iterator[Shape]:
    """Yield the shapes of a titled chart with pairs of bars; `top` is its largest value."""
    yield DrawnText(x, y, title, 13)
    y += 28
    height = _PANEL_HEIGHT - 28
    highest = top or max((max(old, new) for _, old, new in pairs), default=0.0) or 1.0
    for line in range(5):
        yield Box(x, y + height * line / 4, _PANEL_WIDTH, 1, _GRID)
    step = _PANEL_WIDTH / max(1, len(pairs))
    bar = min(34.0, step * 0.38)
    for number, (name, old, new) in enumerate(pairs):
        middle = x + step * (number + 0.5)
        for offset, value, colour in ((-bar, old, _OLD), (0.0, new, _NEW)):
            tall = height * min(value, highest) / highest
            yield Box(middle + offset, y + height - tall, bar - 1, tall, colour)
            if value:
                yield DrawnText(
                    middle + offset + bar / 2, y + height - tall - 3, f"{value:.0f}", 9, "middle"
                )
        yield DrawnText(middle, y + height + 15, _short(name, step), 10, "middle")


def _short(name: str, width: float) -> str:
    most = max(4, int(width / 6))
    return name if len(name) <= most else f"{name[: most - 2]}.."
