"""Pods with resource claims (dynamicresources/).

Mooring does not allocate devices by ResourceClaim: a pod that has any is rejected with a reason.
For all other pods this says after a failed search what kube-scheduler's plugin says, so that
messages agree.
"""

from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint
from mooring.framework.post_filter import PostFilterState
from mooring.framework.verdicts import SKIP, Skip, Unschedulable
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.policy.args import DynamicResourcesArgs
from mooring.state.snapshot import Snapshot

__all__ = ["DynamicResources"]


class DynamicResources:
    """Refuses pods with resource claims."""

    name: ClassVar[str] = "DynamicResources"
    row_local: ClassVar[bool] = False
    Args: ClassVar[type[DynamicResourcesArgs]] = DynamicResourcesArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset()

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None: ...

    def pre_filter(self, pod: Pod, _cluster: Snapshot) -> Skip | Unschedulable:
        """Placing such a pod without its devices would be worse than not placing it."""
        if pod.shape.claims_devices:
            return Unschedulable("pod has resource claims, which Mooring does not allocate")
        return SKIP

    def queueing_hint(self, _pod: Pod, _change: ClusterEvent, _cluster: Snapshot) -> QueueingHint:
        """Nothing does."""
        return QueueingHint.SKIP

    def post_filter(self, attempt: PostFilterState) -> Unschedulable:
        """There is never a claim to deallocate.

        If another plugin's pre_filter has rejected the pod, kube-scheduler's never ran and its
        post-filter fails with the error text for missing state, which is what users see there.
        """
        if attempt.diagnosis.pre_filter is not None:
            return Unschedulable("not found")
        return Unschedulable("no new claims to deallocate", resolvable=True)
