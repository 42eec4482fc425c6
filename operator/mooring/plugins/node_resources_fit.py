"""Checks that a pod's requests fit on a node, and scores its utilization (noderesources/)."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import gcd
from operator import floordiv
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field

from mooring.claims.device_counts import DeviceCounts
from mooring.claims.extended_resources import ClassesOfResources
from mooring.framework.handle import Handle
from mooring.framework.hints import QueueingHint, freed_node, queue_if
from mooring.framework.plugin import Normalize
from mooring.framework.scores import scores_by_percent
from mooring.framework.verdicts import Explanation
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.resources import CPU, MEMORY
from mooring.policy.name_syntax import QualifiedName, is_extended_resource
from mooring.policy.reading import PolicyModel
from mooring.policy.score_args import (
    CPU_AND_MEMORY,
    LESS_USED_FIRST,
    Resources,
    Shape,
    ShapePoint,
)
from mooring.state.cluster_view import ClusterView
from mooring.state.columns import IntArray, as_exact_floats
from mooring.state.usage import MOST_EXACT, FloatArray, Usage
from mooring.state.view import BoolArray, NodeView


class _ScoredResources(PolicyModel):
    resources: Resources = CPU_AND_MEMORY


class LeastAllocated(_ScoredResources):
    """Prefers nodes with a large share of free resources."""

    type: Literal["LeastAllocated"] = "LeastAllocated"


class MostAllocated(_ScoredResources):
    """Prefers nodes with a large share of requested resources."""

    type: Literal["MostAllocated"] = "MostAllocated"


class RatioParam(PolicyModel):
    """The function from utilization to score, for RequestedToCapacityRatio."""

    shape: Shape


class RequestedToCapacityRatio(_ScoredResources):
    """Scores by the profile's function of the utilization."""

    type: Literal["RequestedToCapacityRatio"] = "RequestedToCapacityRatio"
    requested_to_capacity_ratio: RatioParam


ScoringStrategy = Annotated[
    LeastAllocated | MostAllocated | RequestedToCapacityRatio, Field(discriminator="type")
]
"""The scoring strategies of NodeResourcesFit; the field `type` names one."""


def _without_slash(group: str) -> str:
    if "/" in group:
        raise ValueError(f'"{group}" must not contain "/": give the part before it')
    return group


class NodeResourcesFitArgs(PolicyModel):
    """Which resources the filter checks, and how nodes are scored."""

    ignored_resources: tuple[QualifiedName, ...] = ()
    """Extended resources that the filter does not check."""
    ignored_resource_groups: tuple[
        Annotated[QualifiedName, AfterValidator(_without_slash)], ...
    ] = ()
    """The filter does not check resources of these domains: `example.com` for example.com/gpu."""
    scoring_strategy: ScoringStrategy = LeastAllocated()


class NodeResourcesLeastAllocatedArgs(PolicyModel):
    """The resources whose free shares give the score of NodeResourcesLeastAllocated."""

    resources: Resources = CPU_AND_MEMORY


class NodeResourcesMostAllocatedArgs(PolicyModel):
    """The resources whose requested shares give the score of NodeResourcesMostAllocated."""

    resources: Resources = CPU_AND_MEMORY


class RequestedToCapacityRatioArgs(PolicyModel):
    """The resources and the function of their utilization for RequestedToCapacityRatio's score."""

    shape: Shape = LESS_USED_FIRST
    resources: Resources = CPU_AND_MEMORY


_ALWAYS_SCORED: Final = (CPU, MEMORY, "ephemeral-storage")
_USAGE: Final = {CPU, MEMORY}
_MAX: Final = 100
_LARGEST: Final = 2**56
"""The largest amount for arithmetic with int64: 100 times the sum of two amounts must fit. Larger
amounts are computed with Python's integers."""


class _Arithmetic(NamedTuple):
    """Functions for arithmetic with amounts, as int64 or as floats."""

    minimum: Callable[[Any, Any], Any]
    maximum: Callable[[Any, Any], Any]
    quotient: Callable[[Any, Any], Any]
    """Divides the first amount by the second, and rounds down; neither is negative."""


