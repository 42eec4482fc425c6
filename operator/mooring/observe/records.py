"""Keeps recent decisions, and the steps of pods, in a limited number of bytes.

A `DecisionLog` keeps a path for each pod: the steps of the pod, and the decisions about it. Each
step is a line of JSON. Equal decisions are stored once for all pods, so that many equal pods need
little more memory than one pod.

Readers of the log get the documents `PodPath`, `KeptDecision` and `PodSummary`;
`mooring.observe.documents` writes them as JSON.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from heapq import merge, nlargest
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import orjson

from mooring.framework.decision import (
    ANY_POD,
    Decision,
    NodeScore,
    PodRef,
    Rejection,
    TextAboutPods,
)
from mooring.model.names import Names
from mooring.model.pod import Uid
from mooring.observe.documents import HIDDEN, dumps, fields_of, name_of
from mooring.runtime.queued_pod import PodState, StateTimes

MOST_SUMMARIES: Final = 50_000
"""The most pods in one answer with short records (`PodSummary`); a request for more gets HTTP
400."""
LATEST: Final = 100
"""The most pods in an answer with whole decisions, because writing their JSON takes long; the pods
that changed last are chosen."""
DEFAULT_LIMIT: Final = 64 * 2**20
"""The most bytes of the log; a full log drops old entries. They suffice for the paths of 20,000
pending pods with two decisions each."""

_MOST_STEPS: Final = 32
"""The most steps of one pod in the log. Each further step replaces the oldest step after the first
`_FIRST_STEPS`."""
_FIRST_STEPS: Final = 4
"""The number of first steps that stay in the log if a pod has more than _MOST_STEPS."""
_MOST_VICTIMS: Final = 10
"""The most victims that a step names; the step also has the number of all victims."""
_MOST_DROPPED: Final = 1_000
"""The most paths and decisions that one call drops from a full log; this takes a millisecond."""

_PATH_BYTES: Final = 1000
"""The estimated bytes of a path without its steps and names."""
_STEP_BYTES: Final = 56
"""The bytes of a step, without the characters of its line."""
_TEXT_BYTES: Final = 240
"""The estimated bytes of a shared decision, without the characters of its text."""


class RecordedStep(StrEnum):
    """The kinds of steps of a pod on its way to a node; each value is the name in JSON.

    The names in backquotes below are fields of `PathStep`.
    """

    SEEN = "seen"
    """The scheduler has seen the pod without a node for the first time."""
    NO_PROFILE = "noProfile"
    GATED = "gated"
    """The plugins in `plugins` keep the pod out of the queue; without `plugins`, there is
    another reason."""
    QUEUED = "queued"
    UNSCHEDULABLE = "unschedulable"
    """An attempt found no node; `mooring.scheduling.causes` computes `cause`."""
    NOMINATED = "nominated"
    """The pod is nominated to `node`, from which `victims` are evicted."""
    PREEMPTION_FAILED = "preemptionFailed"
    """The scheduler stopped the evictions for the reason in `cause`, and `victims` stay."""
    ASSUMED = "assumed"
    """An attempt chose `node`, and the scheduler assumed the pod there."""
    WAITING_AT_PERMIT = "waitingAtPermit"
    """The pod is assumed on `node` and waits for `plugins`."""
    REJECTED = "rejected"
    """A Reserve or Permit plugin (`plugins`) rejected the pod; `cause` is its reason."""
    ERROR = "error"
    """The attempt or the binding ended with the error in `cause`."""
    BOUND = "bound"
    """The pod is bound to `node`."""
    PREEMPTED = "preempted"
    """The pod is evicted from `node` to make room for the pod in `by`; `cause` says which queue
    took back quota."""
    GONE = "gone"
    """The pod was deleted, has ended, or was bound by another scheduler."""


_FAILURES: Final = (RecordedStep.UNSCHEDULABLE, RecordedStep.REJECTED, RecordedStep.ERROR)
_ENDS: Final = (RecordedStep.BOUND, RecordedStep.GONE)

_WallTime = Callable[[float], str]
_Fields = Mapping[str, Any]
"""The fields of a `PathStep` by name, without its times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDecision(Decision):
    """The last of `count` consecutive decisions with the same cause or node.

    `since` is the time of the first of these decisions, and `time` the time of the last.
    `truncated` has the original sizes of tables that were shortened.
    """

    time: str
    since: str
    count: int
    cause: str | None
    truncated: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """A step of a pod, which occurred `count` times in a row from `time` to `until`.

    `RecordedStep` says which of the other fields each kind of step has. `victims` has at most
    ten pods; `victims_in_all` is the number of all victims.
    """

    step: RecordedStep
    time: str
    until: str | None = None
    count: int | None = None
    node: str | None = None
    plugins: Sequence[str] | None = None
    by: PodRef | None = None
    cause: str | TextAboutPods | None = None
    victims: Sequence[PodRef] | None = None
    victims_in_all: int | None = None


