"""Groups are scheduled as a whole or not at all, against an API server on loopback."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from typing import Any, ClassVar

import pytest

from engines import PLUGINS, Bindings, Engine, Marked, until
from mooring.framework.handle import Handle
from mooring.framework.placements import Placement
from mooring.framework.post_filter import (
    GroupNomination,
    GroupPreemption,
    NotEligible,
    PodGroupPostFilterState,
    PostFilterState,
)
from mooring.framework.registry import NoArgs, Registry
from mooring.framework.verdicts import SKIP, Skip
from mooring.groups.model.pod_group import PodGroup
from mooring.groups.state.pod_groups import PodGroupState
from mooring.groups.status.pod_group_status_reporter import PodGroupStatusReporter
from mooring.kube.client import ApiClient
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.observe.records import NotedStep
from mooring.pausing import pause_now
from mooring.plugins import SHIPPED
from mooring.quota.model.queue import QUEUE_LABEL
from mooring.runtime.queued_pod import PodState, QueuedPod, SubQueue
from mooring.state.cluster_view import ClusterView
from mooring.testing.builders import node, pod, pod_group, queue_object, uid_of
from pod_terms import apart, near, to_pods
from scheduler_states import put_profile
from storage_builders import pv, pvc

Raw = dict[str, Any]

LATER = 2.0
"""Seconds after which members are told that others are missing."""


def members(group: str, count: int, **fields: Any) -> list[Raw]:
    return [pod(f"{group}-{i}", group=group, **fields) for i in range(count)]


def queue_counts(engine: Engine) -> dict[str, int]:
    return engine.scheduler_state.queue.counts()


async def test_a_gang_that_fits_is_bound_whole(client: ApiClient, bindings: Bindings) -> None:
    engine = Engine(client, node("a", cpu="2"), node("b", cpu="2"), pod_group("g", 4))
    engine.pending(*members("g", 4, cpu="1"))
    with engine.running():
        await until(lambda: len(bindings.made) == 4 and not engine.loop.binding)
    assert sorted(target for _, target in bindings.made) == ["a", "a", "b", "b"]
    assert engine.decisions.of("default/g-0")[0].node in ("a", "b")


async def test_a_gang_that_does_not_fit_holds_nothing(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a", cpu="3"), pod_group("g", 4))
    engine.pending(*members("g", 4, cpu="1"), pod("single", cpu="3"))
    with engine.running():
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 4)
        await until(lambda: bindings.made and len(bindings.statuses) >= 4)
    assert bindings.made == [("single", "a")]
    messages = {status["conditions"][0]["message"] for status in bindings.statuses}
    message = "minCount (4) cannot be satisfied: 3 scheduled, 0 remaining; "
    message += "the group of 4 does not fit: 3 of 4 members fit, needs 1 CPUs more. "
    message += "0/1 nodes are available: 1 Insufficient cpu. "
    assert messages == {f"{message}preemption: No preemption victims found for incoming pod group."}


async def test_decisions_about_members_are_noted_while_these_are_in_flight(
    client: ApiClient, bindings: Bindings
) -> None:
    """A trace reads the start of the attempt from this state."""
    states: list[PodState | None] = []

    def trace(noted: NotedStep) -> None:
        if noted.decision is not None:
            states.append(noted.times.state if noted.times is not None else None)

    objects = node("a", cpu="1"), pod_group("g", 2), pod_group("h", 2)
    engine = Engine(client, *objects, trace=trace)
    engine.pending(*members("g", 2, cpu="1"), *members("h", 2, cpu="100m"))
    with engine.running():
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 2)
        await until(lambda: len(bindings.made) == 2)
    assert states == [PodState.IN_FLIGHT] * 4


async def test_members_are_gated_until_enough_of_them_exist(
    client: ApiClient, bindings: Bindings
) -> None:
    now = 0.0
    engine = Engine(client, node("a"), pod_group("g", 3), clock=lambda: now)
    first, second, third = members("g", 3, cpu="1")
    engine.pending(first, second)
    now += LATER
    engine.pod_enqueuer.report()
    with engine.running():
        await until(lambda: len(bindings.statuses) == 2)
        assert queue_counts(engine)[SubQueue.GATED] == 2
        conditions = [status["conditions"][0] for status in bindings.statuses]
        assert conditions[1]["message"] == "2 of 3 members exist"
        assert conditions[1]["reason"] == "SchedulingGated"
        engine.pending(third)
        await until(lambda: len(bindings.made) == 3)


async def test_members_wait_for_the_object_of_their_group(
    client: ApiClient, bindings: Bindings
) -> None:
    now = 0.0
    engine = Engine(client, node("a"), clock=lambda: now)
    engine.pending(*members("g", 2))
    now += LATER
    engine.pod_enqueuer.report()
    with engine.running():
        await until(lambda: len(bindings.statuses) == 2)
        message = bindings.statuses[0]["conditions"][0]["message"]
        assert message == "PodGroup default/g does not exist"
        raw = pod_group("g", 2)
        key = "default/g"
        engine.scheduler_state.state.put(Kind.POD_GROUP, key, parse_object(Kind.POD_GROUP, raw))
        await until(lambda: len(bindings.made) == 2)


async def test_a_gang_waits_until_a_node_makes_space_for_all(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a", cpu="2"), pod_group("g", 4))
    engine.pending(*members("g", 4, cpu="1"))
    with engine.running():
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 4)
        raw = node("b", cpu="2")
        engine.scheduler_state.state.put(Kind.NODE, "b", parse_object(Kind.NODE, raw))
        await until(lambda: len(bindings.made) == 4)


async def test_of_two_gangs_that_each_need_most_of_the_cluster_one_is_bound(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a", cpu="10"), pod_group("g", 6), pod_group("h", 6))
    for one, other in zip(members("g", 6, cpu="1"), members("h", 6, cpu="1"), strict=True):
        engine.pending(one, other)
    with engine.running():
        await until(lambda: len(bindings.made) == 6 and not engine.loop.binding)
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 6)
        await until(lambda: len(bindings.statuses) == 6)
    assert len({name[0] for name, _ in bindings.made}) == 1


async def test_members_beyond_the_minimum_join_when_they_come(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a", cpu="3"), pod_group("g", 2))
    first, second, third, fourth = members("g", 4, cpu="1")
    engine.pending(first, second)
    with engine.running():
        await until(lambda: len(bindings.made) == 2)
        engine.pending(third, fourth)
        await until(lambda: len(bindings.made) == 3)
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 1)
        await until(lambda: len(bindings.statuses) == 1)


async def test_a_member_that_reserve_rejects_leaves_no_other_assumed(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"), pod_group("g", 2))
    engine.pending(*members("g", 1), pod("x", group="g", labels={"does": "reject"}))
    with engine.running():
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 2)
        await until(lambda: len(bindings.statuses) == 2)
    assert not bindings.made
    assert not engine.scheduler_state.state.pods.assumed
    reason = engine.decisions.of("default/g-0")[0].message
    assert reason == "member default/x: 0/1 nodes are available: 1 the plugin does not like it."


async def test_all_members_wait_while_one_is_at_permit(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"), pod_group("g", 2))
    engine.pending(*members("g", 1), pod("x", group="g", labels={"does": "wait"}))
    with engine.running():
        await until(lambda: len(engine.scheduler_state.waiting) == 1)
        await until(lambda: len(engine.scheduler_state.in_pre_bind) == 1)
        assert not bindings.made
        waiting = next(iter(engine.scheduler_state.waiting))
        engine.scheduler_state.waiting.allow(waiting.pod.uid, "Marked")
        await until(lambda: len(bindings.made) == 2)


async def test_when_one_is_rejected_at_permit_none_is_bound(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"), pod_group("g", 2), clock=lambda: 0.0)
    engine.pending(*members("g", 1), pod("x", group="g", labels={"does": "wait"}))
    with engine.running():
        await until(lambda: len(engine.scheduler_state.waiting) == 1)
        waiting = next(iter(engine.scheduler_state.waiting))
        engine.scheduler_state.waiting.reject(waiting.pod.uid, "Marked", "no")
        await until(lambda: not engine.scheduler_state.state.pods.assumed)
        await until(lambda: len(bindings.statuses) == 2)
    assert not bindings.made
    messages = sorted(status["conditions"][0]["message"] for status in bindings.statuses)
    assert messages == [
        "0/1 nodes are available: 1 no.",
        "member default/x failed: 0/1 nodes are available: 1 no.",
    ]


async def test_when_pre_bind_of_one_fails_none_is_bound(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"), pod_group("g", 3), clock=lambda: 0.0)
    engine.pending(*members("g", 2), pod("x", group="g", labels={"does": "fail in pre_bind"}))
    with engine.running():
        await until(lambda: queue_counts(engine)[SubQueue.BACKOFF] == 3)
        await until(lambda: len(bindings.statuses) == 3)
    assert not bindings.made
    assert not engine.scheduler_state.state.pods.assumed


async def test_a_gang_of_many_equal_members_is_one_decision(
    client: ApiClient, bindings: Bindings
) -> None:
    nodes = [node(f"n{i}", cpu="8") for i in range(40)]
    engine = Engine(client, *nodes, pod_group("g", 300))
    engine.pending(*members("g", 300, cpu="1"))
    with engine.running():
        await until(lambda: len(bindings.made) == 300 and not engine.loop.binding)
    assert engine.scheduler_state.queue.counts()[SubQueue.ACTIVE] == 0


async def test_a_gang_evicts_pods_of_lower_priority_on_all_nodes_and_is_bound_when_they_are_gone(
    client: ApiClient, bindings: Bindings
) -> None:
    running = [pod(f"low{n}", cpu="2", node=n) for n in "ab"]
    group = pod_group("g", 4, priority=10)
    engine = Engine(client, node("a", cpu="2"), node("b", cpu="2"), group, *running)
    state = engine.scheduler_state.state
    engine.pending(*members("g", 4, cpu="1", priority=10), pod("other", cpu="1"))
    with engine.running():
        await until(lambda: sorted(bindings.deleted) == ["lowa", "lowb"])
        assert len(state.nominations) == 4
        for raw in running:
            state.delete(Kind.POD, uid_of(f"{raw['metadata']['name']}"))
        await until(lambda: len(bindings.made) == 4 and not engine.loop.binding)
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 1)
    assert "other" not in dict(bindings.made)
    assert len(state.nominations) == 0
    searches = "scheduler_preemption_evaluation_duration_seconds_count"
    labels = {"preemptor": "podgroup", "result": "Success"}
    assert engine.metrics.registry.get_sample_value(searches, labels) == 1


async def test_nobody_is_evicted_for_a_gang_that_does_not_fit_even_then(
    client: ApiClient, bindings: Bindings
) -> None:
    group = pod_group("g", 3, priority=10)
    engine = Engine(client, node("a", cpu="2"), group, pod("low", cpu="2", node="a"))
    engine.pending(*members("g", 3, cpu="1", priority=10))
    with engine.running():
        await until(lambda: len(bindings.statuses) == 3)
    assert not bindings.deleted
    assert "without the pods of lower priority either" in str(bindings.statuses)


async def test_a_stream_of_small_pods_does_not_starve_a_gang(
    client: ApiClient, bindings: Bindings
) -> None:
    now = 0.0
    small = [pod(f"s{i}", cpu="1", node="a", priority=1) for i in range(2)]
    engine = Engine(
        client, node("a", cpu="2"), pod_group("g", 2, priority=1), *small, clock=lambda: now
    )
    config = [{"name": "GangScheduling", "args": {"reserveAfter": "5m"}}]
    put_profile(engine.scheduler_state, registry=PLUGINS, pluginConfig=config)
    state = engine.scheduler_state.state
    engine.pending(*members("g", 2, cpu="1", priority=1))

    def ends(name: str) -> None:
        state.delete(Kind.POD, uid_of(name))

    with engine.running():
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 2)
        now = 301.0
        ends("s0")
        await until(lambda: len(state.nominations) == 2)
        engine.pending(pod("late", cpu="1"))
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 3)
        now = 312.0
        ends("s1")
        await until(lambda: len(bindings.made) == 2 and not engine.loop.binding)
    assert {name for name, _ in bindings.made} == {"g-0", "g-1"}


async def test_the_members_of_a_half_bound_gang_are_deleted_if_the_profile_says_so(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.scheduling.group_binding._PAUSES_SECONDS", (0.0, 0.0))
    engine = Engine(client, node("a"), pod_group("g", 2))
    args = {"deleteBoundMembers": True}
    marked = {"multiPoint": {"enabled": [{"name": "Marked"}]}}
    config = [{"name": "GangScheduling", "args": args}]
    put_profile(engine.scheduler_state, registry=PLUGINS, plugins=marked, pluginConfig=config)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"}
    bindings.refuse["g-1"] = 400
    engine.pending(*members("g", 2, owner=owner))
    with engine.running():
        await until(lambda: bindings.deleted == ["g-0"])
        await until(lambda: bindings.statuses)
    assert [name for name, _ in bindings.made] == ["g-0"]


async def test_a_gang_that_was_half_bound_is_completed_when_it_is_tried_again(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.scheduling.group_binding._PAUSES_SECONDS", (0.0, 0.0))
    engine = Engine(client, node("a"), pod_group("g", 2))
    bindings.refuse["g-1"] = 400
    engine.pending(*members("g", 2))
    with engine.running():
        await until(lambda: bindings.statuses)
        assert not bindings.deleted
        del bindings.refuse["g-1"]
        await until(lambda: len(bindings.made) == 2)


async def test_a_new_member_waits_for_the_backoff_of_its_group_and_moves_no_other(
    client: ApiClient, bindings: Bindings
) -> None:
    now = 0.0
    engine = Engine(client, node("a", cpu="1"), pod_group("g", 2), clock=lambda: now)
    engine.pending(*members("g", 2, cpu="1"))
    with engine.running():
        await until(lambda: len(bindings.statuses) == 2)
        engine.pending(*(pod(f"late{i}", group="g", cpu="1") for i in range(3)))
        await until(lambda: queue_counts(engine)[SubQueue.BACKOFF] == 3)
        await until(lambda: queue_counts(engine)[SubQueue.ACTIVE] == 0)
        assert queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 2
        queue = engine.scheduler_state.queue
        attempts = {queued.pod.name: queued.attempts for queued in queue}
        assert attempts == {"g-0": 1, "g-1": 1, "late0": 0, "late1": 0, "late2": 0}
        now = 1.0
        engine.scheduler_state.work.set()
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 5)
        attempts = {queued.pod.name: queued.attempts for queued in queue}
        assert attempts == {"g-0": 2, "g-1": 2, "late0": 1, "late1": 1, "late2": 1}
        await until(lambda: len(bindings.statuses) == 7)


class Counting:
    """A plugin that counts the decisions about pods."""

    name: ClassVar[str] = "Counting"
    depends_on_node_only: ClassVar[bool] = False
    decisions: ClassVar[int] = 0

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def pre_filter(self, _pod: Pod, _cluster: ClusterView) -> Skip:
        Counting.decisions += 1
        return SKIP


def ticking() -> Callable[[], float]:
    """Return a clock that advances 10 ms at each reading, so a slice has few decisions."""
    ticks = count()
    return lambda: next(ticks) / 100


async def test_other_tasks_run_after_a_few_decisions_about_a_large_group(
    client: ApiClient, bindings: Bindings
) -> None:
    """Members with host ports need one decision each."""
    nodes = [node(f"n{i}", cpu="8") for i in range(60)]
    registry = Registry((*SHIPPED, Marked, Counting), {})
    engine = Engine(client, *nodes, pod_group("g", 60), clock=ticking(), registry=registry)
    points = {"multiPoint": {"enabled": [{"name": "Counting"}]}}
    put_profile(engine.scheduler_state, registry=registry, plugins=points)
    engine.pending(*members("g", 60, ports=(80,)))
    decided = list[int]()

    async def turns() -> None:
        while True:
            decided.append(Counting.decisions)
            await asyncio.sleep(0)

    other = asyncio.create_task(turns())
    with engine.running():
        await until(lambda: len(bindings.made) == 60)
    other.cancel()
    at_once = [after - before for before, after in pairwise(decided)]
    assert sum(at_once) >= 60
    assert max(at_once) <= 20


async def test_nothing_is_assumed_when_the_scheduler_stops_while_it_decides_about_a_group(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, *(node(n) for n in "abc"), pod_group("g", 3), clock=ticking())
    engine.pending(*members("g", 3, ports=(80,)))
    run = asyncio.create_task(engine.loop.run())
    queue = engine.scheduler_state.queue
    await until(lambda: not queue.counts()[SubQueue.ACTIVE], in_pauses=True)
    engine.loop.halt()
    await run
    assert not engine.scheduler_state.state.pods.assumed
    assert not engine.loop.binding
    assert not bindings.made


async def test_members_that_need_each_other_are_bound_also_after_a_pause(
    client: ApiClient, bindings: Bindings
) -> None:
    """The first member fits only beside the other one."""
    engine = Engine(client, *(node(n) for n in "abc"), pod_group("g", 2), clock=ticking())
    beside = near(to_pods({"is": "lead"}))
    lead = pod("lead", group="g", labels={"is": "lead"})
    engine.pending(pod("near", group="g", affinity=beside), lead)
    with engine.running():
        await until(lambda: len(bindings.made) == 2)
    assert len({target for _, target in bindings.made}) == 1


def set_minimum(engine: Engine, minimum: int) -> None:
    state = engine.scheduler_state.state
    before = state.known(Kind.POD_GROUP, "default/g")
    assert isinstance(before, PodGroup)
    state.put(Kind.POD_GROUP, "default/g", replace(before, minimum=minimum))


def status_of(engine: Engine, name: str = "g") -> str:
    """Return the message that the group's status would have now."""
    (report,) = engine.group_reports.report("default", name)
    return str(report["message"])


