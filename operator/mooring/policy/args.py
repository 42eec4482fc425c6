"""The arguments of kube-scheduler's plugins, with kube-scheduler's defaults and rules.

Source: staging `kube-scheduler/config/v1/types_pluginargs.go`, `apis/config/v1/defaults.go` and
`apis/config/validation/validation_pluginargs.go` of v1.36.3.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from mooring.policy.durations import Duration
from mooring.policy.label_selectors import NodeAffinity
from mooring.policy.name_syntax import QualifiedName
from mooring.policy.profile_errors import FieldError, ProfileInvalid
from mooring.policy.reading import PolicyModel


class DefaultPreemptionArgs(PolicyModel):
    """How many candidate nodes preemption compares before it chooses one."""

    min_candidate_nodes_percentage: int = Field(10, ge=0, le=100)
    """The fewest candidates to find, as a percentage of all nodes."""
    min_candidate_nodes_absolute: int = Field(100, ge=0, le=2**31 - 1)
    """The fewest candidates to find, as a number; the larger of the two applies."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake if both are zero: preemption would look for no candidate."""
        percentage, absolute = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
        if self.min_candidate_nodes_percentage == self.min_candidate_nodes_absolute == 0:
            yield FieldError(percentage, f"must not be 0 when {absolute} is 0 too")
            yield FieldError(absolute, f"must not be 0 when {percentage} is 0 too")


class InterPodAffinityArgs(PolicyModel):
    """How inter-pod affinity scores."""

    hard_pod_affinity_weight: int = Field(1, ge=0, le=100)
    """The weight of an existing pod's required affinity to the incoming pod in a score."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Score by the incoming pod's own preferred terms only."""


class ShapePoint(PolicyModel):
    """A point of a piecewise linear score function."""

    utilization: int = Field(ge=0, le=100)
    """Percentage of a node's capacity."""
    score: int = Field(ge=0, le=10)


def _rising(shape: tuple[ShapePoint, ...]) -> tuple[ShapePoint, ...]:
    for number, (before, point) in enumerate(pairwise(shape), start=1):
        if before.utilization >= point.utilization:
            message = f"must be more than {before.utilization}, the one before it, "
            message += f"got {point.utilization}"
            raise ProfileInvalid([FieldError(f"[{number}].utilization", message)])
    return shape


Shape = Annotated[tuple[ShapePoint, ...], Field(min_length=1), AfterValidator(_rising)]
"""The points of a score function, at least one; each has a higher utilization than the last."""


LESS_USED_FIRST: Final = (
    ShapePoint(utilization=0, score=10),
    ShapePoint(utilization=100, score=0),
)
"""The shape by which a node with less utilization has a higher score."""


class ResourceSpec(PolicyModel):
    """A resource and its weight in a score."""

    name: str = Field(min_length=1)
    weight: Annotated[int, Field(ge=0, le=100), AfterValidator(lambda weight: weight or 1)] = 1
    """1 to 100; 0 means the default, 1."""


CPU_AND_MEMORY: Final = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))
"""The resources that kube-scheduler scores by default."""

Resources = Annotated[
    tuple[ResourceSpec, ...], AfterValidator(lambda given: given or CPU_AND_MEMORY)
]
"""The resources to score; an empty list means cpu and memory."""


class _ScoredResources(PolicyModel):
    resources: Resources = CPU_AND_MEMORY


class LeastAllocated(_ScoredResources):
    """A node gets a higher score the more of its resources are free."""

    type: Literal["LeastAllocated"] = "LeastAllocated"


class MostAllocated(_ScoredResources):
    """A node gets a higher score the more of its resources are requested."""

    type: Literal["MostAllocated"] = "MostAllocated"


class RatioParam(PolicyModel):
    """The function from utilization to score."""

    shape: Shape


class RequestedToCapacityRatio(_ScoredResources):
    """A score by a function of the utilization."""

    type: Literal["RequestedToCapacityRatio"] = "RequestedToCapacityRatio"
    requested_to_capacity_ratio: RatioParam


