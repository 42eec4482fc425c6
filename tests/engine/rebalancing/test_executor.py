"""One move carried out: evicted once, by the Eviction API, and its replacement awaited."""

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from kube.api_server import ApiServer, budget_refusal
from kube.virtual_clock import VirtualClock
from mooring.engine.rebalancing.executor import BUDGET_SECONDS, LOOK_SECONDS, Ended, Result
from mooring.engine.rebalancing.plan import Move, Step
from mooring.framework.decision import TextAboutPods
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.model.events import Kind
from mooring.model.node import parse_node
from mooring.model.workloads import parse_pod_disruption_budget
from mooring.policy.rebalancing import Goal
from mooring.testing.builders import node, pdb, uid_of
from mooring.testing.device_builders import (
    allocated,
    device_claim,
    device_class,
    resource_slice,
)
from mooring.testing.storage_builders import pv, pvc
from rebalancing_stage import OWNER, READY, Stage, running

Raw = dict[str, Any]
EVICTION = "/api/v1/namespaces/default/pods/web-1/eviction"
SECONDS = 60.0
NOT_READY = (
    "pod default/web-2, the replacement of pod default/web-1, was not ready on node b within 60 s"
)


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(Connection(server.url)) as client:
        yield client


@pytest.fixture
def stage(api: ApiClient) -> Stage:
    return Stage(api, running("web-1", "a"), pdb("guard", {"app": "web"}, allowed=1))


class Running:
    """A move of web-1 to node b in a task; `evicted` says whether the executor told of it."""

    def __init__(self, stage: Stage) -> None:
        self.evicted = False
        self.expected = stage.keep("web-1", "b")
        work = stage.executor.carry_out(self.expected, stage.entry, SECONDS, self._evicted)
        self.task = asyncio.create_task(work)

    def _evicted(self) -> None:
        self.evicted = True


@asynccontextmanager
async def evicted(stage: Stage, server: ApiServer) -> AsyncIterator[Running]:
    """Yield the move when the API server has evicted the pod; afterwards nothing may be kept."""
    running_move = Running(stage)
    request = await server.next()
    assert (request.method, request.path) == ("POST", EVICTION)
    request.reply({}, 201)
    await stage.clock.sleepers(seconds=LOOK_SECONDS)
    yield running_move
    assert (stage.nominated(), len(stage.expected)) == ({}, 0)


async def end_of(move: Running, clock: VirtualClock) -> Ended:
    """Let the executor look once more, and return how the move ended."""
    await clock.advance(LOOK_SECONDS)
    async with asyncio.timeout(SECONDS):
        return await move.task


async def failed_by(stage: Stage, server: ApiServer, answer: Any, status: int) -> Ended:
    """Answer the eviction so, and return how the move ended; nothing is kept then."""
    move = Running(stage)
    (await server.next()).reply(answer, status)
    async with asyncio.timeout(SECONDS):
        ended = await move.task
    assert (move.evicted, ended.evicted) == (False, False)
    assert (stage.nominated(), len(stage.expected)) == ({}, 0)
    assert not stage.state.evictions.evicting(stage.placed("web-1"))
    return ended


def text(why: str | TextAboutPods) -> str:
    return why.text if isinstance(why, TextAboutPods) else why


async def test_a_move_has_ended_when_the_replacement_is_ready_on_the_target(
    stage: Stage, server: ApiServer
) -> None:
    async with evicted(stage, server) as move:
        assert move.evicted
        new = stage.come("web-2")
        await stage.clock.end_sleep(LOOK_SECONDS)
        stage.state.withdraw(new.uid)
        stage.show(running("web-2", "b", status={}))
        await stage.clock.end_sleep(LOOK_SECONDS)
        assert not move.task.done()
        stage.show(running("web-2", "b"))
        await stage.clock.sleepers(seconds=LOOK_SECONDS)
        assert await end_of(move, stage.clock) == Ended(
            Result.MOVED, "", evicted=True, replacement=new
        )


async def test_only_the_eviction_api_is_asked_once_and_for_the_uid(
    stage: Stage, server: ApiServer
) -> None:
    async with evicted(stage, server) as move:
        stage.come("web-2")
        stage.show(running("web-2", "b"))
        assert (await end_of(move, stage.clock)).result is Result.MOVED
    [request] = server.seen
    assert request.body["deleteOptions"] == {"preconditions": {"uid": uid_of("web-1")}}


