"""Queueing hints: plugins say whether a cluster event may make a pod schedulable."""

from collections.abc import Callable
from enum import Enum

from mooring.model.events import ClusterEvent
from mooring.model.node import Node
from mooring.model.pod import Pod

__all__ = ["QueueingHint", "freed_node", "node_newly", "queue_if"]


class QueueingHint(Enum):
    """Whether an event may make an unschedulable pod schedulable (framework/types.go)."""

    QUEUE = "Queue"
    """The event may help: the pod is tried again."""
    SKIP = "QueueSkip"
    """The event does not help: the pod stays unschedulable."""


def queue_if(condition: object) -> QueueingHint:
    """Return QUEUE if the condition is true, else SKIP."""
    return QueueingHint.QUEUE if condition else QueueingHint.SKIP


def node_newly(event: ClusterEvent, admits: Callable[[Node], bool]) -> bool:
    """Return whether `admits` accepts the event's node now, but did not accept it before."""
    before, after = event.before, event.after
    if not isinstance(after, Node) or not admits(after):
        return False
    return not (isinstance(before, Node) and admits(before))


def freed_node(gone: Pod) -> str | None:
    """Return the node that a deleted pod was bound or nominated to; None if there was none."""
    return gone.node_name or gone.nominated_node
