"""The state of the scheduler that the parts of the engine share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mooring.engine.at_bind import AtBind
from mooring.engine.departures import Departures
from mooring.engine.group_binding import GroupBinding
from mooring.engine.profiles import Profiles
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.pod import Pod, Uid
from mooring.observe.records import DecisionLog
from mooring.queueing.queue import SchedulingQueue
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.turn import Turn

__all__ = [
    "BindingUnderWay",
    "SchedulerState",
    "cache_sizes",
    "configuration",
]


@dataclass(slots=True, eq=False)
class BindingUnderWay:
    """A binding that has not ended.

    `together` is the binding of the group that the pod was assumed with, if any.

    `left_watch`: the pod left its watch when a Binding of it may have been sent. The watch may be
    faster than the answer, which tells whether the pod is bound or gone.
    """

    together: GroupBinding | None = None
    left_watch: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SchedulerState:
    """The cluster, the queue and the profiles; changed on the event loop's thread only."""

    state: ClusterState
    cluster: ClusterView
    queue: SchedulingQueue
    profiles: Profiles
    waiting: WaitingPods
    without_profile: dict[Uid, Pod] = field(default_factory=dict)
    """Pods that no profile takes, by uid; a profile that takes them may come later."""
    in_pre_bind: dict[Uid, Callable[[], object]] = field(default_factory=dict)
    """By the pod's uid, what cancels its binding: from PreBind on, while no Binding is sent."""
    being_bound: dict[Uid, BindingUnderWay] = field(default_factory=dict)
    """The last binding of each assumed pod, by the pod's uid, if it has not ended."""
    at_bind: AtBind = field(default_factory=AtBind)
    """The attempts for which plugins may bind pods at this moment."""
    departures: Departures = field(default_factory=Departures)
    """The pods that were bound or deleted, for whoever reads a pod meanwhile."""
    decisions: DecisionLog = field(default_factory=DecisionLog)
    """The paths of pods and the last decisions about them."""
    turn: Turn = field(default_factory=Turn)
    """Whose turn it is to use all this."""

    def uid_of(self, key: str) -> Uid | None:
        """Return the uid of the pod of this namespace/name, for people who ask by it.

        Of several pods, one that waits for a node comes before one that has a node. None if no pod
        of this name is known.
        """
        queued = self.queue.named(key)
        if queued is not None:
            return queued.pod.uid
        waiting = (pod.uid for pod in self.without_profile.values() if pod.key == key)
        placed = self.state.pods.named(key)
        return next(waiting, placed.pod.uid if placed is not None else None)


def cache_sizes(scheduler: SchedulerState) -> Mapping[str, int]:
    """Return how many objects of each type the mirror has, as in kube-scheduler's cache_size."""
    state = scheduler.state
    return {
        "nodes": scheduler.cluster.node_count,
        "pods": len(state.pods),
        "assumed_pods": len(state.pods.assumed),
        "pod_groups": len(state.pod_groups),
    }


def configuration(scheduler: SchedulerState) -> Mapping[str, Any]:
    """Return each profile in force with its defaults filled in, as JSON values."""
    return {
        name: entry.effective.policy(entry.profile).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        for name, entry in scheduler.profiles.in_force.items()
    }
