"""Prefers nodes whose resources are used evenly (noderesources/balanced_allocation.go)."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from mooring.framework.device_counts import DeviceCounts
from mooring.framework.handle import Handle
from mooring.framework.plugin import Normalize
from mooring.framework.verdicts import SKIP, Skip
from mooring.model.pod import Pod
from mooring.policy.args import NodeResourcesBalancedAllocationArgs
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray, as_numbers
from mooring.state.view import NodeView

__all__ = ["NodeResourcesBalancedAllocation"]

_ALWAYS_SCORED: Final = ("cpu", "memory", "ephemeral-storage")

_Floats = npt.NDArray[np.float64]


class NodeResourcesBalancedAllocation:
    """Scores whether the node's resources are used more evenly with the pod than without it."""

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    depends_on_node_only: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.NONE
    Args: ClassVar[type[NodeResourcesBalancedAllocationArgs]] = NodeResourcesBalancedAllocationArgs

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        self._resources = [resource.name for resource in args.resources]
        self._compared = handle.kubernetes.balance_compared
        self._devices = DeviceCounts(handle, self._resources)

    def pre_score(self, pod: Pod, _nodes: NodeView, _cluster: ClusterView) -> Skip | None:
        """Return SKIP for a pod that requests none of the resources; the score needs no state."""
        demand = pod.spec.demand.resources
        return None if any(demand.get(resource) for resource in self._resources) else SKIP

    def devices_version(self, pod: Pod) -> Hashable:
        """Return what the devices depend on that are counted for the pod."""
        return self._devices.version(pod)

    def score(self, pod: Pod, nodes: NodeView, _: None) -> IntArray:
        """Return int64[nodes], 50 to 100; 75 where the pod does not change the balance.

        By the rules before 1.36 it is the evenness with the pod alone.
        """
        demand = pod.spec.demand.resources
        columns = [
            (*self._devices.columns(resource, nodes), float(amount))
            for resource, amount in ((name, demand.get(name, 0)) for name in self._resources)
            if amount or resource in _ALWAYS_SCORED
        ]
        if self._compared and len(columns) == 2 and (gains := _gains_of_two(columns)) is not None:
            return np.array([50 + (50 + gain) // 2 for gain in gains], np.int64)
        offered = [allocatable for allocatable, _, _ in columns]
        before: list[_Floats] = []
        after: list[_Floats] = []
        for allocatable, requested, more in columns:
            some = np.maximum(allocatable, 1.0)
            # As floats: the request of a pod that fits nowhere may be as large as int64 allows.
            used = requested.astype(np.float64)
            before.append(_fraction(used, some))
            after.append(_fraction(used + more, some))
        evenness = _of_two if len(offered) == 2 and _all_offered(offered) else _of_any
        even = evenness(after, offered)
        return 50 + ((50 + even - evenness(before, offered)) >> 1) if self._compared else even


def _gains_of_two(columns: Sequence[tuple[IntArray, IntArray, float]]) -> list[int] | None:
    """Return how much more evenly a few nodes are used with the pod; None if arrays are needed.

    Each column is what is allocatable and requested, and the pod's request.
    """
    (*_, amount), (*_, other_amount) = columns
    numbers = as_numbers([column for pair in columns for column in pair[:2]])
    if numbers is None:
        return None
    gains: list[int] = []
    for first, used, second, other_used in zip(*numbers, strict=True):
        if not first or not second:
            return None
        before = abs(min(used / first, 1.0) - min(other_used / second, 1.0))
        share = min((used + amount) / first, 1.0)
        after = abs(share - min((other_used + other_amount) / second, 1.0))
        gains.append(int((1 - after / 2) * 100) - int((1 - before / 2) * 100))
    return gains


def _fraction(used: _Floats, offered: _Floats) -> _Floats:
    """Return float64[nodes]: how much of what a node offers (not 0) is used, at most 1."""
    fraction = used / offered
    return np.minimum(fraction, 1.0, out=fraction)


def _all_offered(offered: Sequence[IntArray]) -> bool:
    return all(bool(amounts.all()) for amounts in offered)


def _percent(deviation: _Floats) -> IntArray:
    return ((1 - deviation) * 100).astype(np.int64)


def _of_two(fractions: Sequence[_Floats], _offered: Sequence[IntArray]) -> IntArray:
    """Return the evenness of two fractions, whose standard deviation is half their distance."""
    return _percent(np.abs(fractions[0] - fractions[1]) / 2)


def _of_any(fractions: Sequence[_Floats], offered: Sequence[IntArray]) -> IntArray:
    """Return int((1 - standard deviation) * 100) over the resources that a node offers at all."""
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
    return _percent(np.where(number < 2, 0.0, deviation))
