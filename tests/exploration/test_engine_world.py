"""The whole engine with single pods or a gang, in every order of possible events."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from exploration.engine_world import SCENARIOS, EngineWorld, exploring
from exploration.explorer import Explored, explore
from mooring.groups.search.reservation import GroupReservation
from mooring.groups.state.pod_groups import PodGroupState
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling import assumed
from mooring.scheduling.assumed import assume_and_reserve
from mooring.scheduling.pod_enqueuer import PodEnqueuer
from mooring.scheduling.queue.queue import SchedulingQueue

EVENTS = (
    "is deleted",
    "comes for it",
    "labels",
    "another scheduler",
    "another CPU",
    "cordoned",
    "is removed",
    "the answer is lost",
    "fails to bind",
)
OF_PODS = ("is created", "is added", "five minutes")
OF_A_GANG = ("minimum of PodGroup", "PodGroup g is deleted", "deleted and comes back")


@pytest.fixture(autouse=True)
def _exploring() -> Iterator[None]:
    with exploring():
        yield


def explored_to_the_end(scenario: str) -> Explored:
    """Explore a world with one event completely; fail if a rule is broken."""
    explored = explore(partial(EngineWorld, scenario))
    assert explored.violation is None, explored.violation
    assert explored.complete
    return explored


def seldom(explored: Explored, *events: str) -> list[str]:
    """Return the events that happened at fewer than five different moments."""
    counted = {
        event: sum(n for words, n in explored.taken.items() if event in words) for event in events
    }
    return [event for event, number in counted.items() if number < 5]


def test_no_pod_is_lost_forgotten_or_asleep_whatever_happens_when() -> None:
    explored_to_the_end("alone")
    explored = explore(partial(EngineWorld, "alone", events=2), depth=4)
    assert explored.violation is None, explored.violation
    assert seldom(explored, *EVENTS, *OF_PODS) == []


def test_a_gang_that_fits_is_bound_whole_whatever_happens_when() -> None:
    assert seldom(explored_to_the_end("fits"), *EVENTS, *OF_A_GANG) == []


def test_a_gang_that_waits_wakes_up_whatever_happens_when() -> None:
    assert explored_to_the_end("waits").at_rest > 1


def test_a_gang_that_a_pod_joins_or_leaves_by_its_labels_is_bound_or_waits() -> None:
    assert seldom(explored_to_the_end("moves"), "moves to gang") == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_soon_after_nothing_is_broken_where_watches_lag(scenario: str) -> None:
    explored = explore(partial(EngineWorld, scenario, lagging=True), depth=3)
    assert explored.violation is None, explored.violation


def test_states_taken_for_equal_are_equal() -> None:
    """A search that explores equal states again reaches no other states."""
    new = partial(EngineWorld, "fits", lagging=True)
    merged, every = explore(new, depth=4), explore(new, depth=4, merge=False)
    assert every.states == merged.states
    assert every.taken.keys() == merged.taken.keys()


# What the exploration would find

reserved = assume_and_reserve
remove = SchedulingQueue.remove


def never_forgets(*args: Any) -> ExitStack:
    """Assume a member without an undo; replaces a function to break a rule."""
    reserved(*args).pop_all()
    return ExitStack()


def keeps_nodes(self: GroupReservation, _group: PodGroupState) -> tuple[()]:
    """End the reservation but keep the nominations; replaces a method to break a rule."""
    self._group = None
    return ()


def finishes_by_name(self: SchedulingQueue, queued: QueuedPod, now: float) -> None:
    if (found := self.named(queued.pod.key)) is not None:
        remove(self, found.pod.uid, now)


def leaves_it_in_flight(self: SchedulingQueue, uid: Any, now: float) -> QueuedPod | None:
    return remove(self, uid, now) if (q := self.get(uid)) and q.queue is not None else None


def tries_no_other(_self: SchedulingQueue, queued: QueuedPod, _now: float) -> None:
    queued.tries_for = None


# By what is wrong: the scenario, what is replaced by what, and a part of the rule it breaks
FAULTS: dict[str, tuple[str, Any, str, Callable[..., Any], str]] = {
    "the end of an attempt finds the pod by its name": (
        "alone",
        SchedulingQueue,
        "done",
        finishes_by_name,
        "has no node, and is not in the queue",
    ),
    "the end of an attempt leaves the pod in flight": (
        "alone",
        SchedulingQueue,
        "remove",
        leaves_it_in_flight,
        "is in flight, and no attempt about it runs",
    ),
    "no other pod of the group is tried": (
        "full",
        SchedulingQueue,
        "_try_next",
        tries_no_other,
        "is left among the unschedulable pods",
    ),
    "a member that is called off is not forgotten": (
        "fits",
        assumed,
        "assume_and_reserve",
        never_forgets,
        "was deleted, and is still on a node",
    ),
    "a reservation outlives its group": (
        "behind",
        GroupReservation,
        "withdraw",
        keeps_nodes,
        "whose group is gone",
    ),
    "members are not admitted when their group is complete": (
        "fits",
        PodEnqueuer,
        "_admit_group",
        lambda *_: None,
        "are left waiting",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mutation_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, owner, name, faulty, rule = FAULTS[fault]
    monkeypatch.setattr(owner, name, faulty)
    violation = explore(partial(EngineWorld, scenario)).violation
    assert violation is not None
    assert rule in violation.rule
