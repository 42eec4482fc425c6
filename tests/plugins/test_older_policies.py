"""Policies of older clusters, from the file to the decision."""

from typing import Any

import pytest

from mooring.framework.decision import Decision
from mooring.framework.registry import Registry
from mooring.model.pod import parse_pod
from mooring.plugins import SHIPPED
from mooring.plugins.node_pressure import NodePressureArgs
from mooring.plugins.node_resources_fit import (
    NodeResourcesLeastAllocatedArgs,
    NodeResourcesMostAllocatedArgs,
)
from mooring.policy.imports.old_policy import import_policy
from mooring.policy.imports.predicates import PREDICATES, PRIORITIES, RATIO
from mooring.policy.reading import read
from mooring.policy.resolve import resolve
from mooring.policy.score_args import CPU_AND_MEMORY
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import ScheduleResult, decision_of
from mooring.scheduling.profiles_in_force import Profiles
from mooring.scheduling.result_cache import ResultCache
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod
from mooring.testing.fakes import handle

REGISTRY = Registry(SHIPPED, {})


def decided(policy: dict[str, Any], *objects: dict[str, Any]) -> Decision:
    """Return the decision about a pod without requests, by this Policy."""
    state = cluster(*objects)
    incoming = parse_pod(pod("incoming"))
    profile = import_policy({"apiVersion": "v1", "kind": "Policy", **policy}, REGISTRY)
    profiles = Profiles(REGISTRY, handle(state))
    pipeline = profiles.put(profile, resolve(profile.spec, REGISTRY)).pipeline
    outcome = decide(incoming, pipeline, ResultCache(ClusterView(state)), seed=0)
    assert isinstance(outcome, ScheduleResult)
    return decision_of(incoming, pipeline, outcome)


@pytest.mark.parametrize("name", sorted({p for plugins in PREDICATES.values() for p in plugins}))
def test_every_predicate_has_a_plugin_that_filters(name: str) -> None:
    points = REGISTRY.points(name)
    assert points is not None
    assert "filter" in points


@pytest.mark.parametrize("name", sorted({*PRIORITIES.values(), RATIO}))
def test_every_priority_has_a_plugin_that_scores(name: str) -> None:
    points = REGISTRY.points(name)
    assert points is not None
    assert "score" in points


def test_a_policy_of_predicates_rejects_as_it_says() -> None:
    presence = {"labelsPresence": {"labels": ["retiring"], "presence": False}}
    decision = decided(
        {
            "predicates": [
                {"name": "CheckNodeCondition"},
                {"name": "CheckNodeMemoryPressure"},
                {"name": "CheckNodePIDPressure"},
                {"name": "NotRetiring", "argument": presence},
            ],
            "priorities": [],
        },
        node("fine", conditions={"DiskPressure": "True"}),
        node("memory", conditions={"MemoryPressure": "True"}),
        node("pid", conditions={"PIDPressure": "True"}),
        node("dead", conditions={"Ready": "Unknown"}),
        node("retiring", labels={"retiring": ""}),
    )
    assert decision.node == "fine"
    assert {name: rejection.plugin for name, rejection in decision.rejections.items()} == {
        "memory": "NodePressure",
        "pid": "NodePressure",
        "dead": "NodeCondition",
        "retiring": "NodeLabel",
    }


def test_a_policy_of_priorities_scores_as_it_says() -> None:
    preference = {"labelPreference": {"label": "ssd", "presence": True}}
    decision = decided(
        {
            "predicates": [],
            "priorities": [
                {"name": "EqualPriority", "weight": 7},
                {"name": "PreferSsd", "weight": 2, "argument": preference},
            ],
        },
        node("slow"),
        node("fast", labels={"ssd": ""}),
    )
    assert decision.node == "fast"
    assert decision.scores is not None
    assert {name: dict(score.plugins) for name, score in decision.scores.items()} == {
        "slow": {"EqualPriority": 7, "NodeLabel": 0},
        "fast": {"EqualPriority": 7, "NodeLabel": 200},
    }


def test_without_conditions_every_pressure_is_checked() -> None:
    assert NodePressureArgs().conditions == ("MemoryPressure", "DiskPressure", "PIDPressure")


@pytest.mark.parametrize("model", [NodeResourcesLeastAllocatedArgs, NodeResourcesMostAllocatedArgs])
def test_without_resources_cpu_and_memory_are_scored(
    model: type[NodeResourcesLeastAllocatedArgs | NodeResourcesMostAllocatedArgs],
) -> None:
    assert read(model, {"resources": []}, "").resources == CPU_AND_MEMORY
