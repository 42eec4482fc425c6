"""Rejects pods with resource claims (dynamicresources/).

Mooring does not allocate devices by ResourceClaim: a pod that has any is rejected with a reason.
For all other pods, `post_filter` returns the text that kube-scheduler's plugin returns, so that the
messages are the same.
"""

from typing import ClassVar

from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint
from mooring.framework.post_filter import PostFilterState
from mooring.framework.verdicts import SKIP, Skip, Unschedulable
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.policy.args import DynamicResourcesArgs
from mooring.state.cluster_view import ClusterView

__all__ = ["DynamicResources"]


class DynamicResources:
    """Rejects pods with resource claims."""

    name: ClassVar[str] = "DynamicResources"
    depends_on_node_only: ClassVar[bool] = False
    Args: ClassVar[type[DynamicResourcesArgs]] = DynamicResourcesArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset()

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._says_no_claims = handle.kubernetes.claims_in_preemption_message

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> Skip | Unschedulable:
        """Reject a pod with resource claims: it must not be bound without its devices."""
        if pod.spec.resource_claims:
            return Unschedulable("pod has resource claims, which Mooring does not allocate")
        return SKIP

    def queueing_hint(
        self, _pod: Pod, _change: ClusterEvent, _cluster: ClusterView
    ) -> QueueingHint:
        """Return SKIP: no cluster event makes such a pod schedulable."""
        return QueueingHint.SKIP

    def post_filter(self, state: PostFilterState) -> Unschedulable:
        """Return Unschedulable: there is no claim that could be deallocated.

        If another plugin's pre_filter rejected the pod, kube-scheduler's plugin has no state, and
        its PostFilter fails with the text "not found". Users see the same text here.
        """
        if state.diagnosis.pre_filter is not None:
            return Unschedulable("not found")
        text = "no new claims to deallocate" if self._says_no_claims else ""
        return Unschedulable(text, resolvable=True)
