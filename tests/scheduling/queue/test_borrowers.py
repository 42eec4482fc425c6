"""The order of pods whose Queues have borrowed quota."""

from collections import Counter
from random import Random
from typing import Any

from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import parse_pod
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.scheduling.queue.queue import SchedulingQueue
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.testing.builders import node, pod, queue_object, uid_of
from mooring.testing.fakes import pipeline
from scheduler_states import scheduler_state

CPU = "cpu"
DEFAULT = pipeline()


def of(name: str, queue: str, on: str | None = None, **fields: Any) -> dict[str, Any]:
    return pod(name, node=on, labels={QUEUE_LABEL: queue}, cpu="1", **fields)


def a_cluster(*used: str, weights: dict[str, str] | None = None) -> SchedulerState:
    """Return a state with Queues a, b and c of one cpu, and a pod on a node for each of `used`."""
    weights = weights or {}
    return scheduler_state(
        node("n1", cpu="64"),
        queue_object("all", {CPU: "10"}),
        *(
            queue_object(n, {CPU: "1"}, parent="all", fairSharing={"weight": weights.get(n, "1")})
            for n in "abc"
        ),
        *(of(f"used{i}", queue, "n1") for i, queue in enumerate(used)),
    )


def a_queue(scheduler: SchedulerState, *pods: dict[str, Any]) -> SchedulingQueue:
    for number, raw in enumerate(pods):
        scheduler.queue.add(parse_pod(raw), DEFAULT, float(number))
    return scheduler.queue


def pop_all(queue: SchedulingQueue, now: float) -> list[str]:
    names = []
    while (queued := queue.pop(now)) is not None:
        names.append(queued.pod.name)
    return names


def test_pods_of_a_queue_that_has_borrowed_come_last() -> None:
    scheduler = a_cluster("a", "a")
    queue = a_queue(scheduler, of("a1", "a", priority=100), of("b1", "b"), pod("free"))
    assert pop_all(queue, 10.0) == ["b1", "free", "a1"]


def test_the_smallest_share_comes_first() -> None:
    scheduler = a_cluster("a", "a", "a", "b", "b")
    queue = a_queue(scheduler, of("a1", "a"), of("b1", "b"), of("a2", "a"), of("b2", "b"))
    assert pop_all(queue, 10.0) == ["b1", "b2", "a1", "a2"]


def test_a_share_is_divided_by_the_weight() -> None:
    scheduler = a_cluster("a", "a", "a", "b", "b", weights={"a": "4"})
    queue = a_queue(scheduler, of("b1", "b"), of("a1", "a"))
    assert pop_all(queue, 10.0) == ["a1", "b1"]


def test_shares_that_grow_while_pods_are_placed_take_turns() -> None:
    scheduler = a_cluster("a", "a", "b", "b")
    pods = [of(f"{name}{i}", name) for i in range(3) for name in "ab"]
    queue, order = a_queue(scheduler, *pods), list[str]()
    while (queued := queue.pop(10.0)) is not None:
        order.append(queued.pod.name[0])
        scheduler.state.assume(queued.pod, 0)
    assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:]) == ["a", "b"]


def test_queues_of_several_parents_take_turns_by_the_shares_of_the_parents_and_their_own() -> None:
    """The pod that comes first is always one of the Queue with the smallest shares by now."""
    random = Random(7)  # noqa: S311 - the same pods in each run
    leaves = [f"{parent}{number}" for parent in "xyz" for number in range(3)]
    scheduler = scheduler_state(
        node("n1", cpu="640", pods="640"),
        queue_object("all", {CPU: "30"}),
        *(queue_object(parent, {CPU: "0"}, parent="all") for parent in "xyz"),
        *(queue_object(leaf, {CPU: "1"}, parent=leaf[0]) for leaf in leaves),
        *(of(f"used-{leaf}", leaf, "n1") for leaf in leaves),
        *(of(f"more-{leaf}", leaf, "n1") for leaf in leaves[::2]),
    )
    names = [random.choice(leaves) for _ in range(60)]
    queue = a_queue(scheduler, *(of(f"w{i}", name) for i, name in enumerate(names)))
    waiting, queues = Counter(names), scheduler.cluster.queues
    while (queued := queue.pop(100.0)) is not None:
        borrowers = [name for name in +waiting if queues.shares(name)]
        name = queued.pod.labels[QUEUE_LABEL]
        if len(borrowers) == len(+waiting):
            assert name == min(borrowers, key=lambda each: (queues.shares(each), each))
        waiting[name] -= 1
        scheduler.state.assume(queued.pod, 0)
        if not random.randrange(5):
            scheduler.state.forget(queued.pod)
    assert not +waiting


def test_a_queue_that_begins_to_borrow_comes_last_from_then_on() -> None:
    scheduler = a_cluster("a")
    queue = a_queue(scheduler, of("a1", "a"), of("b1", "b"))
    scheduler.state.put(Kind.POD, "extra", parse_object(Kind.POD, of("extra", "a", "n1")))
    assert pop_all(queue, 10.0) == ["b1", "a1"]


def test_a_queue_that_has_given_everything_back_is_as_others() -> None:
    scheduler = a_cluster("a", "a")
    queue = a_queue(scheduler, of("a1", "a"), of("b1", "b"))
    scheduler.state.delete(Kind.POD, uid_of("used0"))
    assert pop_all(queue, 10.0) == ["a1", "b1"]


def test_pods_of_a_queue_that_is_deleted_are_as_others() -> None:
    scheduler = a_cluster("a", "a")
    queue = a_queue(scheduler, of("a1", "a"), of("b1", "b"))
    scheduler.state.delete(Kind.QUEUE, "a")
    assert pop_all(queue, 10.0) == ["a1", "b1"]
