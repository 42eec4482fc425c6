"""What the world holds, in numbers and names, for those who ask from outside."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from mooring.engine.world import World
from mooring.state.queue import Part

__all__ = ["cache_sizes", "configuration", "unschedulable_pods"]


def cache_sizes(world: World) -> Mapping[str, int]:
    """Objects in the mirror by type, in the words of upstream's cache_size metric."""
    state = world.state
    return {
        "nodes": world.cluster.node_count,
        "pods": len(state.pods),
        "assumed_pods": len(state.pods.assumed),
    }


def unschedulable_pods(world: World) -> Mapping[tuple[str, str], int]:
    """Refused pods by (plugin, profile); a pod refused by two plugins counts in both."""
    return Counter(
        (plugin, profile.profile.name)
        for queued in world.queue.waiting()
        if queued.part is Part.UNSCHEDULABLE
        and (profile := world.profiles.of(queued.pod, world.cluster)) is not None
        for plugin in queued.refused_by
    )


def configuration(world: World) -> Mapping[str, Any]:
    """The policy in force by profile, defaults included, as JSON values."""
    return {
        name: entry.effective.policy(entry.profile).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        for name, entry in world.profiles.in_force.items()
    }
