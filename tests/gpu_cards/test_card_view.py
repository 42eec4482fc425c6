"""The view of a node's cards and devices for users."""

from typing import Any

from devices.objects import gpu_node, share_pod
from mooring.gpu_cards.card_args import PRESETS
from mooring.gpu_cards.card_view import NodeGPUs, node_gpus
from mooring.testing.builders import cluster


def nodes_of(*objects: dict[str, Any]) -> list[NodeGPUs]:
    return [*node_gpus(cluster(*objects), PRESETS["gpushare"])]


def test_a_node_tells_its_cards_their_owners_and_what_would_still_fit() -> None:
    (known,) = nodes_of(
        gpu_node("n", 3, 16, unhealthy="2"),
        share_pod("a", 4, cores=30, node="n", card=0),
        share_pod("b", 6, node="n", card=0),
    )
    assert (known.largest_share, known.free_cards) == (16, 1)
    assert [card.owners for card in known.cards] == [("default/a", "default/b"), (), ()]
    assert [card.free for card in known.cards] == [6, 16, 0]
    assert [card.usable for card in known.cards] == [True, True, False]
    assert known.cards[0].free_cores == 70
    assert known.document()["cards"][0]["owners"] == ["default/a", "default/b"]


def test_what_is_only_guessed_is_told_as_such_and_what_is_overcommitted_too() -> None:
    (known,) = nodes_of(
        gpu_node("n", 1, 16), share_pod("a", 12, node="n"), share_pod("b", 12, node="n", card=0)
    )
    assert known.cards[0].guessed == ("default/a",)
    assert known.cards[0].overcommitted


def test_nodes_without_cards_are_left_out() -> None:
    nodes = nodes_of(gpu_node("b"), gpu_node("none", 0), gpu_node("a"))
    assert [known.node for known in nodes] == ["a", "b"]
