"""The moves that a former leader began, of which the profile's status tells."""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import chain
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
_Owner = tuple[str, str]
"""The namespace and the uid of a controller."""


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

    @property
    def namespace(self) -> str:
        """The namespace of the pod and its controller."""
        return self.shown.pod.partition("/")[0]

    def may_end_with(self, pod: Pod) -> bool:
        """Return whether this pod of the controller may be the replacement."""
        is_named = pod.owner is None or pod.owner.kind != "StatefulSet" or pod.key == self.shown.pod
        return is_named and pod.uid != self.pod and pod.created >= self.began - _SKEW


async def take_ended(
    moves: list[FormerMove],
    known: set[str],
    scheduler: SchedulerState,
    clock: Callable[[], float],
) -> list[str]:
    """Take those of the moves away that have ended or whose time is over; return what rests.

    A move has ended when a ready pod exists that its controller has created since it began, one for
    each move: that is its replacement, of which the uid is returned, and `known` gets it. If its
    time is over before, it is the uid of the controller.
    """
    pods = await _pods_of({(each.namespace, each.owner) for each in moves}, scheduler, clock)
    found, late = list[str](), clock()
    for former in tuple(moves):
        placed = scheduler.state.pods.get(former.pod)
        of_owner = pods[former.namespace, former.owner]
        may_be = (p for p in of_owner if former.may_end_with(p) and p.uid not in known)
        new = next((pod.uid for pod in may_be if _is_ready(pod, scheduler)), None)
        if placed is not None and not placed.pod.terminating:
            moves.remove(former)  # it was not evicted
        elif new is not None or late >= former.until:
            moves.remove(former)
            known.add(new or former.owner)
            found.append(new or former.owner)
    return found


async def _pods_of(
    owners: Collection[_Owner], scheduler: SchedulerState, clock: Callable[[], float]
) -> defaultdict[_Owner, list[Pod]]:
    """Return the pods of these controllers that do not terminate.

    A pod of another namespace names a controller that is not its own.
    """
    found, state = defaultdict[_Owner, list[Pod]](list), scheduler.state
    slices = TimeSlices(clock=clock)
    placed = (placed.pod for placed in tuple(state.pods))
    for pod in chain(tuple(state.unscheduled.values()), placed):
        owner = (pod.namespace, pod.owner.uid) if pod.owner is not None else None
        if owner is not None and owner in owners and not pod.terminating:
            found[owner].append(pod)
        await slices.pause()
    return found


def _is_ready(pod: Pod, scheduler: SchedulerState) -> bool:
    """Return whether the pod is bound and ready by now."""
    placed = scheduler.state.pods.get(pod.uid)
    return placed is not None and not placed.assumed and placed.pod.ready
