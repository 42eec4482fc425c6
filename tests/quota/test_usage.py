"""The usage of Queues by placed and nominated pods."""

from typing import Any

import numpy as np

from mooring.groups.model.pod_group import GroupKey, GroupSource, Reservation
from mooring.model.pod import parse_pod
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.quota.usage import nominated_usage, used_at
from mooring.state.cluster import ClusterState
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import cluster, node, pod, queue_object

GROUP = GroupKey(GroupSource.KUBERNETES, "default", "g")


def of(name: str, queue: str, **fields: Any) -> dict[str, Any]:
    return pod(name, cpu="1", labels={QUEUE_LABEL: queue}, **fields)


def two_queues(*pods: dict[str, Any]) -> ClusterState:
    return cluster(node("n1"), queue_object("a", {"cpu": 9}), queue_object("b", {"cpu": 9}), *pods)


def number(state: ClusterState, queue: str) -> int:
    return state.queues.states[queue].number


def test_pods_of_each_queue_are_summed_and_others_left_out() -> None:
    placed = [of("p", "a", node="n1"), of("q", "a", node="n1"), pod("r", node="n1", cpu="1")]
    state = two_queues(*placed)
    assert state.queues.states["a"].used["cpu"] == 2000
    slots = np.arange(len(state.pod_columns.pods))
    usage = used_at(slots, ClusterView(state))
    assert usage == {number(state, "a"): {"cpu": 2000, "pods": 2}}


def test_nominated_pods_count_unless_they_are_of_the_queue_and_of_lower_priority() -> None:
    state = two_queues()
    for raw in (of("low", "a"), of("equal", "a", priority=5), of("other", "b"), pod("free")):
        state.nominate(parse_pod(raw), "n1")
    one = parse_pod(of("new", "a", priority=5))
    usage = nominated_usage((one,), ClusterView(state))
    assert {n: counts["pods"] for n, counts in usage.items()} == {
        number(state, "a"): 1,
        number(state, "b"): 1,
    }


def test_the_pods_themselves_and_reserved_nodes_do_not_count() -> None:
    state = two_queues()
    one, waiting = parse_pod(of("new", "a")), parse_pod(of("waiting", "a"))
    state.nominate(one, "n1")
    state.nominate(waiting, "n1", reservation=Reservation(GROUP, 60.0, 5))
    assert nominated_usage((one,), ClusterView(state)) == {}
    state.withdraw(one.uid)
    assert not state.nominations.queued


def test_a_quota_of_pods_counts_pods() -> None:
    state = cluster(node("n1"), queue_object("a", {"pods": 9}))
    state.nominate(parse_pod(of("waiting", "a")), "n1")
    usage = nominated_usage((parse_pod(of("new", "a")),), ClusterView(state))
    assert usage[number(state, "a")]["pods"] == 1
