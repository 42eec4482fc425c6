"""Evicts pods on any nodes so that a whole pod group fits."""

import random
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from deciding import Deciding
from driving import driven
from mooring.framework.post_filter import GroupNomination, GroupPreemption, NotEligible
from mooring.groups.model.pod_group import Reservation
from mooring.groups.search.group_decision import preempt_for_group
from mooring.groups.search.group_search import Assignment
from mooring.groups.search.member_counts import CountingSearch
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.plugins.default_preemption import groups
from mooring.state.cluster import Trial
from mooring.state.columns import IntArray
from mooring.state.pod_columns import PodColumns
from mooring.testing.builders import node, pdb, pod, pod_group, uid_of, volcano_pod_group

Raw = dict[str, Any]


def running(name: str, on: str, cpu: str = "1", priority: int = 0, **fields: Any) -> Raw:
    return pod(name, node=on, cpu=cpu, priority=priority, **fields)


def gang(count: int, priority: int = 100, **fields: Any) -> list[Raw]:
    return [pod(f"m{i}", group="g", cpu="1", priority=priority, **fields) for i in range(count)]


def preempted(deciding: Deciding, members: list[Raw], seconds: float = 0.0) -> GroupPreemption:
    pods = [parse_pod(raw) for raw in members]
    deciding.state.track_pod_groups(deciding.pipeline.pod_group_formats)
    for one in pods:
        deciding.state.put_unscheduled(one)
    group = deciding.state.pod_groups.of(pods[0])
    assert group is not None
    return preempt_for_group(
        group,
        pods,
        deciding.pipeline,
        deciding.shared,
        seed=0,
        now=0.0,
        unschedulable_seconds=seconds,
    )


def victims(deciding: Deciding, members: list[Raw]) -> list[str]:
    answer = preempted(deciding, members)
    assert isinstance(answer, GroupNomination), answer
    return sorted(victim.name for victim in answer.victims)


def reason(deciding: Deciding, members: list[Raw]) -> str:
    answer = preempted(deciding, members)
    assert not isinstance(answer, GroupNomination)
    return answer.reason


def test_as_many_pods_are_victims_as_the_group_needs_and_the_least_important() -> None:
    deciding = Deciding(
        node("a", cpu="2"),
        node("b", cpu="2"),
        pod_group("g", 2),
        running("high", "a", priority=50),
        running("low1", "a", priority=1),
        running("middle", "b", priority=20),
        running("low2", "b", priority=1),
    )
    answer = preempted(deciding, gang(2))
    assert isinstance(answer, GroupNomination)
    assert sorted(victim.name for victim in answer.victims) == ["low1", "low2"]
    assert answer.disruptions == (2, 0)


def test_nothing_changes_in_the_state() -> None:
    deciding = Deciding(node("a", cpu="1"), pod_group("g", 1), running("low", "a"))
    victims(deciding, gang(1))
    assert deciding.state.pods.get(uid_of("low")) is not None
    assert len(deciding.state.pods) == 1


def test_nobody_is_evicted_for_a_group_that_does_not_fit_even_then() -> None:
    deciding = Deciding(node("a", cpu="2"), pod_group("g", 3), running("x", "a"), running("y", "a"))
    assert reason(deciding, gang(3)) == (
        "preemption: the group does not fit without the pods of lower priority either."
    )


def test_pods_of_the_same_priority_are_no_victims() -> None:
    deciding = Deciding(node("a", cpu="1"), pod_group("g", 1), running("x", "a", priority=100))
    assert reason(deciding, gang(1)) == (
        "preemption: No preemption victims found for incoming pod group."
    )


def test_a_group_with_a_member_that_never_preempts_preempts_nobody() -> None:
    deciding = Deciding(node("a", cpu="1"), pod_group("g", 1), running("x", "a"))
    never = gang(1, spec={"preemptionPolicy": "Never"})
    assert reason(deciding, never) == "preemption: not eligible due to preemptionPolicy=Never."


