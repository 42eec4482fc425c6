"""The traces of pods, as an OTLP endpoint on loopback receives them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span
from opentelemetry.sdk.trace import Tracer

import mooring.observe.traces
from deciding import keep
from http_servers import answering, serving
from mooring.framework.decision import Decision, PodRef
from mooring.model.pod import Uid
from mooring.observe.records import DecisionLog, NotedStep, RecordedStep
from mooring.observe.traces import Traces
from mooring.runtime.queued_pod import PodState, StateTimes

UID = Uid("0b53a1e2-6c57-4d0e-9f38-7d2f4a6f1c11")
OTHER_UID = Uid("7c2dd8a5-9d6b-4b43-8f0e-58c2f2c0a3b9")
POD = "shop/web"
EPOCH = 1_700_000_000.0
ENOUGH = 40_000
"""More steps than wait at a time."""


class Endpoint:
    """An OTLP endpoint that decodes requests; `answer` returns the status of each answer."""

    def __init__(self, answer: Callable[[], Awaitable[int]]) -> None:
        self._answer = answer
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: dict[str, str] = {}
        self.asked = asyncio.Event()
        self.url = ""

    async def post(self, request: web.Request) -> web.Response:
        self.headers = dict(request.headers)
        found = ExportTraceServiceRequest()
        found.ParseFromString(await request.read())
        self.requests.append(found)
        self.asked.set()
        return web.Response(status=await self._answer())

    @property
    def resources(self) -> list[ResourceSpans]:
        return [resource for request in self.requests for resource in request.resource_spans]

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for resource in self.resources
            for scope in resource.scope_spans
            for span in scope.spans
        ]


async def well() -> int:
    return 200


async def failing() -> int:
    return 500


async def hanging() -> int:
    await asyncio.Event().wait()
    return 200


@asynccontextmanager
async def endpoint(answer: Callable[[], Awaitable[int]] = well) -> AsyncIterator[Endpoint]:
    found = Endpoint(answer)
    async with serving(answering(found.post)) as port:
        found.url = f"http://127.0.0.1:{port}"
        yield found


class Rounds:
    """A `sleep` between two rounds; the test begins each round."""

    def __init__(self) -> None:
        self._begun = asyncio.Queue[asyncio.Event]()

    async def __call__(self, _seconds: float) -> None:
        end = asyncio.Event()
        self._begun.put_nowait(end)
        await end.wait()

    async def run(self, number: int = 1) -> None:
        """Run `number` rounds to their end."""
        pause = await self._begun.get()
        for _ in range(number):
            pause.set()
            pause = await self._begun.get()
        self._begun.put_nowait(pause)


def traces_to(
    url: str,
    rounds: Rounds | None = None,
    flush_seconds: float = 60.0,
    clock: Callable[[], float] = lambda: 0.0,
) -> Traces:
    return Traces(
        url,
        version="1.2.3",
        instance="replica-1",
        clock=clock,
        wall=lambda: EPOCH,
        sleep=rounds or Rounds(),
        flush_seconds=flush_seconds,
    )


class History:
    """Records the steps of pods in a DecisionLog, at times that the test chooses."""

    def __init__(self, traces: Traces, limit: int = 2**20) -> None:
        self.log = DecisionLog(limit=limit, trace=traces.note)

    def seen(self, at: float, uid: Uid = UID, pod: str = POD) -> StateTimes:
        times = self.log.seen(pod, uid, at)
        assert times is not None
        return times

    def unschedulable(
        self, times: StateTimes, began: float, at: float, cause: str = "cpu", uid: Uid = UID
    ) -> None:
        times.enter(PodState.IN_FLIGHT, began)
        keep(self.log, uid, decision(), at, cause=cause)
        times.enter(PodState.UNSCHEDULABLE, at)

    def assumed(self, times: StateTimes, began: float, at: float, uid: Uid = UID) -> None:
        times.enter(PodState.IN_FLIGHT, began)
        keep(self.log, uid, decision(node="n1"), at)
        times.enter(PodState.BINDING, at)


def decision(
    *,
    node: str | None = None,
    nominated: str | None = None,
    victims: tuple[str, ...] = (),
    pod: str = POD,
) -> Decision:
    return Decision(
        pod=PodRef.of_key(pod),
        profile="packed",
        profile_generation=4,
        kubernetes_version="1.36",
        node=node,
        nominated_node=nominated,
        victims=tuple(map(PodRef.of_key, victims)),
        scores=None,
        rejections={},
        message=None,
    )


@asynccontextmanager
async def recorded() -> AsyncIterator[tuple[Endpoint, Traces, History]]:
    """Yield an endpoint, traces that are sent to this endpoint, and a History for the traces."""
    async with endpoint() as collector:
        traces = traces_to(collector.url)
        yield collector, traces, History(traces)


async def sent(traces: Traces) -> None:
    """Send all waiting spans, as at the end of the process."""
    running = asyncio.create_task(traces.run())
    await asyncio.sleep(0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def attributes(span: Span) -> dict[str, str | int | float]:
    found: dict[str, str | int | float] = {}
    for each in span.attributes:
        which = each.value.WhichOneof("value")
        assert which is not None
        found[each.key] = getattr(each.value, which)
    return found


def seconds(span: Span) -> tuple[float, float]:
    """Return the start and the end of the span, in seconds on the tests' clock."""
    began, ended = span.start_time_unix_nano, span.end_time_unix_nano
    return round(began / 1e9 - EPOCH, 3), round(ended / 1e9 - EPOCH, 3)


