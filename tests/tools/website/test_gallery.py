"""Tests that the gallery has every example, with pictures of its decisions."""

import re
from pathlib import Path

from website.gallery import gallery

ROOT = Path(__file__).parents[3]
TEXT = re.compile("<text[^>]*>([^<]*)</text>")


def texts(picture: str) -> list[str]:
    return TEXT.findall(picture)


def test_every_example_has_a_section_with_its_yaml_and_a_picture_of_each_case() -> None:
    page, pictures = gallery(ROOT)
    for example in (ROOT / "manifests" / "examples").glob("*.yaml"):
        assert f"\n## {example.stem}\n" in page
        assert f"](gallery/{example.stem}-0.svg)" in page
    assert page.count("](gallery/") == len(pictures)
    assert "kind: SchedulingProfile" in page


def test_a_picture_shows_the_nodes_and_where_pods_are() -> None:
    _, pictures = gallery(ROOT)
    packed = texts(pictures["rules-packed-gpus-0.svg"])
    at = packed.index("gpu-2")
    assert packed[at : at + 4] == ["gpu-2", "training", "gpu-a", "gpu-b"]
    assert {"gpu-1", "cpu-1", "cpu-2"} <= {*packed}


def test_many_nodes_are_counted_and_long_names_keep_their_ends() -> None:
    _, pictures = gallery(ROOT)
    assert all(len(name) <= 17 for picture in pictures.values() for name in texts(picture))
    assert all(len(texts(picture)) < 150 for picture in pictures.values())
