"""Nominations are carried out against an API server, and withdrawn after a failure."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from deciding import Deciding
from kube.api_server import ApiServer, Request, budget_refusal
from kube.virtual_clock import VirtualClock
from mooring.framework.post_filter import Nomination
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.recorder import EventRecorder
from mooring.kube.writes import PodWriter
from mooring.model.events import ClusterEvent, Kind
from mooring.model.node import parse_node
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.model.workloads import parse_pod_disruption_budget
from mooring.observe.documents import plain
from mooring.quota.model.queue import QUEUE_LABEL, parse_queue
from mooring.runtime.queued_pod import QueuedPod, SubQueue
from mooring.scheduling.pod_status_reporter import PodStatusReporter
from mooring.scheduling.preemption_executor import PreemptionExecutor
from mooring.testing.builders import node, pdb, pod, queue_object, uid_of
from scheduler_states import put_profile

HIGH = 1000


class Stage:
    """A full node, an unschedulable preemptor, and an API server with prepared answers."""

    def __init__(self, client: ApiClient) -> None:
        victims = [pod(f"low-{i}", cpu="1", node="a", labels={"app": "low"}) for i in range(3)]
        self.deciding = Deciding(node("a", cpu="3"), *victims, pdb("guard", {"app": "low"}))
        self.scheduler = self.deciding.scheduler
        self.freed: list[ClusterEvent] = []
        self.deciding.state.on_events(self.freed.extend)
        writer = PodWriter(client)
        self.recorder = EventRecorder(client, "mooring", "test")
        self.reports = PodStatusReporter(writer, self.recorder)
        self.preemptions = PreemptionExecutor(
            self.scheduler,
            writer,
            self.reports,
        )
        self.preemptor = parse_pod(pod("high", cpu="2", priority=HIGH))
        self.queued = self.rejected(self.preemptor)

    def rejected(self, waiting: Pod) -> QueuedPod:
        """Let the pod be rejected; return the queued pod."""
        queue = self.scheduler.queue
        queue.add(waiting, self.deciding.pipeline, 0.0)
        popped = queue.pop(0.0)
        assert popped is not None
        queue.add_unschedulable(popped, frozenset({"NodeResourcesFit"}), 0.0)
        return popped

    def ended(self, result: str) -> float | None:
        """Return the number of preemptions with this result; None if there are none."""
        name = "scheduler_preemption_execution_duration_seconds_count"
        labels = {"preemptor": "pod", "result": result}
        return self.scheduler.metrics.registry.get_sample_value(name, labels)

    def victims(self, *numbers: int) -> tuple[Pod, ...]:
        found = (self.scheduler.state.pods.get(uid_of(f"low-{i}")) for i in numbers)
        return tuple(placed.pod for placed in found if placed is not None)

    async def carry_out(self, *numbers: int, strict: bool = False) -> None:
        self.preemptions.begin([self.queued], Nomination("a", self.victims(*numbers), strict))
        await self.preemptions.finish(5.0)


class Answers:
    """Answers every request with 200, or as `refuse` and `bodies_of` say; records the requests.

    Pods that are read have the phase Running. With `exhausted`, a disruption budget forbids every
    eviction.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.exhausted = False
        self.refuse: dict[tuple[str, str], tuple[int, str]] = {}
        self.held: dict[tuple[str, str], asyncio.Future[Request]] = {}
        """The requests that the test answers."""
        self.bodies_of: dict[tuple[str, str], dict[str, object]] = {}

    def hold(self, *calls: tuple[str, str]) -> None:
        """Let the test answer these requests."""
        self.held = {call: asyncio.get_running_loop().create_future() for call in calls}

    def __call__(self, request: Request) -> None:
        call = (request.method, request.path.removeprefix("/api/v1/namespaces/default/pods/"))
        self.requests.append(call)
        self.bodies.append(request.body)
        if call in self.held:
            self.held[call].set_result(request)
        elif self.exhausted and call[1].endswith("/eviction"):
            request.reply(budget_refusal(), 429)
        elif call in self.refuse:
            request.refuse(*self.refuse[call], "no")
        else:
            running = {"metadata": {"uid": uid_of(call[1])}} if call[0] == "GET" else {}
            request.reply(self.bodies_of.get(call, running))


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def stage(answers: Answers) -> AsyncIterator[Stage]:
    async with ApiServer(answers) as server, ApiClient(Connection(server.url)) as client:
        yield Stage(client)


