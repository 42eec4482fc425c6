"""The moves that a former leader began, of which the profile's status tells."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mooring.engine.scheduler_state import SchedulerState
from mooring.model.pod import Pod, Uid
from mooring.policy.status import MoveBegun
from mooring.time_slices import TimeSlices

__all__ = ["FormerMove", "take_ended"]

_SKEW: Final = 5.0
"""By how much the clocks of a former leader and the API server may differ, in seconds.

If they differ by more, its moves end when their time is over. A larger number would take pods that
were new before a move for its replacement.
"""


@dataclass(frozen=True, slots=True)
class FormerMove:
    """A move that a former leader began: the pod, its controller and until when it is awaited.

    `began` is in seconds since the epoch, `until` by the monotonic clock.
    """

    pod: Uid
    owner: str
    began: float
    until: float
    shown: MoveBegun

    def may_end_with(self, pod: Pod) -> bool:
        """Return whether this pod may be the replacement.

        A pod of another namespace names a controller that is not its own.
        """
        owner, namespace = pod.owner, self.shown.pod.partition("/")[0]
        if owner is None or owner.uid != self.owner or pod.namespace != namespace:
            return False
        is_named = owner.kind != "StatefulSet" or pod.key == self.shown.pod
        return is_named and pod.uid != self.pod and pod.created >= self.began - _SKEW


async def take_ended(
    moves: list[FormerMove], known: set[str], scheduler: SchedulerState, clock: Callable[[], float]
) -> list[str]:
    """Take those of the moves away that have ended or whose time is over; return what rests.

    A move has ended when a ready pod exists that its controller has created since it began, one for
    each move: that is its replacement, whose uid is returned. If its time is over before, it is the
    uid of the controller. No pod in `known` is a replacement; those that are found get there.
    """
    owners, pods = {each.owner for each in moves}, scheduler.state.pods
    of_owners, slices = list[Uid](), TimeSlices(clock=clock)
    for placed in tuple(pods):
        if placed.pod.owner is not None and placed.pod.owner.uid in owners:
            of_owners.append(placed.pod.uid)
        await slices.pause()
    now = [placed for placed in map(pods.get, of_owners) if placed is not None]
    ready = [p.pod for p in now if not p.assumed and p.pod.ready and not p.pod.terminating]
    found, late = list[str](), clock()
    for former in tuple(moves):
        new = (p.uid for p in ready if p.uid not in known and former.may_end_with(p))
        evicted = pods.get(former.pod)
        if evicted is not None and not evicted.pod.terminating:
            moves.remove(former)  # it was not evicted
        elif (rests := next(new, former.owner)) != former.owner or late >= former.until:
            moves.remove(former)
            known.add(rests)
            found.append(rests)
    return found
