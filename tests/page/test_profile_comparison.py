"""Compares how full nodes would be with two profiles."""

import time
from typing import Any

from mooring.model.pod import parse_pod
from mooring.page.profile_comparison import compared_nodes
from mooring.testing.builders import node, pod
from scheduler_states import scheduler_state

JOB = {"kind": "Job", "name": "train", "uid": "job"}
DAEMON = {"kind": "DaemonSet", "name": "logs", "uid": "logs"}
AGENTPOOL = {"agentpool": "large"}


def side(*nodes: str | None) -> list[dict[str, Any]]:
    return [{"node": each, "cause": "Insufficient cpu"} for each in nodes]


async def test_pools_have_their_use_and_their_empty_nodes_with_either_profile() -> None:
    shared = scheduler_state(
        node("a", cpu="4", memory="4Gi"),
        node("b", cpu="4", memory="4Gi", labels=AGENTPOOL),
        pod("logs", owner=DAEMON, cpu="1", memory="1Gi", node="b"),
        pod("runs", cpu="1", memory="1Gi", node="a"),
    )
    waiting = [parse_pod(pod("web", cpu="2", memory="1Gi"))]
    found = await compared_nodes(
        shared, waiting, [side("a"), side("b")], time.monotonic, running=False
    )
    assert found["summary"] == {"moved": 1, "lost": 0, "gained": 0}
    large = found["pools"]["large"]
    assert (large["old"]["emptyNodes"], large["new"]["emptyNodes"]) == (1, 0)
    assert (large["old"]["cpu"], large["new"]["cpu"]) == (0.25, 0.75)
    other = found["pools"]["(none)"]
    assert (other["old"]["cpu"], other["new"]["cpu"]) == (0.75, 0.25)
    assert (other["old"]["memory"], other["new"]["memory"]) == (0.5, 0.25)
    assert other["new"]["emptyNodes"] == 0


async def test_running_pods_leave_the_nodes_that_they_are_on() -> None:
    runs = pod("runs", cpu="1", memory="1Gi", node="a")
    shared = scheduler_state(node("a", cpu="4"), node("b", cpu="4"), runs)
    found = await compared_nodes(
        shared, [parse_pod(runs)], [side("a"), side("b")], time.monotonic, running=True
    )
    (pool,) = found["pools"].values()
    assert (pool["old"]["emptyNodes"], pool["new"]["emptyNodes"]) == (1, 1)
    assert (pool["old"]["cpu"], pool["new"]["cpu"]) == (0.125, 0.125)
    assert found["moved"][0]["old"]["names"] == ["a"]
    assert shared.cluster.nodes.requested("cpu").sum() == 1000


async def test_equal_pods_of_a_controller_are_one_row_and_those_that_swap_are_none() -> None:
    shared = scheduler_state(*(node(name) for name in "abcd"))
    raw = [pod(f"train-{number}", cpu="1", owner=JOB) for number in range(3)]
    waiting = [parse_pod(each) for each in raw]
    swapped = await compared_nodes(
        shared, waiting, [side("a", "b", "c"), side("c", "a", "b")], time.monotonic, running=False
    )
    assert (swapped["summary"]["moved"], swapped["moved"]) == (0, [])
    found = await compared_nodes(
        shared, waiting, [side("a", "b", None), side("c", "d", "a")], time.monotonic, running=False
    )
    assert found["summary"] == {"moved": 1, "lost": 0, "gained": 1}
    lost = await compared_nodes(
        shared,
        waiting,
        [side("a", "b", "c"), side(None, None, None)],
        time.monotonic,
        running=False,
    )
    assert lost["summary"]["lost"] == 3
    assert [each["pods"] for each in lost["moved"]] == [1, 1, 1]
    assert lost["moved"][0]["reason"] == "Insufficient cpu"
    spread = await compared_nodes(
        shared, waiting, [side("a", "a", "a"), side("b", "c", "d")], time.monotonic, running=False
    )
    assert [(each["pod"], each["pods"]) for each in spread["moved"]] == [("default/train-0", 3)]
    assert spread["moved"][0]["new"] == {"nodes": 3, "names": ["b", "c", "d"]}
