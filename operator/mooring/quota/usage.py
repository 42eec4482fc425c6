"""Computes what placed and nominated pods use of their queues."""

from collections import Counter
from collections.abc import Collection, Mapping

from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.quota.state.queues import NO_QUEUE, demand_of
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray

_PODS_PER_PAUSE = 512


def used_at(slots: IntArray, cluster: ClusterView) -> Mapping[int, Counter[str]]:
    """Return what the pods in these slots of the pod columns use, by queue and resource."""
    columns = cluster.pod_columns
    usage = dict[int, Counter[str]]()
    for count, slot in enumerate(slots.tolist()):
        pod, number = columns.pods[slot], int(columns.queues[slot])
        if pod is not None and number != NO_QUEUE:
            usage.setdefault(number, Counter()).update(demand_of((pod,)))
        if count % _PODS_PER_PAUSE == 0:
            pause()
    return usage


def nominated_usage(pods: Collection[Pod], cluster: ClusterView) -> Mapping[int, Counter[str]]:
    """Return the usage of the nominated pods that these pods must not displace.

    It does not count the given pods, pods of the same queue with lower priority, and pods that have
    reserved nodes.
    """
    usage = dict[int, Counter[str]]()
    if not len(cluster.nominations):
        return usage
    queues, own, lowest = cluster.queues, {pod.uid for pod in pods}, dict[int, int]()
    for pod in pods:
        number, priority = queues.number_of(pod), pod.spec.priority
        lowest[number] = min(priority, lowest.get(number, priority))
    for nominee in cluster.nominations:
        pod, number = nominee.pod, queues.number_of(nominee.pod)
        if number == NO_QUEUE or nominee.reservation is not None or pod.uid in own:
            continue
        if pod.spec.priority >= lowest.get(number, pod.spec.priority) and not cluster.is_placed(
            pod
        ):
            usage.setdefault(number, Counter()).update(demand_of((pod,)))
    return usage