async def test_the_status_of_a_half_bound_gang_says_so_and_why(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.scheduling.group_binding._PAUSES_SECONDS", (0.0, 0.0))
    engine = Engine(client, node("a"), pod_group("g", 2))
    raws = members("g", 2)
    bindings.refuse["g-1"] = 403
    engine.pending(*raws)
    with engine.running():
        await until(lambda: bindings.statuses and not engine.loop.binding)
        bound = parse_pod(pod("g-0", group="g", node="a"))
        engine.scheduler_state.state.put(Kind.POD, uid_of("g-0"), bound)
    assert status_of(engine) == (
        "1 of 2 members are bound; member default/g-1 failed: binding rejected: "
        'running Bind plugin "DefaultBinder": create pods/binding default/g-1: no (403 Refused)'
    )


@pytest.mark.parametrize("code", [400, 403, 404, 409, 422])
async def test_a_gang_of_which_one_binding_is_refused_is_bound_whole_once_it_is_not(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A pod that is not found is gone, and its controller creates another one."""
    monkeypatch.setattr("mooring.scheduling.group_binding._PAUSES_SECONDS", (0.0, 0.0))
    engine = Engine(client, node("a"), pod_group("g", 8))
    state = engine.scheduler_state.state
    raws = members("g", 8)
    bindings.refuse["g-3"] = code
    engine.pending(*raws)
    with engine.running():
        await until(lambda: len(bindings.made) >= 1 and not engine.loop.binding)
        bound = len(bindings.made)
        assert bound < 8
        for name, target in bindings.made:
            state.put(Kind.POD, uid_of(name), parse_pod(pod(name, group="g", node=target)))
        assert f"{bound} of 8 members are bound; " in status_of(engine)
        del bindings.refuse["g-3"]
        if code == 404:
            engine.pod_enqueuer.gone(parse_pod(raws[3]).uid)
            engine.pending(pod("again", group="g"))
        await until(lambda: len(bindings.made) == 8)


async def test_a_member_that_comes_while_others_are_at_permit_is_not_bound_without_them(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"), pod_group("g", 2))
    engine.pending(*members("g", 2, labels={"does": "wait"}))
    waiting = engine.scheduler_state.waiting
    with engine.running():
        await until(lambda: len(waiting) == 2)
        engine.pending(pod("late", group="g"))
        await until(lambda: len(engine.scheduler_state.in_pre_bind) == 1)
        for at_permit in waiting:
            waiting.reject(at_permit.pod.uid, "Marked", "no")
        await until(lambda: not engine.scheduler_state.state.pods.assumed)
        await until(lambda: len(bindings.statuses) == 3)
    assert not bindings.made


async def test_a_member_that_comes_while_its_group_is_called_off_waits_for_a_backoff(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"), pod_group("g", 2), clock=lambda: 0.0)
    at_permit = pod("x", group="g", labels={"does": "wait"})
    engine.pending(at_permit, *members("g", 1))
    with engine.running():
        await until(lambda: len(engine.scheduler_state.waiting) == 1)
        engine.pod_enqueuer.gone(parse_pod(at_permit).uid)
        engine.pending(pod("late", group="g"))
        await until(lambda: len(bindings.statuses) == 2)
        late = engine.scheduler_state.queue.get(uid_of("late"))
        assert late is not None
        assert (late.queue, late.consecutive_errors_count) == (SubQueue.BACKOFF, 1)
    assert not bindings.made


async def half_bound_before(
    client: ApiClient, *objects: Raw, scheduled: str = "False", **fields: Any
) -> Engine:
    """Return an engine with a gang that a former leader bound in part.

    The profile has `deleteBoundMembers`.
    """
    condition = {"type": "PodGroupScheduled", "status": scheduled}
    group = pod_group("g", 2)
    group["status"] = {"conditions": [condition]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"}
    engine = Engine(client, group, pod("g-0", group="g", node="a", owner=owner), *objects)
    config = [{"name": "GangScheduling", "args": {"deleteBoundMembers": True}}]
    put_profile(engine.scheduler_state, pluginConfig=config)
    engine.pending(pod("g-1", group="g", owner=owner, **fields))
    return engine


async def test_members_that_a_former_leader_bound_are_deleted_if_the_rest_cannot_be_bound(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.scheduling.group_binding._PAUSES_SECONDS", (0.0, 0.0))
    bindings.refuse["g-1"] = 403
    engine = await half_bound_before(client, node("a"))
    with engine.running():
        await until(lambda: bindings.deleted == ["g-0"])
    assert not bindings.made


async def test_members_that_a_former_leader_bound_are_deleted_if_the_rest_does_not_fit(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = await half_bound_before(client, node("a", cpu="1"), cpu="2")
    with engine.running():
        await until(lambda: bindings.deleted == ["g-0"])
    assert status_of(engine).startswith(
        "1 of 2 members are bound; minCount (2) cannot be satisfied: 1 scheduled, 0 remaining; "
        "1 member of the group of 2 does not fit"
    )


async def test_members_of_a_gang_that_was_whole_once_are_not_deleted(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = await half_bound_before(client, node("a", cpu="1"), scheduled="True", cpu="2")
    with engine.running():
        await until(lambda: bindings.statuses)
    assert not bindings.deleted


class Pausing:
    """A plugin that evicts the pod `victim` for a group, once, after pauses that a test ends."""

    name: ClassVar[str] = "Pausing"
    depends_on_node_only: ClassVar[bool] = False
    runs: ClassVar[int] = 0
    pauses: ClassVar[int] = 0
    goes_on: ClassVar[bool] = False

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def post_filter(self, _state: PostFilterState) -> NotEligible:
        """Return NotEligible, so that a single pod evicts no pods."""
        return NotEligible("never")

    def pod_group_post_filter(self, state: PodGroupPostFilterState) -> GroupPreemption:
        """Nominate all members to the victim's node, with the victim."""
        Pausing.runs += 1
        while not Pausing.goes_on:
            Pausing.pauses += 1
            pause_now()
        victim = state.cluster.pod(uid_of("victim"))
        if victim is None or Pausing.runs > 1:
            return NotEligible("not again")
        return GroupNomination({m.uid: "a" for m in state.members}, (victim.pod,))


@pytest.fixture
def paused() -> type[Pausing]:
    Pausing.runs, Pausing.pauses, Pausing.goes_on = 0, 0, False
    return Pausing


def preempting(client: ApiClient) -> Engine:
    """Return an engine with a group of two that fits only after an eviction by `Pausing`."""
    registry = Registry((*SHIPPED, Marked, Pausing), {})
    victim = pod("victim", node="a", cpu="2")
    group = pod_group("g", 2, priority=10)
    engine = Engine(client, node("a", cpu="2"), victim, group, registry=registry)
    post_filter = {"disabled": [{"name": "*"}], "enabled": [{"name": "Pausing"}]}
    put_profile(engine.scheduler_state, registry=registry, plugins={"postFilter": post_filter})
    engine.pending(*members("g", 2, cpu="1", priority=10))
    return engine


async def test_other_tasks_run_while_victims_for_a_group_are_searched_for(
    client: ApiClient, bindings: Bindings, paused: type[Pausing]
) -> None:
    engine = preempting(client)
    with engine.running():
        await until(lambda: paused.pauses > 2, in_pauses=True)
        assert not bindings.deleted
        paused.goes_on = True
        await until(lambda: bindings.deleted == ["victim"])
    assert len(engine.scheduler_state.state.nominations) == 2


@pytest.mark.parametrize("when", ["afterwards", "while victims are searched for"])
async def test_a_group_whose_minimum_is_lowered_is_tried_again(
    client: ApiClient, bindings: Bindings, paused: type[Pausing], when: str
) -> None:
    engine = preempting(client)
    state = engine.scheduler_state.state
    smaller = parse_pod(pod("smaller", cpu="1", node="a"))
    state.delete(Kind.POD, uid_of("victim"))
    state.put(Kind.POD, smaller.uid, smaller)
    paused.goes_on = when == "afterwards"
    with engine.running():
        if paused.goes_on:
            await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 2)
        else:
            await until(lambda: paused.pauses, in_pauses=True)
        engine.scheduler_state.turn.post(lambda: set_minimum(engine, 1))
        paused.goes_on = True
        await until(lambda: len(bindings.made) == 1)
    assert not bindings.deleted


@pytest.mark.parametrize(
    "waiting",
    [
        [pod("p", cpu="2", priority=9)],
        members("g", 2, cpu="1", priority=9),
        [pod("p", cpu="1", labels={QUEUE_LABEL: "lender"})],
    ],
    ids=["a pod", "a group", "a pod that its queue's quota rejects"],
)
async def test_somebody_is_evicted_once_the_delay_since_the_first_attempt_is_over(
    client: ApiClient, bindings: Bindings, waiting: list[Raw]
) -> None:
    """Another attempt does not extend the delay, and no event is needed at its end."""
    now = 0.0
    lender = queue_object("lender", {"cpu": 2}, parent="all")
    queues = queue_object("all"), lender, queue_object("borrower", parent="all")
    low = pod("low", node="a", cpu="2", labels={QUEUE_LABEL: "borrower"})
    objects = node("a", cpu="2"), low, pod_group("g", 2, priority=9), *queues
    limits = {"delaySeconds": 60}
    engine = Engine(client, *objects, clock=lambda: now, preemption=limits)
    engine.pending(*waiting)
    scheduler = engine.scheduler_state

    def have_had(attempts: int) -> bool:
        unschedulable = queue_counts(engine)[SubQueue.UNSCHEDULABLE] == len(waiting)
        return unschedulable and {each.attempts for each in scheduler.queue} == {attempts}

    with engine.running():
        await until(lambda: have_had(1))
        engine.reports.report_new()
        now = 40.0
        for raw in waiting:
            scheduler.queue.try_again(uid_of(raw["metadata"]["name"]), now)
        scheduler.work.set()
        await until(lambda: have_had(2))
        assert not bindings.deleted
        now = 60.0
        scheduler.turn.post(engine.pod_enqueuer.flush)
        await until(lambda: bindings.deleted == ["low"])
    said = [condition["message"] for each in bindings.statuses for condition in each["conditions"]]
    assert any(text.endswith("not eligible yet due to delaySeconds=60.") for text in said)


async def test_the_record_of_a_pod_over_quota_leaves_out_no_nodes(client: ApiClient) -> None:
    engine = Engine(client, node("a"), node("b"), queue_object("team", {"cpu": 1}))
    engine.pending(pod("p", cpu="2", labels={QUEUE_LABEL: "team"}))
    with engine.running():
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 1)
    (kept,) = engine.decisions.of("default/p")
    assert (kept.rejections, kept.truncated) == ({}, None)