async def test_victims_are_marked_then_deleted_and_the_last_one_waits_for_the_others(
    stage: Stage, answers: Answers
) -> None:
    await stage.carry_out(0, 1, 2)
    assert sorted(answers.requests) == sorted(
        call for i in range(3) for call in (("PATCH", f"low-{i}/status"), ("DELETE", f"low-{i}"))
    )
    assert answers.requests[-2:] == [("PATCH", "low-2/status"), ("DELETE", "low-2")]
    mark = answers.bodies[0]
    assert isinstance(mark, dict)
    condition = mark["status"]["conditions"][0]
    assert (condition["type"], condition["reason"]) == (
        "DisruptionTarget",
        "PreemptionByScheduler",
    )
    assert condition["message"] == (
        "default-scheduler: preempting to accommodate a higher priority pod"
    )


async def test_a_victim_is_told_which_queue_took_its_share_back(
    stage: Stage, answers: Answers
) -> None:
    state = stage.scheduler.state
    for name in ("all", "lender", "borrower"):
        parent = "" if name == "all" else "all"
        state.put(Kind.QUEUE, name, parse_queue(queue_object(name, parent=parent)))
    lender, borrower = ({QUEUE_LABEL: name} for name in ("lender", "borrower"))
    victim = parse_pod(pod("low-0", cpu="1", node="a", labels=borrower))
    state.put(Kind.POD, victim.uid, victim)
    stage.scheduler.decisions.seen(victim.key, victim.uid, 0.0)
    queued = stage.rejected(parse_pod(pod("high", cpu="1", labels=lender)))
    stage.preemptions.begin([queued], Nomination("a", (victim,)))
    await stage.preemptions.finish(5.0)
    why = "queue lender took back what queue borrower had borrowed"
    (condition,) = answers.bodies[0]["status"]["conditions"]
    assert condition["message"] == f"default-scheduler: preempting because {why}"
    path = stage.scheduler.decisions.path(victim.key)
    assert path is not None
    assert path.steps[-1].cause == why
    recording = asyncio.create_task(stage.recorder.run())
    await stage.recorder.drain(5.0)
    notes = [body["note"] for body in answers.bodies if "note" in body]
    recording.cancel()
    assert any(note.endswith(f"because {why}") for note in notes)


async def test_victims_are_deleted_before_more_than_a_few_others_are_marked(
    stage: Stage, answers: Answers
) -> None:
    """Else the requests for many victims would delay each other, and those of other preemptions."""
    for i in range(3, 150):
        victim = parse_pod(pod(f"low-{i}", cpu="1", node="a"))
        stage.deciding.state.put(Kind.POD, victim.uid, victim)
    await stage.carry_out(*range(150))
    begun = Counter[str]()
    for method, _ in answers.requests:
        begun[method] += 1
        assert begun["PATCH"] - begun["DELETE"] <= 64
    assert begun["DELETE"] == 150


async def test_a_victim_that_is_marked_is_deleted_also_while_a_decision_has_the_turn(
    stage: Stage, answers: Answers
) -> None:
    mark, deletion = ("PATCH", "low-0/status"), ("DELETE", "low-0")
    answers.hold(mark, deletion)
    stage.preemptions.begin([stage.queued], Nomination("a", stage.victims(0)))
    marked = await answers.held[mark]
    async with stage.scheduler.turn, asyncio.timeout(5.0):
        marked.reply({})
        deleted = await answers.held[deletion]
    deleted.reply({})
    await stage.preemptions.finish(5.0)