async def test_a_pod_is_a_trace_whose_attempts_are_children_of_one_span() -> None:
    async with recorded() as (collector, traces, history):
        times = history.seen(1.0)
        history.unschedulable(times, 2.0, 2.25)
        history.assumed(times, 7.0, 7.5)
        history.log.bound(UID, "n1", 8.0)
        await sent(traces)
        first, second, root = collector.spans
        assert {span.trace_id.hex() for span in collector.spans} == {UID.replace("-", "")}
        assert root.parent_span_id == b""
        assert {first.parent_span_id, second.parent_span_id} == {root.span_id}
        assert first.span_id != second.span_id
        assert [span.name for span in (first, root)] == ["scheduling attempt", "pod"]
        assert [seconds(span) for span in (first, second, root)] == [
            (2.0, 2.25),
            (7.0, 8.0),
            (1.0, 8.0),
        ]


async def test_an_attempt_says_what_came_of_it_and_why() -> None:
    async with recorded() as (collector, traces, history):
        times = history.seen(1.0)
        times.enter(PodState.IN_FLIGHT, 2.0)
        nominated = decision(nominated="n2", victims=("batch/a", "batch/b"))
        keep(history.log, UID, nominated, 2.5, cause="Insufficient cpu")
        history.assumed(times, 3.0, 3.5)
        history.log.bound(UID, "n1", 4.0)
        await sent(traces)
        first, second, root = (attributes(span) for span in collector.spans)
        pod = {"k8s.namespace.name": "shop", "k8s.pod.name": "web", "k8s.pod.uid": UID}
        profile = {
            "mooring.profile.name": "packed",
            "mooring.profile.generation": 4,
            "mooring.kubernetes.version": "1.36",
        }
        assert first == {
            **pod,
            **profile,
            "mooring.attempt.number": 1,
            "mooring.attempt.result": "unschedulable",
            "mooring.cause": "Insufficient cpu",
            "mooring.nominated_node.name": "n2",
            "mooring.victims.count": 2,
        }
        assert second == {
            **pod,
            **profile,
            "k8s.node.name": "n1",
            "mooring.attempt.number": 2,
            "mooring.attempt.result": "scheduled",
        }
        assert root == {
            **pod,
            "k8s.node.name": "n1",
            "mooring.attempts": 2,
            "mooring.result": "bound",
            "mooring.seconds.active": 1.0,
            "mooring.seconds.being_bound": 0.5,
            "mooring.seconds.in_flight": 1.5,
        }


