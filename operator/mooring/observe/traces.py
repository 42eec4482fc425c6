"""Sends traces of pods to an OTLP endpoint with OpenTelemetry's SDK.

Each pod has a trace. Its root span lasts from the first sight of the pod until it is bound or
deleted; each scheduling attempt is a child span. The identifiers of the trace and of the root span
are computed from the pod's uid. So the span of an attempt can be sent before the root span ends,
and another leader continues the same trace.

This module needs the packages of the extra `otlp`; it is imported only if an endpoint is given.
"""

import asyncio
import hashlib
import logging
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread, local
from typing import Any, Final
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from requests import RequestException, Response, Session

from mooring.model.pod import Uid
from mooring.observe.records import NotedStep, RecordedStep
from mooring.process.time_slices import TimeSlices

logger = logging.getLogger(__name__)

_MOST_WAITING: Final = 32_768
"""The most steps that wait to become spans; more steps are lost."""
_MOST_BYTES: Final = 64 * 2**20
"""The most bytes of all steps that wait to become spans; further steps are lost."""
_MOST_OPEN: Final = 16_384
"""The most attempts that are kept until they end; if there are more, the oldest is lost."""
_LONGEST_CAUSE: Final = 1_024
"""The most characters of a cause in a span; the rest is cut off."""
_BATCH: Final = 256
"""The most spans in one request; more spans are sent in further requests."""
_SLICE_SECONDS: Final = 0.001
"""The seconds of making spans after which other tasks run."""
_PAUSE_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 0.8
"""The most seconds for sending spans when the process ends."""

_FOLLOWED: Final = frozenset(
    {
        RecordedStep.UNSCHEDULABLE,
        RecordedStep.NOMINATED,
        RecordedStep.ASSUMED,
        RecordedStep.REJECTED,
        RecordedStep.ERROR,
        RecordedStep.BOUND,
        RecordedStep.GONE,
    }
)
"""The kinds of steps that spans need: they end an attempt or a trace, or give an attempt its
node."""

_Attributes = dict[str, str | int | float]


class _First(local):
    text = ""


class _Reasons(logging.Filter):
    """Keeps OpenTelemetry's first message about an export, and drops its log records."""

    def __init__(self) -> None:
        super().__init__()
        # Per thread: an abandoned thread may fail while another thread exports.
        self._first = _First()

    @property
    def first(self) -> str:
        """The first message about an export in the current thread; "" if there is none."""
        return self._first.text

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._first.text:
            # "Transient error %s encountered ..., retrying in %.2fs" has one interesting part.
            text = record.getMessage()
            if record.levelno == logging.WARNING and isinstance(record.args, tuple) and record.args:
                text = str(record.args[0])
            # "... character(s) in header value: 'what cannot be sent'" would tell a credential.
            before, _, header = text.partition(" in header ")
            self._first.text = f"{before} in a header" if header else before
        return False


