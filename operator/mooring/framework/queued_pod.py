"""A pod that waits for a node, as the queue and QueueSort plugins see it."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum

from mooring.model.pod import Pod

__all__ = ["QueuedPod", "SubQueue", "by_priority"]


class SubQueue(StrEnum):
    """Where a waiting pod is; the names are those of upstream's pending_pods metric."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A waiting pod and its history.

    `attempts` counts all scheduling attempts, `unschedulable_count` those that found no node, and
    `error_count` those in a row that ended in an error; backoff grows with the last two.
    `first_seen` is when the pod could first be tried. `since` is when it entered its present queue;
    pods of equal priority are tried in this order. `unschedulable_plugins` names the plugins that
    rejected it last, `profile` the profile of that attempt. `nominated` is the node on which
    preemption makes room for it. `part` is the queue it is in, None while an attempt runs.
    """

    pod: Pod
    first_seen: float
    since: float
    attempts: int = 0
    unschedulable_count: int = 0
    error_count: int = 0
    not_before: float = 0.0
    part: SubQueue | None = None
    unschedulable_plugins: frozenset[str] = frozenset()
    nominated: str | None = None
    profile: str = ""
    tries_for: Hashable = field(default=None, repr=False)
    """Signature of the rejected pods that hear how this one's attempt ends."""
    outdated: bool = field(default=False, repr=False)
    """Whether the pod or its profile changed during the attempt: then a rejection is void."""
    ticket: int = field(default=0, repr=False)


def by_priority(queued: QueuedPod) -> tuple[int, float]:
    """kube-scheduler's sort key: higher priority first, then who waited longer (queuesort/)."""
    return -queued.pod.shape.priority, queued.since