async def test_the_delay_begins_with_the_first_attempt_that_searches_nodes(
    client: ApiClient, bindings: Bindings
) -> None:
    """Earlier attempts lacked a claim or a gated member, and no autoscaler could help."""
    now = 0.0
    objects = node("a", cpu="3"), pod("low", node="a", cpu="3"), pod_group("g", 2, priority=9)
    engine = Engine(client, *objects, clock=lambda: now, preemption={"delaySeconds": 60})
    first, second = members("g", 2, cpu="1", priority=9)
    gated = pod("g-1", group="g", cpu="1", priority=9, gates=["wait"])
    engine.pending(pod("p", cpu="3", priority=9, claims=["data"]), first, gated)
    state, queue = engine.scheduler_state.state, engine.scheduler_state.queue
    volume, claim = pv("v", claim="default/data"), pvc("data", volume="v")
    with engine.running():
        await until(lambda: sum(each.unschedulable_count for each in queue) == 1)
        now = 3600.0
        for kind, key, raw in (
            (Kind.PERSISTENT_VOLUME, "v", volume),
            (Kind.PERSISTENT_VOLUME_CLAIM, "default/data", claim),
        ):
            state.put(kind, key, parse_object(kind, raw))
        engine.pending(second)
        await until(lambda: all(each.is_delayed for each in queue))
        assert not bindings.deleted
        now = 3660.0
        engine.scheduler_state.turn.post(engine.pod_enqueuer.flush)
        await until(lambda: bindings.deleted == ["low"])


