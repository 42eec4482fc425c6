"""Names of pods return while one watch of pods is later than the other.

Mooring reads pods with two watches: pods without a node, and pods with a node. Ninety names, as of
StatefulSets, are deleted and created again, each time with other requests, on nodes that are almost
full. A proxy delays one of the watches. In any order of events, no Binding may overcommit a node.
The auditor replays every version of every pod in etcd's order.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import pytest

from controlplane import ApiError, ControlPlane
from controlplane.client import Client
from controlplane.nodes import create_nodes
from e2e.replicas import PROFILES, create_pods, delete_now, eventually
from faults.books import GPU_MEMORY
from faults.rules import ASSIGNED_PODS, PENDING_PODS, Kind, Rule
from faults.scene import LOW, Member, Scene, create_priorities, drained_pod

Raw = dict[str, Any]

NAMES: Final = 90
RETURNS: Final = 240
"""How often some name is deleted and created again, in each test."""
GPU_NODES: Final = 16
PLAIN_NODES: Final = 14
CARDS: Final = 2
CARD_MEMORY: Final = 16
SHARE: Final = "12"
"""Of a card's memory: no two such pods have space on one."""
CORES: Final = 4
SIZES: Final = ("500m", "800m", "1200m", "1500m", "2200m")
"""What pods request, 1.24 cores on average: all names together almost fill the nodes."""
MOST_PENDING: Final = 30
"""The next name returns once so few pods wait, so that most are bound before their name returns."""


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    create_priorities(plane.access)
    capacity = {"cpu": str(CORES), "memory": "32Gi", "pods": "110"}
    cards = {GPU_MEMORY: str(CARDS * CARD_MEMORY), "aliyun.com/gpu-count": str(CARDS)}
    create_nodes(plane.access, PLAIN_NODES, capacity=capacity)
    create_nodes(plane.access, GPU_NODES, prefix="gpu", capacity=capacity | cards)
    with plane.access.client() as client:
        shares = {"plugins": {"multiPoint": {"enabled": [{"name": "GPUShare"}]}}}
        client.patch(f"{PROFILES}/mooring", {"spec": shares})
    return plane


@contextmanager
def unless_gone() -> Iterator[None]:
    """Ignore errors inside because an object no longer exists."""
    try:
        yield
    except ApiError as error:
        if error.status != 404:
            raise


