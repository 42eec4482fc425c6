"""The whole engine with a gang, in every order of what may happen to it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from exploration.explorer import Explored, explore
from exploration.group_world import SCENARIOS, GroupWorld, exploring
from mooring.engine.assumed import assume_and_reserve
from mooring.engine.groups import plan
from mooring.engine.groups.reservation import GroupReservation
from mooring.engine.pod_enqueuer import PodEnqueuer
from mooring.state.pod_groups import PodGroupState

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
    "minimum of PodGroup",
    "PodGroup g is deleted",
    "deleted and comes back",
)


@pytest.fixture(autouse=True)
def _exploring() -> Iterator[None]:
    with exploring():
        yield


def seldom(explored: Explored) -> list[str]:
    """Return the events that came at fewer than five different moments."""
    counted = {
        event: sum(n for words, n in explored.taken.items() if event in words) for event in EVENTS
    }
    return [event for event, number in counted.items() if number < 5]


def test_a_gang_that_fits_is_bound_whole_whatever_happens_when() -> None:
    explored = explore(partial(GroupWorld, "fits"))
    assert explored.violation is None, explored.violation
    assert explored.complete
    assert seldom(explored) == []


def test_a_gang_that_waits_wakes_up_whatever_happens_when() -> None:
    explored = explore(partial(GroupWorld, "waits"))
    assert explored.violation is None, explored.violation
    assert explored.complete
    assert explored.at_rest > 1


def test_a_gang_that_a_pod_joins_or_leaves_by_its_labels_is_bound_or_waits() -> None:
    explored = explore(partial(GroupWorld, "moves"))
    assert explored.violation is None, explored.violation
    assert explored.complete
    assert sum(n for words, n in explored.taken.items() if "moves to gang" in words) >= 5


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_soon_after_nothing_is_broken_where_watches_lag(scenario: str) -> None:
    with exploring():
        explored = explore(partial(GroupWorld, scenario, lagging=True), depth=4)
    assert explored.violation is None, explored.violation


def test_states_taken_for_equal_are_equal() -> None:
    """Nothing else can be reached if every way to a state is gone on from."""
    new = partial(GroupWorld, "fits", lagging=True)
    merged, every = explore(new, depth=4), explore(new, depth=4, merge=False)
    assert every.states == merged.states
    assert every.taken.keys() == merged.taken.keys()


# What the exploration would find

reserved = assume_and_reserve


def never_forgets(*args: Any) -> ExitStack:
    """Assume a member for good."""
    reserved(*args).pop_all()
    return ExitStack()


def keeps_nodes(self: GroupReservation, _group: PodGroupState) -> tuple[()]:
    """End the reservation, and leave the members their nominations."""
    self._group = None
    return ()


# By what is wrong: the scenario, what is replaced by what, and a part of the rule it breaks
FAULTS: dict[str, tuple[str, Any, str, Callable[..., Any], str]] = {
    "a member that is called off is not forgotten": (
        "fits",
        plan,
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
    with exploring():
        violation = explore(partial(GroupWorld, scenario)).violation
    assert violation is not None
    assert rule in violation.rule