async def test_of_equal_groups_one_is_tried_after_an_event_and_the_next_if_that_is_placed(
    client: ApiClient, bindings: Bindings
) -> None:
    taken = [pod(f"s{i}", cpu="1", node="a") for i in range(4)]
    groups = [pod_group(f"g{i}", 2) for i in range(20)]
    registry, now = Registry((*SHIPPED, Marked, Attempts), {}), 0.0
    objects = (node("a", cpu="4"), *taken, *groups)
    engine = Engine(client, *objects, registry=registry, clock=lambda: now)
    points = {"multiPoint": {"enabled": [{"name": "Attempts"}]}}
    put_profile(engine.scheduler_state, registry=registry, plugins=points)
    for group in groups:
        engine.pending(*members(group["metadata"]["name"], 2, cpu="1"))
    state = engine.scheduler_state.state

    async def after(*ended: str) -> tuple[int, int]:
        """Delete these pods; return the numbers of new attempts and new Bindings."""
        nonlocal now
        now += 60.0
        Attempts.made, bound = 0, len(bindings.made)
        for name in ended:
            state.delete(Kind.POD, uid_of(name))
        await until(lambda: Attempts.made)
        await until(lambda: not engine.loop.binding and is_idle(engine))
        return Attempts.made, len(bindings.made) - bound

    with engine.running():
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 40)
        assert await after("s0") == (1, 0)
        assert await after("s1", "s2", "s3") == (2, 4)


