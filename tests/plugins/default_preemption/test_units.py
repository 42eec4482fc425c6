"""Selects the units that must leave; `test_groups.py` has more cases."""

from collections.abc import Collection, Mapping

from deciding import Deciding
from mooring.framework.post_filter import GroupNomination
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.plugins.default_preemption.units import Preemptor, Unit, importance, without_units
from mooring.policy.profile import Preemption
from mooring.testing.builders import node, pod, uid_of


class Room:
    """A node where the preemptor fits once `needed` pods have left."""

    def __init__(self, pods: int, needed: int, *, searches: int = 100) -> None:
        raws = [pod(f"p{i}", node="n1", priority=i) for i in range(pods)]
        self.cluster = Deciding(node("n1"), *raws).cluster
        self.units = [Unit(((parse_pod(raw), 0),), raw["spec"]["priority"]) for raw in raws]
        self._needed, self._searches = needed, searches

    def place(self, gone: Collection[Pod]) -> Mapping[Uid, int] | None:
        self._searches -= 1
        return {uid_of("new"): 0} if len(gone) >= self._needed else None

    def victims(self, **limits: int) -> list[str] | str:
        preemptor = Preemptor(
            "pod",
            [parse_pod(pod("new", priority=100))],
            100,
            self.cluster,
            self.place,
            lambda: self._searches <= 0,
            Preemption(**limits),
            0.0,
        )
        found = without_units(preemptor, sorted(self.units, key=importance))
        if isinstance(found, GroupNomination):
            return [victim.name for victim in found.victims]
        assert isinstance(found, Unschedulable)
        return found.reason


def test_the_least_important_leave_and_as_few_as_possible() -> None:
    assert Room(8, needed=3).victims() == ["p2", "p1", "p0"]


def test_nobody_leaves_if_that_does_not_help() -> None:
    reason = "preemption: the pod does not fit without the pods of lower priority either."
    assert Room(2, needed=3).victims() == reason


def test_without_units_there_are_no_victims() -> None:
    reason = "preemption: No preemption victims found for incoming pod."
    assert Room(0, needed=1).victims() == reason


def test_more_victims_than_the_profile_allows_are_none() -> None:
    reason = "preemption: the pod needs more than 2 victims."
    assert Room(8, needed=3).victims(max_victims=2) == reason


def test_a_search_that_ends_early_takes_too_many_rather_than_too_few() -> None:
    victims = Room(8, needed=3, searches=2).victims()
    assert isinstance(victims, list)
    assert {"p0", "p1", "p2"} <= {*victims}


def test_units_that_borrow_are_the_least_important_whatever_their_priority() -> None:
    one = parse_pod(pod("p", node="n1"))
    borrower = Unit(((one, 0),), 1000, borrows=True)
    group = Unit(((one, 0),), 5, is_group=True)
    surplus, low = Unit(((one, 0),), 5, surplus=True), Unit(((one, 0),), 1)
    ordered = sorted([borrower, low, surplus, group], key=importance)
    assert ordered == [group, surplus, low, borrower]
