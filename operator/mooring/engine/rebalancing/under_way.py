"""A move that has begun, and how it ended."""

from dataclasses import dataclass
from enum import StrEnum

from mooring.engine.rebalancing.plan import Move, Step, Why
from mooring.model.pod import Pod, Uid

__all__ = ["Result", "UnderWay"]


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
    """A move that has begun.

    Attributes:
        move: The pod that leaves, and the node for which its replacement is meant.
        step: The step that the move is of.
        began: When it began, in seconds since the epoch.
        evicted: Whether the API server has evicted the pod.
        place: What is nominated to the node until the replacement comes; None before that.
        others: The pods of the controller that waited for a node before.
        replacement: The pod that came in its place, None until then.
        changed: Whether the controller makes pods of another spec by now.
        result: How the move has ended, None until then.
        why: The reason, as a sentence without a full stop.
    """

    move: Move
    step: Step
    began: float
    evicted: bool = False
    place: Pod | None = None
    others: frozenset[Uid] = frozenset()
    replacement: Pod | None = None
    changed: bool = False
    result: Result | None = None
    why: Why = ""

    @property
    def owner(self) -> str:
        """The uid of the pod's controller; "" if it has none."""
        return self.move.pod.owner.uid if self.move.pod.owner is not None else ""

    @property
    def rests(self) -> str:
        """The uid of what is left alone when the pod was evicted and the move has ended.

        That is the replacement, or after any other end than planned the controller with all pods.
        """
        is_moved = self.result is Result.MOVED and self.replacement is not None
        return self.replacement.uid if is_moved and self.replacement else self.owner

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