def test_a_budget_is_violated_only_where_no_other_victim_would_do() -> None:
    objects = [
        node("a", cpu="2"),
        pod_group("g", 1),
        pdb("guard", {"app": "db"}),
        running("guarded", "a", labels={"app": "db"}),
        running("other", "a", priority=5),
    ]
    assert victims(Deciding(*objects), gang(1)) == ["other"]
    answer = preempted(Deciding(*objects, pod_group("g", 2)), gang(2))
    assert isinstance(answer, GroupNomination)
    assert sorted(victim.name for victim in answer.victims) == ["guarded", "other"]
    assert answer.violations == 1
    strict = {"disruptionBudgets": "Strict"}
    assert "does not fit" in reason(
        Deciding(*objects, pod_group("g", 2), preemption=strict), gang(2)
    )


def test_a_strict_profile_preempts_for_a_group_whom_the_eviction_api_has_not_refused() -> None:
    deciding = Deciding(
        node("a", cpu="1"),
        node("b", cpu="2"),
        pod_group("g", 1),
        pod_group("whole", 1, disruption_mode="PodGroup", priority=0),
        running("alone", "a"),
        running("w1", "b", group="whole"),
        running("high", "b", priority=50),
        pdb("guard", {}, selector={"matchLabels": {"none": "such"}}),
        preemption={"disruptionBudgets": "Strict"},
    )
    for name, others in (("w1", ["alone"]), ("alone", ["high"])):
        placed = deciding.state.pods.get(uid_of(name))
        assert placed is not None
        deciding.state.eviction_refused(placed.pod, by_budget=False)
        assert victims(deciding, gang(1)) == others


def test_a_group_that_is_disrupted_as_a_whole_is_evicted_whole() -> None:
    deciding = Deciding(
        node("a", cpu="1"),
        node("b", cpu="1"),
        pod_group("g", 1),
        pod_group("whole", 2, disruption_mode="PodGroup", priority=0),
        running("w1", "a", group="whole"),
        running("w2", "b", group="whole"),
    )
    answer = preempted(deciding, gang(1))
    assert isinstance(answer, GroupNomination)
    assert sorted(victim.name for victim in answer.victims) == ["w1", "w2"]
    assert answer.disruptions == (0, 1)


def test_a_group_of_which_a_member_has_not_run_long_enough_is_not_evicted() -> None:
    deciding = Deciding(
        node("a", cpu="1"),
        node("b", cpu="1"),
        pod_group("g", 1),
        pod_group("whole", 2, disruption_mode="PodGroup", priority=0),
        running("w1", "a", group="whole", started="1969-12-31T00:00:00Z"),
        running("w2", "b", group="whole", started="1969-12-31T23:59:30Z"),
        preemption={"minRuntimeSeconds": 60},
    )
    assert reason(deciding, gang(1)) == (
        "preemption: No preemption victims found for incoming pod group."
    )


def test_a_group_waits_for_an_autoscaler_as_one_before_it_preempts() -> None:
    low = running("low", "a", cpu="2", priority=1)
    deciding = Deciding(node("a", cpu="2"), pod_group("g", 2), low, preemption={"delaySeconds": 60})
    answer = preempted(deciding, gang(2), 59.9)
    assert answer == NotEligible("preemption: not eligible yet due to delaySeconds=60.")
    assert isinstance(preempted(deciding, gang(2), 60.0), GroupNomination)
    member = parse_pod(gang(2)[0])
    group = deciding.cluster.pod_groups.of(member)
    assert group is not None
    kept = Reservation(group.key, until=60.0, priority=100)
    deciding.state.nominate(member, "a", reservation=kept)  # by reserveAfter
    assert preempted(deciding, gang(2), 59.9) == answer
    deciding.nominate(gang(2)[0], "a")  # by another leader, after the delay
    assert isinstance(preempted(deciding, gang(2)), GroupNomination)


def test_a_group_above_its_minimum_gives_up_its_surplus_first() -> None:
    deciding = Deciding(
        node("a", cpu="3"),
        pod_group("g", 1),
        pod_group("elastic", 1),
        running("e1", "a", group="elastic", started="2026-01-01T00:00:00Z"),
        running("e2", "a", group="elastic", started="2026-01-02T00:00:00Z"),
        running("single", "a", started="2026-01-03T00:00:00Z"),
    )
    assert victims(deciding, gang(1)) == ["e2"]


