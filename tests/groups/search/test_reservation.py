"""Nodes are reserved for a group that has waited too long: for one group, for a limited time."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pytest

from driving import driven
from extending import BUSY
from mooring.extenders.verdicts import ExtenderResults, Needed
from mooring.groups.search.group_decision import decide_group
from mooring.groups.search.group_search import Assignment, SearchedMembers
from mooring.groups.search.member_counts import CountingSearch
from mooring.groups.search.reservation import GroupReservation
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Uid, parse_pod
from mooring.runtime.queued_pod import QueuedPod, StateTimes
from mooring.scheduling.cycle import decide
from mooring.scheduling.outcome import FitError, Outcome, ScheduleResult
from mooring.scheduling.result_cache import ResultCache
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.scheduling.suggestions import suggestions
from mooring.scheduling.what_if import WhatIf
from mooring.state.cluster import Trial
from mooring.state.columns import IntArray
from mooring.testing.builders import node, pod, pod_group, uid_of
from scheduler_states import put_profile, scheduler_state

Raw = dict[str, Any]

AFTER: Final = 60.0
NOW: Final = datetime(2026, 1, 1, 13, 11, tzinfo=UTC).timestamp()
STARTED: Final = "2026-01-01T12:00:00Z"


class Scene:
    """A cluster, a reservation, and groups that wait since time 0."""

    def __init__(self, *objects: Raw, percent: int = 100) -> None:
        self.scheduler: SchedulerState = scheduler_state(*objects, now=lambda: NOW)
        args = {"reserveAfter": "60s", "reservedNodesPercent": percent}
        config = [{"name": "GangScheduling", "args": args}]
        self.pipeline = put_profile(self.scheduler, pluginConfig=config).pipeline
        cache = ResultCache(self.scheduler.cluster)
        self.reservation = GroupReservation(self.scheduler, cache)

    def update(
        self,
        group: PodGroupState,
        members: list[QueuedPod],
        now: float,
        answers: ExtenderResults | None = None,
    ) -> None:
        self.reservation.update(group, members, now, answers)

    def waits(self, group: str, count: int, **fields: Any) -> tuple[PodGroupState, list[QueuedPod]]:
        """Add members without a node to the group; return the group and the members."""
        fields = {"cpu": "1", **fields}
        raws = [pod(f"{group}{i}", group=group, **fields) for i in range(count)]
        pods = [parse_pod(raw) for raw in raws]
        members = list[QueuedPod]()
        for one in pods:
            self.scheduler.state.put_unscheduled(one)
            self.scheduler.queue.add(one, self.pipeline, 0.0)
            queued = self.scheduler.queue.pop_specific(one.uid, 0.0)
            assert queued is not None
            members.append(queued)
        found = self.scheduler.state.pod_groups.of(pods[0])
        assert found is not None
        return found, members

    def nominated(self) -> dict[str, str]:
        names = self.scheduler.state.nodes.names
        return {n.pod.name: names[n.row] for n in self.scheduler.state.nominations}


def full() -> list[Raw]:
    return [
        node("a", cpu="2"),
        node("b", cpu="2"),
        *[pod(f"s{i}", cpu="1", node="a") for i in range(2)],
        pod("t", cpu="1", node="b"),
    ]


def test_nodes_are_reserved_only_after_the_group_has_waited() -> None:
    scene = Scene(*full(), pod_group("g", 2))
    group, members = scene.waits("g", 2)
    scene.update(group, members, AFTER - 1)
    assert not scene.nominated()
    scene.update(group, members, AFTER)
    assert scene.nominated().keys() == {"g0", "g1"}
    assert scene.reservation.holds(group)


def test_the_nodes_with_the_most_free_are_reserved() -> None:
    scene = Scene(*full(), pod_group("g", 1))
    scene.update(*scene.waits("g", 1), AFTER)
    assert scene.nominated() == {"g0": "b"}


def test_no_node_is_reserved_for_a_group_that_would_not_fit_on_empty_nodes() -> None:
    scene = Scene(*full(), pod_group("g", 5))
    scene.update(*scene.waits("g", 5), AFTER)
    assert not scene.nominated()


def test_pods_of_higher_priority_and_those_of_daemon_sets_are_expected_to_stay() -> None:
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}
    scene = Scene(
        node("a", cpu="1"),
        node("b", cpu="1"),
        node("c", cpu="1"),
        pod("high", cpu="1", node="a", priority=5),
        pod("daemon", cpu="1", node="b", owner=daemon),
        pod("low", cpu="1", node="c"),
        pod_group("g", 1),
        pod_group("h", 2),
    )
    scene.update(*scene.waits("h", 2), AFTER)
    assert not scene.nominated()
    scene.update(*scene.waits("g", 1), AFTER)
    assert scene.nominated() == {"g0": "c"}


def test_no_node_is_reserved_that_extenders_filtered_out() -> None:
    scene = Scene(*full(), pod_group("g", 1))
    group, members = scene.waits("g", 1)
    answers = ExtenderResults()
    answers.put(Needed(members[0].pod, ("b",)), (), {"b": BUSY}, {})
    scene.update(group, members, AFTER, answers)
    assert scene.nominated() == {"g0": "a"}


def test_one_group_at_a_time_has_nodes_reserved() -> None:
    scene = Scene(*full(), pod_group("g", 2), pod_group("h", 2))
    first, second = scene.waits("g", 2), scene.waits("h", 2)
    scene.update(*first, AFTER)
    scene.update(*second, AFTER)
    assert scene.nominated().keys() == {"g0", "g1"}


def test_the_next_group_follows_when_the_first_has_its_nodes() -> None:
    scene = Scene(*full(), pod_group("g", 1), pod_group("h", 1))
    first, second = scene.waits("g", 1), scene.waits("h", 1)
    scene.update(*first, AFTER)
    scene.scheduler.state.assume(first[1][0].pod, 1)
    scene.update(*second, AFTER)
    assert scene.nominated().keys() == {"h0"}


def test_a_reservation_runs_out_and_is_anothers_turn() -> None:
    scene = Scene(*full(), pod_group("g", 2), pod_group("h", 2))
    first, second = scene.waits("g", 2), scene.waits("h", 2)
    scene.update(*first, AFTER)
    scene.update(*first, 2 * AFTER - 1)
    assert scene.nominated().keys() == {"g0", "g1"}
    scene.update(*first, 2 * AFTER)
    assert not scene.nominated()
    scene.update(*first, 2 * AFTER + 1)
    assert not scene.nominated()
    scene.update(*second, 2 * AFTER + 1)
    assert scene.nominated().keys() == {"h0", "h1"}


def test_one_domain_is_reserved_where_the_group_must_be_in_one() -> None:
    scene = Scene(
        node("a", cpu="1", labels={"rack": "1"}),
        node("b", cpu="1", labels={"rack": "2"}),
        node("c", cpu="1", labels={"rack": "2"}),
        *[pod(f"s{n}", cpu="1", node=n) for n in "abc"],
        pod_group("g", 2, topology=["rack"]),
    )
    scene.update(*scene.waits("g", 2), AFTER)
    assert {*scene.nominated().values()} == {"b", "c"}


def test_the_running_pods_stay_where_they_are() -> None:
    scene = Scene(*full(), pod_group("g", 2))
    scene.update(*scene.waits("g", 2), AFTER)
    assert len(scene.scheduler.state.pods) == 3


def test_a_group_that_waits_for_its_victims_keeps_the_nodes_that_they_leave() -> None:
    scene = Scene(*full(), pod_group("g", 1))
    group, members = scene.waits("g", 1, priority=1)
    state = scene.scheduler.state
    state.nominate(members[0].pod, "a")
    victim = state.pods.get(uid_of("s0"))
    assert victim is not None
    state.begin_evictions(members[0].pod, [victim.pod])
    scene.update(group, members, AFTER)
    assert scene.nominated() == {"g0": "a"}
    assert not scene.reservation.holds(group)


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[Uid]:
    """Return a list that gets the uid of each pod that a trial removes."""
    uids: list[Uid] = []
    remove = Trial.remove

    def noting(trial: Trial, uid: Uid) -> None:
        uids.append(uid)
        remove(trial, uid)

    monkeypatch.setattr(Trial, "remove", noting)
    return uids


@pytest.mark.parametrize("fields", [{}, {"ports": [80]}])
def test_a_group_that_would_not_fit_on_empty_nodes_is_found_by_counting(
    removed: list[Uid], fields: Raw
) -> None:
    scene = Scene(*full(), pod_group("g", 5))
    scene.update(*scene.waits("g", 5, **fields), AFTER)
    assert not scene.nominated()
    assert not removed


def test_members_that_are_counted_need_no_trial(removed: list[Uid]) -> None:
    scene = Scene(*full(), pod_group("g", 4))
    scene.update(*scene.waits("g", 4), AFTER)
    assert [*scene.nominated().values()] == ["a", "a", "b", "b"]
    assert not removed


def test_members_that_share_no_node_are_placed_in_a_trial(removed: list[Uid]) -> None:
    scene = Scene(*full(), pod_group("g", 2))
    scene.update(*scene.waits("g", 2, ports=[80]), AFTER)
    assert {*scene.nominated().values()} == {"a", "b"}
    assert len(removed) == 3


def test_a_search_removes_a_limited_number_of_pods(
    removed: list[Uid], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.groups.search.reservation._MOST_REMOVED", 2)
    scene = Scene(*full(), pod_group("g", 2))
    scene.update(*scene.waits("g", 2, ports=[80]), AFTER)
    assert not scene.nominated()
    assert not removed


def test_nodes_that_were_not_found_are_searched_for_again_after_as_long() -> None:
    scene = Scene(*full(), pod("high", cpu="1", node="b", priority=9), pod_group("g", 4))
    waiting = scene.waits("g", 4)
    scene.update(*waiting, AFTER)
    scene.scheduler.state.delete(Kind.POD, uid_of("high"))
    scene.update(*waiting, 2 * AFTER - 1)
    assert not scene.nominated()
    scene.update(*waiting, 2 * AFTER)
    assert scene.nominated().keys() == {"g0", "g1", "g2", "g3"}


def test_a_reservation_runs_out_although_the_group_is_not_tried_again() -> None:
    scene = Scene(*full(), pod_group("g", 2), pod_group("h", 2))
    scene.update(*scene.waits("g", 2), AFTER)
    assert not scene.reservation.expire(2 * AFTER - 1)
    assert [one.name for one in scene.reservation.expire(2 * AFTER)] == ["g0", "g1"]
    assert not scene.nominated()
    scene.update(*scene.waits("h", 2), 2 * AFTER)
    assert scene.nominated().keys() == {"h0", "h1"}


def test_a_group_that_lacks_members_keeps_no_nodes() -> None:
    scene = Scene(*full(), pod_group("g", 2))
    group, members = scene.waits("g", 2)
    scene.update(group, members, AFTER)
    gone = members[1].pod
    scene.scheduler.state.withdraw(gone.uid)
    scene.scheduler.state.delete_unscheduled(gone.uid)
    assert [one.name for one in scene.reservation.expire(AFTER + 1)] == ["g0"]
    assert not scene.nominated()
    assert not scene.reservation.holds(group)


def test_a_group_whose_object_is_deleted_keeps_no_nodes() -> None:
    scene = Scene(*full(), pod_group("g", 2))
    scene.update(*scene.waits("g", 2), AFTER)
    scene.scheduler.state.delete(Kind.POD_GROUP, "default/g")
    scene.reservation.expire(AFTER + 1)
    assert not scene.nominated()


def test_nominations_of_a_former_leader_run_out() -> None:
    scene = Scene(*full(), pod_group("g", 1))
    _, members = scene.waits("g", 1)
    scene.scheduler.state.nominate(members[0].pod, "a")
    scene.reservation.expire(0.0)
    scene.reservation.expire(AFTER - 1)
    assert scene.nominated()
    scene.reservation.expire(AFTER)
    assert not scene.nominated()


def test_nominations_last_while_victims_are_awaited() -> None:
    scene = Scene(*full(), pod_group("g", 1))
    _, members = scene.waits("g", 1, priority=1)
    state = scene.scheduler.state
    state.nominate(members[0].pod, "a")
    victim = state.pods.get(uid_of("s0"))
    assert victim is not None
    state.begin_evictions(members[0].pod, [victim.pod])
    scene.reservation.expire(0.0)
    scene.reservation.expire(2 * AFTER)
    assert scene.nominated() == {"g0": "a"}


def test_the_nomination_of_a_pod_without_a_group_stays() -> None:
    scene = Scene(*full())
    web = parse_pod(pod("web", cpu="1"))
    scene.scheduler.queue.add(web, scene.pipeline, 0.0)
    scene.scheduler.state.nominate(web, "a")
    scene.reservation.expire(0.0)
    scene.reservation.expire(2 * AFTER)
    assert scene.nominated() == {"web": "a"}


def test_nodes_are_searched_for_again_soon_after_one_was_added() -> None:
    scene = Scene(*full(), pod_group("g", 5))
    waiting = scene.waits("g", 5)
    scene.update(*waiting, AFTER)
    large = parse_object(Kind.NODE, node("large", cpu="8"))
    scene.scheduler.state.put(Kind.NODE, "large", large)
    scene.update(*waiting, 1.1 * AFTER - 1)
    assert not scene.nominated()
    scene.update(*waiting, 1.1 * AFTER)
    assert {*scene.nominated().values()} == {"large"}


def busy_for(seconds: int | None, *others: Raw) -> Scene:
    """Return a scene with two reserved nodes: a free node, and a node full for `seconds`.

    None means that the pod on the full node may run for ever.
    """
    limit = {"activeDeadlineSeconds": seconds} if seconds is not None else {}
    full_node = [node("a", cpu="2"), pod("s", cpu="2", node="a", started=STARTED, spec=limit)]
    scene = Scene(*full_node, node("b", cpu="2"), *others, pod_group("g", 4))
    scene.update(*scene.waits("g", 4, priority=1), AFTER)
    return scene


def backfilled(scene: Scene, seconds: int | None, *, after: float = 0.0, grace: int = 30) -> bool:
    """Return whether a pod with this deadline gets the free node.

    The decision is `after` seconds after the start of the pod `s`.
    """
    spec = {"activeDeadlineSeconds": seconds} if seconds is not None else {}
    small = parse_pod(pod("new", cpu="1", spec=spec | {"terminationGracePeriodSeconds": grace}))
    scheduler = scene.scheduler
    cache, now = (
        ResultCache(scheduler.cluster),
        datetime.fromisoformat(STARTED).timestamp() + after,
    )
    found = decide(small, scene.pipeline, cache, seed=0, now=now)
    return isinstance(found, ScheduleResult)


def test_a_pod_that_ends_before_the_last_reserved_node_is_free_is_put_on_another() -> None:
    """One minute is added for the pod's start, and 30 s for its grace period."""
    scene = busy_for(3600)
    assert backfilled(scene, 3600 - 90)
    assert not backfilled(scene, 3600 - 89)
    assert not backfilled(scene, 3600 - 90, after=1.0)
    assert not backfilled(scene, 3600 - 90, grace=31)


