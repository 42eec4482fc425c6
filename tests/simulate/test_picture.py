from pathlib import Path
from xml.etree import ElementTree as ET

from PIL import Image

from mooring.simulate.compare import ChangedNode, Comparison, PoolUse
from mooring.simulate.picture import write_picture

OLD = PoolUse(nodes=4, empty=0, cpu=0.25, memory=0.5, fragmentation=1.0)
NEW = PoolUse(nodes=4, empty=3, cpu=0.25, memory=0.5, fragmentation=0.0)
COMPARISON = Comparison(
    pods=4,
    moves=(ChangedNode("a/web", "", "n1", "n2", ""), ChangedNode("a/db", "", "n1", None, "full")),
    pools={"general <x86>": (OLD, NEW), **{f"pool-{i}": (NEW, NEW) for i in range(8)}},
    utilisation=((0, 0, 4, 0, 0, 0, 0, 0, 0, 0), (3, 0, 0, 0, 0, 0, 0, 0, 0, 1)),
)


def test_an_svg_has_a_title_four_panels_and_bars(tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    write_picture(COMPARISON, str(path))
    root = ET.fromstring(path.read_text())  # noqa: S314 - our own text
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "4 pods: 1 would move, 1 would lose their place" in texts
    assert "Requested cpu, % of allocatable" in texts
    assert "general <.." in texts
    bars = [r for r in root.iter("{http://www.w3.org/2000/svg}rect") if r.get("fill") == "#d9772b"]
    assert len(bars) > 10


def test_a_png_has_bars_in_both_colours(tmp_path: Path) -> None:
    path = tmp_path / "p.png"
    write_picture(COMPARISON, str(path))
    with Image.open(path) as image:
        colours = {colour for _, colour in image.getcolors(1 << 20) or ()}
    assert {(141, 160, 179), (217, 119, 43)} <= colours