def test_a_group_with_roles_gives_up_no_member_that_its_role_needs() -> None:
    config = [{"name": "GangScheduling", "args": {"podGroupPresets": ["Volcano"]}}]
    named = {"scheduling.k8s.io/group-name": "mpi", "volcano.sh/task-spec": "worker"}
    launcher = named | {"volcano.sh/task-spec": "launcher"}
    deciding = Deciding(
        node("a", cpu="3"),
        pod_group("g", 1),
        volcano_pod_group("mpi", 0, minTaskMember={"launcher": 1, "worker": 1}),
        running("w1", "a", annotations=named, started="2026-01-01T00:00:00Z"),
        running("w2", "a", annotations=named, started="2026-01-02T00:00:00Z"),
        running("l", "a", annotations=launcher, started="2026-01-03T00:00:00Z"),
        pluginConfig=config,
    )
    assert victims(deciding, gang(1)) == ["w2"]


def test_members_of_each_role_are_nominated() -> None:
    config = [{"name": "GangScheduling", "args": {"podGroupPresets": ["Volcano"]}}]
    members = [
        pod(
            name,
            cpu="1",
            priority=100,
            annotations={"scheduling.k8s.io/group-name": "mpi", "volcano.sh/task-spec": name[0]},
        )
        for name in ("w1", "w2", "w3", "l1")
    ]
    deciding = Deciding(
        node("a", cpu="2"),
        volcano_pod_group("mpi", 0, minTaskMember={"l": 1, "w": 1}),
        running("low1", "a"),
        running("low2", "a"),
        pluginConfig=config,
    )
    answer = preempted(deciding, members)
    assert isinstance(answer, GroupNomination)
    assert answer.nodes.keys() == {uid_of("w1"), uid_of("l1")}


def test_a_group_that_waits_for_its_victims_evicts_no_more() -> None:
    deciding = Deciding(node("a", cpu="1"), pod_group("g", 1), running("low", "a"))
    members = gang(1)
    answer = preempted(deciding, members)
    assert isinstance(answer, GroupNomination)
    deciding.nominate(members[0], "a")
    deciding.state.begin_evictions(parse_pod(members[0]), answer.victims)
    assert "terminating pods" in reason(deciding, members)


