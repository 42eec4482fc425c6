"""The end of attempts without a bound pod: the pod's queue and the reports."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kube.api_server import ApiServer, Request
from mooring.kube.client import ApiClient
from mooring.kube.config import Connection
from mooring.kube.recorder import EventRecorder
from mooring.kube.writes import PodWriter
from mooring.model.events import Kind
from mooring.model.objects import parse_object
from mooring.model.pod import Pod, parse_pod
from mooring.model.workloads import parse_namespace
from mooring.observe.metrics import Metrics
from mooring.quota.model.queue import parse_queue
from mooring.runtime.queued_pod import SubQueue
from mooring.scheduling.attempts import Attempts
from mooring.scheduling.outcome import PodRejected
from mooring.scheduling.pod_status_reporter import PodStatusReporter
from mooring.scheduling.scheduler_state import CurrentAttempt
from mooring.testing.builders import namespace, node, pdb, pod, queue_object
from scheduler_states import put_profile, scheduler_state

WEB, OTHER = parse_pod(pod("web")), parse_pod(pod("other"))
REJECTED = PodRejected("Gang", "the gang is not complete", "a", WEB)


class Stage:
    """A pod in flight, its attempt, and the names of pods whose statuses were written."""

    def __init__(self, client: ApiClient, requests: "asyncio.Queue[str]") -> None:
        self.scheduler = scheduler_state(node("a"), clock=lambda: 1.0, now=lambda: 130.0)
        self.queue = self.scheduler.queue
        pipeline = put_profile(self.scheduler).pipeline
        self.queue.add(WEB, pipeline, 0.0)
        queued = self.queue.pop(0.0)
        assert queued is not None
        self.reports = PodStatusReporter(
            PodWriter(client), EventRecorder(client, "mooring", "test")
        )
        self.metrics = Metrics()
        self.attempts = Attempts(self.scheduler, self.reports, self.metrics)
        self.queued, self.attempt = queued, CurrentAttempt(pipeline, 0.0, {WEB.uid: queued})
        self._requests = requests
        self._written: list[str] = []

    def unschedulable(self) -> None:
        """End the attempt without a node for the pod."""
        self.attempts.unschedulable(
            self.attempt, self.queued, frozenset({"NodeResourcesFit"}), "no", may_preempt=True
        )

    def counted(self) -> dict[str, float]:
        """Return the number of ended attempts by result."""
        page, _ = self.metrics.exposition("")
        return {
            sample.labels["result"]: sample.value
            for family in text_string_to_metric_families(page.decode())
            for sample in family.samples
            if sample.name == "scheduler_schedule_attempts_total" and sample.value
        }

    async def is_reported(self) -> bool:
        """Return whether the pod's status was written, by waiting for a later report."""
        self.reports.report_new()
        self.reports.error(OTHER, "no")
        writing = asyncio.create_task(self.reports.run())
        while OTHER.name not in self._written:
            self._written.append(await self._requests.get())
        writing.cancel()
        return WEB.name in self._written


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    written: asyncio.Queue[str] = asyncio.Queue()

    def answer(request: Request) -> None:
        written.put_nowait(request.path.split("/")[-2])
        request.reply({})

    async with ApiServer(answer) as server, ApiClient(Connection(server.url)) as client:
        yield Stage(client, written)


async def test_a_pod_whose_attempt_fails_backs_off_without_its_nomination(stage: Stage) -> None:
    stage.scheduler.state.nominate(WEB, "a")
    assert stage.scheduler.nominated_node(WEB) == "a"
    stage.attempts.fail(stage.attempt, stage.queued, "the plugin is broken")
    assert stage.scheduler.nominated_node(WEB) is None
    assert stage.queued.queue is SubQueue.BACKOFF
    assert stage.counted() == {"error": 1}
    assert await stage.is_reported()


@pytest.mark.parametrize("halted", [False, True])
async def test_a_scheduler_that_stops_writes_nothing_about_a_rejected_pod(
    stage: Stage, *, halted: bool
) -> None:
    stage.attempts.halted = halted
    stage.attempts.reject(stage.attempt, stage.queued, REJECTED)
    assert stage.queued.queue is SubQueue.UNSCHEDULABLE
    assert stage.queued.unschedulable_plugins == {"Gang"}
    assert stage.counted() == {"unschedulable": 1}
    assert await stage.is_reported() is not halted


async def test_nothing_is_written_about_a_rejected_pod_that_was_deleted(stage: Stage) -> None:
    stage.queue.remove(WEB.uid, 0.0)
    stage.attempts.reject(stage.attempt, stage.queued, REJECTED)
    assert not await stage.is_reported()


