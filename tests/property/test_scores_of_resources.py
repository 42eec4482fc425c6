"""The scores of resources are those of a model that computes one node at a time with whole numbers.

Plugins compute columns: of float64 that are kept where amounts are small enough, of floats that
are made for other resources, or of int64. No node's score may show which, nor with how many others
it was scored.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from mooring.plugins.node_resources_fit import NodeResourcesFit
from mooring.testing.builders import node, pod
from plugin_answers import PluginAnswers

GPU: Final = "example.com/gpu"
NODES: Final = 9
AMOUNTS: Final = st.sampled_from((0, 1, 7, 10**9, 2**40 + 1, 2**53, 2**53 + 1, 2**55))
SMALL: Final = st.integers(0, 10**10)
ANY: Final = SMALL | AMOUNTS
EXACT: Final = st.integers(0, 2**53 // 200) | st.sampled_from((1, 3, 2**53 // 200))
"""Amounts that floats are used for; the last one is the largest."""
SHAPE: Final = [
    {"utilization": used, "score": score} for used, score in ((0, 0), (70, 10), (100, 3))
]
POINTS: Final = ((0, 0), (70, 100), (100, 30))

Amounts = dict[str, int]
Model = Callable[[Amounts, Amounts, Amounts], int]
"""The score of what a node offers and has requested, and a pod requests, by resource."""


def resources(**weights: int) -> list[dict[str, Any]]:
    return [{"name": GPU if n == "gpu" else n, "weight": w} for n, w in weights.items()]


def weighted(
    score: Callable[[int, int], int], weights: Mapping[str, int], *, by_ratio: bool = False
) -> Model:
    """Return the model of a strategy whose score is of what is requested and offered."""

    def model(offered: Amounts, requested: Amounts, asked: Amounts) -> int:
        total = among = 0
        for name, weight in weights.items():
            if name == GPU and not asked[GPU]:
                continue
            found = score(requested[name] + asked[name], offered[name]) if offered[name] else 0
            if offered[name] and (found or not by_ratio):
                total += weight * found
                among += weight
        if not among:
            return 0
        return int(total / among + 0.5) if by_ratio else total // among

    return model


def least(requested: int, offered: int) -> int:
    return max(offered - requested, 0) * 100 // offered


def most(requested: int, offered: int) -> int:
    return min(requested, offered) * 100 // offered


def ratio(requested: int, offered: int) -> int:
    percent = most(requested, offered)
    (x0, y0), (x1, y1) = POINTS[:2] if percent <= 70 else POINTS[1:]
    return y0 + int((y1 - y0) * (percent - x0) / (x1 - x0))


def evenness(offered: Amounts, used: Amounts) -> int:
    shares = [min(used[name] / offered[name], 1.0) for name in ("cpu", "memory") if offered[name]]
    deviation = abs(shares[0] - shares[1]) / 2 if len(shares) == 2 else 0.0
    return int((1 - deviation) * 100)


def balanced(offered: Amounts, requested: Amounts, asked: Amounts) -> int:
    """Return the score by Kubernetes 1.36 and newer."""
    together = {name: requested[name] + asked[name] for name in requested}
    return 50 + (50 + evenness(offered, together) - evenness(offered, requested)) // 2


def almost_a_percentage_of(amount: int) -> st.SearchStrategy[int]:
    """Return amounts whose score may be one less or more if it is not computed exactly."""
    return st.builds(
        lambda percent, more: min(max(amount * percent // 100 + more, 0), amount),
        st.integers(0, 100),
        st.integers(-1, 1),
    )


def requests(amounts: Amounts) -> dict[str, str | int]:
    return {**amounts, "cpu": f"{amounts['cpu']}m"}


@st.composite
def clusters(draw: st.DrawFn) -> list[tuple[Amounts, Amounts]]:
    """Draw what each node offers and has requested; a few offer huge amounts, or nothing."""
    found = list[tuple[Amounts, Amounts]]()
    amounts = draw(st.sampled_from((ANY, EXACT)))
    for _ in range(NODES):
        cpu, memory, cards = draw(st.tuples(SMALL, amounts, amounts))
        used = {
            "cpu": draw(st.integers(0, cpu + 1)),
            "memory": draw(st.integers(0, memory) | almost_a_percentage_of(memory)),
            GPU: draw(SMALL),
        }
        found.append(({"cpu": cpu, "memory": memory, GPU: cards}, used))
    return found


def objects(drawn: list[tuple[Amounts, Amounts]]) -> list[dict[str, Any]]:
    """Return the nodes, with a pod on each that requests what is requested."""
    found = list[dict[str, Any]]()
    for number, (offered, used) in enumerate(drawn):
        name, cards = f"n{number}", {GPU: offered[GPU]}
        cpu, memory = f"{offered['cpu']}m", offered["memory"]
        found.append(node(name, cpu=cpu, memory=memory, resources=cards))
        found.append(pod(f"on-{name}", node=name, requests=requests(used)))
    return found


def strategy(kind: str, listed: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"scoringStrategy": {"type": kind, "resources": listed, **more}}


BOTH: Final = {"cpu": 1, "memory": 1}
UNEVEN: Final = {"memory": 4, "cpu": 6}
THREE: Final = {"cpu": 3, "memory": 1, GPU: 2}


@pytest.mark.parametrize(
    ("plugin", "args", "model"),
    [
        (NodeResourcesFit, {}, weighted(least, BOTH)),
        (
            NodeResourcesFit,
            strategy("LeastAllocated", resources(**UNEVEN)),
            weighted(least, UNEVEN),
        ),
        (
            NodeResourcesFit,
            strategy("LeastAllocated", resources(cpu=3, memory=1, gpu=2)),
            weighted(least, THREE),
        ),
        (NodeResourcesFit, strategy("MostAllocated", resources(**BOTH)), weighted(most, BOTH)),
        (
            NodeResourcesFit,
            strategy("MostAllocated", resources(cpu=3, memory=1, gpu=2)),
            weighted(most, THREE),
        ),
        (
            NodeResourcesFit,
            strategy(
                "RequestedToCapacityRatio",
                resources(cpu=3, memory=1, gpu=2),
                requestedToCapacityRatio={"shape": SHAPE},
            ),
            weighted(ratio, THREE, by_ratio=True),
        ),
        (NodeResourcesBalancedAllocation, {}, balanced),
    ],
    ids=["least", "least-uneven", "least-gpu", "most", "most-gpu", "ratio", "balanced"],
)
@given(data=st.data())
def test_each_node_has_the_score_of_the_model_alone_and_among_others(
    plugin: type[Any], args: dict[str, Any], model: Model, data: st.DataObject
) -> None:
    drawn = data.draw(clusters())
    asking = PluginAnswers(plugin, *objects(drawn), **args)
    asked = {
        "cpu": data.draw(SMALL),
        "memory": data.draw(ANY | EXACT),
        GPU: data.draw(ANY | EXACT),
    }
    wanted = pod(requests=requests(asked))
    found = asking.scores(wanted)
    if found is None:
        return
    assert found == {f"n{i}": model(*of_node, asked) for i, of_node in enumerate(drawn)}
    alone = data.draw(st.sampled_from(sorted(found)))
    assert asking.scores(wanted, alone) == {alone: found[alone]}