@pytest.mark.parametrize(
    ("why", "budgets", "expected"),
    [
        ("PreemptionByScheduler", "Default", True),
        ("EvictionByEvictionAPI", "Strict", True),
        ("EvictionByEvictionAPI", "Default", False),
    ],
)
def test_a_group_waits_for_the_victims_of_a_former_leader(
    why: str, budgets: str, *, expected: bool
) -> None:
    """The nominated member may differ from the members that need nodes now."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": why}
    leaving: Raw = {"terminating": True, "status": {"conditions": [condition]}}
    deciding = Deciding(
        node("a", cpu="1"),
        node("b", cpu="1"),
        pod_group("g", 1),
        running("leaves", "a", **leaving),
        running("runs", "b"),
        preemption={"disruptionBudgets": budgets},
    )
    members = gang(2)
    deciding.nominate(members[1], "a")
    answer = preempted(deciding, members)
    assert isinstance(answer, NotEligible) is expected


def test_a_group_is_nominated_where_a_pod_of_lower_priority_terminates() -> None:
    """Otherwise other pods could take the room as soon as the pod has left."""
    leaves = running("leaves", "a", terminating=True)
    deciding = Deciding(node("a", cpu="1"), pod_group("g", 1), leaves)
    answer = preempted(deciding, gang(1))
    assert isinstance(answer, GroupNomination)
    assert answer.nodes == {uid_of("m0"): "a"}
    member, victims = parse_pod(gang(1)[0]), answer.victims
    assert deciding.state.begin_evictions(member, victims) == []
    assert deciding.state.evictions.awaits_victims(member)


def test_a_group_does_not_wait_for_more_important_pods_that_leave() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    leaving: Raw = {"terminating": True, "status": {"conditions": [condition]}}
    deciding = Deciding(
        node("a", cpu="1"),
        node("b", cpu="1"),
        pod_group("g", 1),
        running("leaves", "a", priority=200, **leaving),
        running("runs", "b"),
    )
    deciding.nominate(gang(1)[0], "a")
    assert victims(deciding, gang(1)) == ["runs"]


def test_no_more_victims_than_the_profile_allows() -> None:
    deciding = Deciding(
        node("a", cpu="2"),
        pod_group("g", 2),
        running("x", "a"),
        running("y", "a"),
        preemption={"maxVictims": 1},
    )
    assert reason(deciding, gang(2)) == "preemption: the group needs more than 1 victims."


def test_victims_are_in_one_domain_where_the_group_must_be() -> None:
    deciding = Deciding(
        node("a", cpu="2", labels={"rack": "1"}),
        node("b", cpu="2", labels={"rack": "2"}),
        pod_group("g", 2, topology=["rack"]),
        running("a1", "a"),
        running("b1", "b"),
        running("b2", "b"),
    )
    answer = preempted(deciding, gang(2))
    assert isinstance(answer, GroupNomination)
    assert len({*answer.nodes.values()}) == 1
    assert {victim.node_name for victim in answer.victims} == {*answer.nodes.values()}


@pytest.mark.parametrize("seed", range(20))
def test_the_units_looked_at_are_the_least_important_of_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)  # noqa: S311 - has to be repeatable
    days = rng.sample(range(10, 29), 19)
    low: list[tuple[str, int, int, str | None]] = [
        (f"p{i}", rng.randrange(3), day, rng.choice((None, "elastic")))
        for i, day in enumerate(days)
    ]
    elastic = sorted((p for p in low if p[3] is not None), key=lambda p: (-p[1], p[2]))
    surplus = {p[0] for p in elastic[2:]}
    important = sorted(low, key=lambda p: (-p[1], p[0] in surplus, p[2]))
    wanted = rng.randrange(1, 8)
    monkeypatch.setattr(groups, "MOST_UNITS", wanted)
    pods = [
        running(name, "a", priority=priority, group=group, started=f"2026-01-{day}T00:00:00Z")
        for name, priority, day, group in low
    ]
    deciding = Deciding(node("a", cpu="19"), pod_group("g", wanted), pod_group("elastic", 2), *pods)
    assert victims(deciding, gang(wanted)) == sorted(p[0] for p in important[-wanted:])


@pytest.mark.deep
def test_a_search_that_is_bounded_evicts_only_pods_on_the_nodes_that_the_group_gets() -> None:
    """Members with host ports are placed one by one, so the search soon reaches its limit."""
    names = [f"n{i}" for i in range(300)]
    lower = [running(f"low{i}", name, priority=i % 7) for i, name in enumerate(names)]
    deciding = Deciding(*(node(name, cpu="1") for name in names), pod_group("g", 40), *lower)
    answer = preempted(deciding, gang(40, ports=(80,)))
    assert isinstance(answer, GroupNomination)
    on_nodes = {victim.node_name for victim in answer.victims}
    assert on_nodes == set(answer.nodes.values())
    assert len(answer.victims) == 40


@pytest.mark.deep
def test_a_group_whose_first_search_is_too_long_evicts_nobody_and_says_so() -> None:
    names = [f"n{i}" for i in range(130)]
    lower = [running(f"low{i}", name) for i, name in enumerate(names)]
    deciding = Deciding(*(node(name, cpu="1") for name in names), pod_group("g", 131), *lower)
    members = [
        pod(f"m{i}", group="g", cpu=f"{i + 1}m", priority=9, ports=(80,)) for i in range(131)
    ]
    why = "preemption: the search for the fewest victims takes too long"
    assert reason(deciding, members) == why
    assert len(deciding.state.pods) == 130


def lower_on(names: list[str], **fields: Any) -> list[Raw]:
    """Return a node of one CPU for each name, with a pod of low priority that fills the node."""
    nodes = [node(name, cpu="1") for name in names]
    lower = (running(f"low-{n}", n, priority=i % 7, **fields) for i, n in enumerate(names))
    return [*nodes, *lower]


NAMES = [f"n{i}" for i in range(64)]
PORTS: Raw = {"ports": (80,)}
"""Members with a port are searched for one by one, in a trial."""


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets, at each call, how many members a search places."""
    placed: list[int] = []
    count_them, add = CountingSearch.place_once_ended, Trial.add

    def noting(search: CountingSearch, slots: IntArray, rows: IntArray) -> Assignment:
        placed.append(16)
        return count_them(search, slots, rows)

    def noting_one(trial: Trial, one: Pod, row: int) -> None:
        placed.append(1)
        add(trial, one, row)

    monkeypatch.setattr(CountingSearch, "place_once_ended", noting)
    monkeypatch.setattr(Trial, "add", noting_one)
    return placed


