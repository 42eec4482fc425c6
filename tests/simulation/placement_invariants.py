"""The invariants of placements besides room. How to add one: see `simulation.invariants`."""

from typing import TYPE_CHECKING

from simulation.constraints import refusal
from simulation.storage import Change

if TYPE_CHECKING:
    from simulation.world import World


def a_placement_keeps_the_constraints_of_its_pod(world: "World", change: Change) -> str | None:
    """Check labels, taints, host ports, affinity and spread against the replica's knowledge.

    Only its knowledge at the decision counts, because nothing is checked again before the Binding.
    """
    if change.what != "bind" or (decision := world.decisions.about(change)) is None:
        return None
    node = change.object["spec"]["nodeName"]
    refusals = [refusal(pod, node, decision.around) for pod in decision.pods]
    if not refusals or None in refusals:
        return None
    return f"{change.name} is on {node}: {refusals[-1]}"
