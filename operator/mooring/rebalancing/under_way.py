"""Moves that have begun, and the room that is kept for their replacements.

As in preemption, a nomination keeps the room, so that no pod of equal or lower priority takes it.
Until the replacement exists, a placeholder is nominated: a copy of the leaving pod with a uid of
its own (its "place"). The replacement gets the nomination before its first decision, and the
ordinary decision then tries this node first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Final

from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod, Uid
from mooring.model.pod_spec import PodSpec
from mooring.rebalancing.movable import created_anew, owner_of
from mooring.rebalancing.plan import Move, Step, Why
from mooring.state.cluster import ClusterState

_PLACE: Final = "/replacement"
"""The text after a pod's uid in the uid of its placeholder. No object's uid has a slash."""
_NOT_COMPARED: Final = frozenset(("gates", "limit_exceeded", "demands", "memory"))
"""The fields of a spec that may differ between a running pod and a new pod of the same template."""
_COMPARED: Final = tuple(each.name for each in fields(PodSpec) if each.name not in _NOT_COMPARED)


class Result(StrEnum):
    """How a move ended; `UnderWay.evicted` says whether its pod was evicted."""

    MOVED = "moved"
    """The replacement is ready on the node that is meant for it."""
    ELSEWHERE = "elsewhere"
    """The replacement is bound to another node."""
    LATE = "late"
    """The replacement did not come, was not bound or was not ready in time."""
    GONE = "gone"
    """The pod, its replacement or the target no longer exists, or the controller makes other
    pods."""
    REFUSED = "refused"
    """A disruption budget, or the changed profile, forbids the eviction; nothing has happened."""
    FAILED = "failed"
    """The API server did not evict the pod, or the move ended with an unexpected error."""


@dataclass(slots=True, eq=False)
class UnderWay:
    """A move that has begun, and its progress.

    It is first written into the profile's status. Then a nomination keeps room for the replacement,
    and a task evicts the pod, waits for the replacement and records the result.

    Attributes:
        move: The pod that leaves, and the node that is meant for its replacement.
        step: The step to which the move belongs.
        profile: The name of the profile whose plan it is.
        began: When it began, in seconds since the epoch.
        place: The placeholder that is nominated to the node until the replacement comes; None until
            the pod is about to be evicted.
        others: The pods of the controller that waited for a node before the move began.
        evicted: Whether the API server has evicted the pod.
        replacement: The pod that replaces the evicted one; None until it comes.
        changed: Whether the controller now makes pods of another spec.
        result: How the move has ended; None until then.
        why: The reason, as a sentence without a full stop.
    """

    move: Move
    step: Step
    profile: str
    began: float
    place: Pod | None = None
    others: frozenset[Uid] = frozenset()
    evicted: bool = False
    replacement: Pod | None = None
    changed: bool = False
    result: Result | None = None
    why: Why = ""

    @property
    def owner(self) -> str:
        """The uid of the pod's controller; "" if it has none."""
        return owner_of(self.move.pod)

    @property
    def rests(self) -> str:
        """The uid of the pod or controller that must not be moved again for a time.

        This is the replacement, or the controller if the move has failed.
        """
        if self.result is Result.MOVED and self.replacement is not None:
            return self.replacement.uid
        return self.owner

    def end(self, result: Result, why: Why = "") -> None:
        """Record the result of the move; `why` is a sentence without a full stop."""
        self.result, self.why = result, why

    def is_for(self, pod: Pod) -> bool:
        """Return whether this new pod of the controller may be the replacement."""
        leaving = self.move.pod
        if pod.namespace != leaving.namespace:
            return False
        if self.replacement is not None or pod.uid == leaving.uid or pod.uid in self.others:
            return False
        owner = leaving.owner
        return owner is None or owner.kind != "StatefulSet" or pod.name == leaving.name


def place_uid(uid: Uid) -> Uid:
    """Return the uid of the placeholder that keeps room for this pod or its replacement."""
    return Uid(f"{uid}{_PLACE}")


def is_placeholder(uid: Uid) -> bool:
    """Return whether this is the uid of a placeholder."""
    return uid.endswith(_PLACE)


class ExpectedReplacements:
    """Recognizes replacements as they come, and gives each the room that is kept for it.

    Attributes:
        moves: The moves of all profiles that have begun and not ended.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.moves: list[UnderWay] = []

    def keep(self, under_way: UnderWay) -> None:
        """Keep room for the replacement on the move's target, and expect it from now on."""
        state, move = self._state, under_way.move
        node = state.nodes.nodes[state.nodes.row_of[move.source]]
        if node is None:
            raise ValueError(f"node {move.source} does not exist")
        under_way.others = frozenset(
            pod.uid for pod in state.unscheduled.values() if owner_of(pod) == under_way.owner
        )
        new = created_anew(move.pod, node)
        under_way.place = replace(new, uid=place_uid(new.uid), ready=False)
        state.nominate(under_way.place, move.target)

    def forget(self, under_way: UnderWay) -> None:
        """Remove a move from `moves`, and release its room if it is still kept."""
        self.give_back(under_way)
        self.moves.remove(under_way)

    def give_back(self, under_way: UnderWay) -> None:
        """Release the room for the replacement, but still expect the replacement."""
        self._state.withdraw(place_uid(under_way.move.pod.uid))
        replacement = under_way.replacement
        if replacement is None or self._state.evictions.awaits_victims(replacement):
            return  # what preemption frees for it is its own
        nominee = self._state.nominations.get(replacement.uid)
        target = under_way.move.target
        if nominee is not None and self._state.nodes.names[nominee.row] == target:
            self._state.withdraw(replacement.uid)

    def arrived(self, pod: Pod) -> None:
        """Give the kept room to a new pod without a node if the pod is an expected replacement."""
        if (expected := self._match(pod)) is not None:
            self._state.pass_nomination(place_uid(expected.move.pod.uid), pod)

    def on_events(self, events: Iterable[ClusterEvent]) -> None:
        """Withdraw the placeholder of each replacement that is on a node when it first appears."""
        if not self.moves:
            return
        # Such a pod was bound before the watch showed it without a node.
        for event in events:
            pod = event.after
            if event.kind is not Kind.POD or event.action is not Action.ADD:
                continue
            placed = self._state.pods.get(pod.uid) if isinstance(pod, Pod) else None
            if placed is None or placed.assumed:
                continue  # an assumed pod was shown without a node
            if (expected := self._match(placed.pod)) is not None:
                self._state.withdraw(place_uid(expected.move.pod.uid))

    def _match(self, pod: Pod) -> UnderWay | None:
        """Return the move whose pod this new pod replaces, and note the replacement."""
        owner = owner_of(pod)
        awaited = [each for each in self.moves if each.place and owner and each.owner == owner]
        if any(e.replacement is not None and e.replacement.uid == pod.uid for e in awaited):
            return None
        for expected in awaited:
            if expected.is_for(pod):
                running = expected.move.pod.spec
                if all(getattr(running, name) == getattr(pod.spec, name) for name in _COMPARED):
                    expected.replacement = pod
                    return expected
                expected.changed = True
        return None