class _WithoutHeaders(logging.Filter):
    """Removes headers from OpenTelemetry's messages, because they may be secret."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.args = ("(not shown)",) * len(record.args or ())
        return True


_reasons = _Reasons()
logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").addFilter(_reasons)
logging.getLogger("opentelemetry.util.re").addFilter(_WithoutHeaders())


@dataclass(eq=False, repr=False)
class Traces:
    """Sends the traces of pods to the OTLP endpoint.

    A bounded number of steps waits in memory. The event loop makes spans of these steps in short
    slices, and a thread sends the spans, one batch at a time. Spans that the endpoint does not
    accept are lost.

    Args:
        endpoint: The endpoint's base URL; spans are posted to `v1/traces` below it. Headers,
            certificates, timeout and compression come from the variables OTEL_EXPORTER_OTLP_*.
        version: The version of Mooring.
        instance: The name of this replica.
        clock: The scheduler's monotonic clock.
        wall: Seconds since the epoch.
        sleep: Waits between two rounds.
        flush_seconds: The most seconds for sending spans after `run` is cancelled.
    """

    endpoint: str
    version: str
    instance: str
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    flush_seconds: float = _FLUSH_SECONDS

    def __post_init__(self) -> None:
        self._endpoint = self.endpoint.rstrip("/").removesuffix("/v1/traces")
        self._exporter = OTLPSpanExporter(f"{self._endpoint}/v1/traces", session=_session())
        self._waiting = deque[NotedStep]()
        self.most_bytes = _MOST_BYTES
        self.bytes = 0
        """The estimated bytes of the waiting steps."""
        self._finished = _Finished()
        self._spans = _PodSpans(self._finished, self.version, self.instance, self._lose)
        self._exporting: asyncio.Future[bool] | None = None
        self._in_flight = 0
        """The number of spans that were sent and have no answer yet."""
        self._dropped = 0
        self._told = False

    @property
    def dropped(self) -> int:
        """The number of lost spans, including steps that would have become spans."""
        return self._dropped

    def note(self, noted: NotedStep) -> None:
        """Keep the step until its span is made; ignore a step that no span needs."""
        if noted.step not in _FOLLOWED:
            return
        size = _size(noted)
        if len(self._waiting) >= _MOST_WAITING or self.bytes + size > self.most_bytes:
            self._lose(1, "too many at once")
        else:
            self._waiting.append(noted)
            self.bytes += size

    async def run(self) -> None:
        """Send spans until cancelled; then send the rest, for at most `flush_seconds`."""
        try:
            while True:
                await self.sleep(_PAUSE_SECONDS)
                await self._round()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.flush_seconds):
                    if self._exporting is not None:
                        await asyncio.wait([self._exporting])
                    await self._round()
            if left := len(self._waiting) + len(self._finished.spans) + self._in_flight:
                self._lose(left, "the process ends")
            self._exporter.shutdown()  # type: ignore[no-untyped-call] # the library does not say

    async def _round(self) -> None:
        """Send the spans of all waiting steps; stop if the endpoint rejects a batch."""
        while self._waiting:
            await self._make_spans()
            if len(self._finished.spans) >= _BATCH and not await self._export():
                return
        while self._finished.spans:
            if not await self._export():
                return
        self._told = False

    async def _make_spans(self) -> None:
        offset = self.wall() - self.clock()
        slices = TimeSlices(_SLICE_SECONDS, clock=self.clock)
        while self._waiting and len(self._finished.spans) < _BATCH:
            noted = self._waiting.popleft()
            self.bytes -= _size(noted)
            self._spans.take(noted, offset)
            await slices.pause()

    async def _export(self) -> bool:
        """Send a batch in a thread; return whether the endpoint has accepted it."""
        spans = self._finished.spans
        batch, spans[:] = spans[:_BATCH], spans[_BATCH:]
        loop = asyncio.get_running_loop()
        exported = self._exporting = loop.create_future()

        def export() -> None:
            taken = False
            try:
                taken = self._exporter.export(batch) is SpanExportResult.SUCCESS
            finally:
                lost = None if taken else _reasons.first
                with suppress(RuntimeError):  # the event loop is closed: the process ends
                    loop.call_soon_threadsafe(self._exported, exported, len(batch), lost)

        self._in_flight = len(batch)
        try:
            # A daemon: an endpoint that does not answer cannot keep the process alive.
            Thread(target=export, name="otlp", daemon=True).start()
        except RuntimeError as error:  # the system has no thread for it
            self._exported(exported, len(batch), str(error))
        return await asyncio.shield(exported)

    def _exported(self, exported: "asyncio.Future[bool]", number: int, lost: str | None) -> None:
        self._in_flight = 0
        if lost is not None:
            self._lose(number, lost)
        exported.set_result(lost is None)

    def _lose(self, number: int, reason: str) -> None:
        self._dropped += number
        if not self._told:
            self._told = True
            logger.warning("--otlp-endpoint %s: spans are lost: %s", self._endpoint, reason)


def _session() -> Session:
    def check(response: Response, *_: Any, **__: Any) -> None:
        # The exporter would count a redirection as success.
        if 300 <= response.status_code < 400:
            target = response.headers.get("Location", "")[:_LONGEST_CAUSE]
            response.close()  # the exporter does not get it
            raise RequestException(f"it answers {response.status_code} and redirects to {target}")

    session = Session()
    session.hooks["response"].append(check)
    return session


class _Finished(SpanProcessor):
    """Collects the ended spans, for sending them in batches."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class _Identifiers(IdGenerator):
    """Gives a root span the identifiers in `root`."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.root: SpanContext | None = None

    def generate_trace_id(self) -> int:
        return self.root.trace_id if self.root is not None else self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        return self.root.span_id if self.root is not None else self._random.generate_span_id()


class _PodSpans:
    """Makes spans of the steps of pods; the steps must come in order."""

    def __init__(
        self,
        finished: SpanProcessor,
        version: str,
        instance: str,
        # Called with a number of lost spans and the reason.
        lose: Callable[[int, str], None],
    ) -> None:
        resource = Resource.create(
            {
                "service.name": "mooring",
                "service.version": version,
                "service.instance.id": instance,
            }
        )
        self._identifiers = _Identifiers()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            # The environment names the service otherwise if it says so.
            resource=resource.merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,
            id_generator=self._identifiers,
        )
        provider.add_span_processor(finished)
        self._tracer = provider.get_tracer("mooring", version)
        self._lose = lose
        self._open: dict[Uid, NotedStep] = {}
        self._nominated: dict[Uid, NotedStep] = {}

    def take(self, noted: NotedStep, offset: float) -> None:
        """Keep the step of an open attempt, or make the spans that end with this step.

        A step's time plus `offset` is in seconds since the epoch.
        """
        uid, step = noted.uid, noted.step
        if step is RecordedStep.ASSUMED:
            self._keep(self._open, noted)
            return
        if step is RecordedStep.NOMINATED:
            self._keep(self._nominated, noted)
            return
        begun, nominated = self._open.pop(uid, None), self._nominated.pop(uid, None)
        if step is RecordedStep.UNSCHEDULABLE:
            # A member of a group is nominated before its decision is noted, other pods after it.
            if nominated is not None and nominated.since != noted.since:
                nominated = None
            self._attempt(noted, noted, "unschedulable", offset, noted.fields["cause"], nominated)
        elif step is RecordedStep.REJECTED:
            self._attempt(begun or noted, noted, "unschedulable", offset, noted.fields["cause"])
        elif step is RecordedStep.ERROR:
            self._attempt(begun or noted, noted, "error", offset, noted.fields["cause"])
        else:
            if begun is not None:
                result = "scheduled" if step is RecordedStep.BOUND else "gone"
                self._attempt(begun, noted, result, offset)
            self._root(noted, offset)

    def _keep(self, steps: dict[Uid, NotedStep], noted: NotedStep) -> None:
        steps.pop(noted.uid, None)
        steps[noted.uid] = noted
        if len(steps) > _MOST_OPEN:
            del steps[next(iter(steps))]
            if steps is not self._nominated:
                self._lose(1, "too many pods wait for their binding")

    def _attempt(
        self,
        begun: NotedStep,
        ended: NotedStep,
        result: str,
        offset: float,
        cause: str = "",
        nominated: NotedStep | None = None,
    ) -> None:
        attributes: _Attributes = {
            **_pod_attributes(ended),
            "mooring.attempt.number": begun.attempts,
            "mooring.attempt.result": result,
        }
        if (decision := begun.decided()) is not None:
            attributes["mooring.profile.name"] = decision.profile or ""
            attributes["mooring.profile.generation"] = decision.profile_generation
            attributes["mooring.kubernetes.version"] = decision.kubernetes_version or ""
            if decision.node is not None:
                attributes["k8s.node.name"] = decision.node
            if decision.nominated_node is not None:
                attributes["mooring.nominated_node.name"] = decision.nominated_node
                attributes["mooring.victims.count"] = len(decision.victims)
        if nominated is not None:
            attributes["mooring.nominated_node.name"] = nominated.fields["node"]
            attributes["mooring.victims.count"] = nominated.fields["victims_in_all"]
        if cause:
            # Plugins may give characters that UTF-8 has not; nothing checks what they reject with.
            cause = str(cause)[:_LONGEST_CAUSE].encode(errors="replace").decode()
            attributes["mooring.cause"] = cause
        span = self._tracer.start_span(
            "scheduling attempt",
            set_span_in_context(NonRecordingSpan(_root_context(ended.uid)), Context()),
            attributes=attributes,
            start_time=_nanoseconds(begun.since + offset),
        )
        if result == "error":
            span.set_status(Status(StatusCode.ERROR, cause))
        span.end(_nanoseconds(ended.time + offset))

    def _root(self, ended: NotedStep, offset: float) -> None:
        began, times = ended.time, ended.times
        attributes: _Attributes = {
            **_pod_attributes(ended),
            "mooring.result": ended.step.value,
            "mooring.attempts": ended.attempts,
        }
        if ended.step is RecordedStep.BOUND:
            attributes["k8s.node.name"] = ended.fields["node"]
        if times is not None:
            began = times.began
            for state, seconds in times.seconds(ended.time).items():
                attributes[f"mooring.seconds.{state.value.replace(' ', '_')}"] = round(seconds, 6)
        self._identifiers.root = _root_context(ended.uid)
        span = self._tracer.start_span(
            "pod",
            Context(),
            attributes=attributes,
            start_time=_nanoseconds(began + offset),
        )
        self._identifiers.root = None
        span.end(_nanoseconds(ended.time + offset))


def _size(noted: NotedStep) -> int:
    return 1000 + sum(map(sys.getsizeof, noted.fields.values())) + len(noted.decision or b"")


def _pod_attributes(noted: NotedStep) -> dict[str, str]:
    namespace, _, name = noted.pod.partition("/")
    return {"k8s.namespace.name": namespace, "k8s.pod.name": name, "k8s.pod.uid": noted.uid}


def _root_context(uid: str) -> SpanContext:
    try:
        trace = UUID(uid).int
    except ValueError:  # the uid of a static pod is a hash of another length
        trace = int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=16).digest())
    span = trace & (2**64 - 1)
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
