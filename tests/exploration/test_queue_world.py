"""The queue, in every order of what may happen to three pods and two nodes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from exploration.explorer import Explored, explore
from exploration.queue_world import QueueWorld
from mooring.framework.queued_pod import QueuedPod
from mooring.queueing.queue import SchedulingQueue
from mooring.queueing.unschedulable import UnschedulablePods

EVENTS = (
    "is created",
    "is deleted",
    "comes for it",
    "labels",
    "another scheduler",
    "is added",
    "another CPU",
    "cordoned",
    "is removed",
    "in an error",
    "five minutes",
)


def seldom(explored: Explored, events: tuple[str, ...]) -> list[str]:
    """Return the events that came at fewer than five different moments."""
    counted = {
        event: sum(n for words, n in explored.taken.items() if event in words) for event in events
    }
    return [event for event, number in counted.items() if number < 5]


def test_no_pod_is_lost_forgotten_or_asleep_whatever_happens_when() -> None:
    explored = explore(partial(QueueWorld, pods=3, nodes=2, events=1))
    assert explored.violation is None, explored.violation
    assert explored.complete
    assert seldom(explored, EVENTS) == []


def test_states_taken_for_equal_are_equal() -> None:
    """Nothing else can be reached if every way to a state is gone on from."""
    new = partial(QueueWorld, pods=2, nodes=1, events=1)
    merged, every = explore(new, depth=5), explore(new, depth=5, merge=False)
    assert every.states == merged.states
    assert every.taken.keys() == merged.taken.keys()


# What the exploration would find

remove = SchedulingQueue.remove
add = UnschedulablePods.add


def finishes_by_name(self: SchedulingQueue, queued: QueuedPod, now: float) -> None:
    if (found := self.named(queued.pod.key)) is not None:
        remove(self, found.pod.uid, now)


def misses_events(self: UnschedulablePods, queued: QueuedPod, _since: int | None = None) -> None:
    add(self, queued)


def leaves_it_in_flight(self: SchedulingQueue, uid: Any, now: float) -> QueuedPod | None:
    return remove(self, uid, now) if (q := self.get(uid)) and q.queue is not None else None


def tries_no_other(_self: SchedulingQueue, queued: QueuedPod, _now: float) -> None:
    queued.tries_for = None


# By what is wrong: the CPUs of n0, what is replaced by what, and a part of the rule it breaks
FAULTS: dict[str, tuple[int, type, str, Callable[..., Any], str]] = {
    "the end of an attempt finds the pod by its name": (
        1,
        SchedulingQueue,
        "done",
        finishes_by_name,
        "has no node, and is not in the queue",
    ),
    "events during an attempt are not looked at": (
        1,
        UnschedulablePods,
        "add",
        misses_events,
        "is left among the unschedulable pods",
    ),
    "the end of an attempt leaves the pod in flight": (
        1,
        SchedulingQueue,
        "remove",
        leaves_it_in_flight,
        "is in flight, and no attempt about it runs",
    ),
    "no other pod of the group is tried": (
        0,
        SchedulingQueue,
        "_try_next",
        tries_no_other,
        "is left among the unschedulable pods",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mutation_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, owner, method, faulty, rule = FAULTS[fault]
    monkeypatch.setattr(owner, method, faulty)
    violation = explore(partial(QueueWorld, pods=2, nodes=2, events=1, cpu=cpu)).violation
    assert violation is not None
    assert rule in violation.rule
