"""The picture of nodes' cards, and the pods that must move for a pending pod."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from devices.objects import gpu_node, share_pod, whole_pod
from mooring.cli.gpus import in_force
from mooring.framework.registry import Registry
from mooring.gpu_cards.card_args import PRESETS
from mooring.gpu_cards.card_view import NodeGPUs, node_gpus
from mooring.model.node import ZONE
from mooring.plugins import SHIPPED
from mooring.simulate.gpu_moves import CardMove, CardPlan, picture, plans
from mooring.simulate.inputs import Inputs, inputs_of
from mooring.simulate.manifests import Manifest
from mooring.testing.builders import cluster, node, pod
from pod_terms import apart, to_pods

FORM = PRESETS["gpushare"]


def nodes_of(*objects: dict[str, Any]) -> list[NodeGPUs]:
    return [*node_gpus(cluster(*objects), FORM)]


def inputs(*objects: dict[str, Any]) -> Inputs:
    return inputs_of([Manifest("test", raw) for raw in objects], Registry(SHIPPED, {}))


def planned(*objects: dict[str, Any]) -> list[CardPlan]:
    given = inputs(*objects)
    return [*plans(given, in_force(given, Registry(SHIPPED, {}), "gpushare"), FORM)]


@pytest.mark.parametrize("name", ["n", "<script>&"])
def test_the_picture_has_a_cell_for_each_card_whatever_nodes_and_types_are_called(
    name: str,
) -> None:
    described = [{"product": "<b>&", "memory": 16384}] * 2
    raw = gpu_node(name, 2, 16, described=described)
    drawn = ET.fromstring(picture(nodes_of(raw), "GiB"))  # noqa: S314 - our own picture
    assert len(drawn.findall("{*}g")) == 2
    assert "<b>&: free" in (drawn.findtext("{*}g/{*}title") or "")


def test_cards_are_drawn_right_of_the_longest_name_and_in_use_as_far_as_they_are() -> None:
    name = "ip-10-0-0-17.eu-central-1.compute.internal"
    drawn = ET.fromstring(  # noqa: S314 - our own picture
        picture(nodes_of(gpu_node(name, 2, 16), share_pod("a", 4, node=name, card=1)), "GiB")
    )
    cells = [cell.findall("{*}rect") for cell in drawn.findall("{*}g")]
    assert all(int(rect.attrib["x"]) > 6 * len(name) for cell in cells for rect in cell)
    assert [int(used.attrib["width"]) for _, used in cells] == [0, 15]
    assert "free; the number is the free memory in GiB" in [
        text.text for text in drawn.findall("{*}text")
    ]


def test_a_card_of_unknown_memory_is_drawn_as_in_use_or_not() -> None:
    raw = node("n", resources={"nvidia.com/gpu": 2})
    nodes = nodes_of(raw, whole_pod("w", 1, node="n", on="0"))
    drawn = ET.fromstring(picture(nodes, "GiB"))  # noqa: S314 - our own picture
    cells = [cell.findall("{*}rect") for cell in drawn.findall("{*}g")]
    assert [int(used.attrib["width"]) for _, used in cells] == [60, 0]


def test_a_pod_that_fits_needs_no_plan() -> None:
    assert planned(gpu_node("n"), whole_pod("new", 2)) == [
        CardPlan("default/new", "n", (), fits=True)
    ]


def test_the_fewest_pods_move_for_whole_cards() -> None:
    held = [share_pod(f"a{i}", 8, node="a", card=i) for i in range(2)]
    others = share_pod("b", 8, node="b", card=0)
    found = planned(gpu_node("a", 2, 16), gpu_node("b", 1, 16), *held, others, whole_pod("new", 1))
    assert len(found) == 1
    (plan,) = found
    assert plan.node is not None
    assert len(plan.moves) == 1


def test_a_pod_moves_only_where_it_fits() -> None:
    held = share_pod("held", 8, node="a", card=0)
    full = share_pod("full", 12, node="b", card=0)
    objects = (gpu_node("a", 1, 16), gpu_node("b", 1, 16), held, full, whole_pod("new", 1))
    assert planned(*objects) == [CardPlan("default/new", None, ())]
    small = share_pod("full", 8, node="b", card=0)
    (plan,) = planned(*objects[:3], small, objects[4])
    assert plan.moves in (
        (CardMove("default/held", "a", "b"),),
        (CardMove("default/full", "b", "a"),),
    )
    assert plan.document()["moves"][0]["pod"] == plan.moves[0].pod


def test_the_plan_names_the_node_of_the_pod_when_a_move_opens_another_node() -> None:
    zones = {name: {ZONE: zone} for name, zone in zip("abc", "wwx", strict=True)}
    objects = (
        gpu_node("a", 1, labels=zones["a"]),
        gpu_node("b", 2, labels=zones["b"]),
        gpu_node("c", 1, labels=zones["c"]),
        share_pod("held", 4, node="a", card=0, labels={"app": "held"}),
        whole_pod("new", 2, affinity=apart(to_pods({"app": "held"}, ZONE))),
    )
    assert planned(*objects) == [
        CardPlan("default/new", "b", (CardMove("default/held", "a", "c"),))
    ]


def test_nothing_has_moved_after_planning() -> None:
    given = inputs(
        gpu_node("a", 1, 16),
        gpu_node("b", 1, 16),
        share_pod("held", 8, node="a", card=0),
        share_pod("other", 8, node="b", card=0),
        whole_pod("new", 1),
    )
    before = [known.document() for known in node_gpus(given.state, FORM)]
    assert [*plans(given, in_force(given, Registry(SHIPPED, {}), "gpushare"), FORM)]
    assert [known.document() for known in node_gpus(given.state, FORM)] == before


def test_pods_that_request_no_cards_have_no_plan() -> None:
    assert planned(gpu_node("n"), pod("plain")) == []
