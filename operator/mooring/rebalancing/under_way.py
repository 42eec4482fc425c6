"""Moves that have begun, and the places kept for their replacements.

A place is kept as in preemption, by a nomination, so that no pod of equal or lower priority takes
it. Until the replacement exists, a copy of the leaving pod is nominated under its own uid. The
replacement takes over the nomination before its first decision, and the ordinary decision then
finds this node first.
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
"""What the uid of a place has behind that of the pod that leaves, or for which room is made.

No object's uid has a slash.
"""
_NOT_COMPARED: Final = frozenset(("gates", "limit_exceeded", "demands", "memory"))
"""Fields of a spec in which a running pod differs from a new one of its template."""
_COMPARED: Final = tuple(each.name for each in fields(PodSpec) if each.name not in _NOT_COMPARED)


class Result(StrEnum):
    """How a move ended."""

    MOVED = "moved"
    """The replacement is ready on the node that it is meant for."""
    ELSEWHERE = "elsewhere"
    """The replacement is bound to another node."""
    LATE = "late"
    """In time no replacement came, or it was not bound, or not ready."""
    GONE = "gone"
    """The pod, its replacement or the target node has gone, or the controller makes other pods."""
    REFUSED = "refused"
    """A disruption budget, or by now the profile, allows no eviction; nothing has happened."""
    FAILED = "failed"
    """The API server did not evict the pod; nothing has happened."""


@dataclass(slots=True, eq=False)
class UnderWay:
    """A move that has begun, and its progress.

    It is first written into the profile's status. Then its place is kept and its task starts, which
    evicts the pod, awaits the replacement and notes the result.

    Attributes:
        move: The pod that leaves, and the node for which its replacement is meant.
        step: The step that the move is of.
        profile: The name of the profile that plans it.
        began: When it began, in seconds since the epoch.
        place: The pod that is nominated to the node until the replacement comes; None until the pod
            is about to be evicted.
        others: The pods of the controller that waited for a node before.
        evicted: Whether the API server has evicted the pod.
        replacement: The pod that came in its place, None until then.
        changed: Whether the controller makes pods of another spec by now.
        result: How the move has ended, None until then.
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
        """The uid of the controller or pod that is left alone when the move has ended.

        That is the replacement, or after any other end than planned the controller with all pods.
        """
        if self.result is Result.MOVED and self.replacement is not None:
            return self.replacement.uid
        return self.owner

    def end(self, result: Result, why: Why = "") -> None:
        """Note how the move has ended."""
        self.result, self.why = result, why

    def is_for(self, pod: Pod) -> bool:
        """Return whether a new pod of the controller may be the replacement.

        A pod of another namespace names a controller that is not its own.
        """
        leaving = self.move.pod
        if pod.namespace != leaving.namespace:
            return False
        if self.replacement is not None or pod.uid == leaving.uid or pod.uid in self.others:
            return False
        owner = leaving.owner
        return owner is None or owner.kind != "StatefulSet" or pod.name == leaving.name


def place_uid(uid: Uid) -> Uid:
    """Return the uid of the place for the replacement of this pod, or for the pod itself."""
    return Uid(f"{uid}{_PLACE}")


def place_of(uid: Uid) -> bool:
    """Return whether the uid belongs to a place and not to a pod."""
    return uid.endswith(_PLACE)


class ExpectedReplacements:
    """Recognizes replacements as they come, and gives each the place that is kept for it.

    Attributes:
        moves: The moves of all profiles that have begun and not ended.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.moves: list[UnderWay] = []

    def keep(self, under_way: UnderWay) -> None:
        """Keep the place on the target of one of the moves; its replacement is expected then.

        The place has the pod as its controller makes it again.
        """
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
        """Note that one of the moves has ended, and give back its place if that is still kept."""
        self.give_back(under_way)
        self.moves.remove(under_way)

    def give_back(self, under_way: UnderWay) -> None:
        """Give up the place; the replacement is still expected."""
        self._state.withdraw(place_uid(under_way.move.pod.uid))
        replacement = under_way.replacement
        if replacement is None or self._state.evictions.awaits_victims(replacement):
            return  # what preemption frees for it is its own
        nominee = self._state.nominations.get(replacement.uid)
        target = under_way.move.target
        if nominee is not None and self._state.nodes.names[nominee.row] == target:
            self._state.withdraw(replacement.uid)

    def arrived(self, pod: Pod) -> None:
        """Note a pod that is shown without a node for the first time.

        If it is an expected replacement, it is nominated to the node of its place.
        """
        if (expected := self._match(pod)) is not None:
            self._state.pass_nomination(place_uid(expected.move.pod.uid), pod)

    def on_events(self, events: Iterable[ClusterEvent]) -> None:
        """Note replacements that are shown on a node before they were shown without one."""
        if not self.moves:
            return
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
        """Return the replacement that this pod may be; None if the pod is none of that."""
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
