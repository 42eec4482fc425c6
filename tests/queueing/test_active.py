"""Whose turn it is among the pods that may be tried."""

from mooring.framework.queued_pod import QueuedPod
from mooring.model.pod import parse_pod
from mooring.queueing.active import ActivePods, Order
from mooring.testing.builders import pod


def waiting(name: str, ticket: int, *, priority: int = 0, since: float = 0.0) -> QueuedPod:
    parsed = parse_pod(pod(name, priority=priority, labels={"sorter": name[0]}))
    return QueuedPod(parsed, first_seen=since, since=since, ticket=ticket)


def by_name(queued: QueuedPod) -> Order:
    """One sorter per first letter, each of which goes by the rest of the name."""
    return Order(queued.pod.name[0], (queued.pod.name[1:],))


def names(active: ActivePods) -> list[str]:
    popped = []
    while (queued := active.pop()) is not None:
        popped.append(queued.pod.name)
    return popped


def test_pods_of_one_plugin_come_in_its_order() -> None:
    active = ActivePods(by_name)
    for ticket, name in enumerate(("a3", "a1", "a2")):
        active.add(waiting(name, ticket, priority=ticket))
    assert names(active) == ["a1", "a2", "a3"]


def test_pods_with_equal_keys_come_as_they_were_added() -> None:
    active = ActivePods(lambda _: Order("", ()))
    for ticket, name in enumerate(("c", "a", "b")):
        active.add(waiting(name, ticket))
    assert names(active) == ["c", "a", "b"]


def test_pods_of_different_plugins_take_turns_by_priority_then_time() -> None:
    active = ActivePods(by_name)
    active.add(waiting("a1", 1, priority=5, since=3.0))
    active.add(waiting("a2", 2, priority=9))
    active.add(waiting("b1", 3, priority=5, since=2.0))
    active.add(waiting("b2", 4, priority=1))
    assert names(active) == ["b1", "a1", "a2", "b2"]


def test_a_pod_with_a_new_ticket_is_not_here_any_more() -> None:
    active = ActivePods(by_name)
    gone, stays = waiting("a1", 1), waiting("b1", 2, priority=-1)
    active.add(gone)
    active.add(stays)
    gone.ticket = 3
    assert active.pop() is stays
    assert active.pop() is None


def test_a_changed_order_holds_for_pods_that_wait_already() -> None:
    sign = 1
    active = ActivePods(lambda q: Order("", (sign * q.ticket,)))
    for ticket, name in enumerate(("a", "b", "c")):
        active.add(waiting(name, ticket))
    moved = waiting("d", 9)
    active.add(moved)
    moved.ticket = 10
    sign = -1
    active.sort_anew()
    assert names(active) == ["c", "b", "a"]
