"""Sorts the queue: higher priority first, then the pod that has waited longer (queuesort/)."""

from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.plugin import QueuedPodInfo, by_priority
from mooring.framework.registry import NoArgs


class PrioritySort:
    """Sorts by priority, then by the time of entering the queue."""

    name: ClassVar[str] = "PrioritySort"
    depends_on_node_only: ClassVar[bool] = True

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def sort_key(self, queued: QueuedPodInfo) -> tuple[int, float]:
        """Return the pod's key: pods with smaller keys are scheduled first."""
        return by_priority(queued)
