"""Faults during drains with preemption: no pod is lost, bound twice or evicted in vain."""

import signal
import threading
import time
from typing import Any

import pytest

from controlplane import ControlPlane
from controlplane.nodes import create_nodes
from e2e.replicas import PROFILES, QUICK_LEASE, create_pods, delete_now, eventually
from faults.books import PodSeen, counts
from faults.rules import Kind, Rule
from faults.scene import HIGH, LOW, Member, Scene, create_priorities, drained_pod
from policies import profile

Raw = dict[str, Any]

NODES = 24
PER_NODE = 4
FILLING = NODES * PER_NODE
PREEMPTORS = 24
"""Of two cores each, while pods of one core fill all nodes: 48 victims."""
FIRST = 6
"""So many of them are bound when the misfortune comes."""

KILLED_SECONDS = 25.0
"""A killed leader's successor binds within this time, under the default lease of 15 seconds."""
STOPPED_SECONDS = 10.0
"""The same, where the leader released the lease; the successor need not wait until it expires."""
PAUSE_SECONDS = 8.0
"""Longer than a quick lease lives."""
ENDED_SECONDS = 25.0
STRIKE_SECONDS = 120.0


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    create_priorities(plane.access)
    capacity = {"cpu": str(PER_NODE), "memory": "8Gi", "pods": "110"}
    create_nodes(plane.access, NODES, zones=3, capacity=capacity)
    return plane


def fill(scene: Scene, namespace: str) -> None:
    """Fill every core with a pod of low priority; half of the pods terminate slowly (1 s)."""
    with scene.plane.access.client() as client:
        for number in range(FILLING):
            raw = drained_pod(f"low-{number}", LOW, "1", grace=number % 2)
            create_pods(client, namespace, raw)
    scene.wait_until_bound(FILLING)


def preemptors(prefix: str = "high", number: int = PREEMPTORS) -> list[Raw]:
    return [drained_pod(f"{prefix}-{index}", HIGH, "2") for index in range(number)]


def bound_of(scene: Scene, prefix: str) -> int:
    """Return the number of bound pods whose names begin with `prefix`."""
    pods = (event.object for event in scene.books.seen if isinstance(event.object, PodSeen))
    return len({pod.key for pod in pods if f"/{prefix}" in pod.key and pod.node})


def wait_until_drained(scene: Scene, prefix: str = "high", number: int = PREEMPTORS) -> None:
    eventually(lambda: bound_of(scene, prefix), lambda n: n >= number, f"{number} {prefix} bound")


def assert_all_is_well(scene: Scene, number: int = PREEMPTORS, prefix: str = "high") -> None:
    """Check that every preemptor is bound, and that the auditor and Mooring found no error."""
    wait_until_drained(scene, prefix, number)
    verdict = scene.settle()
    assert verdict.faults == []
    assert verdict.evicted >= number
    assert scene.differences() == []


def stop_in_the_middle(
    scene: Scene, namespace: str, number: signal.Signals
) -> tuple[Member, float]:
    """Send a signal to the leader while preemptors come; wait until all are bound.

    Returns the former leader, and the time of the signal.
    """
    leader, _ = scene.start_pair()
    fill(scene, namespace)
    with scene.creating(namespace, preemptors()):
        wait_until_drained(scene, number=FIRST)
        moment = time.monotonic()
        leader.signal(number)
        assert bound_of(scene, "high") < PREEMPTORS, "the drain was over before the end came"
    return leader, moment


def test_a_killed_leader_is_followed_when_its_lease_expires_and_nothing_is_lost(
    scene: Scene, namespace: str
) -> None:
    _, moment = stop_in_the_middle(scene, namespace, signal.SIGKILL)
    create = drained_pod("high-last", HIGH, "2")
    with scene.plane.access.client() as client:
        create_pods(client, namespace, create)
    assert_all_is_well(scene, PREEMPTORS + 1)
    assert longest_gap(scene, moment) < KILLED_SECONDS