async def test_groups_that_preempt_are_tried_again_only_when_their_last_victims_have_left(
    client: ApiClient, bindings: Bindings
) -> None:
    """Attempts in between would fail, and the groups would wait for longer and longer backoffs."""
    names, now = "abcd", 0.0
    victims = [pod(f"{n}{i}", cpu="1", node=n) for n in names for i in range(2)]
    groups = [pod_group(name, 2, priority=10) for name in "gh"]
    registry = Registry((*SHIPPED, Marked, Attempts), {})
    nodes = [node(name, cpu="2") for name in names]
    engine = Engine(client, *nodes, *victims, *groups, registry=registry, clock=lambda: now)
    points = {"multiPoint": {"enabled": [{"name": "Attempts"}]}}
    put_profile(engine.scheduler_state, registry=registry, plugins=points)
    engine.pending(*members("g", 2, cpu="2", priority=10), *members("h", 2, cpu="2", priority=10))
    state = engine.scheduler_state.state
    with engine.running():
        await until(lambda: len(bindings.deleted) == len(victims) and is_idle(engine))
        nominee = state.nominations.get(uid_of("g-0"))
        assert nominee is not None
        last_of_g = f"{state.nodes.names[nominee.row]}0"
        now, Attempts.made = 60.0, 0
        for victim in victims:
            if (name := victim["metadata"]["name"]) != last_of_g:
                state.delete(Kind.POD, uid_of(name))
        await until(lambda: len(bindings.made) == 2 and is_idle(engine))
        assert {name[0] for name, _ in bindings.made} == {"h"}
        assert Attempts.made == 1
        state.delete(Kind.POD, uid_of(last_of_g))
        await until(lambda: len(bindings.made) == 4)
    assert Attempts.made == 2


