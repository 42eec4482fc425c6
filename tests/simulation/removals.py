"""Records of evicted, nominated and moved pods, for the invariants."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mooring.kube.api_resources import POD
from mooring.model.pod import Pod
from mooring.state.evictions import Evictions
from simulation.storage import Change, Raw


class Begun(NamedTuple):
    """An eviction that a replica has begun."""

    preemptor: str
    """The uid of the pod that it was begun for."""
    at: float
    """When, by the timeline."""


@dataclass
class Removals:
    """The evicted, nominated and moved pods; times are those of `world.now` or of the timeline."""

    evicted: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each replica has removed which pod, by its identity and the uid."""
    kept_at: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each replica kept a node last for a pod that preempts, by identity and node."""
    begun: dict[tuple[Evictions, str], Begun] = field(default_factory=dict)
    """The last eviction of each pod, by the records of the replica and the uid."""
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

    def note_begun(
        self, evictions: Evictions, preemptor: Pod, victims: Iterable[Pod], at: float
    ) -> None:
        """Record that a replica begins to evict these victims for this preemptor."""
        for victim in victims:
            self.begun[evictions, victim.uid] = Begun(preemptor.uid, at)

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
