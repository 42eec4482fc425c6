"""Keeps pods and groups within the quota of their Queue.

The requests of nominated pods count as used, so that no other pod takes the quota that preemption
frees for them.
"""

from collections.abc import Collection
from itertools import product
from typing import ClassVar, Final

from mooring.claims.model.resource_claims import ResourceClaim
from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.verdicts import SKIP, Skip, Unschedulable, shortened
from mooring.groups.model.pod_group import PodGroup
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.model.wording import listed
from mooring.pausing import pause
from mooring.quota.model.elastic_quota import ROOT_OF_KOORDINATOR
from mooring.quota.model.queue import CAPACITY_SCHEDULING
from mooring.quota.state.queue_tree import QueueState
from mooring.quota.state.queues import below, demand_of
from mooring.quota.usage import leaving_usage, nominated_usage
from mooring.state.cluster_view import ClusterView

_LONGEST: Final = 1024
_MOST_NAMED: Final = 3


class CapacityScheduling:
    """Rejects a pod if its requests exceed the quota that its Queue may use."""

    name: ClassVar[str] = CAPACITY_SCHEDULING
    depends_on_node_only: ClassVar[bool] = False
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.POD, Action.DELETE),
            (Kind.POD, Action.UPDATE),
            (Kind.RESOURCE_CLAIM, Action.ADD),
            *product((Kind.NODE,), (Action.ADD, Action.UPDATE)),
            *product((Kind.VOLCANO_POD_GROUP, Kind.KAI_POD_GROUP), Action),
            *product((Kind.QUEUE, Kind.ELASTIC_QUOTA, Kind.NAMESPACE), Action),
        }
    )

    def __init__(self, _args: object, _handle: object) -> None:
        pass

    def pre_filter(self, pod: Pod, cluster: ClusterView) -> Skip | Unschedulable:
        """Return SKIP if the pod is in no Queue, or if its requests fit into the Queue's quota."""
        return quota_rejection((pod,), cluster) or SKIP

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if quota may have become free, or the pod may be in another Queue."""
        before, after = event.before, event.after
        if isinstance(before, PodGroup) or isinstance(after, PodGroup):
            named = [each.queue if isinstance(each, PodGroup) else "" for each in (before, after)]
            return queue_if(named[0] != named[1])
        if isinstance(after, ResourceClaim):
            return queue_if(any(each.claim == after.name for each in pod.spec.resource_claims))
        queues = cluster.queues
        if event.kind is not Kind.POD:
            mine = queues.of(pod)
            shares = mine is not None and mine.root.name == ROOT_OF_KOORDINATOR
            return queue_if(shares or event.kind is not Kind.NODE)
        if not isinstance(before, Pod):
            return QueueingHint.SKIP
        if isinstance(after, Pod) and queues.name_in(after) == queues.name_in(before):
            return queue_if(after.spec.demand != before.spec.demand)
        mine, its = queues.of(pod), queues.of(before)
        return queue_if(mine is not None and its is not None and mine.root is its.root)


def quota_rejection(pods: Collection[Pod], cluster: ClusterView) -> Unschedulable | None:
    """Return why the Queue of these pods has no room for all of them now; None if it has room.

    Returns None for pods that need no Queue. Pods in several Queues are rejected.
    """
    queues, names = cluster.queues, dict[str, QueueState | None]()
    for pod in pods:
        state, why = queues.membership(pod)
        if why is not None:
            return Unschedulable(shortened(why, _LONGEST))
        names[state.name if state is not None else ""] = state
        if len(pods) > 1:
            pause()
    if len(names) > 1:
        named = listed([name or "none" for name in names], _MOST_NAMED)
        return Unschedulable(f"the members are in several queues: {named}")
    (state,) = names.values() if names else (None,)
    if state is None:
        return None
    why = _lacking(state, pods, cluster)
    return Unschedulable(shortened(why, _LONGEST), resolvable=True) if why is not None else None


def _lacking(state: QueueState, pods: Collection[Pod], cluster: ClusterView) -> str | None:
    queues, demand, coming = cluster.queues, demand_of(pods), nominated_usage(pods, cluster)
    with queues.with_more(coming):
        why = queues.lacking(state, demand)
    if why is None or not coming or queues.is_reduced or queues.lacking(state, demand) is not None:
        return why
    # Nominated pods and the pods that still leave for them must not both count.
    numbers = [each.number for each in below(state.root)]
    with queues.without(leaving_usage(numbers, cluster)), queues.with_more(coming):
        return queues.lacking(state, demand)
