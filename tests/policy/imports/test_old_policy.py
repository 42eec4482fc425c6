from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mooring.plugins.node_label import NodeLabelArgs
from mooring.plugins.node_pressure import NodePressureArgs
from mooring.plugins.service_affinity import ServiceAffinityArgs
from mooring.policy.imports.old_policy import import_policy, import_provider
from mooring.policy.imports.predicates import PREDICATES, PRIORITIES
from mooring.policy.merge import Catalog, PluginUse
from mooring.policy.points import Point
from mooring.policy.profile import SchedulingProfileSpec
from mooring.policy.resolve import ResolvedProfile, resolve

Mistakes = Callable[[Callable[[], object]], dict[str, str]]


def policy(**fields: object) -> dict[str, Any]:
    return {"kind": "Policy", "apiVersion": "v1", **fields}


def predicates(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def priorities(**weights: int) -> list[dict[str, Any]]:
    return [{"name": name, "weight": weight} for name, weight in weights.items()]


def custom(weight: int = 1, **argument: object) -> dict[str, Any]:
    return {"name": "Mine", "weight": weight, "argument": argument}


def custom_predicate(**argument: object) -> dict[str, Any]:
    return {"name": "Mine", "argument": argument}


def names(uses: Sequence[PluginUse]) -> list[str]:
    return [use.name for use in uses]


def scores(effective: ResolvedProfile) -> dict[str, int]:
    return {use.name: use.weight for use in effective.plugins[Point.SCORE]}


def imported(catalog: Catalog, **fields: object) -> ResolvedProfile:
    return resolve(import_policy(policy(**fields), catalog).spec, catalog)


def test_an_empty_policy_runs_the_default_predicates_and_priorities(all_plugins: Catalog) -> None:
    effective = imported(all_plugins)
    assert names(effective.plugins[Point.FILTER]) == [
        "NodeUnschedulable",
        "NodeResourcesFit",
        "NodeName",
        "NodePorts",
        "NodeAffinity",
        "VolumeRestrictions",
        "TaintToleration",
        "EBSVolumeCount",
        "GCEPDVolumeCount",
        "NodeVolumeLimits",
        "AzureDiskVolumeCount",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
    ]
    assert scores(effective) == {
        "NodeResourcesFit": 1,
        "NodeAffinity": 1,
        "TaintToleration": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 1,
        "SelectorSpread": 1,
        "NodeResourcesBalancedAllocation": 1,
        "NodePreferAvoidPods": 10000,
        "ImageLocality": 1,
    }
    assert names(effective.plugins[Point.RESERVE]) == ["VolumeBinding"]


def test_empty_lists_leave_the_mandatory_plugins(all_plugins: Catalog) -> None:
    effective = imported(all_plugins, predicates=[], priorities=[])
    assert {point: names(uses) for point, uses in effective.plugins.items() if uses} == {
        Point.PRE_ENQUEUE: ["SchedulingGates", "DefaultPreemption"],
        Point.QUEUE_SORT: ["PrioritySort"],
        Point.FILTER: ["NodeUnschedulable", "TaintToleration"],
        Point.POST_FILTER: ["DefaultPreemption"],
        Point.BIND: ["DefaultBinder"],
    }


def test_a_plugin_scores_or_filters_only_if_the_policy_names_it_for_that(
    all_plugins: Catalog,
) -> None:
    effective = imported(
        all_plugins,
        predicates=predicates("MatchInterPodAffinity"),
        priorities=priorities(NodeAffinityPriority=5),
    )
    assert scores(effective) == {"NodeAffinity": 5}
    assert "InterPodAffinity" in names(effective.plugins[Point.PRE_FILTER])
    assert "NodeAffinity" not in names(effective.plugins[Point.FILTER])


def test_filters_run_in_the_order_of_predicates_not_of_the_file(
    all_plugins: Catalog,
) -> None:
    effective = imported(
        all_plugins,
        predicates=predicates("MatchInterPodAffinity", "NoDiskConflict", "PodFitsPorts"),
        priorities=[],
    )
    assert names(effective.plugins[Point.FILTER]) == [
        "NodeUnschedulable",
        "NodePorts",
        "VolumeRestrictions",
        "TaintToleration",
        "InterPodAffinity",
    ]


@pytest.mark.parametrize("predicate", [n for n, p in PREDICATES.items() if n[:9] != "CheckServ"])
def test_every_predicate_becomes_a_filter(predicate: str, all_plugins: Catalog) -> None:
    if predicate == "CheckNodeLabelPresence":
        entry = custom_predicate(labelsPresence={"labels": ["a"]})
    else:
        (entry,) = predicates(predicate)
    effective = imported(all_plugins, predicates=[entry], priorities=[])
    assert {*PREDICATES[predicate]} <= {*names(effective.plugins[Point.FILTER])}


@pytest.mark.parametrize("priority", [*PRIORITIES])
def test_every_priority_becomes_a_score_with_its_weight(
    priority: str, all_plugins: Catalog
) -> None:
    effective = imported(all_plugins, predicates=[], priorities=priorities(**{priority: 7}))
    (score,) = scores(effective).items()
    assert score[1] == 7
    assert score[0] in (PRIORITIES[priority], "NodeResourcesFit")


def test_one_resource_priority_is_the_strategy_of_node_resources_fit(
    all_plugins: Catalog,
) -> None:
    spec = import_policy(
        policy(predicates=[], priorities=priorities(MostRequestedPriority=3)), all_plugins
    ).spec
    assert [(entry.name, entry.args) for entry in spec.plugin_config] == [
        ("NodeResourcesFit", {"scoringStrategy": {"type": "MostAllocated"}})
    ]


RATIO = {
    "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
    "resources": [{"name": "cpu", "weight": 2}],
}


def test_a_ratio_is_the_strategy_of_node_resources_fit(all_plugins: Catalog) -> None:
    spec = import_policy(
        policy(predicates=[], priorities=[custom(requestedToCapacityRatioArguments=RATIO)]),
        all_plugins,
    ).spec
    (entry,) = spec.plugin_config
    assert entry.args == {
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "requestedToCapacityRatio": {"shape": RATIO["shape"]},
            "resources": RATIO["resources"],
        }
    }


