from mooring.policy.imports.predicates import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    MANDATORY_PREDICATES,
    PREDICATES,
    PRESSURES,
    PRIORITIES,
    STRATEGIES,
)


def test_every_default_predicate_and_priority_has_a_plugin() -> None:
    assert {*DEFAULT_PREDICATES, *MANDATORY_PREDICATES, *PRESSURES} <= PREDICATES.keys()
    assert DEFAULT_PRIORITIES.keys() <= PRIORITIES.keys()


def test_cheap_predicates_run_before_those_that_read_pods_and_volumes() -> None:
    order = list(PREDICATES)
    assert order.index("GeneralPredicates") < order.index("CheckVolumeBinding")
    assert order[-1] == "MatchInterPodAffinity"


def test_priorities_that_a_strategy_replaces_also_have_a_plugin() -> None:
    assert {"NodeResourcesLeastAllocated", "NodeResourcesMostAllocated"} <= STRATEGIES.keys()
    assert {*PRIORITIES.values()} & STRATEGIES.keys() == STRATEGIES.keys() - {
        "RequestedToCapacityRatio"
    }