async def test_a_member_of_a_group_is_nominated_in_the_attempt_of_the_group_only() -> None:
    async with recorded() as (collector, traces, history):
        times = history.seen(1.0)
        times.enter(PodState.IN_FLIGHT, 2.0)
        history.log.nominated(UID, "n3", [*map(PodRef.of_key, ("batch/a", "batch/b"))], 2.5)
        keep(history.log, UID, decision(), 2.5, cause="the group does not fit")
        times.enter(PodState.UNSCHEDULABLE, 3.0)
        history.unschedulable(times, 4.0, 5.0)
        await sent(traces)
        first, second = (attributes(span) for span in collector.spans)
        assert first["mooring.nominated_node.name"] == "n3"
        assert first["mooring.victims.count"] == 2
        assert "mooring.nominated_node.name" not in second


async def test_what_a_nomination_is_about_is_not_taken_for_the_next_attempt() -> None:
    async with recorded() as (collector, traces, history):
        times = history.seen(1.0)
        times.enter(PodState.IN_FLIGHT, 2.0)
        keep(history.log, UID, decision(nominated="n2", victims=("batch/a",)), 2.5, cause="cpu")
        times.enter(PodState.UNSCHEDULABLE, 3.0)
        history.unschedulable(times, 4.0, 5.0)
        await sent(traces)
        first, second = (attributes(span) for span in collector.spans)
        assert first["mooring.victims.count"] == 1
        assert "mooring.victims.count" not in second


async def test_an_attempt_lasts_until_its_pod_is_rejected_or_fails() -> None:
    async with recorded() as (collector, traces, history):
        times = history.seen(1.0)
        history.assumed(times, 2.0, 2.5)
        history.log.note(
            UID,
            RecordedStep.REJECTED,
            3.0,
            plugins=["Coscheduling"],
            cause="the group is not complete",
        )
        history.assumed(times, 4.0, 4.5)
        history.log.note(UID, RecordedStep.ERROR, 5.0, cause="the API server said no")
        times.enter(PodState.IN_FLIGHT, 6.0)
        history.log.note(
            UID, RecordedStep.ERROR, 6.5, cause="plugin X failed: \ud800" + "x" * 5_000
        )
        await sent(traces)
        assert [seconds(span) for span in collector.spans] == [(2.0, 3.0), (4.0, 5.0), (6.0, 6.5)]
        found = [attributes(span) for span in collector.spans]
        assert [each["mooring.attempt.result"] for each in found] == [
            "unschedulable",
            "error",
            "error",
        ]
        assert found[0]["mooring.cause"] == "the group is not complete"
        assert found[1]["k8s.node.name"] == "n1"
        assert "k8s.node.name" not in found[2]
        assert len(str(found[2]["mooring.cause"])) < 2_000
        codes = [span.status.code for span in collector.spans]
        assert codes == [0, 2, 2]
        assert collector.spans[1].status.message == "the API server said no"


@pytest.mark.parametrize("reason", [7, "\ud800", "x" * 100_000])
async def test_what_a_plugin_gives_for_a_reason_does_not_end_the_scheduler(reason: Any) -> None:
    async with recorded() as (collector, traces, history):
        history.assumed(history.seen(1.0), 2.0, 2.5)
        history.log.note(UID, RecordedStep.REJECTED, 3.0, plugins=["Gate"], cause=reason)
        await sent(traces)
        (span,) = collector.spans
        assert attributes(span)["mooring.cause"] in ("7", "?", "x" * 1024)


async def test_attempts_are_sent_while_their_pod_still_waits() -> None:
    async with endpoint() as collector:
        rounds = Rounds()
        traces = traces_to(collector.url, rounds)
        running = asyncio.create_task(traces.run())
        history = History(traces)
        history.unschedulable(history.seen(1.0), 2.0, 3.0)
        await rounds.run()
        (span,) = collector.spans
        assert span.parent_span_id
        running.cancel()
        await asyncio.wait([running])