async def test_a_group_of_which_another_scheduler_binds_a_member_is_tried_for_itself(
    client: ApiClient, bindings: Bindings
) -> None:
    """It needs fewer nodes than the groups to which it was equal before."""
    now = 0.0
    objects = node("a", cpu="2"), node("b", cpu="2"), pod("s", cpu="2", node="a")
    engine = Engine(client, *objects, pod_group("g", 3), pod_group("h", 3), clock=lambda: now)
    engine.pending(*members("g", 3, cpu="2"), *members("h", 3, cpu="2"))
    state = engine.scheduler_state.state
    with engine.running():
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 6)
        now = 60.0
        member = parse_pod(pod("h-x", group="h", node="b"))
        state.put(Kind.POD, member.uid, member)
        await until(lambda: is_idle(engine))
        now = 120.0
        state.delete(Kind.POD, uid_of("s"))
        await until(lambda: len(bindings.made) == 2)
    assert {name[0] for name, _ in bindings.made} == {"h"}


async def test_groups_of_equal_specs_are_tried_one_by_one_if_labels_of_members_may_matter(
    client: ApiClient, bindings: Bindings
) -> None:
    """The largest member of g fits nowhere, and its other members exclude each other."""
    now = 0.0
    groups = pod_group("g", 2), pod_group("h", 2)
    taken = pod("s", cpu="3", node="a")
    engine = Engine(client, node("a", cpu="3"), taken, *groups, clock=lambda: now)
    for name in "gh":
        fields = {"labels": {"group": name}, "affinity": NOT_BESIDE_G}
        engine.pending(pod(f"{name}-x", group=name, cpu="4"))
        engine.pending(*members(name, 2, cpu="1", **fields))
    with engine.running():
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 6)
        now = 60.0
        engine.scheduler_state.state.delete(Kind.POD, uid_of("s"))
        await until(lambda: len(bindings.made) == 2)
    assert {name[0] for name, _ in bindings.made} == {"h"}


