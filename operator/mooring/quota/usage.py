"""Computes how much of their Queues' quota is used by placed and nominated pods."""

from collections import Counter
from collections.abc import Collection

import numpy as np

from mooring.claims.model.device_classes import CLASS_PREFIX
from mooring.model.indexes import add_count
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.quota.model.queue import PODS
from mooring.quota.state.claim_users import named_claims
from mooring.quota.state.queues import Usage, demand_of
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.pods import NO_QUEUE


def used_at(slots: IntArray, cluster: ClusterView) -> Usage:
    """Return how much quota the pods in these slots of the pod columns use, by Queue."""
    columns, queues = cluster.pod_columns, cluster.queues
    slots = slots[columns.queues[slots] != NO_QUEUE]
    numbers, at, pods = np.unique(columns.queues[slots], return_inverse=True, return_counts=True)
    sums = {PODS: pods}
    for resource in queues.resources.intersection(columns.resources) if len(slots) else ():
        sums[resource] = np.zeros(len(numbers), np.int64)
        np.add.at(sums[resource], at, columns.requests(resource)[slots])
    usage = {
        number: Counter({resource: int(total[i]) for resource, total in sums.items()})
        for i, number in enumerate(numbers.tolist())
    }
    if any(resource.startswith(CLASS_PREFIX) for resource in queues.resources):
        for slot in slots.tolist():
            pause()
            if (pod := columns.pods[slot]) is not None:
                usage[int(columns.queues[slot])].update(named_claims(pod))
    return usage


def leaving_usage(numbers: Collection[int], cluster: ClusterView) -> Usage:
    """Return how much quota the leaving pods of these Queues use, by number of the Queue.

    Leaving pods are terminating, or this scheduler is evicting them.
    """
    columns = cluster.pod_columns
    leaving = columns.leaving & ~columns.nominated & np.isin(columns.queues, [*numbers])
    return used_at(np.flatnonzero(leaving), cluster)


def nominated_usage(pods: Collection[Pod], cluster: ClusterView) -> Usage:
    """Return how much quota, by number of the Queue, `pods` must leave free for nominated pods.

    These nominated pods do not count: pods of lower priority in the same Queue, pods with reserved
    nodes, and `pods` themselves.
    """
    if not len(cluster.nominations):
        return {}
    queues, nominations, lowest = cluster.queues, cluster.nominations, dict[int, int]()
    for pod in pods:
        number, priority = queues.number_of(pod), pod.spec.priority
        lowest[number] = min(priority, lowest.get(number, priority))
    usage = dict[int, Counter[str]]()
    for (number, priority), amounts in nominations.queued.items():
        if priority >= lowest.get(number, priority):
            usage.setdefault(number, Counter()).update(amounts)
    for pod in pods:
        nominee, number = nominations.get(pod.uid), nominations.queue_of(pod.uid)
        if nominee is not None and number in usage:
            for resource, amount in demand_of((nominee.pod,)).items():
                add_count(usage[number], resource, -amount)
    return {number: amounts for number, amounts in usage.items() if amounts}