async def test_how_the_evictions_of_a_preemption_ended_is_told(
    stage: Stage, answers: Answers
) -> None:
    await stage.carry_out(0)
    answers.refuse["DELETE", "low-1"] = (500, "InternalError")
    await stage.carry_out(1)
    assert (stage.ended("success"), stage.ended("error")) == (1, 1)


async def test_the_preemptor_is_nominated_before_anything_is_written(
    stage: Stage, answers: Answers
) -> None:
    stage.preemptions.begin([stage.queued], Nomination("a", stage.victims(0)))
    assert stage.scheduler.state.nominations.get(uid_of("high")) is not None
    assert stage.scheduler.state.evictions.awaits_victims(stage.preemptor)
    assert answers.requests == []
    await stage.preemptions.finish(5.0)


async def test_a_strict_profile_evicts_through_the_eviction_api(
    stage: Stage, answers: Answers
) -> None:
    await stage.carry_out(0, strict=True)
    assert answers.requests == [("POST", "low-0/eviction")]


async def test_an_exhausted_budget_ends_the_preemption_and_the_preemptor_is_queued_again(
    stage: Stage, answers: Answers
) -> None:
    answers.exhausted = True
    await stage.carry_out(0, strict=True)
    state = stage.scheduler.state
    assert state.nominations.get(uid_of("high")) is None
    assert not state.evictions.awaits_victims(stage.preemptor)
    (budget,) = state.evictions.matching_budgets(stage.victims(0)[0])
    assert state.evictions.disruptions_allowed(budget) == 0
    assert stage.queued.queue is SubQueue.BACKOFF
    assert [change.action for change in stage.freed] == ["Delete"]


@pytest.mark.parametrize(
    "refusal", [(403, "Forbidden"), (429, "TooManyRequests"), (500, "InternalError")]
)
async def test_a_victim_whose_eviction_is_refused_is_left_alone_whatever_the_reason(
    stage: Stage, answers: Answers, refusal: tuple[int, str]
) -> None:
    answers.refuse["POST", "low-0/eviction"] = refusal
    await stage.carry_out(0, 1, strict=True)
    assert stage.scheduler.state.evictions.refused == {uid_of("low-0")}
    assert stage.queued.queue is SubQueue.BACKOFF


async def test_a_victim_whose_deletion_is_refused_is_deleted_again(
    stage: Stage, answers: Answers
) -> None:
    """kube-scheduler does the same; the profile does not have `disruptionBudgets: Strict`."""
    answers.refuse["DELETE", "low-0"] = (403, "Forbidden")
    await stage.carry_out(0)
    assert not stage.scheduler.state.evictions.refused


async def test_an_overloaded_server_exhausts_no_budget(stage: Stage, answers: Answers) -> None:
    state = stage.scheduler.state
    budget = parse_pod_disruption_budget(pdb("guard", {"app": "low"}, allowed=3))
    state.put(Kind.POD_DISRUPTION_BUDGET, budget.key, budget)
    answers.refuse["POST", "low-0/eviction"] = (429, "TooManyRequests")
    await stage.carry_out(0, strict=True)
    assert state.evictions.disruptions_allowed(budget) == 3
    assert state.nominations.get(uid_of("high")) is None
    assert stage.queued.queue is SubQueue.BACKOFF


async def test_a_failed_deletion_ends_the_preemption(stage: Stage, answers: Answers) -> None:
    answers.refuse["DELETE", "low-0"] = (403, "Forbidden")
    await stage.carry_out(0, 1)
    assert ("DELETE", "low-1") not in answers.requests
    assert stage.scheduler.state.nominations.get(uid_of("high")) is None
    assert stage.queued.queue is SubQueue.BACKOFF