async def test_another_leader_goes_on_with_the_same_trace() -> None:
    async with endpoint() as collector:
        for _ in range(2):
            traces = traces_to(collector.url)
            history = History(traces)
            history.unschedulable(history.seen(1.0), 2.0, 3.0)
            await sent(traces)
        first, second = collector.spans
        assert first.trace_id == second.trace_id
        assert first.parent_span_id == second.parent_span_id
        assert first.span_id != second.span_id


async def test_the_uid_of_a_static_pod_has_a_trace_too() -> None:
    async with recorded() as (collector, traces, history):
        history.unschedulable(history.seen(1.0, uid=Uid("3f2c")), 2.0, 3.0, uid=Uid("3f2c"))
        await sent(traces)
        (span,) = collector.spans
        assert len(span.trace_id) == 16
        assert UUID(bytes=span.trace_id).int


async def test_a_pod_that_is_deleted_during_an_attempt_ends_with_its_attempt() -> None:
    async with recorded() as (collector, traces, history):
        history.assumed(history.seen(1.0), 2.0, 2.5)
        history.log.gone(UID, 3.0)
        await sent(traces)
        attempt, root = collector.spans
        assert attributes(attempt)["mooring.attempt.result"] == "gone"
        assert attributes(root)["mooring.result"] == "gone"
        assert seconds(root) == (1.0, 3.0)


