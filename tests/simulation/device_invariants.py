"""What must hold of cards and of extenders. How to add one: see `simulation.invariants`."""

from collections import Counter
from typing import TYPE_CHECKING

from faults.books import PodSeen
from simulation.actors.extenders import Extenders
from simulation.storage import Change

if TYPE_CHECKING:
    from simulation.world import World

__all__ = [
    "every_pod_that_requests_a_card_has_one",
    "no_card_has_more_pods_than_memory",
    "no_pod_is_bound_where_a_needed_extender_refuses_it",
]


def no_card_has_more_pods_than_memory(world: "World", change: Change) -> str | None:
    """Check that the bound pods have no more of a card than it has."""
    if change.what != "bind" or not PodSeen.read(change.object).wants_cards:
        return None
    books, node = world.books, change.object["spec"]["nodeName"]
    used = Counter[int]()
    for pod in books.on_node[node].values():
        for card, memory in pod.cards:
            used[card] += memory
    had = books.nodes[node].card_memory if node in books.nodes else 0
    over = {card: memory for card, memory in used.items() if memory > had}
    return f"cards {over} of {node} have {had} each" if over and had else None


def every_pod_that_requests_a_card_has_one(_world: "World", change: Change) -> str | None:
    """Check that the card comes with the Binding, in one write."""
    pod = PodSeen.read(change.object) if change.what == "bind" else None
    if pod is None or not pod.wants_cards or pod.cards:
        return None
    return f"{pod.key} is bound to {pod.node} without a card"


def no_pod_is_bound_where_a_needed_extender_refuses_it(
    world: "World", change: Change
) -> str | None:
    """Check that an extender which is not ignorable has the last word."""
    extenders = world.actor(Extenders)
    if change.what != "bind" or not extenders.is_needed or extenders.has_lied:
        return None
    pod = PodSeen.read(change.object)
    return f"{pod.key} to {pod.node}" if world.books.refuses(pod.node, pod) else None
