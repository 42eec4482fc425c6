"""Tests the observer beside a real API server."""

import threading
import time
from collections.abc import Callable

from bench.observer import Binds, first_change, watched_binds
from controlplane import ControlPlane

PATIENCE = 60.0


def test_times_are_in_the_order_of_the_first_sight_of_each_pod() -> None:
    binds = Binds(["a", "b"])
    before = time.monotonic()
    assert binds.saw("b")
    assert binds.saw("b")
    assert binds.saw("another")
    assert not binds.saw("a")  # nothing more to see
    first, second = binds.times.values()
    assert before <= first <= second <= time.monotonic()


def test_each_pod_is_told_once_when_it_is_bound() -> None:
    told: list[str] = []
    binds = Binds(["a", "b"], told.append)
    for name in ("b", "b", "another", "a"):
        binds.saw(name)
    assert told == ["b", "a"]


def test_waiting_ends_when_all_are_bound_or_none_has_been_for_too_long() -> None:
    binds = Binds(["a", "b"])
    binds.saw("a")
    assert not binds.wait(patience=0.01)
    binds.saw("b")
    assert binds.wait(patience=0.01)


def creator(plane: ControlPlane, namespace: str) -> Callable[[str, str | None], None]:
    """Return a function that creates a pod, on a node if one is given."""

    def create(name: str, node: str | None = None) -> None:
        placed = {"nodeName": node} if node else {}
        spec = {"containers": [{"name": "main", "image": "none"}], **placed}
        body = {"metadata": {"name": name}, "spec": spec}
        with plane.access.client() as client:
            client.post(f"/api/v1/namespaces/{namespace}/pods", body)

    return create


def bind(plane: ControlPlane, namespace: str, name: str, node: str) -> None:
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    with plane.access.client() as client:
        client.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)


def test_only_bindings_from_now_on_are_seen(control_plane: ControlPlane, namespace: str) -> None:
    create = creator(control_plane, namespace)
    create("before", "n1")
    create("a", None)
    with watched_binds(control_plane.access, namespace, ["before", "a"]) as binds:
        create("unbound", None)
        bind(control_plane, namespace, "a", "n1")
        assert not binds.wait(patience=1.0)
        assert len(binds.times) == 1


def test_a_watch_that_the_server_ends_goes_on(control_plane: ControlPlane, namespace: str) -> None:
    create = creator(control_plane, namespace)
    names = ["a", "b"]
    for name in names:
        create(name, None)
    with watched_binds(control_plane.access, namespace, names, seconds=1) as binds:
        bind(control_plane, namespace, "a", "n1")
        assert not binds.wait(patience=3.0), "long enough for the server to end the watch"
        bind(control_plane, namespace, "b", "n1")
        assert binds.wait(patience=PATIENCE)
    assert len(binds.times) == 2


def test_the_first_change_is_told_once(control_plane: ControlPlane, namespace: str) -> None:
    create = creator(control_plane, namespace)
    create("a", None)
    told = threading.Semaphore(0)
    with first_change(control_plane.access, namespace, told.release):
        assert not told.acquire(blocking=False)
        bind(control_plane, namespace, "a", "n1")
        assert told.acquire(timeout=PATIENCE)
        create("b", None)
    assert not told.acquire(blocking=False)
