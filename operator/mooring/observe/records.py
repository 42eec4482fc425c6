"""A bounded memory of recent decisions and of pods' paths.

A running scheduler keeps the path of each pod in a `DecisionLog`: what happened to it, and the
decisions about it. Its memory does not grow with the cluster. A decision is kept packed into bytes,
and equal bytes are kept once, so that many equal pods with the same decision cost little more than
one. Whoever reads the log gets documents: `PodPath`, `KeptDecision` and `PodSummary`, which
`mooring.observe.documents` writes as JSON.
"""

import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from mooring.framework.queued_pod import PodState, StateTimes
from mooring.model.names import Names
from mooring.model.pod import Uid
from mooring.observe.documents import HIDDEN, dumps, fields_of, name_of

__all__ = [
    "DEFAULT_LIMIT",
    "LATEST",
    "MOST_SUMMARIES",
    "DecisionLog",
    "KeptDecision",
    "NotedStep",
    "PathStep",
    "PodPath",
    "PodSummary",
    "Step",
]

MOST_SUMMARIES: Final = 50_000
"""Short records that one answer shows."""
LATEST: Final = 100
"""Pods whose records one answer shows: bounds how long the event loop writes JSON."""
DEFAULT_LIMIT: Final = 64 * 2**20
"""Bytes; enough for the paths of 20,000 pending pods with two different decisions each."""

_MOST_STEPS: Final = 32
"""Steps that are kept of one pod."""
_FIRST_STEPS: Final = 4
"""Of these the first, which stay when a pod has more steps."""
_MOST_VICTIMS: Final = 10
"""Victims that a step names."""

_PATH_BYTES: Final = 1000
"""A path without its steps and names, with its `StateTimes` and its entries in two dicts."""
_STEP_BYTES: Final = 64
_TEXT_BYTES: Final = 240
"""A text that is kept once, without its characters."""


class Step(StrEnum):
    """What may happen to a pod; the values are those of `step` in JSON."""

    SEEN = "seen"
    """The replica sees the pod without a node for the first time."""
    NO_PROFILE = "noProfile"
    GATED = "gated"
    """Details: the PreEnqueue plugin that holds the pod back, "" for another obstacle."""
    QUEUED = "queued"
    UNSCHEDULABLE = "unschedulable"
    """An attempt found no node. Details: the cause (`mooring.engine.causes`)."""
    NOMINATED = "nominated"
    """Details: the node, the number of victims, and the first of them."""
    PREEMPTION_FAILED = "preemptionFailed"
    """Details: why the evictions were given up, how many victims stay, and the first of them."""
    ASSUMED = "assumed"
    """An attempt chose a node. Details: the node."""
    WAITING_AT_PERMIT = "waitingAtPermit"
    """Details: the node and the plugins."""
    REJECTED = "rejected"
    """By a Reserve or Permit plugin. Details: the plugin and its reason."""
    ERROR = "error"
    """The attempt or the binding ended in an error. Details: the error."""
    BOUND = "bound"
    """Details: the node."""
    PREEMPTED = "preempted"
    """The pod is evicted for another one. Details: that pod and the node."""
    GONE = "gone"
    """The pod was deleted, has ended, or was bound by another scheduler."""


_STEPS: Final = tuple(Step)
_CODES: Final = {step: float(code) for code, step in enumerate(_STEPS)}
_FAILURES: Final = frozenset(
    _CODES[step] for step in (Step.UNSCHEDULABLE, Step.REJECTED, Step.ERROR)
)
_ENDS: Final = (Step.BOUND, Step.GONE)

_WallTime = Callable[[float], str]
_Details = tuple[str | PodRef, ...]


def _preemption_failed(details: Sequence[Any]) -> dict[str, Any]:
    cause, number, *victims = details
    others = () if int(number) == len(victims) else (ANY_POD,)
    otherwise = f"the eviction of {HIDDEN} failed"
    return {
        "cause": TextAboutPods(cause, (*victims, *others), otherwise),
        "victims": victims,
        "victims_in_all": int(number),
    }


