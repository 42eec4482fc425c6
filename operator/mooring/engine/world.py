"""What the engine's parts share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mooring.engine.profiles import Profiles
from mooring.framework.waiting import WaitingRoom
from mooring.model.pod import Pod
from mooring.state.cluster import ClusterState
from mooring.state.queue import SchedulingQueue
from mooring.state.snapshot import Snapshot

__all__ = ["World"]


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """The cluster, the pods that wait, and the policy; changed on the event loop's thread only."""

    state: ClusterState
    cluster: Snapshot
    queue: SchedulingQueue
    profiles: Profiles
    waiting: WaitingRoom
    unclaimed: dict[str, Pod] = field(default_factory=dict)
    """Pods by key that no profile takes; one that does may come later."""
    preparing: dict[str, Callable[[], object]] = field(default_factory=dict)
    """By the uid of a pod in pre_bind, what calls its binding off."""