class Returning:
    """Pods with fixed names; a pod's requests depend on its name and how often it returned.

    A new pod may be deleted soon: if a PATCH of its predecessor's status arrives during the
    deletion, the API server deletes the next pod of this name (`deleteWithoutFinalizers` in
    apiserver's registry/generic/registry/store.go).
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._random = Random(20)  # noqa: S311 - has to be repeatable
        self._times: Counter[int] = Counter()

    def create(self, numbers: Sequence[int]) -> None:
        create_pods(self._client, self._namespace, *map(self._next, numbers))

    def delete(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            with unless_gone():
                delete_now(self._client, self._namespace, f"web-{number}")

    def again(self) -> None:
        """Patch a random pod's status, delete it, and create its successor; one in five ends.

        A pod without a node does not end here, because its Binding may be in flight, and the API
        server would still accept it. Neither watch shows such a pod; Mooring counts it for a minute
        and then reads it, and the test does not wait for that.
        """
        number, may_end = self._random.randrange(NAMES), self._random.random() < 0.2
        path = f"/api/v1/namespaces/{self._namespace}/pods/web-{number}"
        with unless_gone():
            has_node = may_end and self._client.get(path)["spec"].get("nodeName")
            ends = {"phase": "Succeeded"} if has_node else {}
            status = {"message": "it is on its way out", **ends}
            self._client.patch(f"{path}/status", {"status": status})
        self.delete([number])
        self.create([number])

    def _next(self, number: int) -> Raw:
        """Return the next pod of this number: a third use GPU cards, a third a host port."""
        self._times[number] += 1
        draw = Random(f"{number}-{self._times[number]}")  # noqa: S311 - has to be repeatable
        memory = {GPU_MEMORY: SHARE} if number % 3 == 0 else {}
        raw = drained_pod(f"web-{number}", LOW, draw.choice(SIZES), requests=memory, limits=memory)
        if number % 3 == 1:
            port = {"containerPort": 80, "hostPort": 8080 + draw.randrange(2)}
            raw["spec"]["containers"][0]["ports"] = [port]
        return raw


def pending(scene: Scene) -> int:
    """Return the number of pods without a node, according to the auditor."""
    return sum(not pod.node and not pod.finished for pod in scene.books.pods)


def started(scene: Scene, pods: Returning) -> Member:
    """Start a leader; return it when it has bound most of the first pods."""
    member = scene.start()
    member.wait_until_ready()
    scene.wait_for_leader()
    pods.create(range(NAMES))
    wait_until_most_are_bound(scene)
    return member


def wait_until_most_are_bound(scene: Scene) -> None:
    eventually(lambda: pending(scene), lambda n: n <= MOST_PENDING, "few pods pending")


def let_names_return(scene: Scene, pods: Returning, times: int) -> None:
    """Replace a random pod `times` times."""
    for _ in range(times):
        wait_until_most_are_bound(scene)
        pods.again()


def struck(member: Member, kind: Kind, path: str) -> int:
    """Return how often a fault of this kind has struck the watch of this path."""
    rule = Rule(kind, path=path)
    found = (one for one in member.proxy.injected() if one["kind"] == kind)
    return sum(rule.matches(one["method"], one["path"], watch=True) for one in found)


def assert_no_room_was_given_twice(scene: Scene, pods: Returning) -> None:
    """Delete half of the pods, so that all others fit; then check that no pod is lost."""
    pods.delete(range(0, NAMES, 2))
    for proxy in scene.proxies:
        proxy.clear()
    eventually(lambda: pending(scene), lambda n: n == 0, "every pod bound")
    verdict = scene.settle()
    wrong = verdict.overcommitted
    assert not wrong, f"{len(wrong)} of {verdict.bound} Bindings had no room; first {wrong[:3]}"
    assert verdict.faults == []
    assert verdict.bound >= RETURNS // 2


def delay(path: str, seconds: float, jitter: float = 0.0) -> Rule:
    """Return a proxy's rule that delays the watch by `seconds`, plus at most `jitter`."""
    return Rule(Kind.DELAY, "GET", path, 100_000, 600.0, delay=seconds, jitter=jitter)


def test_no_binding_lands_on_a_full_node_while_assigned_pods_are_shown_late(
    scene: Scene, namespace: str
) -> None:
    with scene.plane.access.client() as client:
        pods = Returning(client, namespace)
        member = started(scene, pods)
        scene.inject(delay(ASSIGNED_PODS, 0.7))
        let_names_return(scene, pods, RETURNS)
        assert struck(member, Kind.DELAY, ASSIGNED_PODS) >= RETURNS
        assert struck(member, Kind.DELAY, PENDING_PODS) == 0
        assert_no_room_was_given_twice(scene, pods)
        assert scene.differences() == []


def test_no_binding_lands_on_a_full_node_while_delays_change_and_old_lists_come(
    scene: Scene, namespace: str
) -> None:
    """The watches are late in turn; each late watch ends with 410, and an old list follows.

    Neither watch nor list shows a pod that is bound and deleted in between. Mooring counts such a
    pod for a minute and then reads it; the test does not wait for that.
    """
    with scene.plane.access.client() as client:
        pods = Returning(client, namespace)
        member = started(scene, pods)
        for late in (ASSIGNED_PODS, PENDING_PODS) * 2:
            member.proxy.clear()
            scene.inject(delay(late, 0.5, jitter=0.5))
            let_names_return(scene, pods, RETURNS // 8)
            scene.inject(Rule(Kind.GONE, "GET", late))
            let_names_return(scene, pods, RETURNS // 8)
        for late in (ASSIGNED_PODS, PENDING_PODS):
            assert struck(member, Kind.DELAY, late) >= RETURNS // 4
            assert struck(member, Kind.GONE, late) == 2
        assert_no_room_was_given_twice(scene, pods)
