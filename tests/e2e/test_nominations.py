"""Nominations that other components write into statuses, on a real API server (KEP-5278).

The right answers are those of kube-scheduler 1.35 to 1.37. Nobody ends a deleted pod here: no
kubelet runs.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import Cluster
from e2e.node_pool import NodePool
from e2e.replicas import delete_now, eventually, pods, priority_class

HIGH = "high-of-nominations"

Raw = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _high(cluster: Cluster) -> Iterator[None]:
    """Have a priority above that of pods without a class."""
    with cluster.access.client() as client, priority_class(client, HIGH, 1000):
        yield


class Stage:
    """Nodes and pods of a pool, and the component that writes nominations."""

    def __init__(self, pool: NodePool) -> None:
        self.pool = pool

    def nominate(self, name: str, node: str | None) -> None:
        """Write the nomination as another component does."""
        path = f"/api/v1/namespaces/{self.pool.name}/pods/{name}/status"
        self.pool.client.patch(path, {"status": {"nominatedNodeName": node}})

    def nominated(self, name: str) -> str | None:
        node: str | None = self.pod(name)["status"].get("nominatedNodeName")
        return node

    def pod(self, name: str) -> Raw:
        return pods(self.pool.client, self.pool.name)[name]

    def until_nominated(self, name: str, node: str) -> None:
        eventually(lambda: self.nominated(name), lambda seen: seen == node, f"{name} to {node}")

    def preempts(self) -> str:
        """Have h preempt on its node, whose pod does not leave, and late wait; return the node."""
        (node,) = self.pool.add_nodes(cpu="3")
        self.pool.add_pod("v", cpu="2")
        self.pool.wait_until_bound("v")
        self.pool.add_pod("h", cpu="3", priorityClassName=HIGH)
        self.until_nominated("h", node)
        eventually(lambda: self.pod("v")["metadata"], lambda m: "deletionTimestamp" in m, "v ends")
        self.pool.add_pod("late", cpu="1")
        self.pool.wait_until_unschedulable("late")
        return node


@pytest.fixture
def stage(pool: NodePool) -> Iterator[Stage]:
    yield Stage(pool)
    for name in pods(pool.client, pool.name):
        delete_now(pool.client, pool.name, name)


def test_a_cleared_nomination_is_made_and_written_again(stage: Stage) -> None:
    """Case 113: the pod is tried again, and its victim is still there (kubernetes#139904)."""
    node = stage.preempts()
    stage.nominate("h", None)
    stage.until_nominated("h", node)
    assert stage.pool.bound() == {"v": node}


def test_a_nomination_moved_to_a_node_that_does_not_fit_is_moved_back(stage: Stage) -> None:
    """Case 123, with a node that is too small instead of one that repels the pod."""
    node = stage.preempts()
    (small,) = stage.pool.add_nodes(cpu="500m", prefix="small")
    stage.nominate("h", small)
    stage.until_nominated("h", node)
    assert stage.pool.bound() == {"v": node}


def test_a_gated_pod_goes_to_the_node_that_another_component_names(stage: Stage) -> None:
    """Case 120: the other node is emptier, and would be chosen."""
    (busy,) = stage.pool.add_nodes(cpu="8", prefix="busy")
    stage.pool.add_pod("x", cpu="4")
    stage.pool.wait_until_bound("x")
    stage.pool.add_nodes(cpu="8", prefix="empty")
    stage.pool.add_pod("p", cpu="1", schedulingGates=[{"name": "a/b"}])
    stage.nominate("p", busy)
    stage.pool.patch_pod("p", {"spec": {"schedulingGates": None}})
    assert stage.pool.wait_until_bound("p") == {busy: 2}


def test_a_later_pod_leaves_the_room_of_a_nomination_by_another_component(stage: Stage) -> None:
    """Case 121: late would fit beside v, and not beside h."""
    (node,) = stage.pool.add_nodes(cpu="4")
    stage.pool.add_pod("v", cpu="2", priorityClassName=HIGH)
    stage.pool.wait_until_bound("v")
    stage.pool.add_pod("h", cpu="3", priorityClassName=HIGH)
    stage.pool.wait_until_unschedulable("h")
    stage.nominate("h", node)
    stage.pool.add_pod("late", cpu="1")
    stage.pool.wait_until_unschedulable("late")
    assert (stage.nominated("h"), stage.pool.bound()) == (node, {"v": node})