_ARRAYS: Final = _Arithmetic(np.minimum, np.maximum, floordiv)
_FLOATS: Final = _Arithmetic(np.minimum, np.maximum, lambda part, whole: np.floor(part / whole))
"""Floats are several times as fast as arrays of int64. They are exact for whole numbers up to
2**53, because the distance of a quotient from the next whole number is larger than its rounding
error."""

_Score = Callable[[Any, Any, _Arithmetic], Any]
"""A function that computes scores (0-100) from requested and allocatable amounts (not 0)."""
_ScoreOfUsage = Callable[[Usage, FloatArray], FloatArray]
"""A function that computes scores, float64[2, nodes], from the usage and the pod's requests. The
result is in `Usage.scratch`, so the next call overwrites it."""


@dataclass(frozen=True, slots=True)
class _Need:
    resources: Mapping[str, int]


class _AllocationScore:
    """Scores nodes by the share of resources that is requested (resource_allocation.go)."""

    depends_on_node_only: ClassVar[bool] = True
    runs_for_every_pod: ClassVar[bool] = True
    normalize: ClassVar[Normalize] = Normalize.NONE

    def __init__(
        self, strategy: ScoringStrategy, handle: Handle, devices: DeviceCounts | None = None
    ) -> None:
        """Score by `strategy`; `devices` tells how many devices nodes have for a resource."""
        self._pod_level = handle.kubernetes.pod_level_scored
        self._devices = devices
        self._scored = [(resource.name, resource.weight) for resource in strategy.resources]
        self._by_ratio = isinstance(strategy, RequestedToCapacityRatio)
        of_usage: _ScoreOfUsage | None = None
        match strategy:
            case LeastAllocated():
                self._score: _Score = _least_allocated
                of_usage = _least_of_usage
            case MostAllocated():
                self._score = _most_allocated
                of_usage = _most_of_usage
            case RequestedToCapacityRatio():
                self._score = _ratio(strategy.requested_to_capacity_ratio.shape)
        weights = dict(self._scored)
        self._of_usage: tuple[_ScoreOfUsage, tuple[int, int]] | None = None
        """The score function, and the weights of cpu and memory; None for other resources."""
        if of_usage is not None and len(self._scored) == len(weights) and {*weights} == _USAGE:
            common = gcd(*weights.values())
            self._of_usage = of_usage, (weights[CPU] // common, weights[MEMORY] // common)

    def score(self, pod: Pod, nodes: NodeView, _: None) -> IntArray:
        """Return int64[nodes], 0 to 100: the weighted mean over the strategy's resources."""
        wanted = pod.spec.demand.scored(pod_level=self._pod_level)
        exact = self._of_usage and max(wanted[CPU], wanted[MEMORY]) <= MOST_EXACT
        usage = nodes.usage if exact else None
        if usage is None or self._of_usage is None:
            return self._mean(wanted, nodes)
        means = self._mean_of_usage(usage, wanted, *self._of_usage)
        if len(usage.inexact):
            others = nodes.take(nodes.rows[usage.inexact])
            means[usage.inexact] = self._mean(wanted, others)
        return means

    def _mean_of_usage(
        self,
        usage: Usage,
        wanted: Mapping[str, int],
        score: _ScoreOfUsage,
        weights: tuple[int, int],
    ) -> IntArray:
        asked = np.array(((wanted[CPU],), (wanted[MEMORY],)), np.float64)
        scores = score(usage, asked)
        np.floor(scores, out=scores)
        total = scores[0]
        if weights != (1, 1):
            scores *= np.array(weights, np.float64)[:, None]
        total += scores[1]
        total /= sum(weights)
        means: IntArray = total.astype(np.int64)
        return means

    def _mean(self, wanted: Mapping[str, int], nodes: NodeView) -> IntArray:
        scored = [
            (name, amount, weight)
            for name, weight in self._scored
            if (amount := wanted.get(name, 0)) or name in _ALWAYS_SCORED
        ]
        if not scored:
            return np.zeros(len(nodes), np.int64)
        columns = [column for name, _, _ in scored for column in self._columns(name, nodes)]
        amounts = [amount for _, amount, _ in scored]
        floats = None if self._by_ratio else as_exact_floats(columns, _MAX, *amounts)
        if floats is not None:
            means: IntArray = self._weighted_mean(floats, scored, _FLOATS).astype(np.int64)
            return means
        columns = [np.maximum(column, 0) for column in columns]
        if max(*amounts, *(column.max(initial=0) for column in columns)) > _LARGEST:
            columns = [column.astype(object) for column in columns]  # Python's exact numbers
        return np.array(self._weighted_mean(columns, scored, _ARRAYS), np.int64)

    def _columns(self, resource: str, nodes: NodeView) -> tuple[IntArray, IntArray]:
        if self._devices is not None and "/" in resource:
            return self._devices.columns(resource, nodes)
        return nodes.allocatable(resource), nodes.requested_scored(resource)

    def _weighted_mean(
        self,
        amounts: Sequence[Any],
        scored: Sequence[tuple[str, int, int]],
        by: _Arithmetic,
    ) -> Any:
        total: Any = 0
        weights: Any = 0
        # `amounts` alternates each resource's allocatable and requested amounts.
        pairs = zip(amounts[::2], amounts[1::2], strict=True)
        for (allocatable, requested), (_, amount, weight) in zip(pairs, scored, strict=True):
            counts = allocatable > 0
            some = by.maximum(allocatable, 1)
            score = self._score(requested + amount, some, by)
            if self._by_ratio:
                counts = counts & (score > 0)
            counted = weight * counts
            total = total + score * counted
            weights = weights + counted
        weights = by.maximum(weights, 1)
        return (total / weights + 0.5) // 1 if self._by_ratio else by.quotient(total, weights)


class NodeResourcesFit(_AllocationScore):
    """Rejects nodes without enough free resources, and scores by the profile's strategy."""

    name: ClassVar[str] = "NodeResourcesFit"
    Args: ClassVar[type[NodeResourcesFitArgs]] = NodeResourcesFitArgs
    events_to_register: ClassVar[frozenset[tuple[Kind, Action]]] = frozenset(
        {
            (Kind.POD, Action.DELETE),
            (Kind.POD, Action.UPDATE),
            (Kind.NODE, Action.ADD),
            (Kind.NODE, Action.UPDATE),
            (Kind.DEVICE_CLASS, Action.ADD),
            (Kind.DEVICE_CLASS, Action.UPDATE),
        }
    )

    def __init__(self, args: NodeResourcesFitArgs, handle: Handle) -> None:
        scored = (resource.name for resource in args.scoring_strategy.resources)
        self._counts = DeviceCounts(handle, scored)
        super().__init__(args.scoring_strategy, handle, self._counts)
        self._classes = ClassesOfResources(handle)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)

    def pre_filter(self, pod: Pod, _cluster: ClusterView) -> _Need:
        """Return the pod's requests, without the resources that the profile ignores."""
        demand = pod.spec.demand.resources
        if not (self._ignored or self._ignored_groups):
            return _Need(demand)
        return _Need({name: amount for name, amount in demand.items() if not self._ignores(name)})

    def filter(self, _pod: Pod, nodes: NodeView, need: _Need) -> BoolArray:
        """Return bool[nodes]: True where a pod slot and every requested amount are free.

        A node that does not offer the resource of a DeviceClass passes: DynamicResources checks the
        node's devices.
        """
        fits = nodes.pod_count < nodes.pod_slots
        for resource, amount in need.resources.items():
            offered = nodes.allocatable(resource)
            free = amount <= offered - nodes.requested(resource)
            fits &= free | (offered == 0) if self._classes.has(resource) else free
        return fits

    def resource_requests(self, need: _Need) -> Mapping[str, int]:
        """Return the amounts that must be free on the node, besides room for one more pod.

        Resources of a DeviceClass are left out, because nodes with devices need not offer them.
        """
        if not any(map(self._classes.has, need.resources)):
            return need.resources
        has_class = self._classes.has
        return {name: amount for name, amount in need.resources.items() if not has_class(name)}

    def devices_version(self, pod: Pod) -> Hashable:
        """Return a value that changes when the devices for the pod's resources may have changed."""
        return self._classes.of_pod(pod), self._counts.version(pod)

    def explain(self, _pod: Pod, nodes: NodeView, need: _Need) -> Explanation:
        """Return the resources that each node lacks; no eviction helps if the node is too small."""
        resolvable = np.ones(len(nodes), np.bool_)
        lacking: list[tuple[str, BoolArray]] = []
        for resource, amount in need.resources.items():
            offered = nodes.allocatable(resource)
            counts = offered > 0 if self._classes.has(resource) else np.ones(len(nodes), np.bool_)
            resolvable &= ~counts | (amount <= offered)
            short = counts & (amount > offered - nodes.requested(resource))
            lacking.append((f"Insufficient {resource}", short))
        too_many_pods = ("Too many pods", nodes.pod_count >= nodes.pod_slots)
        return Explanation.from_masks(chain((too_many_pods,), lacking), resolvable=resolvable)

    def queueing_hint(self, pod: Pod, event: ClusterEvent, cluster: ClusterView) -> QueueingHint:
        """Return QUEUE if a node has more free resources and the pod fits, now or after evictions.

        Returns QUEUE, too, if the pod's nominated node is now too small: the pod may preempt on
        another node.
        """
        if event.kind is Kind.DEVICE_CLASS:
            return queue_if(self._classes.may_help(pod, event))
        need = self.pre_filter(pod, cluster).resources
        if self._has_outgrown_nominee(pod, event, cluster, need):
            return QueueingHint.QUEUE
        name = _grown(event, need)
        if isinstance(event.after, Node) and len(self._counted(need, event.after)) < len(need):
            name = event.after.name
        row = cluster.row(name) if name is not None else None
        known = cluster.node(row) if row is not None else None
        if row is None or known is None:
            # As in kube-scheduler, the deleted pod's node may be unknown.
            pod_deleted = isinstance(event.before, Pod) and event.after is None
            return queue_if(pod_deleted and name is not None)
        need = self._counted(need, known)
        if not _is_large_enough(known, need):
            return QueueingHint.SKIP
        if cluster.fits_requests(row, need):
            return QueueingHint.QUEUE
        others = (placed.pod for placed in cluster.pods_on(row) if not placed.pod.terminating)
        return queue_if(
            pod.spec.preempts and any(p.spec.priority < pod.spec.priority for p in others)
        )

    def _has_outgrown_nominee(
        self, pod: Pod, event: ClusterEvent, cluster: ClusterView, need: Mapping[str, int]
    ) -> bool:
        before, after = event.before, event.after
        nominee = cluster.nominations.get(pod.uid)
        if nominee is None or not (isinstance(before, Node) and isinstance(after, Node)):
            return False
        # As in kube-scheduler: devices disappear for a moment when their plugin restarts.
        lacks = any(need.get(name, 0) > after.allocatable.get(name, 0) for name in _ALWAYS_SCORED)
        is_there = cluster.nodes.name(nominee.row) == after.name
        return is_there and lacks and _is_large_enough(before, self._counted(need, before))

    def _counted(self, need: Mapping[str, int], node: Node) -> Mapping[str, int]:
        # Without the resources that only devices offer on this node.
        offered, has_class = node.allocatable, self._classes.has
        return {n: amount for n, amount in need.items() if offered.get(n) or not has_class(n)}

    def _ignores(self, resource: str) -> bool:
        group, _, _ = resource.partition("/")
        ignored = resource in self._ignored or group in self._ignored_groups
        return ignored and is_extended_resource(resource)