@dataclass(frozen=True, slots=True)
class PodPath:
    """The steps of a pod, in order.

    Attributes:
        state: The pod's current state.
        since: The time when this state began.
        seconds: The seconds that the pod has been in each state.
        left_out: The number of steps that are missing after the first four.
    """

    uid: Uid
    state: PodState | None
    since: str | None
    seconds: Mapping[str, float]
    left_out: int
    steps: Sequence[PathStep]


@dataclass(frozen=True, slots=True)
class PodSummary:
    """The state of a pod since `since`, and the last decision about it, made at `time`.

    `seen` is the time of the pod's first step. A field is None if the log does not have its value.
    """

    pod: PodRef
    seen: str | None
    state: PodState | None
    since: str | None
    attempts: int
    time: str | None
    profile: str | None
    node: str | None
    nominated_node: str | None
    cause: str | None


class NotedStep(NamedTuple):
    """A step of a pod when it happens, with the values that a trace of the pod needs."""

    pod: str
    uid: Uid
    step: RecordedStep
    time: float
    since: float
    """The start of the pod's state, or of the attempt if the step is a decision, in seconds on the
    scheduler's monotonic clock."""
    fields: _Fields
    decision: bytes | None
    """The decision as the text of `_packed`; equal decisions share one object."""
    attempts: int
    """The number of decisions about the pod so far."""
    times: StateTimes | None

    def decided(self) -> Decision | None:
        """Return the decision; None if this step is not a decision."""
        if self.decision is None:
            return None
        return Decision(**_unpacked(self.decision)[0], pod=PodRef.of_key(self.pod, self.uid))


def _packed(decision: Decision, truncated: Mapping[str, int]) -> bytes:
    scores = decision.scores
    return dumps(
        [
            decision.profile,
            decision.profile_generation,
            decision.kubernetes_version,
            decision.node,
            decision.nominated_node,
            [*map(tuple, decision.victims)],
            scores and {node: tuple(score) for node, score in scores.items()},
            {
                node: [rejection.plugin, rejection.reasons, rejection.resolvable]
                for node, rejection in decision.rejections.items()
            },
            decision.message,
            truncated,
        ]
    )


def _unpacked(packed: bytes) -> tuple[dict[str, Any], Mapping[str, int]]:
    """Return the fields of a decision from `_packed`, and the sizes of its shortened tables."""
    fields = orjson.loads(packed)
    profile, generation, kubernetes, *fields = fields
    node, nominated, victims, scores, rejections, message, truncated = fields
    return {
        "profile": profile,
        "profile_generation": generation,
        "kubernetes_version": kubernetes,
        "node": node,
        "nominated_node": nominated,
        "victims": tuple(PodRef(*victim) for victim in victims),
        "scores": None
        if scores is None
        else {scored: NodeScore(*score) for scored, score in scores.items()},
        "rejections": {
            rejected: Rejection(plugin, tuple(reasons), resolvable)
            for rejected, (plugin, reasons, resolvable) in rejections.items()
        },
        "message": message,
    }, truncated


class _Text:
    """A decision as JSON text, and the number of pods that share it."""

    __slots__ = ("users", "value")

    def __init__(self, value: bytes) -> None:
        self.value = value
        self.users = 0