def longest_gap(scene: Scene, since: float) -> float:
    """Return the longest time since `since` in which pods waited and no pod was bound."""
    return scene.settle().longest_stall(since, time.monotonic())


def test_the_work_goes_on_after_a_restart_of_the_api_server_under_the_default_lease(
    scene: Scene, namespace: str
) -> None:
    scene.start_pair()
    fill(scene, namespace)
    with scene.creating(namespace, preemptors()):
        wait_until_drained(scene, number=FIRST)
        scene.plane.stop_component("kube-apiserver")
        scene.plane.start_component("kube-apiserver")
    assert_all_is_well(scene)


def test_the_work_goes_on_after_a_restart_of_etcd(scene: Scene, namespace: str) -> None:
    scene.start_pair()
    fill(scene, namespace)
    with scene.creating(namespace, preemptors()):
        wait_until_drained(scene, number=FIRST)
        scene.plane.stop_component("etcd")
        scene.plane.start_component("etcd")
    assert_all_is_well(scene)


def test_no_lost_or_failed_write_makes_a_pod_lost_or_bound_twice(
    scene: Scene, namespace: str
) -> None:
    scene.start_pair()
    fill(scene, namespace)
    writes = "POST|PATCH|DELETE"
    for kind in (Kind.LOSE, Kind.DROP, Kind.INTERNAL, Kind.UNAVAILABLE):
        scene.inject(Rule(kind, writes, "/pods", count=10, seconds=10.0, probability=0.1))
    limited = Rule(Kind.TOO_MANY, writes, "/pods", count=10, probability=0.1, delay=1.0)
    scene.inject(limited)
    with scene.creating(namespace, preemptors()):
        wait_until_drained(scene, number=FIRST)
    assert_all_is_well(scene)