def test_a_pod_without_a_deadline_is_not_put_on_reserved_nodes() -> None:
    assert not backfilled(busy_for(3600), None)


def test_beside_pods_that_may_end_at_any_moment_nothing_is_put_on_reserved_nodes() -> None:
    assert not backfilled(busy_for(None), 1)


def test_a_pod_that_has_been_told_to_end_allows_no_backfill() -> None:
    ending = pod("t", cpu="1", node="c", terminating=True, spec={"activeDeadlineSeconds": 3600})
    scene = Scene(node("c", cpu="1"), node("d", cpu="1"), ending, pod_group("g", 2))
    scene.update(*scene.waits("g", 2, priority=1), AFTER)
    assert not backfilled(scene, 1)


def test_of_several_pods_on_a_node_the_one_whose_end_makes_enough_free_counts() -> None:
    def on_c(name: str, seconds: int) -> Raw:
        spec = {"activeDeadlineSeconds": seconds}
        return pod(name, cpu="1", node="c", started=STARTED, spec=spec)

    running = [on_c("short", 1000), on_c("long", 9000)]
    scene = Scene(node("c", cpu="2"), node("d", cpu="1"), *running, pod_group("g", 2))
    scene.update(*scene.waits("g", 2, priority=1), AFTER)
    assert backfilled(scene, 1000 - 90)
    assert not backfilled(scene, 1000 - 89)