async def test_pods_that_go_at_once_during_an_attempt_do_not_hold_up_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The members of a large group may be deleted together while they wait at Permit."""
    made = [0]
    start_span = Tracer.start_span

    def counted(*args: Any, **kwargs: Any) -> Any:
        made[-1] += 1
        return start_span(*args, **kwargs)

    async def turn_for_ever() -> None:
        while True:
            await asyncio.sleep(0)
            made.append(0)

    monkeypatch.setattr(Tracer, "start_span", counted)
    async with endpoint() as collector:
        rounds, ticks = Rounds(), count()
        traces = traces_to(collector.url, rounds, clock=lambda: next(ticks) * 0.0001)
        history = History(traces)
        for number in range(300):
            pod, uid = f"shop/{number}", Uid(str(UUID(int=number + 1)))
            history.assumed(history.seen(1.0, uid, pod), 2.0, 2.5, uid)
            history.log.gone(uid, 3.0)
        tasks = asyncio.create_task(traces.run()), asyncio.create_task(turn_for_ever())
        await rounds.run(2)
        assert len(collector.spans) == sum(made) == 600
        assert len(collector.requests[0].resource_spans[0].scope_spans[0].spans) == 256
        assert max(made) <= 20
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_attempts_that_have_not_ended_wait_in_a_bounded_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mooring.observe.traces, "_MOST_OPEN", 2)
    async with recorded() as (collector, traces, history):
        pods = {pod: Uid(str(uuid4())) for pod in ("shop/a", "shop/b", "shop/c")}
        for pod, uid in pods.items():
            history.assumed(history.seen(1.0, uid, pod), 2.0, 2.5, uid)
        for uid in pods.values():
            history.log.gone(uid, 3.0)
        await sent(traces)
        names = [attributes(span)["k8s.pod.name"] for span in collector.spans]
        assert sorted(names) == ["a", "b", "b", "c", "c"]
        assert traces.dropped == 1


async def test_the_end_of_a_pod_does_not_end_the_attempt_of_the_next_one_of_its_name() -> None:
    async with recorded() as (collector, traces, history):
        history.assumed(history.seen(1.0), 2.0, 2.5)
        history.log.gone(UID, 3.0)
        history.assumed(history.seen(3.5, uid=OTHER_UID), 4.0, 4.5, OTHER_UID)
        history.log.gone(UID, 4.8)
        history.log.bound(OTHER_UID, "n1", 5.0)
        await sent(traces)
        lost, ended, attempt, bound = collector.spans
        assert attributes(lost)["mooring.attempt.result"] == "gone"
        assert attributes(ended)["mooring.result"] == "gone"
        assert attributes(attempt)["mooring.attempt.result"] == "scheduled"
        assert attributes(bound)["k8s.pod.uid"] == OTHER_UID


async def test_a_pod_that_goes_without_an_attempt_has_a_root_span_only() -> None:
    async with recorded() as (collector, traces, history):
        history.seen(1.0)
        history.log.gone(UID, 3.0)
        await sent(traces)
        (root,) = collector.spans
        assert attributes(root)["mooring.attempts"] == 0


async def test_an_attempt_of_a_pod_says_nothing_about_the_next_pod_of_its_name() -> None:
    async with recorded() as (collector, traces, history):
        history.assumed(history.seen(1.0), 2.0, 2.5)
        history.log.gone(UID, 3.0)
        times = history.seen(3.0, uid=OTHER_UID)
        times.enter(PodState.IN_FLIGHT, 4.0)
        history.log.note(OTHER_UID, RecordedStep.ERROR, 5.0, cause="the API server said no")
        await sent(traces)
        lost, ended, span = collector.spans
        assert attributes(lost)["mooring.attempt.result"] == "gone"
        assert attributes(ended)["mooring.result"] == "gone"
        assert span.trace_id.hex() == OTHER_UID.replace("-", "")
        assert seconds(span) == (4.0, 5.0)
        assert "k8s.node.name" not in attributes(span)


async def test_the_environment_gives_headers_and_names_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=team-a")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=east,service.name=other")
    async with endpoint() as collector:
        traces = traces_to(f"{collector.url}/v1/traces/")
        history = History(traces)
        history.unschedulable(history.seen(1.0), 2.0, 3.0)
        await sent(traces)
        assert collector.headers["x-tenant"] == "team-a"
        (resource,) = collector.resources
        found = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert found["service.name"] == "other"
        assert found["k8s.cluster.name"] == "east"
        assert found["service.version"] == "1.2.3"
        assert found["service.instance.id"] == "replica-1"


@pytest.mark.parametrize(
    "headers", ["Bearer hunter2", "api-key=hunter2%0a2", "authorization: Bearer hunter2="]
)
async def test_a_header_that_cannot_be_sent_is_not_told_in_the_log(
    headers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    async with recorded() as (_, traces, history):
        history.unschedulable(history.seen(1.0), 2.0, 3.0)
        await sent(traces)
        assert "eader" in caplog.text
        assert "hunter" not in caplog.text


async def test_many_spans_go_in_several_requests_and_none_is_lost() -> None:
    async with recorded() as (collector, traces, history):
        times = history.seen(0.0)
        for number in range(600):
            history.unschedulable(times, number, number + 0.5)
        await sent(traces)
        assert len(collector.spans) == 600
        assert len(collector.requests) == 3
        assert traces.dropped == 0


async def test_a_record_without_memory_traces_nothing() -> None:
    async with endpoint() as collector:
        traces = traces_to(collector.url)
        history = History(traces, limit=0)
        assert history.log.seen(POD, UID, 1.0) is None
        keep(history.log, UID, decision(), 2.0, cause="cpu")
        await sent(traces)
        assert collector.requests == []


async def refused_url() -> str:
    """Return a URL where no server listens."""
    async with endpoint() as collector:
        return collector.url


@pytest.mark.parametrize("answer", [failing, hanging, None])
async def test_an_endpoint_that_takes_nothing_holds_nothing_up_and_grows_nothing(
    answer: Callable[[], Awaitable[int]] | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The endpoint fails, hangs, or does not exist (None)."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.05")
    async with endpoint(answer or well) as collector:
        rounds = Rounds()
        traces = traces_to(collector.url if answer else await refused_url(), rounds)
        running = asyncio.create_task(traces.run())
        history = History(traces)
        times = history.seen(0.0)
        for number in range(3):
            history.unschedulable(times, number, number + 0.5)
            await rounds.run()
        assert traces.dropped == 3
        step = NotedStep(
            POD, UID, RecordedStep.UNSCHEDULABLE, 2.0, 1.0, {"cause": "cpu"}, None, 1, None
        )
        for _ in range(ENOUGH):
            traces.note(step)
        assert 3 < traces.dropped < ENOUGH
        running.cancel()
        await asyncio.wait([running])
        assert traces.dropped == ENOUGH + 3
        (line,) = caplog.messages
        assert line.startswith("--otlp-endpoint http://127.0.0.1:")
        assert ": spans are lost: " in line
        assert "retrying" not in line


async def test_the_end_waits_for_an_endpoint_that_hangs_for_a_bounded_time_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An export may take ten seconds, but the lease must be released sooner."""
    async with endpoint(hanging) as collector:
        rounds = Rounds()
        traces = traces_to(collector.url, rounds, flush_seconds=0.05)
        running = asyncio.create_task(traces.run())
        history = History(traces)
        times = history.seen(0.0)
        history.unschedulable(times, 1.0, 2.0)
        begun = asyncio.create_task(rounds.run())
        await collector.asked.wait()
        history.unschedulable(times, 3.0, 4.0)
        running.cancel()
        await asyncio.wait([running])
        begun.cancel()
        await asyncio.wait([begun])
        assert traces.dropped == 2
        assert "the process ends" in caplog.text


