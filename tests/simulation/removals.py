"""Records of evicted, nominated and moved pods, for the invariants."""

from dataclasses import dataclass, field

from mooring.kube.api_resources import POD
from simulation.storage import Change, Raw


@dataclass
class Removals:
    """The evicted, nominated and moved pods; times are those of `world.now` or of the timeline."""

    evicted: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each replica has removed which pod, by its identity and the uid."""
    kept_at: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each replica kept a node last for a pod that preempts, by identity and node."""
    evicted_for: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Who waited for a pod soon after a replica began to evict it, by its identity and the uid."""
    nominations_of: dict[str, list[Change]] = field(default_factory=dict)
    """By uid, what replicas have written of where a pod is nominated."""
    asked_to_move: int = 0
    """How many evictions were sent for rebalancing."""
    refused: dict[str, float] = field(default_factory=dict)
    """By uid, when a pod rested last that the Eviction API had refused to evict."""
    moves_of: dict[str, list[float]] = field(default_factory=dict)
    """By the uid of a controller, when its pods were moved."""
    created_at: dict[str, float] = field(default_factory=dict)
    """By uid, when pods were created."""

    def note(self, change: Change) -> None:
        """Record the creation of a pod, and the nominations that replicas write."""
        if change.resource is not POD:
            return
        uid = change.object["metadata"]["uid"]
        if change.verb == "ADDED":
            self.created_at[uid] = change.at
        written = change.what == "patch status of pods"
        if written and _nominated(change.before or {}) != _nominated(change.object):
            self.nominations_of.setdefault(uid, []).append(change)


def _nominated(raw: Raw) -> str:
    return str((raw.get("status") or {}).get("nominatedNodeName") or "")