async def test_a_replacement_that_lands_elsewhere_ends_the_move(
    stage: Stage, server: ApiServer
) -> None:
    async with evicted(stage, server) as move:
        stage.come("web-2")
        stage.show(running("web-2", "a"))
        ended = await end_of(move, stage.clock)
    assert ended.result is Result.ELSEWHERE
    assert text(ended.why) == (
        "pod default/web-2, the replacement of pod default/web-1, is on node a and not on b"
    )


async def test_the_replacement_may_be_shown_on_its_node_before_kopf_shows_it(
    stage: Stage, server: ApiServer
) -> None:
    async with evicted(stage, server) as move:
        stage.show(running("web-2", "b"))
        assert (await end_of(move, stage.clock)).result is Result.MOVED


@pytest.mark.parametrize(
    ("comes", "expected"),
    [
        (False, "no replacement of pod default/web-1 has come within 60 s"),
        (True, NOT_READY),
    ],
)
async def test_a_replacement_is_awaited_for_its_time_and_no_longer(
    stage: Stage, server: ApiServer, *, comes: bool, expected: str
) -> None:
    async with evicted(stage, server) as move:
        if comes:
            stage.come("web-2")
        stage.clock.time += SECONDS
        ended = await end_of(move, stage.clock)
    assert (ended.result, text(ended.why)) == (Result.LATE, expected)


async def test_a_replacement_of_another_spec_ends_the_move_at_once(
    stage: Stage, server: ApiServer
) -> None:
    async with evicted(stage, server) as move:
        stage.come("web-2", cpu="2")
        assert (await end_of(move, stage.clock)).result is Result.GONE


async def test_a_replacement_that_is_deleted_ends_the_move(stage: Stage, server: ApiServer) -> None:
    async with evicted(stage, server) as move:
        new = stage.come("web-2")
        stage.parts.pod_enqueuer.gone(new.uid)
        assert (await end_of(move, stage.clock)).result is Result.GONE


async def test_a_target_that_is_deleted_ends_the_move(stage: Stage, server: ApiServer) -> None:
    async with evicted(stage, server) as move:
        stage.state.delete(Kind.NODE, "b")
        ended = await end_of(move, stage.clock)
    assert (ended.result, ended.why) == (Result.GONE, "node b has gone")


async def test_a_move_that_is_called_off_gives_its_place_back(
    stage: Stage, server: ApiServer
) -> None:
    async with evicted(stage, server) as move:
        stage.come("web-2")
        move.task.cancel()
        await asyncio.wait([move.task])


async def test_a_budget_that_forbids_the_eviction_is_known_to_be_exhausted_then(
    stage: Stage, server: ApiServer
) -> None:
    ended = await failed_by(stage, server, budget_refusal(), 429)
    assert (ended.result, text(ended.why)) == (
        Result.REFUSED,
        "a disruption budget keeps pod default/web-1",
    )
    assert stage.executor.exhausted_budget([stage.move("web-1", "b")]) == "default/guard"


async def test_an_eviction_that_waits_is_not_sent_once_its_profile_has_changed(
    server: ApiServer,
) -> None:
    clock = VirtualClock()
    async with ApiClient(Connection(server.url), sleep=clock.sleep) as client:
        stage = Stage(client, running("web-1", "a"))
        move = Running(stage)
        (await server.next()).refuse(429, "TooManyRequests", "overloaded", Retry_After="3")
        await clock.sleepers(seconds=3.0)
        stage.put_profile(mode="Plan")
        await clock.advance(3.0)
        async with asyncio.timeout(SECONDS):
            ended = await move.task
    assert ended == Ended(Result.REFUSED, "the profile has changed")
    assert not move.evicted
    assert len(server.seen) == 1
    assert not stage.state.evictions.evicting(stage.placed("web-1"))


async def test_a_pod_that_somebody_else_deletes_is_not_moved(
    stage: Stage, server: ApiServer
) -> None:
    gone = {"kind": "Status", "reason": "NotFound", "details": {"name": "web-1"}}
    ended = await failed_by(stage, server, gone, 404)
    assert ended.result is Result.GONE


async def test_a_refusal_of_the_api_server_ends_the_move(stage: Stage, server: ApiServer) -> None:
    refusal = {"kind": "Status", "reason": "Forbidden", "message": "admission webhook says no"}
    ended = await failed_by(stage, server, refusal, 403)
    assert ended.result is Result.FAILED