class NodeResourcesLeastAllocated(_AllocationScore):
    """Scores nodes like the older LeastRequestedPriority, independently of NodeResourcesFit."""

    name: ClassVar[str] = "NodeResourcesLeastAllocated"
    Args: ClassVar[type[NodeResourcesLeastAllocatedArgs]] = NodeResourcesLeastAllocatedArgs

    def __init__(self, args: NodeResourcesLeastAllocatedArgs, handle: Handle) -> None:
        super().__init__(LeastAllocated(resources=args.resources), handle)


class NodeResourcesMostAllocated(_AllocationScore):
    """Scores nodes like the older MostRequestedPriority, independently of NodeResourcesFit."""

    name: ClassVar[str] = "NodeResourcesMostAllocated"
    Args: ClassVar[type[NodeResourcesMostAllocatedArgs]] = NodeResourcesMostAllocatedArgs

    def __init__(self, args: NodeResourcesMostAllocatedArgs, handle: Handle) -> None:
        super().__init__(MostAllocated(resources=args.resources), handle)


class RequestedToCapacityRatioScore(_AllocationScore):
    """Scores nodes like the older RequestedToCapacityRatioPriority."""

    name: ClassVar[str] = "RequestedToCapacityRatio"
    Args: ClassVar[type[RequestedToCapacityRatioArgs]] = RequestedToCapacityRatioArgs

    def __init__(self, args: RequestedToCapacityRatioArgs, handle: Handle) -> None:
        ratio = RatioParam(shape=args.shape)
        strategy = RequestedToCapacityRatio(
            resources=args.resources, requested_to_capacity_ratio=ratio
        )
        super().__init__(strategy, handle)