def test_several_resource_priorities_become_separate_plugins(all_plugins: Catalog) -> None:
    effective = imported(
        all_plugins,
        predicates=predicates("PodFitsResources"),
        priorities=[
            *priorities(LeastRequestedPriority=1, MostRequestedPriority=2),
            custom(3, requestedToCapacityRatioArguments=RATIO),
        ],
    )
    assert scores(effective) == {
        "NodeResourcesLeastAllocated": 1,
        "NodeResourcesMostAllocated": 2,
        "RequestedToCapacityRatio": 3,
    }
    ratio = effective.args["RequestedToCapacityRatio"]
    assert ratio.model_dump(mode="json", by_alias=True) == RATIO


def test_custom_predicates_and_priorities_share_the_arguments_of_their_plugin(
    all_plugins: Catalog,
) -> None:
    effective = imported(
        all_plugins,
        predicates=[
            custom_predicate(serviceAffinity={"labels": ["region"]}),
            custom_predicate(labelsPresence={"labels": ["ssd"], "presence": True}),
            custom_predicate(labelsPresence={"labels": ["retired", "old"]}),
        ],
        priorities=[
            custom(2, serviceAntiAffinity={"label": "zone"}),
            custom(2, serviceAntiAffinity={"label": "rack"}),
            custom(3, labelPreference={"label": "fast", "presence": True}),
            custom(3, labelPreference={"label": "slow"}),
        ],
    )
    assert effective.args["ServiceAffinity"] == ServiceAffinityArgs(
        affinity_labels=("region",), anti_affinity_labels_preference=("zone", "rack")
    )
    assert effective.args["NodeLabel"] == NodeLabelArgs(
        present_labels=("ssd",),
        absent_labels=("retired", "old"),
        present_labels_preference=("fast",),
        absent_labels_preference=("slow",),
    )
    assert scores(effective) == {"ServiceAffinity": 4, "NodeLabel": 6}


def test_only_the_named_pressures_are_checked(all_plugins: Catalog) -> None:
    effective = imported(
        all_plugins, predicates=predicates("CheckNodeMemoryPressure", "CheckNodePIDPressure")
    )
    assert effective.args["NodePressure"] == NodePressureArgs(
        conditions=("MemoryPressure", "PIDPressure")
    )


def test_the_other_fields_of_a_policy_are_converted(all_plugins: Catalog) -> None:
    profile = import_policy(
        policy(
            hardPodAffinitySymmetricWeight=10,
            alwaysCheckAllPredicates=True,
            extenders=[{"urlPrefix": "http://a", "filterVerb": "filter"}],
        ),
        all_plugins,
        scheduler_name="My_Own",
    )
    assert profile.name == "my-own"
    assert profile.scheduler_names == ("My_Own",)
    assert profile.spec.always_check_all_filters
    assert profile.spec.extenders[0].filter_verb == "filter"
    hard = {"hardPodAffinityWeight": 10}
    assert ("InterPodAffinity", hard) in [(e.name, e.args) for e in profile.spec.plugin_config]


def test_the_default_provider_gives_the_defaults() -> None:
    assert import_provider("DefaultProvider").spec == SchedulingProfileSpec()


def test_the_cluster_autoscaler_provider_gives_bin_packing(catalog: Catalog) -> None:
    effective = resolve(import_provider("ClusterAutoscalerProvider").spec, catalog)
    fit = effective.args["NodeResourcesFit"].model_dump(by_alias=True)
    assert fit["scoringStrategy"]["type"] == "MostAllocated"


def test_an_unknown_provider_lists_the_known_ones(mistakes: Mistakes) -> None:
    assert mistakes(lambda: import_provider("Mine")) == {
        "": 'unknown algorithm provider "Mine"; known are DefaultProvider, '
        "ClusterAutoscalerProvider"
    }


def test_a_missing_plugin_is_reported_with_the_field_that_needs_it(
    catalog: Catalog, mistakes: Mistakes
) -> None:
    document = policy(
        predicates=predicates("HostName", "CheckNodeCondition"),
        priorities=priorities(SelectorSpreadPriority=1),
    )
    assert mistakes(lambda: import_policy(document, catalog)) == {
        "predicates[1]": "needs the plugin NodeCondition, which this Mooring does not have",
        "priorities[0]": "needs the plugin SelectorSpread, which this Mooring does not have",
    }
