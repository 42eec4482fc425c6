"""Prefers nodes whose resources are used evenly (noderesources/balanced_allocation.go)."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from mooring.claims.device_counts import DeviceCounts
from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.verdicts import SKIP, Skip
from mooring.model.pod import Pod
from mooring.model.resources import CPU, MEMORY
from mooring.policy.profile_errors import FieldError
from mooring.policy.reading import PolicyModel
from mooring.policy.score_args import (
    CPU_AND_MEMORY,
    Resources,
)
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray
from mooring.state.usage import MOST_EXACT, Usage, evenness_of_two
from mooring.state.view import NodeView


class NodeResourcesBalancedAllocationArgs(PolicyModel):
    """The resources of a node that should be used to the same degree."""

    resources: Resources = CPU_AND_MEMORY

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for a resource that is listed twice or has a weight other than 1."""
        seen = set[str]()
        for number, resource in enumerate(self.resources):
            if resource.name in seen:
                yield FieldError(f"resources[{number}].name", f'"{resource.name}" is there twice')
            if resource.weight != 1:
                yield FieldError(f"resources[{number}].weight", f"must be 1, got {resource.weight}")
            seen.add(resource.name)


_ALWAYS_SCORED: Final = (CPU, MEMORY, "ephemeral-storage")
_USAGE: Final = {CPU, MEMORY}
_TWICE_UNCHANGED: Final = 150
"""Twice the score of a node whose balance stays the same. The score of a node is
(150 + with pod - without pod) / 2, rounded down; both parts are scores of the balance, 0 to 100."""

_Floats = npt.NDArray[np.float64]


class NodeResourcesBalancedAllocation:
    """Scores nodes by how much more evenly their resources are used with the pod than before."""

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    depends_on_node_only: ClassVar[bool] = True
    runs_for_every_pod: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[NodeResourcesBalancedAllocationArgs]] = NodeResourcesBalancedAllocationArgs

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        self._resources = [resource.name for resource in args.resources]
        self._of_usage = {*self._resources} == _USAGE
        """Whether the scored resources are cpu and memory, so that `nodes.usage` can be used."""
        self._compared = handle.kubernetes.balance_compared
        self._devices = DeviceCounts(handle, self._resources)

    def pre_score(self, pod: Pod, _nodes: NodeView, _cluster: ClusterView) -> Skip | None:
        """Return SKIP for a pod that requests none of the resources; the score needs no state."""
        demand = pod.spec.demand.resources
        return None if any(demand.get(resource) for resource in self._resources) else SKIP

    def devices_version(self, pod: Pod) -> Hashable:
        """Return a value that changes when the devices for the pod's resources may have changed."""
        return self._devices.version(pod)

    def score(self, pod: Pod, nodes: NodeView, _: None) -> IntArray:
        """Return int64[nodes], 50 to 100; 75 if the pod does not change the node's balance.

        Before Kubernetes 1.36, the score is the balance of the node with the pod.
        """
        demand = pod.spec.demand.resources
        cpu, memory = demand.get(CPU, 0), demand.get(MEMORY, 0)
        usage = nodes.usage if self._of_usage and max(cpu, memory) <= MOST_EXACT else None
        if usage is None:
            return self._score(demand, nodes)
        scores = self._score_of_usage(usage, cpu, memory)
        if len(usage.inexact):
            others = nodes.take(nodes.rows[usage.inexact])
            scores[usage.inexact] = self._score(demand, others)
        return scores

    def _score_of_usage(self, usage: Usage, cpu: int, memory: int) -> IntArray:
        asked = np.array(((cpu,), (memory,)), np.float64)
        shares = np.add(usage.requested, asked, out=usage.scratch)
        shares /= usage.offered
        np.minimum(shares, 1.0, out=shares)
        even = evenness_of_two(shares).astype(np.int64)
        if self._compared:
            even += _TWICE_UNCHANGED
            even -= usage.evenness
            even >>= 1
        return even

    def _score(self, demand: Mapping[str, int], nodes: NodeView) -> IntArray:
        offered: list[IntArray] = []
        before: list[_Floats] = []
        after: list[_Floats] = []
        for resource in self._resources:
            more = float(demand.get(resource, 0))
            if not more and resource not in _ALWAYS_SCORED:
                continue
            allocatable, requested = self._devices.columns(resource, nodes)
            some = np.maximum(allocatable, 1.0)
            # As floats: the request of a pod that fits nowhere may be as large as int64 allows.
            used = requested.astype(np.float64)
            offered.append(allocatable)
            before.append(_fraction(used, some))
            after.append(_fraction(used + more, some))
        even = _evenness(after, offered)
        return 50 + ((50 + even - _evenness(before, offered)) >> 1) if self._compared else even


def _fraction(used: _Floats, offered: _Floats) -> _Floats:
    # `offered` has no 0.
    fraction = used / offered
    return np.minimum(fraction, 1.0, out=fraction)


def _evenness(fractions: Sequence[_Floats], offered: Sequence[IntArray]) -> IntArray:
    """Return, for each node, 100 * (1 - standard deviation of its fractions), rounded down."""
    # Resources that a node does not offer are not counted there.
    counted = [amounts > 0 for amounts in offered]
    number = np.sum(counted, axis=0, dtype=np.int64, initial=0)
    pairs = list(zip(fractions, counted, strict=True))
    zeros = np.zeros(number.shape)
    mean = sum((np.where(c, f, 0.0) for f, c in pairs), zeros) / np.maximum(number, 1)
    squares = sum((np.where(c, (f - mean) * (f - mean), 0.0) for f, c in pairs), zeros)
    deviation = np.sqrt(squares / np.maximum(number, 1))
    if len(pairs) >= 2:
        # kube-scheduler takes half the difference of two; the general formula may round otherwise.
        highest = np.max([np.where(c, f, 0.0) for f, c in pairs], axis=0)
        lowest = np.min([np.where(c, f, 1.0) for f, c in pairs], axis=0)
        deviation = np.where(number == 2, (highest - lowest) / 2, deviation)
    return ((1 - np.where(number < 2, 0.0, deviation)) * 100).astype(np.int64)
