import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from mooring.simulate.drawing import Box, DrawnText, write_drawing
from mooring.simulate.manifests import InputError

NARROW = 0.2
"""Less than a pixel."""
SHAPES = (
    Box(10, 10, 20, 8, "#d9772b", "shop/<a>"),
    Box(50, 10, NARROW, 8, "#d9772b"),
    DrawnText(10, 40, "n1 & n2"),
)


def test_an_svg_has_boxes_with_titles_and_texts_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    write_drawing(SHAPES, 50, str(path))
    root = ET.fromstring(path.read_text())  # noqa: S314 - our own text
    assert [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")] == ["shop/<a>"]
    assert [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")] == ["n1 & n2"]


def test_a_png_has_the_same_boxes(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    write_drawing(SHAPES, 50, str(path))
    with Image.open(path) as image:
        assert image.getpixel((30, 25)) == image.getpixel((100, 25)) == (217, 119, 43)


@pytest.mark.parametrize(
    ("name", "words"),
    [("p.pdf", "ends with .svg or .png"), ("no/p.svg", "no such file or directory")],
)
def test_a_drawing_that_cannot_be_written_is_one_line(
    tmp_path: Path, name: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        write_drawing(SHAPES, 50, str(tmp_path / name))


def test_without_pillow_png_is_one_line_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(
        InputError, match=r"pip install '\.\[plot\]' in a clone of Mooring; or write .svg"
    ):
        write_drawing(SHAPES, 50, str(tmp_path / "p.png"))