@pytest.mark.parametrize("kinds", [[Kind.DUPLICATE], [Kind.GONE, Kind.TRUNCATE, Kind.DROP]])
def test_watches_that_break_or_repeat_mislead_nobody(
    scene: Scene, namespace: str, kinds: list[Kind]
) -> None:
    """Each kind of fault strikes twice during the drain.

    After a failure a watch is opened again after a pause; each failure in a row doubles it.
    """
    scene.start_pair()
    fill(scene, namespace)
    strikes = 2 * kinds
    with scene.creating(namespace, preemptors()):
        for number, kind in enumerate(strikes):
            wait_until_drained(scene, number=(number + 1) * PREEMPTORS // (len(strikes) + 1))
            rule = Rule(kind, "GET", r"/(pods|nodes)\?.*watch", count=8, seconds=STRIKE_SECONDS)
            eventually(scene.inject(rule).strikes, bool, f"{kind} struck", seconds=STRIKE_SECONDS)
    assert_all_is_well(scene)


def test_a_pod_whose_node_goes_between_decision_and_binding_harms_no_other(
    scene: Scene, namespace: str
) -> None:
    leader, _ = scene.start_pair()
    fill(scene, namespace)
    labels = {"pool": namespace}
    capacity = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    (name,) = create_nodes(
        scene.plane.access, 1, prefix=namespace, capacity=capacity, labels=labels
    )
    scene.inject(Rule(Kind.STALL, "POST", "/stalled/binding", delay=3.0), leader)
    with scene.plane.access.client() as client:
        stalled = drained_pod("stalled", HIGH, "2", nodeSelector=labels)
        create_pods(client, namespace, stalled)
        eventually(lambda: leader.proxy.counts()[Kind.STALL], bool, "a binding held back")
        client.delete(f"/api/v1/nodes/{name}")
        with scene.creating(namespace, preemptors()):
            wait_until_drained(scene, number=FIRST)
            create_nodes(scene.plane.access, 1, prefix=namespace, capacity=capacity, labels=labels)
            # The pod is bound there or it is pending: in both cases there is room for one such pod.
            second = drained_pod("high-second", HIGH, "2", nodeSelector=labels)
            create_pods(client, namespace, second)
        wait_until_drained(scene)
        eventually(
            lambda: bound_of(scene, "stalled") + bound_of(scene, "high-second"), bool, "one of two"
        )
        assert scene.settle().overcommitted == ()
        for pod_name in ("stalled", "high-second"):
            delete_now(client, namespace, pod_name)
        client.delete(f"/api/v1/nodes/{name}")
    assert scene.settle().faults == []
    assert scene.differences() == []


def test_pods_of_a_profile_that_is_deleted_wait_until_it_comes_back(
    scene: Scene, namespace: str
) -> None:
    scene.start_pair()
    fill(scene, namespace)
    with scene.plane.access.client() as client:
        client.post(PROFILES, profile("team"))
        waiting = [
            drained_pod(f"team-{number}", HIGH, "2", scheduler="team") for number in range(20)
        ]
        with scene.creating(namespace, waiting):
            eventually(lambda: bound_of(scene, "team"), bool, "the first of the team")
            client.delete(f"{PROFILES}/team")
        with scene.creating(namespace, preemptors(number=FIRST)):
            wait_until_drained(scene, number=FIRST)
        verdict = scene.settle()
        assert verdict.faults == []
        client.post(PROFILES, profile("team"))
        eventually(lambda: bound_of(scene, "team"), lambda n: n == len(waiting), "all of the team")
        client.delete(f"{PROFILES}/team")
    assert scene.settle().faults == []


def test_a_partitioned_leader_ends_and_does_nothing_more(scene: Scene, namespace: str) -> None:
    leader, standby = scene.start_pair(*QUICK_LEASE)
    fill(scene, namespace)
    with scene.creating(namespace, preemptors(number=FIRST)):
        wait_until_drained(scene, number=1)
        scene.inject(Rule(Kind.PARTITION, seconds=PAUSE_SECONDS + 10), leader)
    with scene.creating(namespace, preemptors("late")):
        assert scene.wait_for_leader(but=leader) is standby
        wait_until_drained(scene, "late")
    leader.proxy.clear()
    assert leader.program.wait(ENDED_SECONDS) == 1
    assert_all_is_well(scene, FIRST)


def test_a_leader_that_is_told_to_stop_is_followed_before_its_lease_would_expire(
    scene: Scene, namespace: str
) -> None:
    leader, moment = stop_in_the_middle(scene, namespace, signal.SIGTERM)
    assert leader.program.wait(ENDED_SECONDS) == 0
    assert_all_is_well(scene)
    assert longest_gap(scene, moment) < STOPPED_SECONDS


def test_a_victim_whose_deletion_is_answered_409_is_not_waited_for_forever(
    scene: Scene, namespace: str
) -> None:
    leader, _ = scene.start_pair()
    fill(scene, namespace)
    # As an admission webhook answers that forbids the deletion for the moment.
    conflict = Rule(Kind.CONFLICT, "DELETE", f"/{namespace}/pods/", count=4, seconds=10.0)
    scene.inject(conflict, leader)
    with scene.creating(namespace, preemptors(number=FIRST)):
        eventually(lambda: leader.proxy.counts()[Kind.CONFLICT], bool, "a conflict")
    assert_all_is_well(scene, FIRST)


def test_a_leader_that_was_paused_for_longer_than_its_lease_does_nothing_beside_its_successor(
    scene: Scene, namespace: str
) -> None:
    leader, standby = scene.start_pair(*QUICK_LEASE)
    fill(scene, namespace)
    with scene.creating(namespace, preemptors(number=FIRST)):
        wait_until_drained(scene, number=1)
        leader.signal(signal.SIGSTOP)
        resume = threading.Timer(PAUSE_SECONDS, leader.signal, [signal.SIGCONT])
        resume.start()
    with scene.creating(namespace, preemptors("late")):
        assert scene.wait_for_leader(but=leader) is standby
        resume.join()
    assert leader.program.wait(ENDED_SECONDS) == 1
    wait_until_drained(scene, "late")
    assert_all_is_well(scene, FIRST)
    assert counts(scene.books.seen)["pending"] == 0