@pytest.mark.parametrize(("fields", "at_most"), [({}, 32), (PORTS, 20)])
def test_a_slice_of_a_preemption_is_a_few_steps(
    placed: list[int], fields: Raw, at_most: int
) -> None:
    """After a pause, up to 15 members are added to the trial again."""
    deciding = Deciding(*lower_on(NAMES), pod_group("g", 16))
    slices = list[int]()

    def look() -> None:
        slices.append(sum(placed))
        placed.clear()

    driven(partial(preempted, deciding, gang(16, **fields)), look)
    assert sum(slices) > 16 * 16
    assert max(slices) <= at_most


def test_victims_of_members_with_ports_are_found_by_requests_and_only_checked_one_by_one(
    placed: list[int],
) -> None:
    members = [*gang(16, **PORTS)]
    for number, member in enumerate(members):
        member["metadata"]["labels"] = {"own": str(number)}  # as a Job's pods have
    by_requests = victims(Deciding(*lower_on(NAMES), pod_group("g", 16)), gang(16))
    placed.clear()
    assert victims(Deciding(*lower_on(NAMES), pod_group("g", 16)), members) == by_requests
    assert placed.count(1) < 16 * 8
    assert placed.count(16) > 16


def test_victims_that_requests_do_not_tell_are_found_with_all_filters() -> None:
    deciding = Deciding(
        node("a", cpu="4"),
        node("b", cpu="4"),
        pod_group("g", 2),
        running("x", "a", priority=1),
        running("y", "a", **PORTS),
        running("z", "b"),
    )
    assert victims(deciding, gang(2, **PORTS)) == ["y"]


def test_searches_by_requests_leave_time_for_searches_with_all_filters() -> None:
    names = [f"{number:02}" for number in range(24)]
    objects = [pod_group("g", len(names))]
    for name in names:
        objects += [
            node(f"a{name}", cpu="4"),
            running(f"keeps-the-port{name}", f"a{name}", priority=200, **PORTS),
            running(f"in-vain{name}", f"a{name}", cpu="3", priority=1),
            node(f"b{name}", cpu="4"),
            running(f"low{name}", f"b{name}", cpu="4", priority=2),
        ]
    members = gang(len(names), **PORTS)
    for number, member in enumerate(members):  # each class of members makes a search longer
        requests = {"cpu": f"{1000 + 10 * number}m"}
        member["spec"]["containers"][0]["resources"] = {"requests": requests}
    assert victims(Deciding(*objects), members) == [f"low{name}" for name in names]


def test_a_search_looks_up_the_pods_that_leave_only_once_and_removes_none(
    placed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first search looks them up again: plugins that find placements may need a trial."""
    lookups, slots_of = 0, PodColumns.slots_of

    def noting(columns: PodColumns, pods: Iterable[Pod]) -> IntArray:
        nonlocal lookups
        lookups += 1
        return slots_of(columns, pods)

    def fail(_trial: Trial, uid: Uid) -> None:
        raise AssertionError(f"{uid} is removed")

    monkeypatch.setattr(PodColumns, "slots_of", noting)
    monkeypatch.setattr(Trial, "remove", fail)
    assert victims(Deciding(*lower_on(NAMES), pod_group("g", 16)), gang(16))
    assert len(placed) > 16
    assert lookups == len(placed) + 1


@pytest.mark.parametrize("fields", [{}, PORTS])
def test_a_preemption_pauses_and_leaves_everything_as_it_was(fields: Raw) -> None:
    members = gang(16, **fields)
    at_once = Deciding(*lower_on(NAMES), pod_group("g", 16))
    deciding = Deciding(*lower_on(NAMES), pod_group("g", 16))
    deciding.nominate(members[3], "n3")
    answer, pauses = driven(partial(preempted, deciding, members))
    assert isinstance(answer, GroupNomination)
    assert sorted(v.name for v in answer.victims) == victims(at_once, members)
    assert pauses >= 16
    assert (len(deciding.state.pods), len(deciding.state.nominations)) == (64, 1)
