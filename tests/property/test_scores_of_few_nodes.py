"""A few nodes are scored with numbers and many with arrays: no node's score may show which.

The arrays are of floats where all amounts are small enough, and of int64 otherwise.
"""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from mooring.plugins.node_resources_fit import NodeResourcesFit
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers

GPU: Final = "example.com/gpu"
MANY: Final = 9
"""More nodes than are scored with numbers."""
HUGE: Final = 2**63 - 1
AMOUNTS: Final = st.sampled_from((0, 1, 7, 10**9, 2**40 + 1, 2**53, 2**53 + 1, HUGE))
SMALL: Final = st.integers(0, 10**10)
ANY: Final = SMALL | AMOUNTS
EXACT: Final = st.integers(0, 2**53 // 200) | st.sampled_from((1, 3, 2**53 // 200))
"""Amounts that floats are used for; the last one is the largest."""
RESOURCES: Final = [
    {"name": name, "weight": w} for name, w in (("cpu", 3), ("memory", 1), (GPU, 2))
]
SHAPE: Final = [
    {"utilization": used, "score": score} for used, score in ((0, 0), (70, 10), (100, 3))
]


def almost_a_percentage_of(amount: int) -> st.SearchStrategy[int]:
    """Return amounts whose score may be one less or more if it is not computed exactly."""
    return st.builds(
        lambda percent, more: min(max(amount * percent // 100 + more, 0), amount),
        st.integers(0, 100),
        st.integers(-1, 1),
    )


@st.composite
def asked(draw: st.DrawFn, plugin: type[Any], args: dict[str, Any]) -> PluginAnswers:
    """Draw the plugin and many nodes, each with a pod; a few offer huge amounts, or nothing."""
    objects = list[dict[str, Any]]()
    amounts = draw(st.sampled_from((ANY, EXACT)))
    for number in range(MANY):
        cpu, memory, cards = draw(st.tuples(SMALL, amounts, amounts))
        name = f"n{number}"
        objects.append(node(name, cpu=f"{cpu}m", memory=memory, resources={GPU: cards}))
        used: dict[str, str | int] = {
            "cpu": f"{draw(st.integers(0, cpu + 1))}m",
            "memory": draw(st.integers(0, memory) | almost_a_percentage_of(memory)),
        }
        objects.append(pod(f"on-{name}", node=name, requests={**used, GPU: draw(SMALL)}))
    return PluginAnswers(plugin, *objects, **args)


@pytest.mark.parametrize(
    ("plugin", "args"),
    [
        (NodeResourcesFit, {"scoringStrategy": {"type": "LeastAllocated"}}),
        (NodeResourcesFit, {"scoringStrategy": {"type": "MostAllocated", "resources": RESOURCES}}),
        (
            NodeResourcesFit,
            {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {"shape": SHAPE},
                    "resources": RESOURCES,
                }
            },
        ),
        (NodeResourcesBalancedAllocation, {}),
    ],
    ids=["least-allocated", "most-allocated", "ratio", "balanced"],
)
@given(data=st.data())
def test_a_node_has_the_same_score_alone_and_among_many(
    plugin: type[Any], args: dict[str, Any], data: st.DataObject
) -> None:
    asking = data.draw(asked(plugin, args))
    requests: dict[str, str | int] = {
        "cpu": f"{data.draw(SMALL)}m",
        "memory": data.draw(ANY | EXACT),
    }
    wanted = pod(requests={**requests, GPU: data.draw(ANY | EXACT)})
    together = asking.scores(wanted)
    if together is not None:
        assert {name: (asking.scores(wanted, name) or {})[name] for name in together} == together
