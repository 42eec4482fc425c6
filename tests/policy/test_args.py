from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mooring.policy.args import (
    KUBE_SCHEDULER_ARGS,
    LESS_USED_FIRST,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    LeastAllocated,
    MostAllocated,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RequestedToCapacityRatio,
    ResourceSpec,
    ShapePoint,
    VolumeBindingArgs,
)
from mooring.policy.reading import read

Mistakes = Callable[[Callable[[], object]], dict[str, str]]

CPU_AND_MEMORY = (ResourceSpec(name="cpu", weight=1), ResourceSpec(name="memory", weight=1))


def fit(**strategy: object) -> dict[str, object]:
    return {"scoringStrategy": strategy}


def ratio(*points: tuple[int, int]) -> dict[str, object]:
    shape = [{"utilization": x, "score": y} for x, y in points]
    return fit(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": shape})


def constraint(**fields: object) -> dict[str, object]:
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **fields}


def spread(*constraints: object) -> dict[str, object]:
    return {"defaultingType": "List", "defaultConstraints": list(constraints)}


def balanced(*resources: object) -> dict[str, object]:
    return {"resources": list(resources)}


def node_affinity(**expression: object) -> dict[str, object]:
    terms = [{"matchExpressions": [{"key": "a", **expression}]}]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"addedAffinity": {required: {"nodeSelectorTerms": terms}}}


def preferred(weight: int) -> dict[str, object]:
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    return {"addedAffinity": {field: [{"weight": weight, "preference": {}}]}}


def test_every_plugin_has_kube_schedulers_defaults() -> None:
    defaults = {name: read(model, {}, "") for name, model in KUBE_SCHEDULER_ARGS.items()}
    assert defaults == {
        "DefaultPreemption": DefaultPreemptionArgs(
            min_candidate_nodes_percentage=10, min_candidate_nodes_absolute=100
        ),
        "DynamicResources": DynamicResourcesArgs(
            filter_timeout=timedelta(seconds=10), binding_timeout=timedelta(seconds=600)
        ),
        "InterPodAffinity": InterPodAffinityArgs(
            hard_pod_affinity_weight=1, ignore_preferred_terms_of_existing_pods=False
        ),
        "NodeAffinity": NodeAffinityArgs(added_affinity=None),
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs(
            resources=CPU_AND_MEMORY
        ),
        "NodeResourcesFit": NodeResourcesFitArgs(
            ignored_resources=(),
            ignored_resource_groups=(),
            scoring_strategy=LeastAllocated(resources=CPU_AND_MEMORY),
        ),
        "PodTopologySpread": PodTopologySpreadArgs(
            default_constraints=(), defaulting_type="System"
        ),
        "VolumeBinding": VolumeBindingArgs(bind_timeout_seconds=600, shape=LESS_USED_FIRST),
    }


def test_an_empty_shape_of_volume_binding_is_the_default_one() -> None:
    assert read(VolumeBindingArgs, {"shape": []}, "").shape == LESS_USED_FIRST
    points = tuple((point.utilization, point.score) for point in LESS_USED_FIRST)
    assert points == ((0, 10), (100, 0))


def test_the_type_names_the_strategy() -> None:
    args = read(NodeResourcesFitArgs, fit(type="MostAllocated", resources=[]), "")
    assert args.scoring_strategy == MostAllocated(resources=CPU_AND_MEMORY)


def test_a_shape_keeps_its_points_in_order() -> None:
    strategy = read(NodeResourcesFitArgs, ratio((0, 0), (40, 3), (100, 10)), "").scoring_strategy
    assert isinstance(strategy, RequestedToCapacityRatio)
    assert strategy.requested_to_capacity_ratio.shape[1] == ShapePoint(utilization=40, score=3)


def test_weight_zero_of_a_resource_means_one() -> None:
    document = fit(type="LeastAllocated", resources=[{"name": "cpu", "weight": 0}])
    strategy = read(NodeResourcesFitArgs, document, "").scoring_strategy
    assert strategy.resources == (ResourceSpec(name="cpu", weight=1),)


