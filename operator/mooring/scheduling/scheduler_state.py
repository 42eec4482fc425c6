"""The objects that all parts of the scheduler share: cluster, queue, profiles, running bindings."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from mooring.extenders.verdicts import ExtenderResults
from mooring.framework.waiting_pods import WaitingPods
from mooring.groups.model.pod_group import PodGroup
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.pod import Pod, Uid
from mooring.observe.metrics import Metrics
from mooring.observe.records import DecisionLog
from mooring.process.turn import Turn
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.group_binding import GroupBinding
from mooring.scheduling.plugin_api import BindAttempt
from mooring.scheduling.profiles_in_force import Profiles
from mooring.scheduling.queue.queue import SchedulingQueue
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView


class DeletedUids:
    """Collects the uids of objects that are deleted while somebody reads from the API server.

    An answer may be older than a watch event. A uid is never used again, so the reader ignores an
    answer with a deleted uid.
    """

    def __init__(self) -> None:
        self._readers: dict[object, set[str]] = {}

    def note(self, uid: str) -> None:
        """Add the uid of a deleted object to the set of each open context of `meanwhile`."""
        for gone in self._readers.values():
            gone.add(uid)

    @contextmanager
    def meanwhile(self) -> Iterator[Container[str]]:
        """Return a context; while it is open, its value (a set) gets uids of deleted objects."""
        reader, gone = object(), set[str]()
        self._readers[reader] = gone
        try:
            yield gone
        finally:
            del self._readers[reader]


@dataclass(slots=True, eq=False)
class CurrentAttempt:
    """One attempt about a pod, or about the members of a group that were in the queue.

    Attributes:
        pipeline: The pipeline of the members when the attempt began.
        members: The pods in flight; no task binds them yet.
        definition: The definition of the group when the attempt began.
        answers: The answers of extenders; None if no extender is called.
        began, took: The start, and the duration of the decisions, in seconds.
        sampled: Whether each call of a plugin is measured.
        unschedulable_seconds: The time since an attempt first found no node for a member; 0 if the
            profile does not delay preemption.
    """

    pipeline: Pipeline
    began: float
    members: dict[Uid, QueuedPod]
    group: PodGroupState | None = None
    definition: PodGroup | None = None
    answers: ExtenderResults | None = None
    took: float = 0.0
    sampled: bool = False
    unschedulable_seconds: float = 0.0

    @property
    def first(self) -> QueuedPod:
        """The pod; for a group, the member that was popped first."""
        return next(iter(self.members.values()))

    @property
    def pods(self) -> list[Pod]:
        """The latest versions of the pods."""
        return [queued.pod for queued in self.members.values()]


@dataclass(slots=True, eq=False)
class AssumedPod:
    """A pod between the decision and the end of its binding.

    Attributes:
        pod: The version that was assumed; the queued pod may be newer.
        undo: The stack that unreserves and forgets the pod when it is closed.
        permitted: Is done when the wait at Permit ends; None if the pod does not wait.
        together: The binding of the group with which the pod was assumed, if any.
        left_watch: Whether the watch has shown that the pod is bound or deleted. Only the answer to
            the Binding tells whether the pod is bound.
    """

    attempt: CurrentAttempt
    queued: QueuedPod
    pod: Pod
    node: str
    undo: ExitStack
    together: GroupBinding | None = None
    permitted: "asyncio.Future[None] | None" = None
    left_watch: bool = False

    def failed(self, reason: str) -> None:
        """Tell the binding of the pod's group that the pod is not bound."""
        if self.together is not None:
            self.together.failed(f"member {self.pod.key} failed: {reason}", self.pod)


@dataclass(frozen=True, slots=True, eq=False)
class SchedulerState:
    """The cluster, the queue and the profiles. Only the event loop's thread may change them."""

    state: ClusterState
    cluster: ClusterView
    queue: SchedulingQueue
    profiles: Profiles
    waiting: WaitingPods
    without_profile: dict[Uid, Pod] = field(default_factory=dict)
    """The pods that no profile takes, by uid; a profile that takes them may come later."""
    in_pre_bind: dict[Uid, Callable[[], object]] = field(default_factory=dict)
    """By a pod's uid, the function that cancels its binding. The entry exists from PreBind on,
    except while the Binding is being sent."""
    being_bound: dict[Uid, AssumedPod] = field(default_factory=dict)
    """The bindings that have not ended, by the uid of the assumed pod."""
    at_bind: dict[Uid, BindAttempt] = field(default_factory=dict)
    """The attempts in which plugins may bind pods now, by the pod's uid."""
    departures: DeletedUids = field(default_factory=DeletedUids)
    """The uids of pods that are bound or deleted while other code reads a pod."""
    decisions: DecisionLog = field(default_factory=DecisionLog)
    """The states that pods went through, and the last decisions about them."""
    turn: Turn = field(default_factory=Turn)
    """The lock of the state: only the code that has the turn may use the state."""
    work: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the loop may have work: a pod to pop, or a decision of a shadow profile."""
    metrics: Metrics = field(default_factory=Metrics)
    clock: Callable[[], float] = time.monotonic
    """Returns monotonic seconds, for backoffs and other intervals."""
    now: Callable[[], float] = time.time
    """Returns the time of day in seconds since the epoch."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for this number of seconds of the clock."""

    def nominated_node(self, pod: Pod) -> str | None:
        """Return the name of the pod's nominated node; None if the pod has none."""
        nominee = self.state.nominations.get(pod.uid)
        return self.state.nodes.names[nominee.row] if nominee is not None else None

    def uid_of(self, key: str) -> Uid | None:
        """Return the uid of the pod with this namespace/name; None if the pod is unknown.

        If several pods have the name, a pod that waits for a node is chosen.
        """
        queued = self.queue.named(key)
        if queued is not None:
            return queued.pod.uid
        waiting = (pod.uid for pod in self.without_profile.values() if pod.key == key)
        placed = self.state.pods.named(key)
        return next(waiting, placed.pod.uid if placed is not None else None)


def cache_sizes(scheduler: SchedulerState) -> Mapping[str, int]:
    """Return how many objects of each type the cache has, as kube-scheduler's cache_size."""
    state = scheduler.state
    return {
        "nodes": scheduler.cluster.node_count,
        "pods": len(state.pods),
        "assumed_pods": len(state.pods.assumed),
        "pod_groups": len(state.pod_groups),
    }


def configuration(scheduler: SchedulerState) -> Mapping[str, Any]:
    """Return each profile in force by name, with its defaults filled in, as JSON values."""
    return {
        name: entry.effective.policy(entry.profile).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        for name, entry in scheduler.profiles.in_force.items()
    }
