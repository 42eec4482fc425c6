"""Draws rectangles and texts into a file, as SVG or, with Pillow (the extra `plot`), as PNG."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from mooring.simulate.manifests import InputError

WIDTH: Final = 960
TEXT: Final = "#202020"


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle; a browser shows `title` when the user points at it."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class DrawnText:
    """A text; `anchor` is start, middle or end; `y` is the position of the base line."""

    x: float
    y: float
    text: str
    size: int = 12
    anchor: str = "start"


Shape = Box | DrawnText


def legend(y: float, *entries: tuple[float, str, str]) -> Iterator[Shape]:
    """Yield the legend; an entry has its distance from the right edge, its colour and its name."""
    for right, colour, name in entries:
        yield Box(WIDTH - right, y - 10, 12, 12, colour)
        yield DrawnText(WIDTH - right + 18, y, name)


def write_drawing(shapes: Iterable[Shape], height: float, path: str) -> None:
    """Write the shapes to an .svg or .png file; raise InputError if that is not possible."""
    shapes = [*shapes]
    try:
        if path.endswith(".svg"):
            Path(path).write_text(_svg(shapes, height), encoding="utf-8")
        elif path.endswith(".png"):
            _write_png(shapes, height, path)
        else:
            raise InputError(f"{path}: a picture's name ends with .svg or .png")
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _svg(shapes: Iterable[Shape], height: float) -> str:
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" fill="{TEXT}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for shape in shapes:
        if isinstance(shape, Box):
            lines.append(
                f'<rect x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:g}" '
                f'height="{shape.height:g}" fill="{shape.colour}"{_closed(shape)}'
            )
        else:
            lines.append(
                f'<text x="{shape.x:g}" y="{shape.y:g}" font-size="{shape.size}" '
                f'text-anchor="{shape.anchor}">{escape(shape.text)}</text>'
            )
    return "\n".join((*lines, "</svg>", ""))


def _closed(box: Box) -> str:
    return f"><title>{escape(box.title)}</title></rect>" if box.title else "/>"


def _write_png(shapes: Iterable[Shape], height: float, path: str) -> None:
    try:
        from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - an optional library
    except ImportError:
        raise InputError(
            f"{path}: PNG needs Pillow: pip install '.[plot]' in a clone of Mooring; or write .svg"
        ) from None
    scale = 2
    image = Image.new("RGB", (WIDTH * scale, int(height) * scale), "white")
    draw = ImageDraw.Draw(image)
    anchors = {"start": "ls", "middle": "ms", "end": "rs"}
    for shape in shapes:
        if isinstance(shape, DrawnText):
            font = ImageFont.load_default(shape.size * scale)
            place = (shape.x * scale, shape.y * scale)
            draw.text(place, shape.text, TEXT, font, anchor=anchors[shape.anchor])
        elif shape.width > 0 and shape.height > 0:
            right, bottom = shape.x + shape.width, shape.y + shape.height
            corners = tuple(round(scale * each) for each in (shape.x, shape.y, right, bottom))
            far = (max(corners[0], corners[2] - 1), max(corners[1], corners[3] - 1))
            draw.rectangle((*corners[:2], *far), shape.colour)
    image.save(path)
