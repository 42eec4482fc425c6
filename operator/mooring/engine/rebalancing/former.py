"""The moves that a former leader began, of which the profile's status tells."""

from dataclasses import dataclass
from typing import Final

from mooring.engine.rebalancing.movable import owner_of
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.policy.status import MoveBegun
from mooring.state.cluster import ClusterState

__all__ = ["FormerMove", "take_ended"]

_SKEW: Final = 5.0
"""By how much the clocks of a former leader and the API server may differ, in seconds.

If they differ by more, its moves end when their time is over. A larger number would take pods that
were new before a move for its replacement.
"""


@dataclass(frozen=True, slots=True)
class FormerMove:
    """A move that a former leader began, as the status shows it, and until when it is awaited.

    `began` is in seconds since the epoch, `until` by the monotonic clock.
    """

    shown: MoveBegun
    began: float
    until: float

    @property
    def owner(self) -> str:
        """The uid of the pod's controller."""
        return self.shown.owner

    def may_end_with(self, pod: Pod) -> bool:
        """Return whether this pod may be the replacement.

        A pod of another namespace names a controller that is not its own.
        """
        owner, shown = pod.owner, self.shown
        if owner is None or owner.uid != shown.owner:
            return False
        if pod.namespace != shown.pod.partition("/")[0]:
            return False
        is_named = owner.kind != "StatefulSet" or pod.key == shown.pod
        return is_named and pod.uid != shown.uid and pod.created >= self.began - _SKEW


def take_ended(
    moves: list[FormerMove], known: set[str], state: ClusterState, now: float
) -> list[str]:
    """Take those of the moves away that have ended or whose time is over; return what rests.

    A move has ended when a ready pod exists that its controller has created since it began, one for
    each move: that is its replacement, whose uid is returned. If its time is over before, it is the
    uid of the controller. No pod in `known` is a replacement; those that are found get there.
    """
    owners = {each.owner for each in moves}
    ready, found = list[Pod](), list[str]()
    for placed in state.pods:
        pause()
        pod = placed.pod
        is_ready = pod.ready and not placed.assumed and not pod.terminating
        if is_ready and owner_of(pod) in owners:
            ready.append(pod)
    for former in tuple(moves):
        new = (p.uid for p in ready if p.uid not in known and former.may_end_with(p))
        evicted = state.pods.get(Uid(former.shown.uid))
        if evicted is not None and not evicted.pod.terminating:
            moves.remove(former)  # it was not evicted
        elif (rests := next(new, former.owner)) != former.owner or now >= former.until:
            moves.remove(former)
            known.add(rests)
            found.append(rests)
    return found