def _grown(event: ClusterEvent, wanted: Iterable[str]) -> str | None:
    """Return the name of the node on which the event may have freed `wanted` resources."""
    match event.before, event.after:
        case Pod() as gone, None:
            return freed_node(gone)
        case Pod() as before, Pod() as after:
            held, kept = before.spec.demand.resources, after.spec.demand.resources
            shrunk = any(kept.get(name, 0) < held.get(name, 0) for name in wanted)
            return after.node_name if shrunk else None
        case Node() as before, Node() as after:
            had, has = before.allocatable, after.allocatable
            more = any(has.get(name, 0) > had.get(name, 0) for name in wanted)
            return after.name if more or after.pod_slots > before.pod_slots else None
        case _, Node() as after:
            return after.name
        case _:
            return None


def _is_large_enough(node: Node, need: Mapping[str, int]) -> bool:
    if not node.pod_slots:
        return False
    return all(amount <= node.allocatable.get(name, 0) for name, amount in need.items())


def _least_allocated(requested: Any, allocatable: Any, by: _Arithmetic) -> Any:
    # As in least_allocated.go.
    return by.quotient(by.maximum(allocatable - requested, 0) * _MAX, allocatable)


def _least_of_usage(usage: Usage, asked: FloatArray) -> FloatArray:
    score = np.subtract(usage.left_scored, asked, out=usage.scratch)
    np.maximum(score, 0.0, out=score)
    score *= _MAX
    score /= usage.offered
    return score


def _most_of_usage(usage: Usage, asked: FloatArray) -> FloatArray:
    score = np.subtract(usage.offered, usage.left_scored, out=usage.scratch)
    score += asked
    np.minimum(score, usage.offered, out=score)
    score *= _MAX
    score /= usage.offered
    return score


def _most_allocated(requested: Any, allocatable: Any, by: _Arithmetic) -> Any:
    # As in most_allocated.go.
    return by.quotient(by.minimum(requested, allocatable) * _MAX, allocatable)


def _ratio(shape: tuple[ShapePoint, ...]) -> _Score:
    # As in requested_to_capacity_ratio.go.
    by_percent = scores_by_percent(shape)

    def score(requested: Any, allocatable: Any, by: _Arithmetic) -> Any:
        return by_percent[_most_allocated(requested, allocatable, by).astype(np.int64)]

    return score
