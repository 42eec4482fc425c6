from mooring.policy.imports.predicates import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    MANDATORY_PREDICATES,
    PREDICATES,
    PRESSURES,
    PRIORITIES,
    STRATEGIES,
)


def test_what_runs_by_default_has_a_plugin() -> None:
    assert {*DEFAULT_PREDICATES, *MANDATORY_PREDICATES, *PRESSURES} <= PREDICATES.keys()
    assert DEFAULT_PRIORITIES.keys() <= PRIORITIES.keys()


def test_the_cheap_predicates_run_before_those_that_look_at_pods_and_volumes() -> None:
    order = list(PREDICATES)
    assert order.index("GeneralPredicates") < order.index("CheckVolumeBinding")
    assert order[-1] == "MatchInterPodAffinity"


def test_the_priorities_a_strategy_replaces_have_a_plugin_of_their_own() -> None:
    assert {"NodeResourcesLeastAllocated", "NodeResourcesMostAllocated"} <= STRATEGIES.keys()
    assert {*PRIORITIES.values()} & STRATEGIES.keys() == STRATEGIES.keys() - {
        "RequestedToCapacityRatio"
    }
