"""600 pods are placed, 120 of them by preemption, while requests and watches fail.

The first 1,600 pods fill the cluster. The leader is killed while the other pods are placed.
tests/e2e/test_faults.py tests each fault alone.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from controlplane import ControlPlane
from controlplane.client import Client
from controlplane.namespaces import create_namespace
from controlplane.nodes import create_nodes
from e2e.replicas import create_pods
from faults.books import PodSeen, counts
from faults.rules import Kind, Rule
from faults.scene import HIGH, LOW, Member, Scene, create_priorities, drained_pod

NODES = 120
PER_NODE = 4
FILLING = NODES * PER_NODE
PREEMPTORS = 120
"""Of two cores each, while pods of one core fill all nodes: 240 victims."""
WAVE = 40
"""So many of them come at once: the auditor knows a preemptor's claim only when it is written."""
KILLED_FROM = 40
"""After so many preemptors, the leader is killed in the middle of a wave."""
SOME = 5
"""When so many of the wave are bound, it has begun."""
WATCHES_FAIL_EVERY = 240
WAIT_SECONDS = 300.0
LOOK_AGAIN = 0.5
SOON = 0.02
WRITES = (Kind.LOSE, Kind.DROP, Kind.INTERNAL, Kind.UNAVAILABLE, Kind.TOO_MANY, Kind.CONFLICT)
WATCHES = (Kind.GONE, Kind.TRUNCATE, Kind.DROP)


@pytest.fixture
def scene(plane: ControlPlane, tmp_path: Path) -> Iterator[Scene]:
    create_priorities(plane.access)
    capacity = {"cpu": str(PER_NODE), "memory": "8Gi", "pods": "110"}
    create_nodes(plane.access, NODES, zones=3, capacity=capacity)
    with Scene.of(plane, tmp_path) as scene:
        yield scene
    assert scene.tracebacks() == []


def wait(holds: Callable[[], bool], what: str, pause: float = LOOK_AGAIN) -> None:
    """Wait until `holds` returns True; check twice a second, because each check takes long."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(pause)


def are_bound(client: Client, namespace: str, number: int) -> bool:
    """Return whether exactly `number` preemptors are bound, by a list of the API server."""
    path = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName!="
    names = (str(raw["metadata"]["name"]) for raw in client.get(path)["items"])
    return sum(name.startswith("high-") for name in names) == number


def have_begun(scene: Scene, number: int) -> bool:
    """Return whether the auditor has seen at least `number` bound preemptors."""
    found = (event.object for event in scene.books.seen)
    pods = (one for one in found if isinstance(one, PodSeen) and one.node)
    return len({one.key for one in pods if "/high-" in one.key}) >= number


def killed_before(leader: Member, are_all_bound: Callable[[], bool]) -> bool:
    """Kill the leader; return False, without killing it, if all pods are bound already."""
    leader.signal(signal.SIGSTOP)
    over = are_all_bound()
    leader.signal(signal.SIGCONT if over else signal.SIGKILL)
    return not over


def let_writes_fail(scene: Scene) -> None:
    """Let a few percent of the writes fail for a minute."""
    for kind in WRITES:
        scene.inject(Rule(kind, "POST|PATCH|DELETE", "/pods", 100, probability=0.03, delay=1.0))


def let_watches_fail(scene: Scene) -> None:
    """Let watches end in each way, and repeat events.

    Each kind begins when the watches work again after the last kind. Otherwise the pauses between
    retries would grow, and the auditor could not know which evictions are needless.
    """
    path = r"/(pods|nodes)\?.*watch"
    for kind in WATCHES:
        wait(lambda: all(m.watches for m in scene.members if m.runs), "watches that work again")
        scene.inject(Rule(kind, "GET", path, count=10, seconds=2.0))
    scene.inject(Rule(Kind.DUPLICATE, "GET", path, count=50, seconds=30.0, probability=0.2))


def test_pods_are_placed_with_preemption_though_much_fails_and_the_leader_is_killed(
    scene: Scene, record_property: Callable[[str, object], None]
) -> None:
    """No pod is lost, bound twice or evicted in vain, and no node is overcommitted.

    `pytest -o junit_family=xunit1 --junit-xml FILE` writes the test's figures to a file.
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

        killed = False
        let_writes_fail(scene)
        for begin in range(0, PREEMPTORS, WAVE):
            let_watches_fail(scene)
            for number in range(begin, begin + WAVE):
                create_pods(client, namespace, drained_pod(f"high-{number}", HIGH, "2"))
            if begin >= KILLED_FROM and not killed:
                wait(partial(have_begun, scene, begin + SOME), f"{begin + SOME} bound", SOON)
                killed = killed_before(leader, partial(are_bound, client, namespace, begin + WAVE))
            wait(partial(are_bound, client, namespace, begin + WAVE), f"{begin + WAVE} bound")
    assert killed
    verdict = scene.settle()
    scene.save()
    struck = sum((proxy.counts() for proxy in scene.proxies), start=Counter[Kind]())
    record_property("bound", verdict.bound)
    record_property("evicted", verdict.evicted)
    record_property("seconds", time.monotonic() - begun)
    record_property("longest stall", verdict.longest_stall(begun, time.monotonic()))
    for kind, times in struck.items():
        record_property(kind.value, times)
    assert verdict.faults == []
    assert verdict.bound >= FILLING + PREEMPTORS
    assert verdict.evicted >= PREEMPTORS
    assert scene.differences() == []
    assert {kind for kind in (*WRITES, *WATCHES, Kind.DUPLICATE) if not struck[kind]} == set()
