from typing import Any

import pytest

from mooring.plugins.resource_limits import ResourceLimits
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers

NODES = (
    node("large", cpu="8", memory="32Gi"),
    node("many cores", cpu="8", memory="1Gi"),
    node("much memory", cpu="1", memory="32Gi"),
    node("small", cpu="1", memory="1Gi"),
    node("silent", cpu="0", memory="0"),
)


def limited(*containers: dict[str, str], **spec: Any) -> dict[str, Any]:
    raw = [{"name": "c", "resources": {"limits": limits}} for limits in containers]
    return pod(spec={"containers": raw, **spec})


@pytest.mark.parametrize(
    ("incoming", "satisfied"),
    [
        (limited({"cpu": "4", "memory": "8Gi"}), {"large", "many cores", "much memory"}),
        (limited({"cpu": "4"}), {"large", "many cores"}),
        (limited({"cpu": "1"}, {"cpu": "7"}), {"large", "many cores"}),
        (limited({"cpu": "4"}, {"cpu": "5"}), set()),
        (limited({"memory": "1Gi"}), {"large", "many cores", "much memory", "small"}),
        (
            limited(
                {"memory": "1Gi"},
                initContainers=[{"name": "i", "resources": {"limits": {"memory": "2Gi"}}}],
            ),
            {"large", "much memory"},
        ),
    ],
)
def test_a_node_that_covers_the_limit_of_cpu_or_of_memory_scores_one(
    incoming: dict[str, Any], satisfied: set[str]
) -> None:
    scores = PluginAnswers(ResourceLimits, *NODES).scores(incoming)
    assert scores is not None
    assert {name for name, score in scores.items() if score} == satisfied
    assert set(scores.values()) <= {0, 1}


def test_a_pod_without_limits_on_cpu_and_memory_is_not_scored() -> None:
    asking = PluginAnswers(ResourceLimits, *NODES)
    assert asking.scores(pod(cpu="1", memory="1Gi")) is None
    assert asking.scores(limited({"example.com/gpu": "1"})) is None