async def test_a_group_that_waits_for_its_victims_is_not_tried_for_groups_that_are_equal(
    client: ApiClient, bindings: Bindings
) -> None:
    """The waiting group may not preempt again, but the equal groups may."""
    now = 0.0
    objects = node("a", cpu="2"), pod("low-a", cpu="2", node="a")
    groups = [pod_group(name, 2, priority=10) for name in "gh"]
    engine = Engine(client, *objects, *groups, clock=lambda: now)
    state = engine.scheduler_state.state

    def put_victim(at: str, **fields: Any) -> None:
        victim = parse_pod(pod(f"low-{at}", cpu="2", node=at, **fields))
        state.put(Kind.POD, victim.uid, victim)

    engine.pending(*members("g", 3, cpu="1", priority=10))
    with engine.running():
        await until(lambda: bindings.deleted == ["low-a"])
        put_victim("a", terminating=True)
        engine.pending(*members("h", 3, cpu="1", priority=10))
        await until(lambda: queue_counts(engine)[SubQueue.UNSCHEDULABLE] == 6)
        now = 60.0
        put_victim("b")
        state.put(Kind.NODE, "b", parse_object(Kind.NODE, node("b", cpu="2")))
        await until(lambda: bindings.deleted == ["low-a", "low-b"])


NOT_BESIDE_G = apart(to_pods({"group": "g"}))


def is_idle(engine: Engine) -> bool:
    counts = queue_counts(engine)
    return not counts[SubQueue.ACTIVE] + counts[SubQueue.BACKOFF] + len(in_attempt(engine))


def in_attempt(engine: Engine) -> list[QueuedPod]:
    return [queued for queued in engine.scheduler_state.queue if queued.queue is None]


