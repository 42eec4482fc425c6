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
    """The parts of the scheduling queue, named as in kube-scheduler's metric `pending_pods`."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"


class PodState(StrEnum):
    """The state of a pod from its first sight to its binding; queues are named as in `SubQueue`."""

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
    """The time that a pod was in each state, in seconds on the scheduler's monotonic clock.

    `began` is the start of the first state, and `since` the start of the present `state`.
    """

    __slots__ = ("_seconds", "began", "since", "state")

    def __init__(self, now: float, state: PodState = PodState.ACTIVE) -> None:
        self.began = self.since = now
        self.state = state
        self._seconds = array("d", bytes(8 * len(_POSITION)))

    def enter(self, state: PodState, now: float) -> None:
        """Enter the state; add the time since the last change to the state that the pod leaves."""
        self._seconds[_POSITION[self.state]] += now - self.since
        self.state, self.since = state, now

    def seconds(self, now: float) -> Mapping[PodState, float]:
        """Return the seconds in each state so far, or until the pod was bound or gone."""
        found = dict(zip(PodState, self._seconds, strict=True))
        found[self.state] += now - self.since
        return {state: took for state, took in found.items() if took > 0 and state not in _ENDS}


@dataclass(slots=True, eq=False, weakref_slot=True)
class QueuedPod:
    """A pod without a node, and its scheduling attempts (QueuedPodInfo, framework/types.go).

    Times are seconds on the scheduler's monotonic clock.
    """

    pod: Pod
    pipeline: Pipeline
    """The plugins of the pod's profile; replaced when the profile, or its version, changes."""
    initial_attempt_timestamp: float
    """When the pod could first be scheduled (for a gated pod: the removal of its last gate), in
    seconds on the scheduler's monotonic clock."""
    timestamp: float
    """When the pod was added, or its last attempt ended, in seconds on the scheduler's monotonic
    clock. It sorts pods of equal priority."""
    attempts: int = 0
    unschedulable_count: int = 0
    """The number of attempts that ended unschedulable; each of them doubles the backoff."""
    consecutive_errors_count: int = 0
    """The number of attempts in a row, up to the last one, that ended with an error; each doubles
    the backoff."""
    backoff_expiration: float = 0.0
    queue: SubQueue | None = None
    """The part of the queue that the pod is in; None during an attempt or binding."""
    unschedulable_since: float = inf
    """The end of the pod's first attempt that found no node, in monotonic seconds; infinite without
    such an attempt."""
    is_delayed: bool = False
    """Whether the last attempt could not preempt yet because of the profile's `delaySeconds`."""
    unschedulable_plugins: frozenset[str] = frozenset()
    """Names of the plugins that rejected the pod in the last attempt that ended unschedulable."""
    decided_by_specs: bool = False
    """Whether the last attempt was about all members of a pod group, and would have the same result
    for any pod group whose members have equal specs."""
    gated: bool = False
    """Whether a PreEnqueue plugin holds the pod back; set also while an attempt runs."""
    tries_for: Hashable = field(default=None, repr=False)
    """The signature of the unschedulable pods on whose behalf this pod is tried, else None.

    The same events may help pods with equal signatures. If the attempt ends with the same
    signature, the other pods are not tried; otherwise the next of them is tried.
    """
    moved_by: str = field(default="", repr=False)
    """The event that last moved the pod out of the unschedulable pods, as in the metrics."""
    moved_at: int | None = field(default=None, repr=False)
    """The sequence number of the event whose hint moved the pod; None if the pod changed since.

    If it is set, the pod is tried only if hints still return QUEUE.
    """
    flushed: bool = False
    """Whether the pod was last moved because it had been unschedulable for five minutes."""
    retry_at: float = inf
    """The time, in monotonic seconds, at which the pod is tried even without an event; infinite if
    it waits the usual five minutes."""
    outdated: bool = field(default=False, repr=False)
    """Whether the pod, its pipeline or its gates changed during its attempt or binding, so that the
    pod must be tried again."""
    ticket: int = field(default=0, repr=False)
    """A number that changes with every move; a heap's entry with an older ticket is void."""
    backoff_ticket: int = field(default=0, repr=False)
    """The `ticket` with which the pod is in the heap of backoffs while it is unschedulable."""
    times: StateTimes = field(repr=False, kw_only=True)
    """The time that the pod was in each state."""

    @property
    def is_rejected_by_no_node(self) -> bool:
        """Whether a plugin without a filter rejected the pod, for all nodes at once."""
        return not self.unschedulable_plugins.isdisjoint(self.pipeline.plugins_of_no_node)

    def unschedulable_seconds(self, now: float) -> float:
        """Return the seconds since the pod's first attempt that found no node; 0 without one."""
        return max(now - self.unschedulable_since, 0.0)
