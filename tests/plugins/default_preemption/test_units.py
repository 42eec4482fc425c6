"""Selects the units that must leave; `test_groups.py` has more cases."""

from collections.abc import Collection, Mapping
from typing import Any

from deciding import Deciding
from mooring.framework.post_filter import GroupNomination
from mooring.framework.verdicts import Unschedulable
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.plugins.default_preemption.units import (
    Preemptor,
    Unit,
    importance,
    with_leaving,
    without_units,
)
from mooring.policy.profile import Preemption
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.testing.builders import node, pod, queue_object, uid_of


class Room:
    """A node where the preemptor fits once `needed` pods have left."""

    def __init__(self, pods: int, needed: int, *, searches: int = 100) -> None:
        raws = [pod(f"p{i}", node="n1", priority=i) for i in range(pods)]
        self.cluster = Deciding(node("n1"), *raws).cluster
        self.units = [Unit(((parse_pod(raw), 0),), raw["spec"]["priority"]) for raw in raws]
        self._needed, self._searches = needed, searches
        self.most_removed = 0

    def place(self, gone: Collection[Pod]) -> Mapping[Uid, int] | None:
        self._searches -= 1
        self.most_removed = max(self.most_removed, len(gone))
        return {uid_of("new"): 0} if len(gone) >= self._needed else None

    def victims(self, members: int = 0, queue: int | None = None, **limits: int) -> list[str] | str:
        """Return the victims for a pod, or for a group if `members` is not 0."""
        preemptor = Preemptor(
            "pod group" if members else "pod",
            [parse_pod(pod("new", priority=100))] * max(members, 1),
            100,
            self.cluster,
            self.place,
            lambda: self._searches <= 0,
            Preemption(**limits),
            0.0,
            frozenset(() if queue is None else (queue,)),
        )
        found = without_units(preemptor, sorted(self.units, key=importance))
        if isinstance(found, GroupNomination):
            return [victim.name for victim in found.victims]
        assert isinstance(found, Unschedulable)
        return found.reason


def test_the_least_important_leave_and_as_few_as_possible() -> None:
    assert Room(8, needed=3).victims() == ["p2", "p1", "p0"]


def test_a_search_for_a_pod_removes_few_pods_if_it_needs_few() -> None:
    room = Room(100, needed=3)
    assert room.victims() == ["p2", "p1", "p0"]
    assert room.most_removed == 4


def test_a_group_first_tries_to_evict_as_many_pods_as_it_has_members() -> None:
    room = Room(100, needed=3)
    assert room.victims(members=5, queue=0) == ["p2", "p1", "p0"]
    assert room.most_removed == 5


def test_the_first_search_for_a_group_outside_of_queues_is_without_all_units() -> None:
    room = Room(100, needed=3)
    assert room.victims(members=5) == ["p2", "p1", "p0"]
    assert room.most_removed == 100


def test_all_units_may_have_to_leave() -> None:
    assert Room(100, needed=100).victims() == [f"p{i}" for i in reversed(range(100))]


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


def test_pods_that_leave_only_free_quota_where_no_victim_is_and_the_pod_will_not_fit() -> None:
    leaves: dict[str, Any] = {"terminating": True, "labels": {QUEUE_LABEL: "q"}, "cpu": "2"}
    state = Deciding(
        queue_object("q", {"cpu": "4"}),
        *(node(name, cpu="4") for name in ("n1", "n2")),
        pod("a", node="n1", **leaves),
        pod("b", node="n2", **leaves),
        pod("stays", node="n2", cpu="2"),
    ).cluster
    queue, removed, used = state.queues.states["q"], list[set[str]](), list[int]()

    def place(gone: Collection[Pod]) -> None:
        removed.append({one.name for one in gone})
        used.append(queue.used["cpu"])

    new, limits = parse_pod(pod("new", cpu="3")), Preemption()
    tree = frozenset((queue.number,))
    whole = Preemptor(
        "pod", [new], 0, state, place, lambda: False, limits, 0.0, tree, by_requests=True
    )
    preemptor = with_leaving(whole)
    assert [left.name for left in preemptor.leaving] == ["a", "b"]
    preemptor.place(())
    preemptor.place([parse_pod(pod("stays"))])
    assert removed == [{"a"}, {"a", "b", "stays"}]
    assert (used, queue.used["cpu"]) == ([2000, 4000], 4000)


def test_units_that_borrow_are_the_least_important_whatever_their_priority() -> None:
    one = parse_pod(pod("p", node="n1"))
    borrower = Unit(((one, 0),), 1000, borrows=True)
    group = Unit(((one, 0),), 5, is_group=True)
    surplus, low = Unit(((one, 0),), 5, surplus=True), Unit(((one, 0),), 1)
    ordered = sorted([borrower, low, surplus, group], key=importance)
    assert ordered == [group, surplus, low, borrower]