async def test_nothing_is_written_about_a_pod_that_fails_after_it_has_left(stage: Stage) -> None:
    """A Bind plugin may exceed its time limit although its Binding was carried out."""
    stage.queue.remove(WEB.uid, 0.0)
    stage.attempts.fail(stage.attempt, stage.queued, "the plugin took too long")
    assert stage.counted() == {"error": 1}
    assert not await stage.is_reported()


async def test_a_pod_has_left_when_it_was_deleted_or_is_on_a_node(stage: Stage) -> None:
    assert not stage.attempts.has_left(stage.queued)
    stage.scheduler.state.put(Kind.POD, WEB.uid, parse_pod(pod("web", node="a")))
    assert stage.attempts.has_left(stage.queued)
    assert stage.queue.get(WEB.uid) is None, "its attempt has ended"
    assert stage.attempts.has_left(stage.queued)


def rejected_beside(stage: Stage, raw: dict[str, Any], **preemption: Any) -> Pod:
    """Put a profile with these preemption limits in force; return the pod `raw`, on a node."""
    placed = parse_pod(raw)
    stage.scheduler.state.put(Kind.POD, placed.uid, placed)
    stage.attempt.pipeline = put_profile(stage.scheduler, preemption=preemption).pipeline
    return placed


def flushed(stage: Stage, now: float) -> int:
    return stage.queue.flush_unschedulable(now)


@pytest.mark.parametrize(
    ("started", "retried"),
    [("1970-01-01T00:01:40Z", 31.0), (None, 61.0), ("1970-01-01T00:01:10Z", 301.0)],
)
async def test_a_pod_is_tried_again_when_a_lesser_one_has_run_for_long_enough(
    stage: Stage, started: str | None, retried: float
) -> None:
    young = pod("young", node="a", priority=-1, started=started)
    rejected_beside(stage, young, minRuntimeSeconds=60)
    stage.unschedulable()
    assert flushed(stage, retried - 0.1) == 0
    assert flushed(stage, retried) == 1
    assert stage.queued.flushed is (retried > 300)


async def test_a_pod_in_a_queue_is_tried_again_whatever_priority_a_young_one_has(
    stage: Stage,
) -> None:
    state, drawing = stage.scheduler.state, {"matchLabels": {"team": "a"}}
    state.put(Kind.NAMESPACE, "default", parse_namespace(namespace("default", {"team": "a"})))
    state.put(Kind.QUEUE, "team-a", parse_queue(queue_object("team-a", selector=drawing)))
    young = pod("young", node="a", priority=9, started="1970-01-01T00:01:40Z")
    rejected_beside(stage, young, minRuntimeSeconds=60)
    stage.unschedulable()
    assert flushed(stage, 31.0) == 1


async def test_a_pod_is_tried_again_when_its_delay_is_over(stage: Stage) -> None:
    rejected_beside(stage, pod("low", node="a", priority=-1), delaySeconds=60)
    stage.unschedulable()
    assert stage.queued.is_delayed
    assert flushed(stage, 60.9) == 0
    assert flushed(stage, 61.0) == 1


async def test_a_pod_that_has_waited_for_a_part_of_its_delay_waits_for_the_rest(
    stage: Stage,
) -> None:
    rejected_beside(stage, pod("low", node="a", priority=-1), delaySeconds=60)
    stage.attempt.unschedulable_seconds = 50.0
    stage.unschedulable()
    assert flushed(stage, 10.9) == 0
    assert flushed(stage, 11.0) == 1


async def test_a_young_pod_that_is_no_lesser_one_has_no_pod_tried_again(stage: Stage) -> None:
    young = pod("young", node="a", started="1970-01-01T00:01:40Z")
    rejected_beside(stage, young, minRuntimeSeconds=60)
    stage.unschedulable()
    assert flushed(stage, 300.9) == 0


@pytest.mark.parametrize(("budgets", "retried"), [("Strict", 1), ("Default", 0)])
async def test_a_strict_pod_is_tried_again_when_a_refusal_counts_no_more(
    stage: Stage, budgets: str, retried: int
) -> None:
    low = rejected_beside(stage, pod("low", node="a", priority=-1), disruptionBudgets=budgets)
    stage.scheduler.state.eviction_refused(low, by_budget=False)
    stage.unschedulable()
    assert flushed(stage, 60.9) == 0
    assert flushed(stage, 61.0) == retried


async def test_a_strict_pod_is_tried_again_when_a_charge_counts_no_more(stage: Stage) -> None:
    state = stage.scheduler.state
    raw = pdb("guard", {"app": "low"}, allowed=1)
    state.put(Kind.POD_DISRUPTION_BUDGET, "default/guard", parse_object(Kind(raw["kind"]), raw))
    low = pod("low", node="a", priority=-1, labels={"app": "low"})
    gone = rejected_beside(stage, low, disruptionBudgets="Strict")
    state.begin_evictions(OTHER, [gone])
    stage.unschedulable()
    assert flushed(stage, 61.0) == 1