@dataclass(slots=True, eq=False)
class _Path:
    """The path of a pod: its steps and decisions, in order."""

    pod: str
    uid: Uid
    times: StateTimes | None
    admission: tuple[RecordedStep, str | None] | None = None
    """The last step that queued or gated the pod, and the PreEnqueue plugin that gated it."""
    steps: list[bytes] = field(default_factory=list)
    """The steps of the pod as lines of JSON, the oldest first."""
    decisions: list[_Text | None] = field(default_factory=list)
    """One item per step: its last decision, or None if it has none or its decision was dropped."""
    last_step: RecordedStep | None = None
    changed: float = 0.0
    """The time of the last step, in seconds on the scheduler's monotonic clock."""
    left_out: int = 0
    attempts: int = 0

    @property
    def size(self) -> int:
        """The estimated bytes of the path, without its decisions."""
        return _PATH_BYTES + len(self.pod) + len(self.uid) + sum(map(_size, self.steps))

    def decided(self, wall: _WallTime) -> Iterator[KeptDecision]:
        """Yield the decisions of the path, the newest first."""
        for line, text in zip(reversed(self.steps), reversed(self.decisions), strict=True):
            if text is not None:
                yield _kept(self, line, text.value, wall)

    def last(self, *steps: RecordedStep) -> dict[str, Any] | None:
        """Return the fields of the last step of one of these kinds; None if there is none."""
        for line in reversed(self.steps):
            step, _, _, _, fields = orjson.loads(line)
            if step in steps:
                return dict(fields)
        return None


def _size(line: bytes) -> int:
    return _STEP_BYTES + len(line)


def _line(step: RecordedStep, first: float, last: float, in_a_row: int, fields: _Fields) -> bytes:
    # A copy, because what orjson returns occupies 4 KiB however short it is.
    return memoryview(dumps([step.value, first, last, in_a_row, fields])).tobytes()


def _plain(value: Any) -> Any:
    if type(value) in (str, int):
        return value
    return [*map(_plain, value)] if isinstance(value, list | tuple) else str(value)


def _document(line: bytes, wall: _WallTime) -> PathStep:
    name, first, last, count, fields = orjson.loads(line)
    if (by := fields.get("by")) is not None:
        fields["by"] = PodRef(*by)
    if (victims := fields.get("victims")) is not None:
        fields["victims"] = victims = [PodRef(*victim) for victim in victims]
    if name == RecordedStep.PREEMPTION_FAILED:
        others = () if fields["victims_in_all"] == len(victims) else (ANY_POD,)
        otherwise = f"the eviction of {HIDDEN} failed"
        fields["cause"] = TextAboutPods(fields["cause"], (*victims, *others), otherwise)
    return PathStep(
        step=RecordedStep(name), time=wall(first), until=wall(last), count=count, **fields
    )