async def test_a_deletion_that_was_carried_out_without_an_answer_keeps_the_preemptors_place(
    stage: Stage, answers: Answers
) -> None:
    """Otherwise it could evict other pods elsewhere before the watch shows the victim's end."""
    answers.refuse["DELETE", "low-0"] = (504, "Timeout")
    terminating = {"uid": uid_of("low-0"), "deletionTimestamp": "2026-01-01T00:00:00Z"}
    answers.bodies_of["GET", "low-0"] = {"metadata": terminating}
    await stage.carry_out(0)
    assert (stage.ended("success"), stage.ended("error")) == (1, None)
    assert stage.scheduler.state.nominations.get(uid_of("high")) is not None
    assert stage.scheduler.state.evictions.awaits_victims(stage.preemptor)


async def test_a_denied_eviction_is_told_to_the_preemptor(stage: Stage, answers: Answers) -> None:
    answers.refuse["DELETE", "low-0"] = (403, "Forbidden")
    await stage.carry_out(0)
    writing = asyncio.create_task(stage.recorder.run())
    await stage.recorder.drain(5.0)
    writing.cancel()
    notes = {body["reason"]: body["note"] for body in answers.bodies if "note" in body}
    assert notes["FailedPreemption"] == (
        "Preemption is abandoned: delete pods default/low-0: no (403 Forbidden)"
    )


async def test_the_path_of_the_preemptor_has_the_victims_that_stay(
    stage: Stage, answers: Answers
) -> None:
    """The cause may name a victim; only users who may get all victims see this name."""
    answers.refuse["DELETE", "low-1"] = (403, "Forbidden")
    log = stage.scheduler.decisions
    log.seen("default/high", stage.preemptor.uid, 0.0)
    await stage.carry_out(0, 1)
    path = plain(log.path("default/high"))
    assert path is not None
    failed = path["steps"][-1]
    assert failed["step"] == "preemptionFailed"
    assert "default/low-1" in failed["cause"]
    assert (failed["victims"], failed["victimsInAll"]) == (["default/low-1"], 1)


async def test_a_failed_preemption_is_not_tried_again_before_the_backoff_ends(
    stage: Stage, answers: Answers
) -> None:
    answers.refuse["DELETE", "low-0"] = (403, "Forbidden")
    await stage.carry_out(0)
    queue = stage.scheduler.queue
    assert queue.pop(0.0) is None
    assert queue.next_due() == stage.queued.backoff_expiration
    assert queue.pop(stage.queued.backoff_expiration) is stage.queued