def test_backfill_ends_when_a_pod_has_ended_before_its_deadline() -> None:
    scene = busy_for(3600)
    group, members = groups_of(scene, "g")
    scene.scheduler.state.delete(Kind.POD, uid_of("s"))
    scene.update(group, members, AFTER + 1)
    assert not backfilled(scene, 1)


def test_a_pod_is_not_put_on_what_a_preemption_frees() -> None:
    scene = busy_for(3600)
    for member in [nominee.pod for nominee in scene.scheduler.state.nominations]:
        scene.scheduler.state.nominate(member, "b")
    assert not backfilled(scene, 1)


def racks() -> Scene:
    """Return a scene with full nodes, in thirty racks of one node and two racks of two nodes."""
    names = [f"n{i}" for i in range(34)]
    nodes = [
        node(name, cpu="1", labels={"rack": str(i if i < 30 else 100 + i // 2)})
        for i, name in enumerate(names)
    ]
    full_of = [pod(f"s{name}", cpu="1", node=name) for name in names]
    return Scene(*nodes, *full_of, pod_group("g", 2, topology=["rack"]))


@pytest.mark.parametrize("fields", [{}, {"ports": [80]}])
def test_a_slice_of_a_search_for_nodes_is_a_few_placements(
    monkeypatch: pytest.MonkeyPatch, fields: Raw
) -> None:
    scene, placed, slices = racks(), list[int](), list[int]()
    count_them = CountingSearch.place_once_ended

    def noting(search: CountingSearch, slots: IntArray, rows: IntArray) -> Assignment:
        placed.append(1)
        return count_them(search, slots, rows)

    def look() -> None:
        slices.append(len(placed))
        placed.clear()

    monkeypatch.setattr(CountingSearch, "place_once_ended", noting)
    driven(partial(scene.update, *scene.waits("g", 2, **fields), AFTER), look)
    assert {*scene.nominated().values()} == {"n30", "n31"}
    assert sum(slices) >= 30
    assert max(slices) <= 2


def test_a_new_group_has_neither_the_nodes_nor_the_times_of_a_former_one_of_its_name() -> None:
    scene = Scene(*full(), pod_group("g", 2))
    group, members = scene.waits("g", 2)
    scene.update(group, members, AFTER)
    assert scene.reservation.holds(group)
    scene.reservation.expire(AFTER)
    state = scene.scheduler.state
    for member in members:
        scene.scheduler.queue.remove(member.pod.uid, AFTER)
        state.withdraw(member.pod.uid)
        state.delete_unscheduled(member.pod.uid)
    state.delete(Kind.POD_GROUP, "default/g")
    state.put(Kind.POD_GROUP, "default/g", parse_object(Kind.POD_GROUP, pod_group("g", 2)))
    successor, _ = scene.waits("g", 2)
    assert not scene.reservation.holds(successor)
    state.nominate(next(iter(successor.unscheduled.values())), "b")
    scene.reservation.expire(2 * AFTER)
    assert scene.nominated() == {"g0": "b"}
    scene.reservation.expire(3 * AFTER)
    assert not scene.nominated()


def groups_of(scene: Scene, name: str) -> tuple[PodGroupState, list[QueuedPod]]:
    """Return the group with nominated members, and these members as queued pods."""
    pods = [n.pod for n in scene.scheduler.state.nominations if n.pod.scheduling_group == name]
    group = scene.scheduler.state.pod_groups.of(pods[0])
    assert group is not None
    return group, [QueuedPod(one, scene.pipeline, 0.0, 0.0, times=StateTimes(0.0)) for one in pods]


def reserved(*others: Raw, priority: int = 1, percent: int = 100) -> Scene:
    """Return a scene with two half-full nodes, reserved for two members that need whole nodes."""
    half = [pod(f"s{name}", cpu="2", node=name) for name in "ab"]
    scene = Scene(node("a"), node("b"), *half, *others, pod_group("g", 2), percent=percent)
    group, members = scene.waits("g", 2, cpu="4", priority=priority)
    scene.update(group, members, AFTER)
    return scene


def outcome(scene: Scene, raw: Raw) -> Outcome:
    scheduler = scene.scheduler
    cache = ResultCache(scheduler.cluster)
    found = decide(parse_pod(raw), scene.pipeline, cache, seed=0)
    assert not isinstance(found, Needed)
    return found


def test_no_nodes_are_reserved_unless_the_profile_says_so() -> None:
    scene = Scene(*full(), pod_group("g", 2))
    scene.pipeline = put_profile(scene.scheduler).pipeline
    scene.update(*scene.waits("g", 2), 1e6)
    assert not scene.nominated()


@pytest.mark.parametrize(("percent", "members"), [(49, 1), (50, 2)])
def test_only_a_share_of_the_nodes_is_reserved(percent: int, members: int) -> None:
    """A group that needs more nodes gets none; a single node may always be reserved."""
    nodes = [node(name, cpu="1") for name in "abcd"]
    running = [pod(f"s{name}", cpu="1", node=name) for name in "abcd"]
    scene = Scene(*nodes, *running, pod_group("g", 3), pod_group("h", members), percent=percent)
    scene.update(*scene.waits("g", 3), AFTER)
    assert not scene.nominated()
    scene.update(*scene.waits("h", members), AFTER)
    assert len(scene.nominated()) == members


def test_a_pod_of_lower_priority_is_told_for_whom_and_until_when_nodes_are_reserved() -> None:
    found = outcome(reserved(), pod("small", cpu="2"))
    assert isinstance(found, FitError)
    why = "node(s) reserved for podgroup/g until 13:12 UTC"
    assert found.message.startswith(f"0/2 nodes are available: 2 {why}.")
    assert found.cause == why
    assert found.diagnosis.plugins == {"NodeResourcesFit"}


def test_a_node_that_rejects_a_pod_anyhow_is_not_called_reserved() -> None:
    found = outcome(reserved(node("c", cpu="1")), pod("small", cpu="3"))
    assert isinstance(found, FitError)
    assert found.message.startswith("0/3 nodes are available: 3 Insufficient cpu.")
    with_port = outcome(reserved(node("c", cpu="1")), pod("small", cpu="3", ports=[80]))
    assert isinstance(with_port, FitError)
    assert with_port.message.startswith("0/3 nodes are available: 3 Insufficient cpu.")


@pytest.mark.parametrize("fields", [{}, {"ports": [80]}])
def test_pods_of_the_groups_priority_and_above_take_reserved_nodes(fields: Raw) -> None:
    scene = reserved()
    for priority, fits in ((0, False), (1, True), (2, True)):
        found = outcome(scene, pod("small", cpu="2", priority=priority, **fields))
        assert isinstance(found, ScheduleResult) is fits, priority
        if isinstance(found, FitError):
            assert "2 node(s) reserved for podgroup/g until" in found.message


def test_a_group_that_reserved_nodes_keep_out_says_so() -> None:
    scene = reserved(pod_group("h", 2))
    group, members = scene.waits("h", 2)
    pods = [member.pod for member in members]
    cache = ResultCache(scene.scheduler.cluster)
    small = [replace(one, spec=parse_pod(pod("m", cpu="2")).spec) for one in pods]
    searched = SearchedMembers(small, scene.pipeline, cache, seed=0)
    decision = decide_group(group, searched)
    assert not decision.rows
    assert "2 node(s) reserved for podgroup/g until 13:12 UTC" in decision.message


def test_preemption_evicts_nobody_for_a_pod_that_reserved_nodes_keep_out() -> None:
    """For pods of higher priority than the group, the reservation does not count."""
    scene = reserved()
    low = outcome(scene, pod("small", cpu="2"))
    assert isinstance(low, FitError)
    assert low.nomination is None
    high = outcome(scene, pod("large", cpu="4", priority=2))
    assert isinstance(high, FitError)
    assert high.nomination is not None


def test_a_reserved_node_that_goes_is_reserved_no_more() -> None:
    scene = reserved()
    scene.scheduler.state.delete(Kind.NODE, "a")
    assert {*scene.nominated().values()} == {"b"}
    found = outcome(scene, pod("small", cpu="2"))
    assert isinstance(found, FitError)
    assert "0/1 nodes are available: 1 node(s) reserved for podgroup/g" in found.message


def test_nodes_are_free_again_once_the_group_is_gone() -> None:
    scene = reserved()
    scene.scheduler.state.delete(Kind.POD_GROUP, "default/g")
    scene.reservation.expire(AFTER + 1)
    assert isinstance(outcome(scene, pod("small", cpu="2")), ScheduleResult)


def test_nominations_of_a_former_leader_run_out_where_no_nodes_are_reserved() -> None:
    scene = Scene(*full(), pod_group("g", 1))
    scene.pipeline = put_profile(scene.scheduler).pipeline
    _, members = scene.waits("g", 1)
    scene.scheduler.state.nominate(members[0].pod, "a")
    scene.reservation.expire(0.0)
    scene.reservation.expire(299.0)
    assert scene.nominated()
    scene.reservation.expire(300.0)
    assert not scene.nominated()


async def test_a_pod_that_reserved_nodes_keep_out_would_fit_once_they_are_not() -> None:
    scene = reserved()
    small = parse_pod(pod("small", cpu="2"))
    what_if = WhatIf(ResultCache(scene.scheduler.cluster))
    (only,) = suggestions([small], scene.pipeline, what_if)
    assert only.nodes == 2
    assert only.change == "once they are not reserved for podgroup/g until 13:12 UTC"


def test_a_group_that_reserved_nodes_keep_out_would_fit_once_they_are_not() -> None:
    scene = reserved(pod_group("h", 2))
    group, members = scene.waits("h", 2)
    waiting = [replace(m.pod, spec=parse_pod(pod("m", cpu="2")).spec) for m in members]
    what_if = WhatIf(ResultCache(scene.scheduler.cluster))
    (only,) = suggestions(waiting, scene.pipeline, what_if, group)
    assert only.change == "once they are not reserved for podgroup/g until 13:12 UTC"
