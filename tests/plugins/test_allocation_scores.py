"""The strategies of NodeResourcesFit as separate plugins."""

from typing import Any

import pytest

from mooring.plugins.node_resources_fit import (
    NodeResourcesFit,
    NodeResourcesLeastAllocated,
    NodeResourcesMostAllocated,
    RequestedToCapacityRatioScore,
)
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers

OBJECTS = (
    node("n1", cpu="4", memory="8Gi"),
    node("n2", cpu="16", memory="16Gi"),
    pod("placed", cpu="3", memory="1Gi", node="n1"),
)
RESOURCES = [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}]
SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]


@pytest.mark.parametrize(
    ("plugin", "args", "strategy"),
    [
        (NodeResourcesLeastAllocated, {}, {"type": "LeastAllocated"}),
        (NodeResourcesMostAllocated, {}, {"type": "MostAllocated"}),
        (
            RequestedToCapacityRatioScore,
            {"shape": SHAPE},
            {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": SHAPE}},
        ),
    ],
)
def test_a_strategy_scores_the_same_as_a_plugin_of_its_own(
    plugin: type[Any], args: dict[str, Any], strategy: dict[str, Any]
) -> None:
    incoming = pod(cpu="500m", memory="1Gi")
    alone = PluginAnswers(plugin, *OBJECTS, resources=RESOURCES, **args)
    within = PluginAnswers(
        NodeResourcesFit, *OBJECTS, scoringStrategy={**strategy, "resources": RESOURCES}
    )
    assert alone.scores(incoming) == within.scores(incoming)


def test_without_a_shape_the_emptier_node_is_better() -> None:
    scores = PluginAnswers(RequestedToCapacityRatioScore, *OBJECTS).scores(pod(cpu="1"))
    assert scores is not None
    assert scores["n1"] < scores["n2"]
