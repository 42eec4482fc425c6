"""The invariants of cards, extenders and plugins. How to add one: see `simulation.invariants`."""

from collections import Counter
from typing import TYPE_CHECKING

from faults.books import PodSeen
from simulation.actors.extenders import Extenders
from simulation.actors.groups import group_of
from simulation.actors.plugins import Plugins
from simulation.cluster_books import known_nodes, known_pods
from simulation.state_invariants import leader
from simulation.storage import Change

if TYPE_CHECKING:
    from simulation.world import World


def no_card_has_more_pods_than_memory(world: "World", change: Change) -> str | None:
    """Check that the bound pods do not exceed the memory of a card."""
    if change.what != "bind" or not PodSeen.read(change.object).wants_cards:
        return None
    node, used = change.object["spec"]["nodeName"], Counter[int]()
    for pod in known_pods(world, change.by, node):
        for card, memory in pod.cards:
            used[card] += memory
    bound = dict(PodSeen.read(change.object).cards)
    had = max(seen.card_memory for seen in known_nodes(world, change.by, node))
    over = {card: used[card] for card in bound if used[card] > had}
    return f"cards {over} of {node} have {had} each" if over else None


def every_pod_that_requests_a_card_has_one(_world: "World", change: Change) -> str | None:
    """Check that the Binding itself names the card."""
    pod = PodSeen.read(change.object) if change.what == "bind" else None
    if pod is None or not pod.wants_cards or pod.cards:
        return None
    return f"{pod.key} is bound to {pod.node} without a card"


def no_pod_is_bound_where_a_needed_extender_refuses_it(
    world: "World", change: Change
) -> str | None:
    """Check that no pod is bound to a node that a non-ignorable extender rejects."""
    extenders = world.actor(Extenders)
    if change.what != "bind" or not extenders.is_needed or extenders.has_lied:
        return None
    pod = PodSeen.read(change.object)
    return f"{pod.key} to {pod.node}" if extenders.refuses(pod.node, pod) else None


def no_pod_is_bound_where_its_plugin_refuses_it(world: "World", change: Change) -> str | None:
    """Check that no pod is bound to a node that the plugin's filter rejects.

    Pods for which the plugin returned SKIP are exempt, and so are members equal to such a member.
    """
    plugins = world.actor(Plugins)
    if change.what != "bind" or change.object["metadata"]["uid"] in plugins.skipped:
        return None
    if plugins.skipped and group_of(change.object) is not None:
        return None
    pod = PodSeen.read(change.object)
    return f"{pod.key} to {pod.node}" if plugins.refuses(pod.node, pod) else None


def what_a_plugin_reserved_is_undone(world: "World") -> str | None:
    """Check that the leader's plugins keep reservations only for bound pods."""
    found, plugins = leader(world), world.actor(Plugins)
    if found is None:
        return None
    kept = {uid for made in plugins.made for uid in made.keeps(found[1].scheduler.waiting)}
    left = sorted(kept - plugins.bound)
    return f"{found[0]} keeps what is reserved for {left}" if left else None