async def test_a_refusal_that_names_the_pod_is_told_without_it_to_who_may_not_get_it(
    stage: Stage, server: ApiServer
) -> None:
    refusal = {"kind": "Status", "reason": "Forbidden", "message": 'pods "web-1" is forbidden'}
    why = (await failed_by(stage, server, refusal, 403)).why
    assert isinstance(why, TextAboutPods)
    assert "web-1" in why.text
    assert [each.key for each in why.pods] == ["default/web-1"]
    assert why.otherwise == "a pod could not be evicted"


@pytest.mark.parametrize("lost", [True, False])
async def test_an_eviction_that_was_carried_out_without_an_answer_counts(
    stage: Stage, server: ApiServer, *, lost: bool
) -> None:
    """The pod is read, and never evicted a second time."""
    move = Running(stage)
    request = await server.next()
    if lost:
        request.cut()
    else:
        request.refuse(500, "InternalError", "etcd timed out")
    read = await server.next()
    assert (read.method, read.path) == ("GET", EVICTION.removesuffix("/eviction"))
    read.reply({"metadata": {"uid": uid_of("web-1"), "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    await stage.clock.sleepers(seconds=LOOK_SECONDS)
    assert move.evicted
    stage.show(running("web-2", "b"))
    assert (await end_of(move, stage.clock)).result is Result.MOVED


async def test_an_eviction_without_an_answer_that_was_not_carried_out_is_not_repeated(
    stage: Stage, server: ApiServer
) -> None:
    move = Running(stage)
    (await server.next()).cut()
    (await server.next()).reply({"metadata": {"uid": uid_of("web-1")}})
    async with asyncio.timeout(SECONDS):
        ended = await move.task
    assert (ended.result, ended.evicted) == (Result.FAILED, False)
    assert stage.nominated() == {}
    assert [request.method for request in server.seen] == ["POST", "GET"]


async def test_a_pod_that_a_preemption_evicts_already_is_not_evicted_for_a_move(
    stage: Stage, server: ApiServer
) -> None:
    other = stage.come("preemptor", owner=None)
    stage.state.begin_evictions(other, [stage.placed("web-1")])
    move = Running(stage)
    async with asyncio.timeout(SECONDS):
        assert (await move.task).result is Result.GONE
    assert server.seen == []


async def test_a_preemptor_that_waits_for_an_eviction_that_fails_is_tried_again(
    stage: Stage, server: ApiServer
) -> None:
    move = Running(stage)
    request = await server.next()
    preemptor = stage.come("preemptor", owner=None)
    stage.state.nominate(preemptor, "a")
    assert stage.state.begin_evictions(preemptor, [stage.placed("web-1")]) == []
    request.reply(budget_refusal(), 429)
    async with asyncio.timeout(SECONDS):
        await move.task
    assert not stage.state.evictions.awaits_victims(preemptor)
    assert stage.nominated() == {}


async def test_the_pod_of_a_stateful_set_has_its_grace_before_its_replacement_is_awaited(
    api: ApiClient, server: ApiServer
) -> None:
    owner = {**OWNER, "kind": "StatefulSet"}
    grace = {"terminationGracePeriodSeconds": 90}
    stage = Stage(api, running("web-1", "a", owner=owner, spec=grace))
    async with evicted(stage, server) as move:
        stage.clock.time += SECONDS + 80
        await stage.clock.advance(LOOK_SECONDS)
        await stage.clock.sleepers(seconds=LOOK_SECONDS)
        stage.clock.time += 10
        assert (await end_of(move, stage.clock)).result is Result.LATE


async def test_a_stopping_replica_waits_for_the_answer_of_an_eviction(
    stage: Stage, server: ApiServer
) -> None:
    move = Running(stage)
    request = await server.next()
    move.task.cancel()
    await asyncio.wait([move.task])
    finishing = asyncio.create_task(stage.executor.finish(SECONDS))
    await asyncio.wait([finishing], timeout=0)
    assert not finishing.done()
    request.reply({}, 201)
    async with asyncio.timeout(SECONDS):
        await finishing
    assert stage.nominated() == {}


async def test_an_eviction_that_fails_when_the_replica_stops_is_no_traceback(
    stage: Stage, server: ApiServer
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    move = Running(stage)
    request = await server.next()
    move.task.cancel()
    await asyncio.wait([move.task])
    request.refuse(403, "Forbidden", "no")
    async with asyncio.timeout(SECONDS):
        await stage.executor.finish(SECONDS)
    del move
    gc.collect()
    assert reported == []


def with_devices(*names: str, on_b: Sequence[str]) -> list[Raw]:
    """Return pods on node a, each with a device by a claim of its template, and devices of b."""
    pods = [
        running(
            name,
            "a",
            spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]},
            status={
                **READY,
                "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}],
            },
        )
        for name in names
    ]
    claims = [
        device_claim(
            f"{name}-gpu",
            owner=name,
            allocation=allocated(f"d-{name}", node="a"),
            reserved_for=[name],
        )
        for name in names
    ]
    slices = [
        resource_slice("of-a", [f"d-{name}" for name in names], node="a"),
        resource_slice("of-b", on_b, node="b"),
    ]
    return [device_class(), *slices, *claims, *pods]


class TestWhyNot:
    """A move is checked again before it begins."""

    @pytest.fixture
    def stage(self, client: ApiClient) -> Stage:
        return Stage(client, running("web-1", "a"), running("big", "b", cpu="3"))

    def why_not(self, stage: Stage, *names: str) -> str | None:
        moves = [stage.move(name, "b") for name in names]
        return self.of(stage, *moves)

    def of(self, stage: Stage, *moves: Move, goal: Goal = Goal.PACK) -> str | None:
        step = replace(stage.step(*moves), goal=goal)
        why = stage.executor.why_not(step, moves, stage.entry, ())
        return text(why) if why is not None else None

    def test_a_move_that_is_as_it_was_planned_is_possible(self, stage: Stage) -> None:
        assert self.why_not(stage, "web-1") is None

    def test_a_pod_that_fits_nowhere_but_on_its_node_stays(self, stage: Stage) -> None:
        move = stage.move("web-1", "b")
        stage.show(running("other", "b"))
        assert self.of(stage, move) == "pod default/web-1 does not fit on node b any more"

    def test_a_place_that_is_kept_for_another_move_is_taken(self, stage: Stage) -> None:
        stage.show(running("web-2", "a"))
        stage.keep("web-2", "b")
        assert self.why_not(stage, "web-1") is not None

    def test_moves_that_belong_together_have_room_together(self, stage: Stage) -> None:
        stage.show(running("web-2", "a"))
        assert self.why_not(stage, "web-1", "web-2") is not None
        swapped = [stage.move("big", "a"), stage.move("web-1", "b"), stage.move("web-2", "b")]
        assert self.of(stage, *swapped) is None

    def test_a_claim_that_was_made_for_the_pod_is_made_again_for_its_replacement(
        self, client: ApiClient
    ) -> None:
        stage = Stage(client, *with_devices("web-1", on_b=["g1"]))
        assert self.why_not(stage, "web-1") is None

    def test_moves_that_belong_together_have_devices_together(self, client: ApiClient) -> None:
        stage = Stage(client, *with_devices("web-1", "web-2", on_b=["g1"]))
        assert self.why_not(stage, "web-1", "web-2") == (
            "pod default/web-2 does not fit on node b any more"
        )
        stage = Stage(client, *with_devices("web-1", "web-2", on_b=["g1", "g2"]))
        assert self.why_not(stage, "web-1", "web-2") is None

    def test_an_ephemeral_volume_is_made_again_for_the_replacement(self, client: ApiClient) -> None:
        claim = pvc("web-1-scratch", volume="disk")
        claim["metadata"]["ownerReferences"] = [
            {"kind": "Pod", "name": "web-1", "uid": uid_of("web-1"), "controller": True}
        ]
        volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
        stage = Stage(
            client,
            pv("disk", claim="default/web-1-scratch"),
            claim,
            running("web-1", "a", spec={"volumes": volumes}),
        )
        assert self.why_not(stage, "web-1") is None

    def test_a_pod_that_has_gone_is_not_moved_nor_one_that_has_its_name(self, stage: Stage) -> None:
        move = stage.move("web-1", "b")
        stage.gone("web-1")
        again = running("web-1", "a")
        again["metadata"]["uid"] = "the second"
        stage.show(again)
        assert self.of(stage, move) == "pod default/web-1 has gone"

    def test_a_pod_that_terminates_is_not_moved(self, stage: Stage) -> None:
        move = stage.move("web-1", "b")
        stage.show(running("web-1", "a", terminating=True))
        assert self.of(stage, move) == "pod default/web-1 has gone"

    def test_a_pod_with_another_annotation_is_looked_at_again(self, stage: Stage) -> None:
        move = stage.move("web-1", "b")
        stage.show(running("web-1", "a", annotations={"note": "new"}))
        assert self.of(stage, move) == "pod default/web-1 has changed"

    def test_a_target_that_has_gone_is_none(self, stage: Stage) -> None:
        move = stage.move("web-1", "b")
        stage.state.delete(Kind.NODE, "b")
        assert self.of(stage, move) == "node b has gone"

    def test_a_target_that_is_cordoned_is_none(self, stage: Stage) -> None:
        stage.state.put(Kind.NODE, "b", parse_node(node("b", unschedulable=True)))
        assert self.why_not(stage, "web-1") is not None

    def test_nothing_is_moved_by_a_profile_that_was_replaced(self, stage: Stage) -> None:
        entry = stage.entry
        stage.put_profile(mode="Plan")
        move = stage.move("web-1", "b")
        why = stage.executor.why_not(stage.step(move), [move], entry, ())
        assert why == "the profile has changed"

    def test_a_pod_that_its_owner_wants_to_stay_is_not_moved(self, stage: Stage) -> None:
        stage.show(running("web-1", "a", annotations={"karpenter.sh/do-not-disrupt": "true"}))
        assert self.why_not(stage, "web-1") == (
            "pod default/web-1 has an annotation against being disrupted"
        )

    def test_a_pod_that_rests_is_not_moved(self, stage: Stage) -> None:
        move = stage.move("web-1", "b")
        why = stage.executor.why_not(stage.step(move), [move], stage.entry, {uid_of("web-1")})
        assert why is not None
        assert text(why) == "pod default/web-1 was moved, or could not be, a short time ago"

    def test_a_violation_that_has_been_mended_moves_nobody(self, stage: Stage) -> None:
        stage.show(running("ssd", "a", node_selector={"disk": "ssd"}))
        stage.state.put(Kind.NODE, "b", parse_node(node("b", labels={"disk": "ssd"})))
        move = stage.move("ssd", "b")
        assert self.of(stage, move, goal=Goal.VIOLATIONS) is None
        stage.state.put(Kind.NODE, "a", parse_node(node("a", labels={"disk": "ssd"})))
        assert self.of(stage, move, goal=Goal.VIOLATIONS) == (
            "pod default/ssd gains nothing on node b any more"
        )

    def test_a_gain_of_score_that_has_gone_moves_nobody(self, stage: Stage) -> None:
        stage.show(running("full", "a", cpu="3"))
        stage.gone("big")
        move = stage.move("web-1", "b")
        assert self.of(stage, move, goal=Goal.SPREAD) is None
        stage.show(running("big", "b", cpu="3"))
        assert self.of(stage, move, goal=Goal.SPREAD) is not None

    def test_room_is_made_only_while_somebody_waits_for_it(self, stage: Stage) -> None:
        move = stage.move("web-1", "b")
        waiting = stage.come("large", cpu="4", owner=None)
        step = stage.room(waiting, "a", move)
        assert stage.executor.why_not(step, [move], stage.entry, ()) is None
        stage.parts.pod_enqueuer.gone(waiting.uid)
        assert stage.executor.why_not(step, [move], stage.entry, ()) == (
            "what it makes room for waits no more"
        )

    def in_vain(self, stage: Stage, step: Step, *, number: int = 0) -> str | None:
        why = stage.executor.why_not(step, [step.moves[number]], stage.entry, ())
        return text(why) if why is not None else None

    def making_room(self, stage: Stage) -> Step:
        """Return a step that makes room on node a for a pod that needs all of it."""
        stage.gone("big")
        stage.show(running("web-2", "a"))
        waiting = stage.come("large", cpu="4", owner=None)
        return stage.room(waiting, "a", stage.move("web-1", "b"), stage.move("web-2", "b"))

    def test_no_room_is_made_if_the_pod_would_not_fit_even_then(self, stage: Stage) -> None:
        step = self.making_room(stage)
        assert self.in_vain(stage, step) is None
        stage.show(running("small", "a", cpu="100m"))
        assert self.in_vain(stage, step) == (
            "pod default/large does not fit on node a once the moves are made"
        )

    def test_no_room_is_made_if_a_later_move_has_become_impossible(self, stage: Stage) -> None:
        step = self.making_room(stage)
        stage.show(running("there", "b", cpu="2500m"))
        assert self.in_vain(stage, step) == "pod default/web-2 does not fit on node b any more"

    def test_no_room_is_made_for_a_pod_that_fits_without_it(self, stage: Stage) -> None:
        step = self.making_room(stage)
        for name in ("web-1", "web-2"):
            stage.show(running(name, "a", cpu="0"))
        step = replace(step, moves=(stage.move("web-1", "b"), stage.move("web-2", "b")))
        assert self.in_vain(stage, step) == "what it is for is reached without it"

    def test_moves_that_are_under_way_count_as_made(self, stage: Stage) -> None:
        step = self.making_room(stage)
        stage.executor.expected.hold_room(step, step.moves)
        expected = stage.executor.keep(step.moves[0])
        assert self.in_vain(stage, step, number=1) is None
        stage.gone("web-1")
        assert self.in_vain(stage, step, number=1) is None
        stage.come("web-1-new")
        assert expected.replacement is not None
        assert self.in_vain(stage, step, number=1) is None

    def test_no_pod_leaves_a_node_that_will_not_be_empty(self, stage: Stage) -> None:
        stage.gone("big")
        stage.show(running("web-2", "a"))
        moves = (stage.move("web-1", "b"), stage.move("web-2", "b"))
        step = stage.emptying("a", *moves)
        assert self.in_vain(stage, step) is None
        stage.show(running("agent", "a", owner={**OWNER, "kind": "DaemonSet", "uid": "ds"}))
        assert self.in_vain(stage, step) is None, "it belongs to the node"
        stage.show(running("new", "a"))
        assert self.in_vain(stage, step) == "node a is not empty once the moves are made"

    def test_no_pod_leaves_a_node_to_which_another_one_comes(self, stage: Stage) -> None:
        step = stage.emptying("a", stage.move("web-1", "b"))
        stage.state.nominate(stage.come("preemptor", owner=None), "a")
        assert self.in_vain(stage, step) == "node a is not empty once the moves are made"

    def test_a_group_is_moved_if_the_node_of_one_member_violates_what_it_requires(
        self, stage: Stage
    ) -> None:
        stage.gone("big")
        stage.show(running("ssd", "a", node_selector={"disk": "ssd"}))
        stage.state.put(Kind.NODE, "b", parse_node(node("b", labels={"disk": "ssd"})))
        moves = [stage.move("web-1", "b"), stage.move("ssd", "b")]
        step = replace(stage.step(*moves, group="default/gang"), goal=Goal.VIOLATIONS)
        assert stage.executor.why_not(step, moves, stage.entry, ()) is None
        stage.state.put(Kind.NODE, "a", parse_node(node("a", labels={"disk": "ssd"})))
        why = stage.executor.why_not(step, moves, stage.entry, ())
        assert why is not None
        assert "gains nothing" in text(why)


async def test_a_budget_is_waited_for_that_follows_a_moment_later(stage: Stage) -> None:
    raw = pdb("guard", {"app": "web"}, allowed=0)
    stage.state.put(Kind.POD_DISRUPTION_BUDGET, "default/guard", parse_pod_disruption_budget(raw))
    moves = [stage.move("web-1", "b")]
    waiting = asyncio.create_task(stage.executor.wait_for_budgets(moves))
    await stage.clock.end_sleep(LOOK_SECONDS)
    assert not waiting.done()
    raw = pdb("guard", {"app": "web"}, allowed=1)
    stage.state.put(Kind.POD_DISRUPTION_BUDGET, "default/guard", parse_pod_disruption_budget(raw))
    await stage.clock.end_sleep(LOOK_SECONDS)
    async with asyncio.timeout(SECONDS):
        assert await waiting is None


async def test_a_budget_is_not_waited_for_without_an_end(stage: Stage) -> None:
    raw = pdb("guard", {"app": "web"}, allowed=0)
    stage.state.put(Kind.POD_DISRUPTION_BUDGET, "default/guard", parse_pod_disruption_budget(raw))
    waiting = asyncio.create_task(stage.executor.wait_for_budgets([stage.move("web-1", "b")]))
    await stage.clock.sleepers(seconds=LOOK_SECONDS)
    await stage.clock.advance(BUDGET_SECONDS)
    async with asyncio.timeout(SECONDS):
        assert await waiting == "default/guard"


async def test_moves_that_belong_together_need_that_many_disruptions(stage: Stage) -> None:
    stage.show(running("web-2", "a"))
    one, two = stage.move("web-1", "b"), stage.move("web-2", "b")
    assert stage.executor.exhausted_budget([one]) is None
    assert stage.executor.exhausted_budget([one, two]) == "default/guard"
