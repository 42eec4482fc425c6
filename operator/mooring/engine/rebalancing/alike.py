"""Finds the running pods of a profile, and which of them are decided about alike."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from mooring.engine.rebalancing.movable import labels_anew, owner_of
from mooring.model.node import REGION, ZONE, Node
from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.state.cluster_view import ClusterView

__all__ = ["AlikePods", "alike_pods"]

_MOST_TOGETHER: Final = 2_000
"""Pods of a class that one plan looks at together."""

_Labels = dict[tuple[int, str | None, str | None], Hashable]


@dataclass(frozen=True, slots=True)
class AlikePods:
    """Pods that differ in nothing that decisions read, in a stable order.

    `position` orders the classes. A class keeps it as long as the pod that is its first remains.
    """

    position: int
    pods: tuple[Pod, ...]


def alike_pods(takes: Callable[[Pod], bool], cluster: ClusterView) -> list[AlikePods]:
    """Return the pods on nodes that `takes` returns True for, by class, in the order of positions.

    A pod with volumes or claims is alone, as these are its own; a large class is divided.
    """
    classes: dict[Hashable, tuple[list[int], list[Pod]]] = {}
    labels: _Labels = {}
    for pod in cluster.pod_columns.pods:
        pause()
        placed = cluster.pod(pod.uid) if pod is not None else None
        if pod is None or placed is None or placed.pod is not pod:
            continue  # a nominated pod has a slot too
        node = cluster.node(placed.row)
        if node is not None and takes(pod):
            numbers, pods = classes.setdefault(_key(pod, node, labels), ([], []))
            numbers.append(_number(pod.uid))
            pods.append(pod)
    found = list[AlikePods]()
    for members in classes.values():
        pause()
        found += _in_order(*members)
    order = np.argsort(np.array([each.position for each in found], np.int64), kind="stable")
    return [found[index] for index in order.tolist()]


def _in_order(numbers: list[int], pods: list[Pod]) -> list[AlikePods]:
    """Return the pods of a class in the order of their numbers, in parts of a bounded size."""
    if len(pods) == 1:
        return [AlikePods(numbers[0], (pods[0],))]
    order = np.argsort(np.array(numbers, np.int64), kind="stable").tolist()
    return [
        AlikePods(numbers[part[0]], tuple(pods[index] for index in part))
        for start in range(0, len(order), _MOST_TOGETHER)
        if (part := order[start : start + _MOST_TOGETHER])
    ]


def _key(pod: Pod, node: Node, labels: _Labels) -> Hashable:
    """Return what pods have in common that are decided about alike."""
    if pod.volumes or pod.spec.resource_claims or pod.extended_resource_claim is not None:
        return pod.uid
    # Most pods share their labels with others of their template and zone.
    shared = id(pod.labels), node.labels.get(ZONE), node.labels.get(REGION)
    known = labels.get(shared)
    if known is None:
        known = labels[shared] = frozenset(labels_anew(pod, node).items())
    return pod.spec, owner_of(pod), known, pod.longest_run


def _number(uid: str) -> int:
    """Return a number of 63 bits that depends on the uid alone."""
    return int.from_bytes(blake2b(uid.encode(), digest_size=8).digest()) >> 1
