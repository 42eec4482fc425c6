from datetime import timedelta

from mooring.claims.plugin.plugin import DynamicResourcesArgs
from mooring.plugins.balanced_allocation import NodeResourcesBalancedAllocationArgs
from mooring.plugins.default_preemption.plugin import DefaultPreemptionArgs
from mooring.plugins.inter_pod_affinity import InterPodAffinityArgs
from mooring.plugins.node_affinity import NodeAffinityArgs
from mooring.plugins.node_resources_fit import (
    LeastAllocated,
    MostAllocated,
    NodeResourcesFitArgs,
    RequestedToCapacityRatio,
)
from mooring.plugins.pod_topology_spread.plugin import PodTopologySpreadArgs
from mooring.policy.reading import read
from mooring.policy.score_args import LESS_USED_FIRST, ResourceSpec, ShapePoint
from mooring.volumes.volume_binding.plugin import VolumeBindingArgs
from policies import KUBE_SCHEDULER_ARGS

CPU_AND_MEMORY = (ResourceSpec(name="cpu", weight=1), ResourceSpec(name="memory", weight=1))


def fit(**strategy: object) -> dict[str, object]:
    return {"scoringStrategy": strategy}


def ratio(*points: tuple[int, int]) -> dict[str, object]:
    shape = [{"utilization": x, "score": y} for x, y in points]
    return fit(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": shape})


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
