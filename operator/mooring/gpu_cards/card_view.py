"""The GPU cards and devices of nodes, the pods on the cards, and the requests that still fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mooring.claims.device_view import Devices, NodeDevice
from mooring.gpu_cards.model.cards import CardFormat
from mooring.gpu_cards.state.card_counts import Cards
from mooring.observe.documents import plain
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView


@dataclass(frozen=True, slots=True)
class Card:
    """A card and its pods; memory in units of `CardFormat.mib_per_unit` MiB, compute in percent.

    `guessed` are pods without an annotation about their cards; such a pod may be on another card.
    """

    number: int
    product: str
    memory: int
    free: int
    free_cores: int
    usable: bool
    overcommitted: bool
    owners: tuple[str, ...]
    guessed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeGPUs:
    """The cards of a node, the largest requests that still fit, and the node's devices."""

    node: str
    cards: tuple[Card, ...]
    largest_share: int
    free_cards: int
    devices: tuple[NodeDevice, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the node, its cards and its devices as a dict of JSON values."""
        devices = [device.document() for device in self.devices]
        return {**self.cards_document(), "devices": devices}

    def cards_document(self) -> dict[str, Any]:
        """Return the node's cards, without devices, as a dict of JSON values."""
        return {
            "node": self.node,
            "largestShare": self.largest_share,
            "freeCards": self.free_cards,
            "cards": plain(self.cards),
        }


def node_gpus(state: ClusterState, form: CardFormat) -> Iterator[NodeGPUs]:
    """Yield the nodes that have cards or devices, sorted by name."""
    books, devices = state.track_cards(form), Devices(ClusterView(state), classes=True)
    for name, row in sorted(state.nodes.row_of.items()):
        if state.nodes.nodes[row] is not None:
            found = tuple(devices.of_node(row))
            if found or len(books.known(row)):
                yield replace(cards_of(name, row, books), devices=found)


def shared_devices(state: ClusterState) -> list[NodeDevice]:
    """Return the devices that several nodes can use, sorted by id."""
    devices = Devices(ClusterView(state), classes=True)
    found = [each for row in state.nodes.order().tolist() for each in devices.of_several(row)]
    return sorted(found, key=lambda each: each.id)


def cards_of(name: str, row: int, books: Cards) -> NodeGPUs:
    """Return the cards of the node `name` on this row, without the node's devices."""
    known, left = books.known(row), books.remaining(np.array([row], np.int64))
    over = books.overcommitted(row)
    owners = [*books.owners(row)]
    cards = []
    for number, memory in enumerate(known.memory):
        here = [owner for owner in owners if any(number in cards for cards in owner.cards)]
        free = int(left.free[0, number])
        cards.append(
            Card(
                number,
                known.products[number],
                memory,
                max(0, free),
                max(0, int(left.free_cores[0, number])),
                free >= 0,
                number in over,
                tuple(owner.key for owner in here),
                tuple(owner.key for owner in here if not owner.known),
            )
        )
    largest = max((card.free for card in cards), default=0)
    return NodeGPUs(name, tuple(cards), largest, int(left.free_cards[0]).bit_count())
