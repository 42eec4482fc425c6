"""Keeps pods and groups within the quota of their queue.

What nominated pods will use counts as used, unless they are of the same queue and of lower
priority: otherwise what preemption frees for one pod could be taken by another.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from itertools import product
from typing import Any, ClassVar

from mooring.framework.hints import QueueingHint, queue_if
from mooring.framework.verdicts import SKIP, Skip, Unschedulable, shortened
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.quota.model.queue import CAPACITY_SCHEDULING
from mooring.quota.state.queues import NO_QUEUE, demand_of
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray

_LONGEST: int = 1024


class CapacityScheduling:
    """Rejects a pod whose queue may not use what it requests."""

    name: ClassVar[str] = CAPACITY_SCHEDULING
    depends_on_node_only: ClassVar[bool] = False
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.POD, Action.DELETE),
            (Kind.POD, Action.UPDATE),
            *product((Kind.QUEUE, Kind.NAMESPACE), Action),
        }
    )

    def __init__(self, _args: object, _handle: object) -> None:
        pass

    def pre_filter(self, pod: Pod, cluster: ClusterView) -> Skip | Unschedulable:
        """Return SKIP if the pod is in no queue or its queue may use what it requests."""
        return quota_rejection((pod,), cluster) or SKIP

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        """Return QUEUE for a queue or namespace, and for a pod of the same tree that has left.

        A relabelled pod may have left the queue.
        """
        if event.kind is not Kind.POD:
            return QueueingHint.QUEUE
        before, after = event.before, event.after
        if not isinstance(before, Pod):
            return QueueingHint.SKIP
        if isinstance(after, Pod) and after.labels == before.labels:
            return QueueingHint.SKIP
        queues = cluster.queues
        mine, its = queues.of(pod), queues.of(before)
        return queue_if(mine is not None and its is not None and mine.root is its.root)


def quota_rejection(pods: Collection[Pod], cluster: ClusterView) -> Unschedulable | None:
    """Return why the queues of these pods do not take all of them now; None if they do."""
    queues = cluster.queues
    by_queue = dict[int, list[Pod]]()
    for pod in pods:
        state, why = queues.membership(pod)
        if why is not None:
            return Unschedulable(shortened(why, _LONGEST))
        if state is not None:
            by_queue.setdefault(state.number, []).append(pod)
        if len(pods) > 1:
            pause()
    if not by_queue:
        return None
    with _with_nominated(by_queue, cluster):
        for number, members in by_queue.items():
            state = queues.numbered(number)
            if state is None:
                continue
            if (why := queues.lacking(state, demand_of(members))) is not None:
                return Unschedulable(shortened(why, _LONGEST), resolvable=True)
    return None


def used_at(slots: IntArray, cluster: ClusterView) -> Mapping[int, Mapping[str, int]]:
    """Return what the pods in these slots of the pod columns use, by queue and resource."""
    columns = cluster.pod_columns
    usage = dict[int, Counter[str]]()
    for slot in slots.tolist():
        pod, number = columns.pods[slot], int(columns.queues[slot])
        if pod is not None and number != NO_QUEUE:
            usage.setdefault(number, Counter()).update(demand_of((pod,)))
    return usage


def _with_nominated(by_queue: Mapping[int, Collection[Pod]], cluster: ClusterView) -> Any:
    """Return a context in which the pods that are nominated to a node count as there."""
    if not len(cluster.nominations):
        return nullcontext()
    queues, own = cluster.queues, {pod.uid for pods in by_queue.values() for pod in pods}
    lowest = {number: min(p.spec.priority for p in pods) for number, pods in by_queue.items()}
    usage = dict[int, Counter[str]]()
    for nominee in cluster.nominations:
        pod = nominee.pod
        number = queues.number_of(pod)
        is_other = nominee.reservation is None and pod.uid not in own
        if number == NO_QUEUE or not is_other or cluster.is_placed(pod):
            continue
        if pod.spec.priority < lowest.get(number, pod.spec.priority):
            continue
        less = usage.setdefault(number, Counter())
        less.subtract(demand_of((pod,)))
    return queues.without(usage)