_DETAILS: Final[Mapping[Step, Callable[[Sequence[Any]], dict[str, Any]]]] = {
    **dict.fromkeys(Step, lambda _: {}),
    Step.GATED: lambda details: {"plugins": details},
    Step.UNSCHEDULABLE: lambda details: {"cause": details[0]},
    Step.NOMINATED: lambda details: {
        "node": details[0],
        "victims": details[2:],
        "victims_in_all": int(details[1]),
    },
    Step.PREEMPTION_FAILED: _preemption_failed,
    Step.ASSUMED: lambda details: {"node": details[0]},
    Step.WAITING_AT_PERMIT: lambda details: {"node": details[0], "plugins": details[1:]},
    Step.REJECTED: lambda details: {"plugins": [*filter(None, details[:1])], "cause": details[1]},
    Step.ERROR: lambda details: {"cause": details[0]},
    Step.BOUND: lambda details: {"node": details[0]},
    Step.PREEMPTED: lambda details: {"by": details[0], "node": details[1]},
}
"""The fields that a `PathStep` has beside its times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDecision(Decision):
    """The last of `count` attempts in a row with the same cause or node; the first was at `since`.

    Where nodes were left out, `truncated` has the full size of each table that was shortened.
    """

    time: str
    since: str
    count: int
    cause: str | None
    truncated: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """What happened to a pod; `Step` says which of the fields behind the times it has."""

    step: Step
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
    """What happened to a pod, in order.

    `state` and `since` say where the pod is now and since when, `seconds` how long it was in each
    state. `left_out` counts the steps that are missing after the first four.
    """

    uid: Uid
    state: PodState | None
    since: str | None
    seconds: Mapping[str, float]
    left_out: int
    steps: Sequence[PathStep]


@dataclass(frozen=True, slots=True)
class PodSummary:
    """Where a pod is, and what the last decision about it was."""

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
    """A step of a pod when it is noted, with what a trace of the pod needs."""

    pod: str
    uid: Uid
    step: Step
    time: float
    since: float
    """When the pod's state before the step began: of a decision, the beginning of its attempt."""
    details: _Details
    decision: bytes | None
    """The decision of an attempt, packed; one text for all equal ones."""
    attempts: int
    """How many decisions there were about the pod so far."""
    times: StateTimes | None

    def decided(self) -> Decision | None:
        """Return the decision of the attempt, if the step is one."""
        if self.decision is None:
            return None
        return Decision(**_unpacked(self.decision)[0], pod=PodRef.of_key(self.pod, self.uid))


class _Decided(NamedTuple):
    """A decision of which nodes may be left out; `truncated` says of how many, by table."""

    decision: Decision
    truncated: Mapping[str, int]

    def packed(self) -> bytes:
        """Return all but the pod as JSON without names of fields; `_unpacked` reads it."""
        decision, scores = self.decision, self.decision.scores
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
                self.truncated,
            ]
        )

    def fields(self) -> dict[str, Any]:
        """Return the fields in JSON without the pod."""
        found = fields_of(self.decision)
        del found["pod"]
        return found | {"truncated": self.truncated} if self.truncated else found


def _unpacked(packed: bytes) -> tuple[dict[str, Any], Mapping[str, int]]:
    """Return the arguments of `Decision` but the pod, and what is truncated."""
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
    """A text that is kept once for all paths that have it; `size` is in bytes."""

    __slots__ = ("size", "users", "value")

    def __init__(self, value: bytes) -> None:
        self.value = value
        self.size = _TEXT_BYTES + len(value)
        self.users = 0


class _Entry(NamedTuple):
    """One step as it is read from a path: `in_a_row` times, from `first` to `last`."""

    step: Step
    first: float
    last: float
    in_a_row: int
    details: Sequence[Any]

    def document(self, wall: _WallTime) -> PathStep:
        """Return the step as it is shown."""
        return PathStep(
            step=self.step,
            time=wall(self.first),
            until=wall(self.last),
            count=self.in_a_row,
            **_DETAILS[self.step](self.details),
        )