@dataclass(eq=False, repr=False, kw_only=True)
class DecisionLog:
    """The paths and last decisions of pods, in a limited number of bytes.

    A full log first drops the paths of bound and deleted pods, the oldest first. Next it drops
    decisions, beginning with the pods whose last step is the oldest. At last it drops the paths of
    these pods, too.

    Pods are identified by uid. A question by "namespace/name" is about the latest pod of this name.
    A new pod replaces the path of a bound or deleted pod with the same name. Times that callers
    pass are seconds on the scheduler's monotonic clock.

    Args:
        limit: The number of bytes; 0 keeps nothing.
        decisions_per_pod: The most decisions about one pod. Of consecutive decisions with the same
            cause, only the last is kept.
        nodes: The most nodes in each table of a decision: the best scores and the chosen node, and
            rejections of as many different kinds as possible.
        clock: The scheduler's monotonic clock.
        wall: Seconds since the epoch.
        append: Called with every step as a line of JSON, for long-term records.
        trace: Called with every step, for traces.
    """

    limit: int = DEFAULT_LIMIT
    decisions_per_pod: int = 5
    nodes: int = 10
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    append: Callable[[bytes], None] | None = None
    trace: Callable[[NotedStep], None] | None = None

    def __post_init__(self) -> None:
        self.bytes = 0
        """The estimated bytes that the log uses."""
        self._texts: dict[bytes, _Text] = {}
        # In each of these the path that has changed last is the last one.
        self._live: OrderedDict[Uid, _Path] = OrderedDict()
        self._without_decisions: OrderedDict[Uid, _Path] = OrderedDict()
        """Paths of pods that are neither bound nor deleted, after their decisions were dropped."""
        self._ended: OrderedDict[Uid, _Path] = OrderedDict()
        self._names = Names()

    def __len__(self) -> int:
        return len(self._live) + len(self._without_decisions) + len(self._ended)

    def seen(
        self, pod: str, uid: Uid, now: float, known: StateTimes | None = None
    ) -> StateTimes | None:
        """Begin the path of a pod without a node, or reopen an ended path; return the pod's times.

        `known` are the times of a pod that is already in the queue. They are returned if `limit` is
        0, because the log keeps nothing.
        """
        path = self._find(uid)
        if path is not None and uid not in self._ended:
            if path.times is None:
                path.times = known or StateTimes(now)
            return path.times
        if not self.limit:
            return known
        times = path.times if path is not None else None
        times = times or known or StateTimes(now)
        if path is None:
            self._begin(pod, uid, times)
        else:
            times.enter(PodState.ACTIVE, now)
            path.admission = None
            self._live[uid] = self._ended.pop(uid)
        self.note(uid, RecordedStep.SEEN, now)
        return times

    def without_profile(self, pod: str, uid: Uid, now: float) -> None:
        """Record that no profile takes the pod, unless this is its state already."""
        times = self.seen(pod, uid, now)
        if times is not None and times.state is not PodState.NO_PROFILE:
            times.enter(PodState.NO_PROFILE, now)
            self._admit(uid, RecordedStep.NO_PROFILE, None, now)

    def admitted(self, uid: Uid, gate: str | None, now: float) -> None:
        """Record that the pod is in the queue (`gate` is None), or that a gate keeps it out.

        `gate` is the name of a PreEnqueue plugin, or "" for another reason. Repetitions are
        ignored.
        """
        self._admit(uid, RecordedStep.QUEUED if gate is None else RecordedStep.GATED, gate, now)

    def _admit(self, uid: Uid, step: RecordedStep, gate: str | None, now: float) -> None:
        path = self._find(uid)
        if path is not None and path.admission != (step, gate):
            path.admission = step, gate
            fields = {} if gate is None else {"plugins": [gate] if gate else []}
            self._note(uid, step, now, fields)

    def decided(
        self,
        decision: Decision,
        now: float,
        *,
        cause: str = "",
        scored: int | None = None,
        rejected: int | None = None,
    ) -> None:
        """Record the decision about a pod, and the pod's nomination if it has one.

        `cause` says why the pod got no node. `scored` and `rejected` are the numbers of all scored
        and rejected nodes, if `decision` leaves some out.
        """
        if not self.limit:
            return
        if scored is None:
            scored = len(decision.scores or ())
        if rejected is None:
            rejected = len(decision.rejections)
        if scored > self.nodes or len(decision.rejections) > self.nodes:
            decision = replace(
                decision,
                scores=_best(decision.scores, decision.node, self.nodes),
                rejections=_witnesses(decision.rejections, self.nodes),
            )
        truncated, uid = {}, decision.pod.uid
        if decision.scores is not None and scored > len(decision.scores):
            truncated["scores"] = scored
        if rejected > len(decision.rejections):
            truncated["rejections"] = rejected
        decided = decision, truncated
        if self._find(uid) is None:
            self._begin(decision.pod.key, uid, None)
        if decision.node is not None:
            self._note(uid, RecordedStep.ASSUMED, now, {"node": decision.node}, decided)
            return
        self._note(uid, RecordedStep.UNSCHEDULABLE, now, {"cause": cause}, decided)
        if decision.nominated_node is not None:
            self.nominated(uid, decision.nominated_node, decision.victims, now)

    def nominated(self, uid: Uid, node: str, victims: Sequence[PodRef], now: float) -> None:
        """Record that the pod is nominated to the node, and that the victims there are evicted."""
        self._note(uid, RecordedStep.NOMINATED, now, {"node": node, **_victims(victims)})

    def preempted(self, uid: Uid, by: PodRef, node: str, now: float, cause: str = "") -> None:
        """Record that the pod is evicted from the node to make room for the pod `by`, and why."""
        fields: _Fields = {"by": by, "node": node} | ({"cause": cause} if cause else {})
        self._note(uid, RecordedStep.PREEMPTED, now, fields)

    def preemption_failed(self, uid: Uid, why: str, victims: Sequence[PodRef], now: float) -> None:
        """Record that the scheduler stopped the evictions for the pod; `victims` stay."""
        self._note(uid, RecordedStep.PREEMPTION_FAILED, now, {"cause": why, **_victims(victims)})

    def note(self, uid: Uid, step: RecordedStep, now: float, **fields: str | Sequence[str]) -> None:
        """Add a step to the pod's path; `RecordedStep` lists the fields of each kind of step."""
        self._note(uid, step, now, fields)

    def bound(self, uid: Uid, node: str, now: float) -> None:
        """Record that this scheduler has bound the pod to the node."""
        path = self._find(uid)
        if path is None:
            return
        if path.times is not None:
            path.times.enter(PodState.BOUND, now)
        self._note(uid, RecordedStep.BOUND, now, {"node": node})

    def bound_by_another(self, uid: Uid, node: str, now: float) -> None:
        """Record that another scheduler has bound the pod, unless its path has already ended."""
        if uid not in self._ended:
            self.bound(uid, node, now)

    def gone(self, uid: Uid, now: float) -> None:
        """Record that the pod was deleted, has ended, or got its node from another scheduler."""
        path = self._find(uid)
        if path is None or uid in self._ended:
            return
        if path.times is not None:
            path.times.enter(PodState.GONE, now)
        self._note(uid, RecordedStep.GONE, now, {})

    def of(self, pod: str) -> list[KeptDecision]:
        """Return the kept decisions about the pod, the newest first."""
        path, wall = self._named(pod), self._wall_time()
        return [*path.decided(wall)] if path is not None else []

    def latest(self, namespace: str = "") -> list[KeptDecision]:
        """Return the newest decision about each of the most recently changed pods, newest first.

        There are at most `LATEST` decisions. `namespace` restricts the pods; "" means all
        namespaces.
        """
        wall = self._wall_time()
        found = islice(self._newest(namespace, decided=True), LATEST)
        return [next(path.decided(wall)) for path in found]

    def path(self, pod: str) -> PodPath | None:
        """Return the steps of the pod "namespace/name"; None if the log does not have its path."""
        path = self._named(pod)
        if path is None:
            return None
        wall, times = self._wall_time(), path.times
        seconds = times.seconds(self.clock()).items() if times is not None else ()
        return PodPath(
            path.uid,
            *_state(path.times, wall),
            {state.value: round(took, 3) for state, took in seconds},
            path.left_out,
            [_document(line, wall) for line in path.steps],
        )

    def cause(self, uid: Uid) -> str | None:
        """Return why the last failed attempt did not bind the pod; None if the log has none."""
        path = self._find(uid)
        failure = path.last(*_FAILURES) if path is not None else None
        return str(failure["cause"]) if failure is not None else None

    def victims(self, uid: Uid) -> Sequence[PodRef]:
        """Return up to ten victims of the pod's last nomination; () without a known nomination."""
        path = self._find(uid)
        nominated = path.last(RecordedStep.NOMINATED) if path is not None else None
        return [PodRef(*victim) for victim in nominated["victims"]] if nominated is not None else ()

    def summaries(self, namespace: str = "", limit: int = LATEST) -> Iterator[PodSummary]:
        """Yield a summary of each of the `limit` pods that changed most recently, newest first.

        `namespace` restricts the pods; "" means all namespaces.
        """
        # The pods are chosen now; a summary is made when the caller reads it.
        chosen, wall = [*islice(self._newest(namespace), limit)], self._wall_time()
        return (_summary(path, wall) for path in chosen)

    def _newest(self, namespace: str, *, decided: bool = False) -> Iterator[_Path]:
        prefix = f"{namespace}/" if namespace else ""
        parts = (self._live, self._without_decisions, self._ended)
        # Thousands of paths may be left out, so that this does little for each.
        wanted = (
            (
                path
                for path in reversed(part.values())
                if path.pod.startswith(prefix) and (not decided or any(path.decisions))
            )
            for part in parts
        )
        return merge(*wanted, key=lambda path: -path.changed)

    def _wall_time(self) -> "_WallTime":
        offset = self.wall() - self.clock()
        return lambda seconds: datetime.fromtimestamp(seconds + offset, UTC).isoformat(
            timespec="milliseconds"
        )

    def _find(self, uid: Uid) -> _Path | None:
        return self._live.get(uid) or self._without_decisions.get(uid) or self._ended.get(uid)

    def _named(self, pod: str) -> _Path | None:
        uid = self._names.latest(pod)
        return self._find(uid) if uid is not None else None

    def _begin(self, pod: str, uid: Uid, times: StateTimes | None) -> None:
        earlier = self._names.latest(pod)
        if earlier is not None and earlier in self._ended:
            self._drop(earlier)
        self._names.add(pod, uid)
        path = self._live[uid] = _Path(pod, uid, times)
        self.bytes += path.size

    def _note(
        self,
        uid: Uid,
        step: RecordedStep,
        now: float,
        fields: _Fields,
        decided: tuple[Decision, Mapping[str, int]] | None = None,
    ) -> None:
        path = self._live.get(uid)
        ends = step in _ENDS or (step is RecordedStep.PREEMPTED and uid in self._ended)
        if path is None:
            # The step is left out without a path or after the pod's end, except a preemption.
            path = self._made_live(uid, step)
            if path is None:
                return
        if self.append is not None:
            self.append(self._file_line(path, step, now, fields, decided))
        self._add(path, step, now, {name: _plain(fields[name]) for name in fields})
        packed = _packed(*decided) if decided is not None else None
        if packed is not None:
            self._attach(path, packed)
        if self.trace is not None:
            since = path.times.since if path.times is not None else now
            about = since, fields, packed, path.attempts, path.times
            self.trace(NotedStep(path.pod, uid, step, now, *about))
        if ends:
            self._end(path)
        else:
            self._live.move_to_end(uid)
        if self.bytes > self.limit:
            self._shrink()

    def _add(self, path: _Path, step: RecordedStep, now: float, fields: _Fields) -> None:
        steps, path.changed = path.steps, now
        if path.last_step is step:
            _, first, _, in_a_row, had = orjson.loads(steps[-1])
            if had == fields:
                self.bytes -= _size(steps[-1])
                steps[-1] = _line(step, first, now, in_a_row + 1, fields)
                self.bytes += _size(steps[-1])
                return
        path.last_step = step
        steps.append(_line(step, now, now, 1, fields))
        path.decisions.append(None)
        self.bytes += _size(steps[-1])
        if len(steps) > _MOST_STEPS:
            self.bytes -= _size(steps.pop(_FIRST_STEPS))
            self._release(path.decisions.pop(_FIRST_STEPS))
            path.left_out += 1

    def _end(self, path: _Path) -> None:
        self._ended[path.uid] = self._live.pop(path.uid)
        if self._names.latest(path.pod) != path.uid:
            self._drop(path.uid)

    def _made_live(self, uid: Uid, step: RecordedStep) -> _Path | None:
        path = self._without_decisions.pop(uid, None)
        if path is None and step is RecordedStep.PREEMPTED:
            path = self._ended.pop(uid, None)
        if path is not None:
            self._live[uid] = path
        return path

    def _file_line(
        self,
        path: _Path,
        step: RecordedStep,
        now: float,
        fields: _Fields,
        decided: tuple[Decision, Mapping[str, int]] | None,
    ) -> bytes:
        at = self._wall_time()(now)
        line: dict[str, Any] = {"pod": path.pod, "uid": path.uid, "step": step, "time": at}
        line |= {name_of(name): value for name, value in fields.items()}
        if decided is not None:
            line["decision"] = found = fields_of(decided[0])
            del found["pod"]
            if decided[1]:
                found["truncated"] = decided[1]
        return dumps(line)

    def _attach(self, path: _Path, packed: bytes) -> None:
        path.attempts += 1
        self._release(path.decisions[-1])
        path.decisions[-1] = self._text(packed)
        kept = [n for n, text in enumerate(path.decisions) if text is not None]
        if len(kept) > self.decisions_per_pod:
            self._release(path.decisions[kept[0]])
            path.decisions[kept[0]] = None

    def _text(self, value: bytes) -> _Text:
        """Return the stored text of a decision, shared by equal decisions; count one more pod."""
        text = self._texts.get(value)
        if text is None:
            value = memoryview(value).tobytes()  # a copy, as in `_line`
            text = self._texts[value] = _Text(value)
            self.bytes += _TEXT_BYTES + len(value)
        text.users += 1
        return text

    def _release(self, text: _Text | None) -> None:
        if text is not None:
            text.users -= 1
            if not text.users:
                del self._texts[text.value]
                self.bytes -= _TEXT_BYTES + len(text.value)

    def _shrink(self) -> None:
        # No pause and few steps: a caller may be in the middle of a change. Later steps drop the
        # rest.
        for _ in range(_MOST_DROPPED):
            if self.bytes <= self.limit or not len(self):
                return
            if self._ended:
                self._drop(next(iter(self._ended)))
            elif self._live:
                uid, path = self._live.popitem(last=False)
                self._without_decisions[uid] = path
                for text in path.decisions:
                    self._release(text)
                path.decisions = [None] * len(path.steps)
            else:
                self._drop(next(iter(self._without_decisions)))

    def _drop(self, uid: Uid) -> None:
        parts = (self._live, self._without_decisions, self._ended)
        path = next(part.pop(uid) for part in parts if uid in part)
        self._names.remove(path.pod, uid)
        for text in path.decisions:
            self._release(text)
        self.bytes -= path.size


