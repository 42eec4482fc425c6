"""2,000 pods are placed, 400 of them by preemption, while requests and watches fail.

After the first 1,600 the cluster is full. The leader is killed in the middle of the others.
tests/e2e/test_faults.py tries each fault by itself.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from controlplane import ControlPlane
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from e2e.replicas import create_pods
from faults.books import counts
from faults.rules import Kind, Rule
from faults.scene import HIGH, LOW, Scene, drained_pod, prepare

NODES = 400
PER_NODE = 4
FILLING = NODES * PER_NODE
PREEMPTORS = 400
"""Of two cores each, while pods of one core fill all nodes: 800 victims."""
WAVE = 50
"""So many of them come at once: the auditor knows a preemptor's claim only when it is written."""
KILLED_AT = 215
"""So many preemptors are bound when the leader is killed, in the middle of a wave."""
WATCHES_FAIL_EVERY = 400
WAIT_SECONDS = 300.0
LOOK_AGAIN = 0.5
WRITES = (Kind.LOSE, Kind.DROP, Kind.INTERNAL, Kind.UNAVAILABLE, Kind.TOO_MANY, Kind.CONFLICT)
WATCHES = (Kind.GONE, Kind.TRUNCATE, Kind.DROP)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ControlPlane() as plane:
        prepare(plane)
        capacity = {"cpu": str(PER_NODE), "memory": "8Gi", "pods": "110"}
        create_nodes(plane.access, NODES, zones=3, capacity=capacity)
        with Scene.of(plane, tmp_path) as scene:
            yield scene
        assert scene.tracebacks() == []


def wait(holds: Callable[[], bool], what: str) -> None:
    """Looks twice a second: adding up thousands of events takes a while."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(LOOK_AGAIN)


def let_writes_fail(scene: Scene) -> None:
    """A few in a hundred writes fail, for a minute."""
    for kind in WRITES:
        scene.inject(Rule(kind, "POST|PATCH|DELETE", "/pods", 100, probability=0.03, delay=1.0))


def let_watches_fail(scene: Scene) -> None:
    """Watches end, and repeat events."""
    path = r"/(pods|nodes)\?.*watch"
    for kind in WATCHES:
        scene.inject(Rule(kind, "GET", path, count=10, seconds=2.0))
    scene.inject(Rule(Kind.DUPLICATE, "GET", path, count=50, seconds=30.0, probability=0.2))


@pytest.mark.timeout(1200)  # it took 6 minutes at a load of 15, 8 at one of 30
def test_2000_pods_are_placed_with_preemption_though_much_fails_and_the_leader_is_killed(
    scene: Scene, record_property: Callable[[str, object], None]
) -> None:
    """Nothing is lost, bound twice, too much for its node or evicted for nothing.

    `pytest -o junit_family=xunit1 --junit-xml FILE` writes its figures down.
    """
    begun = time.monotonic()
    leader, _ = scene.start_pair()
    namespace = create_namespace(scene.plane.access)
    let_writes_fail(scene)
    with scene.plane.access.client() as client:
        for number in range(FILLING):
            if number % WATCHES_FAIL_EVERY == 0:
                let_watches_fail(scene)
            create_pods(client, namespace, drained_pod(f"low-{number}", LOW, "1", grace=number % 2))
        wait(lambda: counts(scene.books.seen)["bound"] == FILLING, f"{FILLING} bound")

        def bound() -> int:
            path = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName!="
            items = client.get(path)["items"]
            return sum(raw["metadata"]["name"].startswith("high-") for raw in items)

        def all_bound(number: int) -> bool:
            return bound() == number

        let_writes_fail(scene)
        for begin in range(0, PREEMPTORS, WAVE):
            let_watches_fail(scene)
            for number in range(begin, begin + WAVE):
                create_pods(client, namespace, drained_pod(f"high-{number}", HIGH, "2"))
            if begin < KILLED_AT < begin + WAVE:
                wait(lambda: bound() >= KILLED_AT, f"{KILLED_AT} preemptors bound")
                leader.signal(signal.SIGKILL)
                assert bound() < begin + WAVE, "the wave was over before the leader was killed"
            wait(partial(all_bound, begin + WAVE), f"{begin + WAVE} preemptors bound")
    verdict = scene.settle()
    scene.save()
    struck = sum((proxy.counts() for proxy in scene.proxies), start=Counter[Kind]())
    record_property("bound", verdict.bound)
    record_property("evicted", verdict.evicted)
    record_property("seconds", time.monotonic() - begun)
    record_property("longest stall", verdict.longest_stall(begun, time.monotonic()))
    for kind, times in struck.items():
        record_property(kind, times)
    assert verdict.faults == []
    assert verdict.bound >= FILLING + PREEMPTORS
    assert verdict.evicted >= PREEMPTORS
    assert scene.differences() == []
    assert {kind for kind in (*WRITES, *WATCHES, Kind.DUPLICATE) if not struck[kind]} == set()