async def test_an_eviction_that_fails_in_an_unexpected_way_is_logged_once_and_abandoned(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("the plugin is broken")

    victims = stage.victims(0, 1)
    stage.scheduler.in_pre_bind[victims[0].uid] = broken
    await stage.carry_out(0, 1)
    evictions = stage.scheduler.state.evictions
    assert not any(evictions.evicting(victim) for victim in victims)
    assert not evictions.awaits_victims(stage.preemptor)
    assert stage.queued.queue is SubQueue.BACKOFF
    [record] = caplog.records
    assert "preemption for pod default/high is abandoned" in record.message
    assert "the plugin is broken" in record.message


async def test_the_loop_learns_when_an_abandoned_preemptor_is_due(
    stage: Stage, answers: Answers
) -> None:
    answers.refuse["DELETE", "low-0"] = (403, "Forbidden")
    await stage.carry_out(0)
    await stage.scheduler.work.wait()
    assert stage.scheduler.queue.next_due() is not None


async def test_an_abandoned_preemption_leaves_the_nomination_of_a_successor_of_its_name(
    stage: Stage, answers: Answers
) -> None:
    answers.refuse["DELETE", "low-0"] = (403, "Forbidden")
    stage.preemptions.begin([stage.queued], Nomination("a", stage.victims(0)))
    state = stage.scheduler.state
    state.withdraw(uid_of("high"))
    successor = replace(stage.preemptor, uid=Uid("successor"))
    state.nominate(successor, "a")
    await stage.preemptions.finish(5.0)
    (nominee,) = state.nominations
    assert nominee.pod is successor


@pytest.mark.parametrize(("answered", "strict"), [(0, False), (1, False), (0, True)])
@pytest.mark.parametrize(
    "change", [{"mode": "Shadow"}, {"match": {"podSelector": {"matchLabels": {"app": "other"}}}}]
)
async def test_a_victim_stays_whose_turn_comes_when_no_profile_takes_the_preemptor_any_more(
    answered: int, change: dict[str, Any], *, strict: bool
) -> None:
    clock = VirtualClock()
    async with (
        ApiServer() as server,
        ApiClient(Connection(server.url), sleep=clock.sleep) as client,
    ):
        stage = Stage(client)
        stage.preemptions.begin([stage.queued], Nomination("a", stage.victims(0), strict))
        for _ in range(answered):
            (await server.next()).reply({})
        (await server.next()).refuse(429, "TooManyRequests", "overloaded", Retry_After="3")
        await clock.sleepers(seconds=3.0)
        put_profile(stage.scheduler, **change)
        await clock.advance(3.0)
        await stage.preemptions.finish(5.0)
    assert len(server.seen) == answered + 1
    state = stage.scheduler.state
    assert not state.evictions.evicting(stage.victims(0)[0])
    assert state.nominations.get(uid_of("high")) is None


async def test_every_preemptor_of_a_victim_that_stays_is_queued_again(
    stage: Stage, answers: Answers
) -> None:
    answers.refuse["DELETE", "low-0"] = (403, "Forbidden")
    other = stage.rejected(parse_pod(pod("other", cpu="1", priority=HIGH + 1)))
    stage.preemptions.begin([stage.queued], Nomination("a", stage.victims(0)))
    stage.preemptions.begin([other], Nomination("a", stage.victims(0)))
    await stage.preemptions.finish(5.0)
    assert stage.scheduler.state.nominations.get(uid_of("other")) is None
    assert not stage.scheduler.state.evictions.awaits_victims(other.pod)
    assert other.queue is SubQueue.BACKOFF


async def test_a_preemption_that_fails_leaves_the_next_nomination_of_its_preemptor(
    stage: Stage, answers: Answers
) -> None:
    """A pod of higher priority takes the first node, and the preemptor finds another one."""
    answers.hold(("DELETE", "low-0"))
    stage.preemptions.begin([stage.queued], Nomination("a", stage.victims(0)))
    deletion = await answers.held["DELETE", "low-0"]
    higher = stage.rejected(parse_pod(pod("higher", cpu="1", priority=HIGH + 1)))
    stage.preemptions.begin([higher], Nomination("a", stage.victims(0)))
    stage.scheduler.state.put(Kind.NODE, "b", parse_node(node("b")))
    stage.preemptions.begin([stage.queued], Nomination("b", ()))
    await _refused(deletion)
    await stage.preemptions.finish(5.0)
    state = stage.scheduler.state
    assert state.nominations.get(uid_of("higher")) is None
    nominee = state.nominations.get(uid_of("high"))
    assert nominee is not None
    assert state.nodes.names[nominee.row] == "b"


async def test_a_victim_that_has_gone_by_itself_is_no_failure(
    stage: Stage, answers: Answers
) -> None:
    answers.refuse["PATCH", "low-0/status"] = (404, "NotFound")
    await stage.carry_out(0, 1)
    assert ("DELETE", "low-1") in answers.requests
    assert stage.scheduler.state.nominations.get(uid_of("high")) is not None


async def test_a_victim_is_deleted_even_if_its_condition_conflicts(
    stage: Stage, answers: Answers
) -> None:
    answers.refuse["PATCH", "low-0/status"] = (409, "Conflict")
    await stage.carry_out(0)
    assert answers.requests == [("PATCH", "low-0/status"), ("DELETE", "low-0")]


async def test_victims_that_are_terminating_already_are_not_deleted_again(
    stage: Stage, answers: Answers
) -> None:
    terminating = parse_pod(pod("low-0", cpu="1", node="a", terminating=True))
    stage.scheduler.state.put(Kind.POD, terminating.uid, terminating)
    stage.preemptions.begin([stage.queued], Nomination("a", (terminating,)))
    await stage.preemptions.finish(5.0)
    assert answers.requests == []
    assert stage.scheduler.state.nominations.get(uid_of("high")) is not None


async def test_a_victim_at_permit_is_rejected_instead_of_deleted(
    stage: Stage, answers: Answers
) -> None:
    (victim,) = stage.victims(0)
    rejected = asyncio.get_running_loop().create_future()
    stage.scheduler.waiting.enter(
        victim, "a", {"Gang": 10.0}, 0.0, lambda rejection, _: rejected.set_result(rejection)
    )
    await stage.carry_out(0)
    assert (await rejected).reason == "preempted"
    assert answers.requests == []


async def test_lower_nominations_on_the_node_are_cleared(stage: Stage) -> None:
    lower = parse_pod(pod("lower", cpu="1", priority=5))
    equal = parse_pod(pod("equal", cpu="1", priority=HIGH))
    for nominated in (lower, equal):
        stage.scheduler.state.nominate(nominated, "a")
    await stage.carry_out(0)
    assert stage.scheduler.state.nominations.get(uid_of("lower")) is None
    assert stage.scheduler.state.nominations.get(uid_of("equal")) is not None
    assert [change.before for change in stage.freed if isinstance(change.before, Pod)]


async def test_victims_of_higher_priority_leave_the_preemptor_its_place(stage: Stage) -> None:
    reclaimer = stage.rejected(parse_pod(pod("reclaimer", cpu="1", priority=-5)))
    stage.preemptions.begin([reclaimer], Nomination("a", stage.victims(0)))
    await stage.preemptions.finish(5.0)
    nominee = stage.scheduler.state.nominations.get(reclaimer.pod.uid)
    assert nominee is not None
    assert (nominee.keeps_out(0, math.inf), nominee.keeps_out(1, math.inf)) == (True, False)


async def test_evictions_that_have_succeeded_go_on_when_another_one_fails(
    stage: Stage, answers: Answers
) -> None:
    answers.refuse["DELETE", "low-1"] = (403, "Forbidden")
    deleted, stays = stage.victims(0, 1)
    await stage.carry_out(0, 1)
    evictions = stage.scheduler.state.evictions
    assert evictions.evicting(deleted), "its deletion was accepted, and it is charged"
    assert not evictions.evicting(stays)


@pytest.mark.parametrize(
    ("sent", "fails"),
    [
        (("DELETE", "low-0"), ("DELETE", "low-1")),
        (("POST", "low-0/eviction"), ("POST", "low-1/eviction")),
    ],
)
async def test_an_eviction_that_was_sent_is_waited_for_when_another_one_fails(
    stage: Stage, answers: Answers, sent: tuple[str, str], fails: tuple[str, str]
) -> None:
    """If the API server carries it out, the pod leaves and its budgets are charged."""
    answers.hold(sent, fails)
    goes, stays, _ = victims = stage.victims(0, 1, 2)
    strict = sent[0] == "POST"
    stage.preemptions.begin([stage.queued], Nomination("a", victims, strict))
    late, refused = await answers.held[sent], await answers.held[fails]
    await _refused(refused)
    late.reply({})
    await stage.preemptions.finish(5.0)
    evictions = stage.scheduler.state.evictions
    assert (evictions.evicting(goes), evictions.evicting(stays)) == (True, False)
    assert ("DELETE", "low-2") not in answers.requests
    assert stage.queued.queue is SubQueue.BACKOFF


async def test_no_eviction_is_sent_once_another_one_has_failed(
    stage: Stage, answers: Answers
) -> None:
    mark, fails = ("PATCH", "low-0/status"), ("DELETE", "low-1")
    answers.hold(mark, fails)
    stage.preemptions.begin([stage.queued], Nomination("a", stage.victims(0, 1, 2)))
    marked = await answers.held[mark]
    await _refused(await answers.held[fails])
    marked.reply({})
    await stage.preemptions.finish(5.0)
    assert ("DELETE", "low-0") not in answers.requests
    assert not any(map(stage.scheduler.state.evictions.evicting, stage.victims(0, 1, 2)))


async def _refused(request: Request) -> None:
    """Reject the request, and let the client handle the answer."""
    request.refuse(403, "Forbidden", "no")
    for _ in range(100):
        await asyncio.sleep(0)


async def test_every_preemptor_of_a_victim_with_an_exhausted_budget_is_queued_again(
    stage: Stage, answers: Answers
) -> None:
    answers.exhausted = True
    other = stage.rejected(parse_pod(pod("other", cpu="1", priority=HIGH + 1)))
    stage.preemptions.begin([stage.queued], Nomination("a", stage.victims(0), strict=True))
    stage.preemptions.begin([other], Nomination("a", stage.victims(0), strict=True))
    await stage.preemptions.finish(5.0)
    assert other.queue is SubQueue.BACKOFF
    assert stage.scheduler.state.nominations.get(uid_of("other")) is None


async def test_a_victim_that_has_left_its_node_before_its_turn_is_not_deleted(
    stage: Stage, answers: Answers
) -> None:
    """If its binding has failed, the victim is queued again and may get another node."""
    victim = parse_pod(pod("assumed", cpu="1"))
    stage.scheduler.state.assume(victim, 0)
    stage.preemptions.begin([stage.queued], Nomination("a", (victim,)))
    stage.scheduler.state.forget(victim)
    await stage.preemptions.finish(5.0)
    assert answers.requests == []


async def test_a_victim_in_pre_bind_is_called_off_and_can_be_bound_elsewhere(
    stage: Stage, answers: Answers
) -> None:
    state, victim = stage.scheduler.state, parse_pod(pod("assumed", cpu="1"))
    state.put(Kind.NODE, "b", parse_node(node("b", cpu="3")))
    state.assume(victim, state.nodes.row_of["a"])
    stage.scheduler.in_pre_bind[victim.uid] = lambda: state.forget(victim)
    stage.preemptions.begin([stage.queued], Nomination("a", (victim,)))
    await stage.preemptions.finish(5.0)
    assert answers.requests == []
    state.assume(victim, state.nodes.row_of["b"])
    assert not state.evictions.evicting(victim)
    assert not state.evictions.awaits_victims(stage.preemptor)


async def test_a_victim_that_stays_because_of_a_conflict_ends_the_preemption(
    stage: Stage, answers: Answers
) -> None:
    answers.refuse["DELETE", "low-0"] = (409, "Conflict")
    (victim,) = stage.victims(0)
    answers.bodies_of["GET", "low-0"] = {"metadata": {"uid": victim.uid}, "spec": {}}
    await stage.carry_out(0)
    assert not stage.scheduler.state.evictions.evicting(victim)
    assert stage.scheduler.state.nominations.get(uid_of("high")) is None
    assert stage.queued.queue is SubQueue.BACKOFF


async def test_nothing_is_written_about_a_place_that_is_kept_for_no_pod_yet(
    stage: Stage, answers: Answers
) -> None:
    """Rebalancing nominates placeholders; a pod of higher priority takes the node of one."""
    place = replace(parse_pod(pod("lower", cpu="1", priority=5)), uid=Uid("uid/replacement"))
    stage.scheduler.state.nominate(place, "a")
    await stage.carry_out(0)
    assert stage.scheduler.state.nominations.get(place.uid) is None
    assert not [path for _, path in answers.requests if "lower" in path]


async def test_preemptors_are_tried_again_if_a_pod_stays_that_somebody_else_began_to_evict(
    stage: Stage,
) -> None:
    [victim] = stage.victims(0)
    other = parse_pod(pod("other"))
    assert stage.scheduler.state.begin_evictions(other, [victim]) == [victim]
    await stage.carry_out(0)
    assert stage.scheduler.state.evictions.awaits_victims(stage.preemptor)
    stage.preemptions.stays(victim)
    assert not stage.scheduler.state.evictions.awaits_victims(stage.preemptor)
    assert stage.queued.queue is SubQueue.BACKOFF
    assert stage.scheduler.work.is_set()
