"""Pods with scheduling gates wait until the gates are gone (schedulinggates/)."""

from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod

__all__ = ["SchedulingGates"]


class SchedulingGates:
    """Refuses a pod as long as `spec.schedulingGates` names any."""

    name: ClassVar[str] = "SchedulingGates"
    row_local: ClassVar[bool] = True

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_enqueue(self, pod: Pod) -> Unschedulable | None:
        """None without gates."""
        if not pod.shape.gates:
            return None
        return Unschedulable(f"waiting for scheduling gates: [{' '.join(pod.shape.gates)}]")
