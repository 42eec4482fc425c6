"""Estimates for equal pods agree with the decision about each of the pods."""

import pytest

from devices.objects import gpu_node, share_pod
from mooring.rebalancing.estimates import Estimate, estimates
from mooring.rebalancing.improvement import compared
from mooring.testing.builders import node
from pod_terms import near, to_pods
from replanning import Replanning, owned


def estimated(replanning: Replanning) -> list[Estimate] | None:
    pods = [placed.pod for placed in replanning.state.pods]
    return estimates(replanning.planning(), pods)


def test_estimates_by_nodes_alone_are_what_decisions_say() -> None:
    replanning = Replanning(
        *(node(f"n{n}", cpu=f"{4 + n}", memory=f"{8 + n}Gi") for n in range(6)),
        *(owned(f"w{n}", cpu="1", memory="1Gi", node=f"n{n // 3}") for n in range(9)),
        plugins={"multiPoint": {"disabled": [{"name": "PodTopologySpread"}]}},
    )
    found = estimated(replanning)
    assert found is not None
    assert sum(len(each.pods) for each in found) == 9
    planning = replanning.planning()
    for estimate in found:
        assert (estimate.exact, estimate.suspect) == (True, False)
        for each in estimate.pods:
            better = compared(planning, each)
            assert estimate.gain == (better.gain if better is not None else estimate.gain)
            assert (better is not None) == (estimate.gain > 0) or estimate.gain == 0


@pytest.mark.parametrize("over", [True, False])
def test_a_node_that_rejects_its_pods_is_suspect(*, over: bool) -> None:
    full = Replanning(
        node("a", cpu="3"),
        node("b"),
        *(owned(f"w{n}", cpu="1", node="a") for n in range(4 if over else 3)),
    )
    found = estimated(full)
    assert found is not None
    assert [each.suspect for each in found] == [over]


def test_pods_with_cards_are_not_estimated() -> None:
    replanning = Replanning(
        gpu_node("a", 2, 10),
        share_pod("s", 6, node="a", card=0),
        plugins={"multiPoint": {"enabled": [{"name": "GPUShare"}]}},
    )
    assert estimated(replanning) is None


def test_pods_that_must_be_near_others_are_all_suspect() -> None:
    replanning = Replanning(
        node("a"),
        node("b"),
        *(
            owned(f"w{n}", labels={"a": "b"}, affinity=near(to_pods({"a": "b"})), node="a")
            for n in range(2)
        ),
    )
    found = estimated(replanning)
    assert found is not None
    assert [each.suspect for each in found] == [True]


def test_nodes_that_others_take_care_of_are_left_out() -> None:
    assert estimated(Replanning(node("a", unschedulable=True), owned("web", node="a"))) == []