class Attempts:
    """A plugin that counts the attempts about groups: each generates placements once."""

    name: ClassVar[str] = "Attempts"
    depends_on_node_only: ClassVar[bool] = False
    made: ClassVar[int] = 0

    def __init__(self, args: NoArgs, handle: Handle) -> None: ...

    def generate_placements(
        self, _group: PodGroupState, parent: Placement, _cluster: ClusterView
    ) -> tuple[Placement, ...]:
        Attempts.made += 1
        return (parent,)


BY_LABELS: dict[str, Any] = {
    "registry": PLUGINS,
    "plugins": {"multiPoint": {"enabled": [{"name": Marked.name}]}},
    "pluginConfig": [
        {
            "name": "GangScheduling",
            "args": {"podGroupLabels": [{"name": "team/gang", "minimum": "team/min"}]},
        }
    ],
}
"""A profile whose gangs have no object: labels of the members name them."""


def by_labels(name: str, does: str = "") -> dict[str, object]:
    """Return a member of a gang of two that is named by labels."""
    return pod(name, labels={"team/gang": "g", "team/min": "2", "does": does})


async def test_a_gang_named_by_labels_is_bound_when_its_profile_has_gone_and_returned(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"))
    scheduler = engine.scheduler_state
    put_profile(scheduler, **BY_LABELS)
    engine.pod_enqueuer.profiles_changed()
    engine.pending(by_labels("m-0", "wait"), by_labels("m-1"))
    with engine.running():
        await until(lambda: len(scheduler.waiting) == 1 and engine.loop.binding == 2)
        scheduler.profiles.remove("default-scheduler")
        engine.pod_enqueuer.profiles_changed()
        await until(lambda: not engine.loop.binding)
        put_profile(scheduler, **BY_LABELS)
        engine.pod_enqueuer.profiles_changed()
        await until(lambda: scheduler.waiting)
        again = scheduler.queue.get(uid_of("m-0"))
        assert again is not None
        assert again.attempts == 1, "the first attempt after the return does not fail"
        scheduler.waiting.allow(uid_of("m-0"), Marked.name)
        await until(lambda: len(bindings.made) == 2)


async def test_a_member_joins_those_whose_binding_has_begun_before_their_profile_went(
    client: ApiClient, bindings: Bindings
) -> None:
    engine = Engine(client, node("a"))
    scheduler = engine.scheduler_state
    put_profile(scheduler, **BY_LABELS)
    engine.pod_enqueuer.profiles_changed()
    engine.pending(by_labels("m-0", "wait in pre_bind"), by_labels("m-1"))
    with engine.running():
        await until(lambda: len(scheduler.in_pre_bind) == 2)
        scheduler.profiles.remove("default-scheduler")
        engine.pod_enqueuer.profiles_changed()
        put_profile(scheduler, **BY_LABELS)
        engine.pod_enqueuer.profiles_changed()
        engine.pending(by_labels("m-2"))
        await until(lambda: len(scheduler.in_pre_bind) == 3 or bindings.made)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not bindings.made
        engine.pod_enqueuer.gone(uid_of("m-0"))
        await until(lambda: len(bindings.made) == 2)


def is_gone(engine: Engine, *names: str) -> None:
    """Show these members of the gang g as bound, and then as deleted."""
    state = engine.scheduler_state.state
    for name in names:
        state.put(Kind.POD, uid_of(name), parse_pod(pod(name, node="a", group="g", ports=(80,))))
        engine.pod_enqueuer.gone(uid_of(name))
        state.delete(Kind.POD, uid_of(name))


@pytest.mark.parametrize("status", [201, 404])
async def test_a_new_gang_has_nothing_of_a_former_one_of_its_name(
    client: ApiClient, bindings: Bindings, status: int
) -> None:
    """The watches are faster than the answer to the former gang's last Binding."""
    bindings.hold = {"old-1"}
    engine = Engine(client, node("a"), pod_group("g", 2))
    scheduler = engine.scheduler_state
    engine.pending(pod("old-0", group="g"), pod("old-1", group="g"))
    with engine.running():
        await until(lambda: bindings.held and len(bindings.made) == 1)
        is_gone(engine, "old-0", "old-1")
        scheduler.state.delete(Kind.POD_GROUP, "default/g")
        defined = parse_object(Kind.POD_GROUP, pod_group("g", 2))
        scheduler.state.put(Kind.POD_GROUP, "default/g", defined)
        engine.pending(pod("new-0", group="g", labels={"does": "wait"}), pod("new-1", group="g"))
        await until(lambda: len(scheduler.waiting) == 1 and scheduler.in_pre_bind)
        bindings.held["old-1"].reply({}, status)
        await until(lambda: engine.loop.binding == 2)
        assert [name for name, _ in bindings.made] == ["old-0"]
        (report,) = engine.group_reports.report("default", "g")
        assert "old-1" not in str(report)
        scheduler.waiting.allow(uid_of("new-0"), Marked.name)
        await until(lambda: len(bindings.made) == 3)


async def test_a_mistake_after_all_members_were_assumed_ends_neither_them_nor_the_loop(
    client: ApiClient, bindings: Bindings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("g")

    monkeypatch.setattr(PodGroupStatusReporter, "decided", fail)
    engine = Engine(client, node("a", cpu="3"), pod_group("g", 2))
    engine.pending(*members("g", 2, cpu="1"))
    with engine.running():
        await until(lambda: len(bindings.made) == 2)
        engine.pending(pod("single", cpu="1"))
        await until(lambda: len(bindings.made) == 3)
