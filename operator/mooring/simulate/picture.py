"""Draw a comparison of two policies, as SVG or PNG.

A drawing is a list of rectangles and texts; SVG is written from it directly, and PNG with Pillow
(the extra `plot`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from mooring.simulate.compare import Comparison, PoolUse
from mooring.simulate.manifests import InputError

__all__ = ["write_picture"]

_WIDTH: Final = 960
_LEFT: Final = 40
_TOP: Final = 70
_PANEL_WIDTH: Final = 420
_PANEL_HEIGHT: Final = 170
_GAP_X: Final = 40
_GAP_Y: Final = 70
_OLD: Final = "#8da0b3"
_NEW: Final = "#d9772b"
_TEXT: Final = "#202020"
_GRID: Final = "#e4e4e4"
_MOST_POOLS: Final = 6


@dataclass(frozen=True, slots=True)
class _Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True, slots=True)
class _Label:
    """A text; `anchor` is start, middle or end, and `y` its base line."""

    x: float
    y: float
    text: str
    size: int = 12
    anchor: str = "start"


_Shape = _Box | _Label
_Pairs = Sequence[tuple[str, float, float]]


def write_picture(comparison: Comparison, path: str) -> None:
    """Write the picture of a comparison to a file that ends with .svg or .png.

    Raises:
        InputError: for another ending, if the file cannot be written, or without Pillow for PNG.
    """
    shapes = [*_drawing(comparison)]
    height = _TOP + 2 * (_PANEL_HEIGHT + _GAP_Y)
    try:
        if path.endswith(".svg"):
            Path(path).write_text(_svg(shapes, height), encoding="utf-8")
        elif path.endswith(".png"):
            _write_png(shapes, height, path)
        else:
            raise InputError(f"{path}: a picture's name ends with .svg or .png")
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _drawing(comparison: Comparison) -> Iterator[_Shape]:
    moved, lost = len(comparison.moved), len(comparison.lost)
    title = f"{comparison.pods:,} pods: {moved:,} would move, {lost:,} would lose their place"
    yield _Label(_LEFT, 28, title, 16)
    yield from _legend()
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


def _legend() -> Iterator[_Shape]:
    for x, colour, name in ((_WIDTH - 150, _OLD, "old"), (_WIDTH - 80, _NEW, "new")):
        yield _Box(x, 18, 12, 12, colour)
        yield _Label(x + 18, 28, name)


def _largest(comparison: Comparison) -> list[tuple[str, tuple[PoolUse, PoolUse]]]:
    ranked = sorted(comparison.pools.items(), key=lambda pool: (-pool[1][0].nodes, pool[0]))
    return sorted(ranked[:_MOST_POOLS])


def _panel(x: float, y: float, title: str, pairs: _Pairs, top: float | None) -> Iterator[_Shape]:
    """Yield pairs of bars with their numbers, under a title and on lines of a grid."""
    yield _Label(x, y, title, 13)
    y += 28
    height = _PANEL_HEIGHT - 28
    highest = top or max((max(old, new) for _, old, new in pairs), default=0.0) or 1.0
    for line in range(5):
        yield _Box(x, y + height * line / 4, _PANEL_WIDTH, 1, _GRID)
    step = _PANEL_WIDTH / max(1, len(pairs))
    bar = min(34.0, step * 0.38)
    for number, (name, old, new) in enumerate(pairs):
        middle = x + step * (number + 0.5)
        for offset, value, colour in ((-bar, old, _OLD), (0.0, new, _NEW)):
            tall = height * min(value, highest) / highest
            yield _Box(middle + offset, y + height - tall, bar - 1, tall, colour)
            if value:
                yield _Label(
                    middle + offset + bar / 2, y + height - tall - 3, f"{value:.0f}", 9, "middle"
                )
        yield _Label(middle, y + height + 15, _short(name, step), 10, "middle")


def _short(name: str, width: float) -> str:
    most = max(4, int(width / 6))
    return name if len(name) <= most else f"{name[: most - 2]}.."


def _svg(shapes: Iterable[_Shape], height: float) -> str:
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" fill="{_TEXT}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for shape in shapes:
        if isinstance(shape, _Box):
            lines.append(
                f'<rect x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:g}" '
                f'height="{shape.height:g}" fill="{shape.colour}"/>'
            )
        else:
            lines.append(
                f'<text x="{shape.x:g}" y="{shape.y:g}" font-size="{shape.size}" '
                f'text-anchor="{shape.anchor}">{escape(shape.text)}</text>'
            )
    return "\n".join((*lines, "</svg>", ""))


def _write_png(shapes: Iterable[_Shape], height: float, path: str) -> None:
    try:
        from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - an optional library
    except ImportError:
        raise InputError(
            f"{path}: PNG needs Pillow: pip install '.[plot]' in a clone of Mooring; or write .svg"
        ) from None
    scale = 2
    image = Image.new("RGB", (_WIDTH * scale, int(height) * scale), "white")
    draw = ImageDraw.Draw(image)
    anchors = {"start": "ls", "middle": "ms", "end": "rs"}
    for shape in shapes:
        if isinstance(shape, _Label):
            font = ImageFont.load_default(shape.size * scale)
            place = (shape.x * scale, shape.y * scale)
            draw.text(place, shape.text, _TEXT, font, anchor=anchors[shape.anchor])
        elif shape.width > 0 and shape.height > 0:
            right, bottom = shape.x + shape.width, shape.y + shape.height
            corners = tuple(round(scale * each) for each in (shape.x, shape.y, right, bottom))
            draw.rectangle((*corners[:2], corners[2] - 1, corners[3] - 1), shape.colour)
    image.save(path)