class _Path:
    """What happened to one pod, in order.

    `numbers` has four values per step: the code of the step, the times of the first and the last
    in a row, and how many they are. `texts` has two: the details, and the decision if it is kept.
    """

    __slots__ = (
        "admission",
        "attempts",
        "decisions",
        "left_out",
        "numbers",
        "pod",
        "size",
        "texts",
        "times",
        "uid",
    )

    def __init__(self, pod: str, uid: Uid, times: StateTimes | None) -> None:
        self.pod = pod
        self.uid = uid
        self.times = times
        self.admission: tuple[str, ...] | None = None
        """The last step that said whether the pod is in the queue, and its details."""
        self.numbers = array("d")
        self.texts: list[_Text | None] = []
        self.left_out = 0
        self.attempts = 0
        self.decisions = 0
        """How many decisions are kept."""
        self.size = _PATH_BYTES + len(pod) + len(uid)

    @property
    def length(self) -> int:
        """Return how many steps are kept."""
        return len(self.texts) // 2

    @property
    def changed(self) -> float:
        """Return when the last step was."""
        return self.numbers[-2]

    @property
    def last(self) -> Step:
        """Return the last step."""
        return _STEPS[int(self.numbers[-4])]

    def entry(self, position: int) -> _Entry:
        """Return the step at this position."""
        code, first, last, count = self.numbers[4 * position : 4 * position + 4]
        details = self.texts[2 * position]
        return _Entry(
            _STEPS[int(code)],
            first,
            last,
            int(count),
            [
                each if isinstance(each, str) else PodRef(*each)
                for each in (orjson.loads(details.value) if details is not None else ())
            ],
        )

    def decided(self, wall: _WallTime) -> Iterator[KeptDecision]:
        """Yield the decisions that are kept, newest first."""
        for position in reversed(range(self.length)):
            packed = self.texts[2 * position + 1]
            if packed is not None:
                yield _kept(self, self.entry(position), packed.value, wall)


