"""The picture of nodes before and after moves."""

from pathlib import Path
from xml.etree import ElementTree as ET

from mooring.model.pod import parse_pod
from mooring.rebalancing.plan import Plan
from mooring.simulate.before_and_after import write_before_and_after
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod
from planning import emptying, making_room, placed_pod, plan, spread_step, two_nodes

SVG = "{http://www.w3.org/2000/svg}"
MOVES, STAYS, OVER = "#d9772b", "#8da0b3", "#c23b3b"


def drawn(path: Path, view: ClusterView, *plans: Plan) -> ET.Element:
    write_before_and_after(view, plans, str(path / "p.svg"))
    return ET.fromstring((path / "p.svg").read_text())  # noqa: S314 - our own text


def texts(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def blocks(root: ET.Element, colour: str) -> list[str]:
    """Return the pods of the blocks of this colour, in order."""
    boxes = (box for box in root.iter(f"{SVG}rect") if box.get("fill") == colour)
    return [title.text or "" for box in boxes for title in box.iter(f"{SVG}title")]


def test_pods_that_move_stand_in_another_colour_on_both_sides(tmp_path: Path) -> None:
    root = drawn(tmp_path, two_nodes(), plan(emptying("n1", "n2", "a", "b")))
    assert blocks(root, MOVES) == ["shop/a", "shop/b", "shop/a", "shop/b"]
    assert blocks(root, STAYS) == ["shop/c", "shop/c"]
    assert {"2 moves: 1 node emptied", "n1", "n2", "before", "after", "emptied"} <= {*texts(root)}


def test_the_title_says_what_is_gained(tmp_path: Path) -> None:
    waiting = parse_pod(pod("big", namespace="ml"))
    gained = plan(emptying("n1", "n2", "a", "b"), making_room("c", "n2", "n1", waiting))
    title = "3 moves: 1 node emptied, 1 pending pod that fits then"
    assert title in texts(drawn(tmp_path, two_nodes(), gained))


def test_a_block_is_as_wide_as_its_share_of_the_node(tmp_path: Path) -> None:
    root = drawn(tmp_path, two_nodes(), plan())
    free, *_ = (
        float(b.get("width", 0)) for b in root.iter(f"{SVG}rect") if b.get("height") == "15"
    )
    (wide,) = {
        float(box.get("width", 0))
        for box in root.iter(f"{SVG}rect")
        if [title.text for title in box.iter(f"{SVG}title")] == ["shop/c"]
    }
    assert abs(wide + 1 - free / 2) < 0.01


def test_the_longest_name_of_a_node_stands_whole_beside_its_bar(tmp_path: Path) -> None:
    long = "n" * 63
    view = ClusterView(cluster(node(long, cpu="4"), placed_pod("a", long)))
    root = drawn(tmp_path, view, plan())
    assert long in texts(root)
    bars = [float(box.get("x", 0)) for box in root.iter(f"{SVG}rect") if box.get("height") == "15"]
    assert min(bars) > 63 * 6
    assert max(bars) < 960


def test_of_many_nodes_those_that_change_are_drawn_and_the_others_counted(tmp_path: Path) -> None:
    nodes = [node(f"n{number:03}", cpu="4") for number in range(100)]
    view = ClusterView(cluster(*nodes, placed_pod("a", "n090")))
    root = drawn(tmp_path, view, plan(spread_step("a", "n090", "n099")))
    assert {"n000", "n090", "n099"} <= {*texts(root)}
    assert "n080" not in texts(root)
    assert "requested cpu, a block per pod; 60 more nodes, not drawn" in texts(root)


def test_a_node_that_has_more_than_it_has_space_for_ends_red(tmp_path: Path) -> None:
    view = ClusterView(cluster(node("n1", cpu="4"), placed_pod("a", "n1", cpu="5")))
    root = drawn(tmp_path, view, plan())
    red = [box for box in root.iter(f"{SVG}rect") if box.get("fill") == OVER]
    assert len(red) == 2