async def test_spans_that_an_endpoint_redirects_are_lost_and_it_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def redirecting() -> int:
        raise web.HTTPPermanentRedirect("https://collector/v1/traces")

    async with endpoint(redirecting) as collector:
        traces = traces_to(collector.url)
        history = History(traces)
        history.unschedulable(history.seen(1.0), 2.0, 3.0)
        await sent(traces)
        assert len(collector.requests) == traces.dropped == 1
        assert "308 and redirects to https://collector/v1/traces" in caplog.text


async def test_the_reason_is_not_that_of_an_export_that_was_given_up_and_fails_only_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncExitStack() as hung:
        silent = await hung.enter_async_context(endpoint(hanging))
        given_up = traces_to(silent.url, flush_seconds=0.05)
        history = History(given_up)
        history.unschedulable(history.seen(1.0), 2.0, 3.0)
        await sent(given_up)
        threads = [thread for thread in threading.enumerate() if thread.name == "otlp"]
        assert threads

        async def failing_after_them() -> int:
            await hung.aclose()
            await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
            return 404

        async with endpoint(failing_after_them) as collector:
            traces = traces_to(collector.url)
            history = History(traces)
            history.unschedulable(history.seen(1.0), 2.0, 3.0)
            await sent(traces)
        assert "404, reason: Not Found" in caplog.messages[-1]


async def test_a_system_without_a_thread_to_spare_does_not_end_the_scheduler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with endpoint() as collector:
        rounds = Rounds()
        traces = traces_to(collector.url, rounds)
        running = asyncio.create_task(traces.run())
        history = History(traces)
        times = history.seen(0.0)
        history.unschedulable(times, 1.0, 2.0)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail)
            begun = asyncio.create_task(rounds.run())
            await asyncio.wait((running, begun), return_when=asyncio.FIRST_COMPLETED)
        assert begun.done()
        assert "can't start new thread" in caplog.text
        history.unschedulable(times, 3.0, 4.0)
        await rounds.run()
        assert (len(collector.spans), traces.dropped) == (1, 1)
        running.cancel()
        await asyncio.wait([running])


async def test_after_an_outage_spans_are_sent_again_and_the_next_outage_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = iter((500, 500, 200, 500))

    async def answer() -> int:
        return next(answers)

    async with endpoint(answer) as collector:
        rounds = Rounds()
        traces = traces_to(collector.url, rounds)
        running = asyncio.create_task(traces.run())
        history = History(traces)
        times = history.seen(0.0)
        for number in range(4):
            history.unschedulable(times, number, number + 0.5)
            await rounds.run()
        running.cancel()
        await asyncio.wait([running])
        assert traces.dropped == 3
        assert len(caplog.messages) == 2
        assert "500" in caplog.messages[0]