INVALID: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    (
        "DefaultPreemption",
        {"minCandidateNodesPercentage": 101, "minCandidateNodesAbsolute": -1},
        {
            "minCandidateNodesPercentage": "must be between 0 and 100, got 101",
            "minCandidateNodesAbsolute": "must be between 0 and 2147483647, got -1",
        },
    ),
    (
        "DefaultPreemption",
        {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
        {
            "minCandidateNodesPercentage": "must not be 0 when minCandidateNodesAbsolute is 0 too",
            "minCandidateNodesAbsolute": "must not be 0 when minCandidateNodesPercentage is 0 too",
        },
    ),
    (
        "InterPodAffinity",
        {"hardPodAffinityWeight": 101},
        {"hardPodAffinityWeight": "must be between 0 and 100, got 101"},
    ),
    (
        "NodeResourcesFit",
        fit(type="MostAllocated", resources=[{"name": "cpu"}, {"name": "memory", "weight": 101}]),
        {"scoringStrategy.resources[1].weight": "must be between 0 and 100, got 101"},
    ),
    ("NodeResourcesFit", fit(resources=[]), {"scoringStrategy.type": "is required"}),
    (
        "NodeResourcesFit",
        fit(type="RequestedToCapacityRatio"),
        {"scoringStrategy.requestedToCapacityRatio": "is required"},
    ),
    (
        "NodeResourcesFit",
        fit(type="LeastAllocated", requestedToCapacityRatio={}),
        {
            "scoringStrategy.requestedToCapacityRatio": 'unknown field "requestedToCapacityRatio" '
            "where type is LeastAllocated; known are resources, type"
        },
    ),
    (
        "NodeResourcesFit",
        ratio(),
        {
            "scoringStrategy.requestedToCapacityRatio.shape": "must have 1 or more items, has 0",
        },
    ),
    (
        "NodeResourcesFit",
        ratio((0, 0), (50, 5), (50, 6)),
        {
            "scoringStrategy.requestedToCapacityRatio.shape[2].utilization": "must be more than "
            "50, the one before it, got 50"
        },
    ),
    (
        "NodeResourcesFit",
        ratio((-1, 0), (101, 11)),
        {
            "scoringStrategy.requestedToCapacityRatio.shape[0].utilization": "must be between 0 "
            "and 100, got -1",
            "scoringStrategy.requestedToCapacityRatio.shape[1].utilization": "must be between 0 "
            "and 100, got 101",
            "scoringStrategy.requestedToCapacityRatio.shape[1].score": "must be between 0 and 10, "
            "got 11",
        },
    ),
    (
        "NodeResourcesFit",
        {"ignoredResourceGroups": ["example.com", "example.com/gpu"]},
        {
            "ignoredResourceGroups[1]": '"example.com/gpu" must not contain "/": give the part '
            "before it"
        },
    ),
    (
        "NodeResourcesBalancedAllocation",
        balanced({"name": "cpu"}, {"name": "cpu", "weight": 2}),
        {"resources[1].name": '"cpu" is there twice', "resources[1].weight": "must be 1, got 2"},
    ),
    (
        "PodTopologySpread",
        {"defaultConstraints": [constraint()]},
        {"defaultingType": "must be List where defaultConstraints are given"},
    ),
    (
        "PodTopologySpread",
        spread(constraint(maxSkew=0, whenUnsatisfiable="Perhaps")),
        {
            "defaultConstraints[0].maxSkew": "must be between 1 and 2147483647, got 0",
            "defaultConstraints[0].whenUnsatisfiable": "must be one of DoNotSchedule, "
            'ScheduleAnyway, got "Perhaps"',
        },
    ),
    (
        "PodTopologySpread",
        spread(constraint(labelSelector={}, matchLabelKeys=[])),
        {
            "defaultConstraints[0].labelSelector": "must not be set: it is derived from each pod's "
            "Services and owner",
            "defaultConstraints[0].matchLabelKeys": "must not be set: a default constraint has no "
            "labelSelector to narrow",
        },
    ),
    (
        "PodTopologySpread",
        spread(constraint(), constraint(whenUnsatisfiable="ScheduleAnyway"), constraint()),
        {"defaultConstraints[2]": "zone with DoNotSchedule is there twice"},
    ),
    (
        "VolumeBinding",
        {"bindTimeoutSeconds": -1},
        {"bindTimeoutSeconds": "must be at least 0, got -1"},
    ),
    (
        "VolumeBinding",
        {"shape": [{"utilization": 50, "score": 11}, {"utilization": 50, "score": 1}]},
        {"shape[0].score": "must be between 0 and 10, got 11"},
    ),
    (
        "VolumeBinding",
        {"shape": [{"utilization": 50, "score": 1}, {"utilization": 50, "score": 1}]},
        {"shape[1].utilization": "must be more than 50, the one before it, got 50"},
    ),
    (
        "DynamicResources",
        {"filterTimeout": "-1s", "bindingTimeout": "500ms"},
        {"filterTimeout": "must be 0s or more", "bindingTimeout": "must be 1s or more"},
    ),
    (
        "NodeAffinity",
        node_affinity(operator="Gt", values=["x"]),
        {
            "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
            ".matchExpressions[0].values": "must be one integer where operator is Gt"
        },
    ),
    (
        "NodeAffinity",
        preferred(weight=101),
        {
            "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight": "must be "
            "between 1 and 100, got 101"
        },
    ),
]


@pytest.mark.parametrize(("plugin", "document", "expected"), INVALID)
def test_a_mistake_in_arguments_is_located_and_explained(
    plugin: str, document: dict[str, Any], expected: dict[str, str], mistakes: Mistakes
) -> None:
    assert mistakes(lambda: read(KUBE_SCHEDULER_ARGS[plugin], document, "")) == expected