ScoringStrategy = Annotated[
    LeastAllocated | MostAllocated | RequestedToCapacityRatio, Field(discriminator="type")
]
"""How NodeResourcesFit scores; `type` names the strategy."""


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
    """Domains of resources that the filter does not check: `example.com` for example.com/gpu."""
    scoring_strategy: ScoringStrategy = LeastAllocated()


class NodeResourcesBalancedAllocationArgs(PolicyModel):
    """Which resources of a node should be used to the same degree."""

    resources: Resources = CPU_AND_MEMORY

    def mistakes(self) -> Iterator[FieldError]:
        """Yield a mistake for a resource that occurs twice or with another weight than 1."""
        seen = set[str]()
        for number, resource in enumerate(self.resources):
            if resource.name in seen:
                yield FieldError(f"resources[{number}].name", f'"{resource.name}" is there twice')
            if resource.weight != 1:
                yield FieldError(f"resources[{number}].weight", f"must be 1, got {resource.weight}")
            seen.add(resource.name)


class DefaultConstraint(PolicyModel):
    """A topology spread constraint for pods that have none of their own."""

    unsupported: ClassVar[Mapping[str, str]] = {
        "labelSelector": "must not be set: it is derived from each pod's Services and owner",
        "matchLabelKeys": "must not be set: a default constraint has no labelSelector to narrow",
    }

    max_skew: int = Field(ge=1, le=2**31 - 1)
    topology_key: QualifiedName
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: int | None = Field(None, ge=1, le=2**31 - 1)
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None


class PodTopologySpreadArgs(PolicyModel):
    """Constraints for pods that have none of their own."""

    default_constraints: tuple[DefaultConstraint, ...] = ()
    defaulting_type: Literal["System", "List"] = "System"
    """System: kube-scheduler's built-in constraints; List: those of `defaultConstraints`."""

    def mistakes(self) -> Iterator[FieldError]:
        """Yield mistakes: System with a list; a topology key twice for one whenUnsatisfiable."""
        if self.defaulting_type == "System" and self.default_constraints:
            yield FieldError("defaultingType", "must be List where defaultConstraints are given")
        seen = set[tuple[str, str]]()
        for number, constraint in enumerate(self.default_constraints):
            key = (constraint.topology_key, constraint.when_unsatisfiable)
            if key in seen:
                yield FieldError(
                    f"defaultConstraints[{number}]", f"{key[0]} with {key[1]} is there twice"
                )
            seen.add(key)


class VolumeBindingArgs(PolicyModel):
    """The time limit for binding a pod's volumes, and the score of nodes by their storage."""

    bind_timeout_seconds: int = Field(600, ge=0)
    """After this time the pod is forgotten on its node and queued again; 0: it does not wait."""
    shape: Annotated[
        tuple[ShapePoint, ...],
        AfterValidator(_rising),
        AfterValidator(lambda given: given or LESS_USED_FIRST),
    ] = LESS_USED_FIRST
    """The function from the share of the storage that the pod's claims request to the score; an
    empty list means the default. It counts with the rules of Kubernetes 1.37 and newer."""


class NodeAffinityArgs(PolicyModel):
    """Node affinity that is added to each pod's own."""

    added_affinity: NodeAffinity | None = None


class DynamicResourcesArgs(PolicyModel):
    """How long devices may take to be bound to a node."""

    filter_timeout: Duration = timedelta(seconds=10)
    """Without effect: a search for devices ends after a number of steps."""
    binding_timeout: Duration = timedelta(seconds=600)

    def mistakes(self) -> Iterator[FieldError]:
        """Yield mistakes: a negative timeout; one for binding of less than a second."""
        if self.filter_timeout < timedelta(0):
            yield FieldError("filterTimeout", "must be 0s or more")
        if self.binding_timeout < timedelta(seconds=1):
            yield FieldError("bindingTimeout", "must be 1s or more")


KUBE_SCHEDULER_ARGS: Final[Mapping[str, type[PolicyModel]]] = {
    "DefaultPreemption": DefaultPreemptionArgs,
    "DynamicResources": DynamicResourcesArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "VolumeBinding": VolumeBindingArgs,
}
"""The arguments of kube-scheduler's plugins, by plugin name."""
