"""The benchmark of large clusters runs the program's own code."""

from collections import Counter
from itertools import pairwise

from bench.large_cluster import PODS_PER_NODE, LargeCluster
from bench.scale import Replica, measure
from mooring.kube.api_resources import POD

NODES = 4


async def test_reflectors_fill_the_state_with_the_whole_cluster() -> None:
    replica = Replica(LargeCluster(NODES))
    await replica.load()
    await replica.client.close()
    assert len(replica.state.nodes.row_of) == NODES
    on = Counter(placed.row for placed in replica.state.pods)
    assert on == dict.fromkeys(range(NODES), PODS_PER_NODE)


async def test_every_pod_is_decided_about_and_leaves_nothing_behind() -> None:
    figures = await measure(NODES, pods_per_node=2, decided=200)
    assert (figures.nodes, figures.pods) == (NODES, 2 * NODES)
    assert figures.longest_hold.task
    assert all(speed > 0 for speed in figures.decisions.values())
    assert min(figures.peak, figures.resident, figures.before) > 0
    assert len(figures.row().split()) == 10


def test_pods_of_one_workload_come_one_after_the_other() -> None:
    owners = [
        raw["metadata"]["ownerReferences"][0]["name"] for raw in LargeCluster(NODES).objects(POD)
    ]
    changes = sum(one != other for one, other in pairwise(owners))
    assert changes == len(set(owners)) - 1
