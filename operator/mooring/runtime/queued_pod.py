"""A pod in the scheduling queue, with its profile's plugins and the history of its attempts."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the command line reads the states alone
    from collections.abc import Hashable, Mapping

    from mooring.model.pod import Pod
    from mooring.runtime.pipeline import Pipeline

__all__ = ["PodState", "QueuedPod", "StateTimes", "SubQueue"]


class SubQueue(StrEnum):
    """The parts of the scheduling queue, named as in kube-scheduler's metric pending_pods."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"


class PodState(StrEnum):
    """Where a pod is on its way to a node; the queues are named as in `SubQueue`."""

    NO_PROFILE = "without a profile"
    GATED = "gated"
    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    IN_FLIGHT = "in flight"
    PERMIT = "waiting at Permit"
    BINDING = "being bound"
    BOUND = "bound"
    GONE = "gone"


_POSITION: Final = {state: position for position, state in enumerate(PodState)}
_ENDS: Final = (PodState.BOUND, PodState.GONE)


class StateTimes:
    """How long a pod was in each state; times are seconds on the scheduler's monotonic clock.

    It belongs to the pod and not to its place in the queue, so it goes on when the pod leaves the
    queue. Changing the state takes a few hundred nanoseconds.
    """

    __slots__ = ("_seconds", "began", "since", "state")

    def __init__(self, now: float, state: PodState = PodState.ACTIVE) -> None:
        self.began = self.since = now
        self.state = state
        self._seconds = array("d", bytes(8 * len(_POSITION)))

    def enter(self, state: PodState, now: float) -> None:
        """Enter the state, and add the time since the last change to the old state's."""
        self._seconds[_POSITION[self.state]] += now - self.since
        self.state, self.since = state, now

    def seconds(self, now: float) -> Mapping[PodState, float]:
        """Return the seconds in each state the pod has been in, until it was bound, gone or now."""
        found = dict(zip(PodState, self._seconds, strict=True))
        found[self.state] += now - self.since
        return {state: took for state, took in found.items() if took > 0 and state not in _ENDS}


@dataclass(slots=True, eq=False, weakref_slot=True)
class QueuedPod:
    """A pod without a node and its scheduling attempts so far (QueuedPodInfo, framework/types.go).

    Times are seconds on the scheduler's monotonic clock.
    """

    pod: Pod
    pipeline: Pipeline
    """The plugins of the pod's profile; replaced when another profile, or a new one, takes it."""
    initial_attempt_timestamp: float
    """When the pod could first be scheduled: a gated pod when its last gate was gone."""
    timestamp: float
    """When the pod was added, or its last attempt ended; of equal pods the earliest is first."""
    attempts: int = 0
    """All attempts that began."""
    unschedulable_count: int = 0
    """Attempts that ended unschedulable; backoff doubles with each."""
    consecutive_errors_count: int = 0
    """Attempts in a row that ended in an error; backoff doubles with each."""
    backoff_expiration: float = 0.0
    queue: SubQueue | None = None
    """Where the pod is, None while an attempt runs."""
    unschedulable_since: float = inf
    """When its first attempt ended that searched nodes and found none; infinite without one."""
    is_delayed: bool = False
    """Whether the last attempt was too early to preempt (`delaySeconds` of the profile)."""
    unschedulable_plugins: frozenset[str] = frozenset()
    """Names of the plugins that rejected the pod in the last attempt that ended unschedulable."""
    decided_by_specs: bool = False
    """Whether the last attempt was about all members of its group, and read nothing of them that
    another group of equal specs may have otherwise."""
    gated: bool = False
    """Whether a PreEnqueue plugin holds the pod back; also known while an attempt runs."""
    tries_for: Hashable = field(default=None, repr=False)
    """The signature of the group of unschedulable pods that this pod was moved for, or None.

    When the attempt ends without the same rejection, the next pod of that group is moved."""
    moved_by: str = field(default="", repr=False)
    """The event that last moved the pod out of the unschedulable ones, as metrics name it."""
    flushed: bool = False
    """Whether it left the unschedulable ones because it had been there for five minutes."""
    retry_at: float = inf
    """When the pod is tried again without an event, if five minutes are not over sooner."""
    outdated: bool = field(default=False, repr=False)
    """Whether its attempt or binding is outdated by a change, so that it must be retried.

    The pod, its pipeline or its gates have changed.
    """
    ticket: int = field(default=0, repr=False)
    """Changes with every move; entries of heaps with an older ticket are void."""
    times: StateTimes = field(repr=False, kw_only=True)
    """How long the pod was in each state."""

    def unschedulable_seconds(self, now: float) -> float:
        """Return how long ago its first attempt ended that found no node; 0 if none has."""
        return max(now - self.unschedulable_since, 0.0)
