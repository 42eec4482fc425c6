from typing import Any

import pytest

from mooring.plugins.node_pressure import NodePressure
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers

NODES = (
    node("memory", conditions={"MemoryPressure": "True"}),
    node("disk", conditions={"DiskPressure": "True"}),
    node("pid", conditions={"PIDPressure": "True"}),
    node("unknown", conditions={"MemoryPressure": "Unknown", "DiskPressure": "Unknown"}),
    node("fine", conditions={"MemoryPressure": "False"}),
)


@pytest.mark.parametrize(
    ("incoming", "args", "out"),
    [
        (pod(), {}, {"memory", "disk", "pid"}),
        (pod(cpu="1m"), {}, {"disk", "pid"}),
        (pod(), {"conditions": ["MemoryPressure"]}, {"memory"}),
        (pod(), {"conditions": ["PIDPressure", "DiskPressure"]}, {"disk", "pid"}),
    ],
)
def test_pressure_keeps_pods_away_that_on_memory_only_besteffort_ones(
    incoming: dict[str, Any], args: dict[str, Any], out: set[str]
) -> None:
    rejections = PluginAnswers(NodePressure, *NODES, **args).rejections(incoming)
    assert rejections is not None
    assert rejections.keys() == out
    assert not any(rejection.resolvable for rejection in rejections.values())


def test_a_pod_that_no_pressure_concerns_is_skipped() -> None:
    asking = PluginAnswers(NodePressure, *NODES, conditions=["MemoryPressure"])
    assert asking.rejections(pod(memory="1Mi")) is None


def test_every_pressure_is_named() -> None:
    everything = dict.fromkeys(("MemoryPressure", "DiskPressure", "PIDPressure"), "True")
    rejections = PluginAnswers(NodePressure, node("n1", conditions=everything)).rejections(pod())
    assert rejections is not None
    assert rejections["n1"].reasons == (
        "node(s) had memory pressure",
        "node(s) had disk pressure",
        "node(s) had pid pressure",
    )


def test_a_node_queues_when_it_is_added_or_a_pressure_ends() -> None:
    asking, fine = PluginAnswers(NodePressure, conditions=["DiskPressure"]), node("n1")
    full, busy = (node("n1", conditions={kind: "True"}) for kind in ("DiskPressure", "PIDPressure"))
    assert asking.queueing_hint(pod(), after=fine)
    assert asking.queueing_hint(pod(), before=full, after=fine)
    assert not asking.queueing_hint(pod(), before=busy, after=fine)
    assert not asking.queueing_hint(pod(), before=fine, after=full)
    assert not asking.queueing_hint(pod(), before=full, after=full)