class DecisionLog:
    """The paths of pods, with the last decisions about them, in a bounded number of bytes.

    When there are too many, the paths of pods that are bound or gone are dropped first, the oldest
    first; then the decisions of the pods to which nothing has happened for the longest time, and
    at last their paths. Times that callers pass are seconds on the scheduler's monotonic clock.
    Paths are kept by the pods' uids; people ask for the latest pod of a "namespace/name". The path
    of a pod that is bound or gone is dropped when another pod of its name is seen.

    Args:
        limit: The number of bytes; 0 keeps nothing.
        decisions_per_pod: How many decisions are kept of one pod. Of consecutive decisions with the
            same cause, the last one is kept.
        nodes: How many nodes are kept in each table of a decision: the best scores, the chosen node
            among them, and rejections of as many different kinds as there are.
        clock: The scheduler's monotonic clock.
        wall: Seconds since the epoch.
        append: Gets every step as a line of JSON, for the long term.
        trace: Gets every step as it is, for the long term.
    """

    def __init__(
        self,
        *,
        limit: int = DEFAULT_LIMIT,
        decisions_per_pod: int = 5,
        nodes: int = 10,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        append: Callable[[bytes], None] | None = None,
        trace: Callable[[NotedStep], None] | None = None,
    ) -> None:
        self.limit: Final = limit
        self.bytes = 0
        """How much memory is used, about."""
        self._decisions_per_pod = decisions_per_pod
        self._nodes = nodes
        self._clock = clock
        self._wall = wall
        self._append = append
        self._trace = trace
        self._texts: dict[bytes, _Text] = {}
        # In each of these the path that has changed last is the last one.
        self._live: OrderedDict[Uid, _Path] = OrderedDict()
        self._without_decisions: OrderedDict[Uid, _Path] = OrderedDict()
        """Paths of live pods whose decisions were dropped, and that have not changed since."""
        self._ended: OrderedDict[Uid, _Path] = OrderedDict()
        self._names = Names()

    def __len__(self) -> int:
        """Return how many paths are kept."""
        return len(self._live) + len(self._without_decisions) + len(self._ended)

    def seen(
        self, pod: str, uid: Uid, now: float, known: StateTimes | None = None
    ) -> StateTimes | None:
        """Begin the path of a pod without a node, if it has none.

        `known` are the times of a pod that is queued already. Returns the times of the pod, or
        None if nothing is kept.
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
        self.note(uid, Step.SEEN, now)
        return times

    def without_profile(self, pod: str, uid: Uid, now: float) -> None:
        """Note that no profile takes the pod, unless that is known."""
        times = self.seen(pod, uid, now)
        if times is not None and times.state is not PodState.NO_PROFILE:
            times.enter(PodState.NO_PROFILE, now)
            self._admit(uid, Step.NO_PROFILE, now)

    def admitted(self, uid: Uid, gate: str | None, now: float) -> None:
        """Note that the pod is in the queue, or that `gate` holds it back, unless that is known.

        `gate` is the name of a PreEnqueue plugin, or "" if something else holds the pod back.
        """
        if gate is None:
            self._admit(uid, Step.QUEUED, now)
        else:
            self._admit(uid, Step.GATED, now, *filter(None, (gate,)))

    def _admit(self, uid: Uid, step: Step, now: float, *details: str) -> None:
        path = self._find(uid)
        if path is not None and path.admission != (step, *details):
            path.admission = (step, *details)
            self._note(uid, step, now, details, None)

    def decided(
        self,
        decision: Decision,
        now: float,
        *,
        cause: str = "",
        scored: int | None = None,
        rejected: int | None = None,
    ) -> None:
        """Note the decision about the pod; `cause` says in a few words why it got no node.

        A caller that already left nodes out of `decision` says how many there were with `scored`
        and `rejected`.
        """
        if not self.limit:
            return
        if scored is None:
            scored = len(decision.scores or ())
        if rejected is None:
            rejected = len(decision.rejections)
        if scored > self._nodes or len(decision.rejections) > self._nodes:
            decision = replace(
                decision,
                scores=_best(decision.scores, decision.node, self._nodes),
                rejections=_witnesses(decision.rejections, self._nodes),
            )
        truncated, uid = {}, decision.pod.uid
        if decision.scores is not None and scored > len(decision.scores):
            truncated["scores"] = scored
        if rejected > len(decision.rejections):
            truncated["rejections"] = rejected
        decided = _Decided(decision, truncated)
        if self._find(uid) is None:
            self._begin(decision.pod.key, uid, None)
        if decision.node is not None:
            self._note(uid, Step.ASSUMED, now, (decision.node,), decided)
            return
        self._note(uid, Step.UNSCHEDULABLE, now, (cause,), decided)
        if decision.nominated_node is not None:
            self.nominated(uid, decision.nominated_node, decision.victims, now)

    def nominated(self, uid: Uid, node: str, victims: Sequence[PodRef], now: float) -> None:
        """Note that preemption of these pods makes space on the node for the pod."""
        named = victims[:_MOST_VICTIMS]
        details: _Details = node, str(len(victims)), *named
        self._note(uid, Step.NOMINATED, now, details, None)

    def preempted(self, uid: Uid, by: PodRef, node: str, now: float) -> None:
        """Note that the pod is evicted from the node for another one."""
        self._note(uid, Step.PREEMPTED, now, (by, node), None)

    def preemption_failed(self, uid: Uid, why: str, victims: Sequence[PodRef], now: float) -> None:
        """Note that the evictions for the pod were given up, and that these victims stay."""
        named = victims[:_MOST_VICTIMS]
        details: _Details = why, str(len(victims)), *named
        self._note(uid, Step.PREEMPTION_FAILED, now, details, None)

    def note(self, uid: Uid, step: Step, now: float, *details: str) -> None:
        """Note what has happened to the pod; `Step` says which details belong to it."""
        self._note(uid, step, now, details, None)

    def bound(self, uid: Uid, node: str, now: float) -> None:
        """Note that the pod is bound."""
        path = self._find(uid)
        if path is None:
            return
        if path.times is not None:
            path.times.enter(PodState.BOUND, now)
        self._note(uid, Step.BOUND, now, (node,), None)

    def bound_by_another(self, uid: Uid, node: str, now: float) -> None:
        """Note that another scheduler has bound the pod, unless it is known to be gone."""
        if uid not in self._ended:
            self.bound(uid, node, now)

    def gone(self, uid: Uid, now: float) -> None:
        """Note that the pod was deleted, has ended, or got its node from another scheduler."""
        path = self._find(uid)
        if path is None or uid in self._ended:
            return
        if path.times is not None:
            path.times.enter(PodState.GONE, now)
        self._note(uid, Step.GONE, now, (), None)

    def of(self, pod: str) -> list[KeptDecision]:
        """Return the decisions that are kept of the pod, newest first, empty if there are none."""
        path, wall = self._named(pod), self._wall_time()
        return [*path.decided(wall)] if path is not None else []

    def latest(self, namespace: str = "") -> list[KeptDecision]:
        """Return the last decision about each of the pods that changed last, newest first.

        Args:
            namespace: Whose pods; empty for all. They are at most `LATEST`.
        """
        wall, prefix = self._wall_time(), f"{namespace}/" if namespace else ""
        found = list[_Path]()
        for part in (self._live, self._ended):
            # Thousands of paths may be skipped here, so that this loop does little for each.
            decided = (
                path
                for path in reversed(part.values())
                if path.decisions and path.pod.startswith(prefix)
            )
            found += islice(decided, LATEST)
        found.sort(key=lambda path: -path.changed)
        return [next(path.decided(wall)) for path in found[:LATEST]]

    def path(self, pod: str) -> PodPath | None:
        """Return the path of the pod; None if it is not kept."""
        path = self._named(pod)
        if path is None:
            return None
        wall = self._wall_time()
        return PodPath(
            path.uid,
            *_state(path.times, wall),
            {state.value: round(took, 3) for state, took in self._seconds(path)},
            path.left_out,
            [path.entry(n).document(wall) for n in range(path.length)],
        )

    def cause(self, uid: Uid) -> str | None:
        """Return why the last attempt did not bind the pod; None if that is not kept."""
        path = self._find(uid)
        for position in reversed(range(path.length)) if path is not None else ():
            if path is not None and path.numbers[4 * position] in _FAILURES:
                return str(path.entry(position).details[-1])
        return None

    def victims(self, uid: Uid) -> Sequence[PodRef]:
        """Return pods whose eviction makes room for the pod, at most ten, as nominated last."""
        path = self._find(uid)
        for position in reversed(range(path.length)) if path is not None else ():
            if path is not None and path.numbers[4 * position] == _CODES[Step.NOMINATED]:
                details = path.entry(position).details[2:]
                return [each for each in details if isinstance(each, PodRef)]
        return ()

    def summaries(self, namespace: str = "", limit: int = LATEST) -> Iterator[PodSummary]:
        """Yield short records of the `limit` pods that changed last, newest first.

        Which they are is decided at once; what is said about each holds when it is read.

        Args:
            namespace: Whose pods; empty for all.
            limit: How many at most.
        """
        chosen, wall = [*islice(self._newest(namespace), limit)], self._wall_time()
        return (_summary(path, wall) for path in chosen)

    def _seconds(self, path: _Path) -> Iterable[tuple[PodState, float]]:
        return path.times.seconds(self._clock()).items() if path.times is not None else ()

    def _newest(self, namespace: str) -> Iterator[_Path]:
        """Yield the paths of the namespace's pods, of all if it is "", the last changed first."""
        prefix = f"{namespace}/" if namespace else ""
        parts = (self._live, self._without_decisions, self._ended)
        every = merge(*(reversed(part.values()) for part in parts), key=lambda path: -path.changed)
        return (path for path in every if path.pod.startswith(prefix))

    def _wall_time(self) -> "_WallTime":
        offset = self._wall() - self._clock()
        return lambda seconds: datetime.fromtimestamp(seconds + offset, UTC).isoformat(
            timespec="milliseconds"
        )

    def _find(self, uid: Uid) -> _Path | None:
        return self._live.get(uid) or self._without_decisions.get(uid) or self._ended.get(uid)

    def _named(self, pod: str) -> _Path | None:
        uid = self._names.latest(pod)
        return self._find(uid) if uid is not None else None

    def _begin(self, pod: str, uid: Uid, times: StateTimes | None) -> None:
        """Begin a path; that of an earlier pod of this name, which has ended, is dropped."""
        earlier = self._names.latest(pod)
        if earlier is not None and earlier in self._ended:
            self._drop(earlier)
        self._names.add(pod, uid)
        path = self._live[uid] = _Path(pod, uid, times)
        self.bytes += path.size

    def _note(
        self, uid: Uid, step: Step, now: float, details: _Details, decided: _Decided | None
    ) -> None:
        """Append the step to the path, or count it if it is the same as the last one.

        What happens to a pod after its end is left out, unless it is bound and preempted.
        """
        path = self._live.get(uid)
        ends = step in _ENDS or (step is Step.PREEMPTED and uid in self._ended)
        if path is None:
            path = self._made_live(uid, step)
            if path is None:
                return
        if self._append is not None:
            self._append(self._line(path, step, now, details, decided))
        text = self._text(_packed(details)) if details else None
        code, numbers, texts = _CODES[step], path.numbers, path.texts
        if numbers and numbers[-4] == code and texts[-2] is text:
            numbers[-2] = now
            numbers[-1] += 1
            self._release(text)
        else:
            numbers.extend((code, now, now, 1.0))
            texts += (text, None)
            self._grow(path, _STEP_BYTES)
            if path.length > _MOST_STEPS:
                self._remove(path, _FIRST_STEPS)
                path.left_out += 1
        if decided is not None:
            self._attach(path, decided.packed())
        if self._trace is not None:
            self._trace(_noted(path, step, now, details, decided=decided is not None))
        if ends:
            self._end(path)
        else:
            self._live.move_to_end(uid)
        if self.bytes > self.limit:
            self._shrink()

    def _end(self, path: _Path) -> None:
        """End the path of a pod that is bound or gone; drop it if a later pod has its name."""
        self._ended[path.uid] = self._live.pop(path.uid)
        if self._names.latest(path.pod) != path.uid:
            self._drop(path.uid)

    def _made_live(self, uid: Uid, step: Step) -> _Path | None:
        """Return the path of a pod that lives again; None if the step is left out."""
        path = self._without_decisions.pop(uid, None)
        if path is None and step is Step.PREEMPTED:
            path = self._ended.pop(uid, None)
        if path is not None:
            self._live[uid] = path
        return path

    def _line(
        self, path: _Path, step: Step, now: float, details: _Details, decided: _Decided | None
    ) -> bytes:
        """Return the step as a line for the long term, with the decision if it is one."""
        at = self._wall_time()(now)
        line: dict[str, Any] = {"pod": path.pod, "uid": path.uid, "step": step, "time": at}
        for field, value in _DETAILS[step](details).items():
            line[name_of(field)] = value
        if decided is not None:
            line["decision"] = decided.fields()
        return dumps(line)

    def _attach(self, path: _Path, decision: bytes) -> None:
        """Keep the decision with the last step; drop the oldest of too many."""
        path.attempts += 1
        earlier, path.texts[-1] = path.texts[-1], self._text(decision)
        self._release(earlier)
        path.decisions += earlier is None
        if path.decisions > self._decisions_per_pod:
            oldest = next(n for n in range(1, len(path.texts), 2) if path.texts[n] is not None)
            self._release(path.texts[oldest])
            path.texts[oldest] = None
            path.decisions -= 1

    def _remove(self, path: _Path, position: int) -> None:
        """Remove the step at this position from the path."""
        for text in path.texts[2 * position : 2 * position + 2]:
            self._release(text)
        path.decisions -= path.texts[2 * position + 1] is not None
        del path.texts[2 * position : 2 * position + 2]
        del path.numbers[4 * position : 4 * position + 4]
        self._grow(path, -_STEP_BYTES)

    def _grow(self, path: _Path, size: int) -> None:
        path.size += size
        self.bytes += size

    def _text(self, value: bytes) -> _Text:
        """Return the text with this value, which has one user more now."""
        text = self._texts.get(value)
        if text is None:
            # A copy, because what orjson returns occupies 4 KiB however short it is.
            value = memoryview(value).tobytes()
            text = self._texts[value] = _Text(value)
            self.bytes += text.size
        text.users += 1
        return text

    def _release(self, text: _Text | None) -> None:
        """Count one user of the text less; forget it with the last one."""
        if text is not None:
            text.users -= 1
            if not text.users:
                del self._texts[text.value]
                self.bytes -= text.size

    def _shrink(self) -> None:
        while self.bytes > self.limit and len(self):
            if self._ended:
                self._drop(next(iter(self._ended)))
            elif self._live:
                uid, path = self._live.popitem(last=False)
                self._without_decisions[uid] = path
                for n in range(1, len(path.texts), 2):
                    self._release(path.texts[n])
                    path.texts[n] = None
                path.decisions = 0
            else:
                self._drop(next(iter(self._without_decisions)))

    def _drop(self, uid: Uid) -> None:
        parts = (self._live, self._without_decisions, self._ended)
        path = next(part.pop(uid) for part in parts if uid in part)
        self._names.remove(path.pod, uid)
        for text in path.texts:
            self._release(text)
        self.bytes -= path.size


