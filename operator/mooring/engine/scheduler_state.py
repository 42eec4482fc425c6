"""What the engine's parts share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mooring.engine.profiles import Profiles
from mooring.framework.waiting_pods import WaitingPods
from mooring.model.pod import Pod
from mooring.queueing.queue import SchedulingQueue
from mooring.state.cluster import ClusterState
from mooring.state.snapshot import Snapshot

__all__ = [
    "SchedulerState",
    "cache_sizes",
    "configuration",
]


@dataclass(frozen=True, slots=True, eq=False)
class SchedulerState:
    """The cluster, the pods that wait, and the policy; changed on the event loop's thread only."""

    state: ClusterState
    cluster: Snapshot
    queue: SchedulingQueue
    profiles: Profiles
    waiting: WaitingPods
    without_profile: dict[str, Pod] = field(default_factory=dict)
    """Pods by key that no profile takes; one that does may come later."""
    in_pre_bind: dict[str, Callable[[], object]] = field(default_factory=dict)
    """By the uid of a pod in pre_bind, what calls its binding off."""


def cache_sizes(scheduler: SchedulerState) -> Mapping[str, int]:
    """Objects in the mirror by type, in the words of upstream's cache_size metric."""
    state = scheduler.state
    return {
        "nodes": scheduler.cluster.node_count,
        "pods": len(state.pods),
        "assumed_pods": len(state.pods.assumed),
    }


def configuration(scheduler: SchedulerState) -> Mapping[str, Any]:
    """The policy in force by profile, defaults included, as JSON values."""
    return {
        name: entry.effective.policy(entry.profile).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        for name, entry in scheduler.profiles.in_force.items()
    }
