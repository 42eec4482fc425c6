"""Keeps pods with scheduling gates out of the scheduling queue (schedulinggates/)."""

from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.registry import NoArgs
from mooring.framework.verdicts import Unschedulable, shortened
from mooring.model.pod import Pod


class SchedulingGates:
    """Keeps a pod out of the scheduling queue until `spec.schedulingGates` is empty."""

    name: ClassVar[str] = "SchedulingGates"
    depends_on_node_only: ClassVar[bool] = True

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_enqueue(self, pod: Pod) -> Unschedulable | None:
        """Return None if the pod has no scheduling gates; else Unschedulable."""
        if not pod.spec.gates:
            return None
        gates = shortened(" ".join(pod.spec.gates), 900)
        return Unschedulable(f"waiting for scheduling gates: [{gates}]")