def _noted(path: _Path, step: Step, now: float, details: _Details, *, decided: bool) -> NotedStep:
    times, text = path.times, path.texts[-1]
    since = times.since if times is not None else now
    decision = text.value if decided and text is not None else None
    return NotedStep(path.pod, path.uid, step, now, since, details, decision, path.attempts, times)


def _plain_detail(value: object) -> object:
    """Return a pod as a tuple, and anything else that a plugin may give as a text."""
    return tuple(value) if isinstance(value, PodRef) else str(value)


def _packed(details: _Details) -> bytes:
    return dumps([each if type(each) is str else _plain_detail(each) for each in details])


def _kept(path: _Path, entry: _Entry, packed: bytes, wall: _WallTime) -> KeptDecision:
    fields, truncated = _unpacked(packed)
    return KeptDecision(
        pod=PodRef.of_key(path.pod, path.uid),
        **fields,
        time=wall(entry.last),
        since=wall(entry.first),
        count=entry.in_a_row,
        cause=entry.details[0] if entry.step is Step.UNSCHEDULABLE else None,
        truncated=truncated or None,
    )


def _summary(path: _Path, wall: _WallTime) -> PodSummary:
    last = next(path.decided(wall), None)
    return PodSummary(
        PodRef.of_key(path.pod, path.uid),
        wall(path.numbers[1]) if path.numbers else None,
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
    """Return at most `limit` rejections, one of each kind before a second of any."""
    if len(rejections) <= limit:
        return rejections
    first_of_kind: dict[Rejection, str] = {}
    for node, rejection in rejections.items():
        first_of_kind.setdefault(rejection, node)
    first = dict.fromkeys(first_of_kind.values())
    others = (node for node in rejections if node not in first)
    return {node: rejections[node] for node in islice(chain(first, others), limit)}