def _victims(victims: Sequence[PodRef]) -> dict[str, Any]:
    return {"victims": victims[:_MOST_VICTIMS], "victims_in_all": len(victims)}


def _kept(path: _Path, line: bytes, packed: bytes, wall: _WallTime) -> KeptDecision:
    step, first, last, count, fields = orjson.loads(line)
    decision, truncated = _unpacked(packed)
    return KeptDecision(
        pod=PodRef.of_key(path.pod, path.uid),
        **decision,
        time=wall(last),
        since=wall(first),
        count=count,
        cause=fields["cause"] if step == RecordedStep.UNSCHEDULABLE else None,
        truncated=truncated or None,
    )


def _summary(path: _Path, wall: _WallTime) -> PodSummary:
    last = next(path.decided(wall), None)
    return PodSummary(
        PodRef.of_key(path.pod, path.uid),
        wall(orjson.loads(path.steps[0])[1]) if path.steps else None,
        *_state(path.times, wall),
        path.attempts,
        last.time if last is not None else None,
        last.profile if last is not None else None,
        last.node if last is not None else None,
        last.nominated_node if last is not None else None,
        last.cause if last is not None else None,
    )


def _state(times: StateTimes | None, wall: _WallTime) -> tuple[PodState | None, str | None]:
    return (None, None) if times is None else (times.state, wall(times.since))


def _best(
    scores: Mapping[str, NodeScore] | None, chosen: str | None, limit: int
) -> Mapping[str, NodeScore] | None:
    if scores is None or len(scores) <= limit:
        return scores
    return dict(
        nlargest(limit, scores.items(), key=lambda item: (item[0] == chosen, item[1].total))
    )


def _witnesses(rejections: Mapping[str, Rejection], limit: int) -> Mapping[str, Rejection]:
    """Return at most `limit` rejections; prefer rejections with different plugins or reasons."""
    if len(rejections) <= limit:
        return rejections
    first_of_kind: dict[Rejection, str] = {}
    for node, rejection in rejections.items():
        first_of_kind.setdefault(rejection, node)
    first = dict.fromkeys(first_of_kind.values())
    others = (node for node in rejections if node not in first)
    return {node: rejections[node] for node in islice(chain(first, others), limit)}
