"""Nominations that other components write to `status.nominatedNodeName` count (KEP-5278)."""

from typing import Any

import pytest

from engines import Bindings, Engine, until
from mooring.kube.client import ApiClient
from mooring.model.events import Kind
from mooring.model.pod import parse_pod
from mooring.testing.builders import node, pod, uid_of

HIGH: dict[str, Any] = {"cpu": "3", "priority": 1000}


@pytest.fixture
async def engine(client: ApiClient) -> Engine:
    """Return an engine with a node of 3 CPUs (2 in use) and a tainted node of 3 CPUs."""
    tainted = node("n2", cpu="3", taints=["t:NoSchedule"])
    return Engine(client, node("n1", cpu="3"), tainted, pod("v", cpu="2", node="n1"))


def nominated(engine: Engine, name: str) -> str | None:
    state = engine.scheduler_state.state
    nominee = state.nominations.get(uid_of(name))
    return state.nodes.names[nominee.row] if nominee is not None else None


def written(bindings: Bindings) -> list[str | None]:
    """Return the nominations that were written into statuses."""
    return [s["nominatedNodeName"] for s in bindings.statuses if "nominatedNodeName" in s]


def waits(engine: Engine, name: str) -> bool:
    """Return whether the pod's attempt has ended without a node."""
    queued = engine.scheduler_state.queue.get(uid_of(name))
    return queued is not None and queued.attempts > 0 and queued.queue is not None


def attempts(engine: Engine, name: str) -> int:
    """Return the number of attempts about the pod."""
    queued = engine.scheduler_state.queue.get(uid_of(name))
    return queued.attempts if queued is not None else 0


async def preempted(engine: Engine, bindings: Bindings) -> None:
    """Let the pod h evict v, which terminates slowly; then the pod `late` waits behind h."""
    engine.pending(pod("h", **HIGH))
    await until(lambda: bindings.deleted == ["v"] and written(bindings) == ["n1"])
    leaving = parse_pod(pod("v", cpu="2", node="n1", terminating=True))
    engine.scheduler_state.state.put(Kind.POD, leaving.uid, leaving)
    engine.pending(pod("h", nominated="n1", **HIGH))
    engine.pending(pod("late", cpu="1"))
    await until(lambda: waits(engine, "late"))


async def test_a_pod_whose_nomination_is_cleared_is_tried_and_nominated_again(
    engine: Engine, bindings: Bindings
) -> None:
    """The same happens in kube-scheduler's issue #139904 (case 113)."""
    with engine.running():
        await preempted(engine, bindings)
        before = attempts(engine, "h")
        engine.pending(pod("h", **HIGH))
        await until(lambda: written(bindings) == ["n1", "n1"])
    assert attempts(engine, "h") == before + 1
    assert nominated(engine, "h") == "n1"
    assert (bindings.made, bindings.deleted) == ([], ["v"])


async def test_a_pod_whose_nomination_is_moved_to_a_node_it_does_not_fit_gets_another(
    engine: Engine, bindings: Bindings
) -> None:
    """The final status has the node where the pod will run (case 123)."""
    with engine.running():
        await preempted(engine, bindings)
        engine.pending(pod("h", nominated="n2", **HIGH))
        await until(lambda: written(bindings) == ["n1", "n1"])
    assert nominated(engine, "h") == "n1"
    assert bindings.made == []


async def test_a_node_that_another_component_names_is_tried_first(
    client: ApiClient, bindings: Bindings
) -> None:
    """The component may also name the node while the pod is gated (case 120)."""
    busy = pod("x", cpu="4", node="n2")
    engine = Engine(client, node("n1", cpu="8"), node("n2", cpu="8"), busy)
    with engine.running():
        engine.pending(pod("p", cpu="1", gates=["a/b"]))
        engine.pending(pod("p", cpu="1", gates=["a/b"], nominated="n2"))
        engine.pending(pod("p", cpu="1", nominated="n2"))
        await until(lambda: bindings.made)
    assert bindings.made == [("p", "n2")]


async def test_later_pods_leave_the_room_of_a_pod_that_another_component_nominated(
    client: ApiClient, bindings: Bindings
) -> None:
    """The nomination itself does not cause a retry of the pod (case 121)."""
    engine = Engine(client, node("n1", cpu="4"), pod("v", cpu="2", node="n1", priority=1000))
    with engine.running():
        engine.pending(pod("h", **HIGH))
        await until(lambda: waits(engine, "h"))
        engine.pending(pod("h", nominated="n1", **HIGH))
        engine.pending(pod("late", cpu="1"))
        await until(lambda: waits(engine, "late"))
    assert (attempts(engine, "h"), nominated(engine, "h"), bindings.made) == (1, "n1", [])
