"""Makes fingerprints of the program's objects: equal for states with the same possible future.

It walks over all attributes of the objects, so that a new attribute counts at once. `_LEFT_OUT` has
the attributes that do not count, with the reasons. Three values count relative to the present:
times, numbers of cluster events, and the order in which pods moved. Tests compare the result with a
search that treats no two states as equal.
"""

import marshal
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property
from hashlib import blake2b
from types import FrameType, GeneratorType
from typing import Any, Final

import numpy as np

from mooring.groups.model.pod_group import PodGroup
from mooring.groups.state.pod_groups import PodGroupState
from mooring.model.node import Node
from mooring.model.pod import Pod
from mooring.model.pod_spec import PodSpec
from mooring.pausing import Work
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.queue.heap import PodHeap
from mooring.scheduling.queue.in_flight import InFlight
from mooring.scheduling.queue.kept_events import EventLog
from mooring.scheduling.queue.queue import UNSCHEDULABLE_TIMEOUT, SchedulingQueue
from mooring.scheduling.queue.unschedulable import UnschedulablePods
from mooring.scheduling.scheduler_state import CurrentAttempt

_LEFT_OUT: Final[Mapping[type, frozenset[str]]] = {
    SchedulingQueue: frozenset(
        (
            "_hints",  # never changes
            "_tickets",  # only which entries of heaps are void, and those are not told
            "_incoming",  # only for metrics
            "_initial_backoff",
            "_max_backoff",  # never change
        )
    ),
    QueuedPod: frozenset(
        (
            "ticket",  # see above
            "timestamp",
            "backoff_expiration",
            "initial_attempt_timestamp",  # these are told by `_queued`
            "attempts",  # only breaks ties, which these worlds do not have
            "times",
            "moved_at",  # see above
            "moved_by",
            "flushed",  # only for metrics
            "unschedulable_count",
            "consecutive_errors_count",  # each backoff in these worlds takes the same time
        )
    ),
    UnschedulablePods: frozenset(("_hints", "_events")),
    CurrentAttempt: frozenset(("began", "took")),  # only for metrics
}
_WALKED: Final = (
    "mooring.scheduling.queue.",
    "mooring.groups.search.",
    "mooring.scheduling.group_binding",
    "mooring.scheduling.assumed",
    "mooring.scheduling.scheduler_state",
    "mooring.model.",
    "mooring.runtime.queued_pod",
)
"""Modules whose objects are walked through; of other objects only the class is told."""
_EVENT_NUMBERS: Final = frozenset(("seen", "next", "since", "end"))
"""Attributes of objects in `queueing/` that are numbers of events."""


def _first_event(queue: SchedulingQueue) -> int:
    """Return the number of the first event that may still be checked against a pod."""
    held = attributes(queue)
    log, unschedulable = held["_events"], attributes(held["_unschedulable"])
    since = [queued.moved_at for queued in queue if queued.moved_at is not None]
    since += [missed.next for missed in unschedulable["_missed"].values()]
    since += [group.next for group in unschedulable["_groups"].values()]
    oldest: int | None = held["_in_flight"].oldest()
    first: int = min((*since, log.end if oldest is None else oldest))
    start: int = log.start
    return max(first, start)


def _frame_of(coroutine: Any) -> Any:
    """Return the frame of a coroutine or generator; None for other awaitables."""
    return getattr(coroutine, "cr_frame", getattr(coroutine, "gi_frame", None))


def attributes(value: object) -> dict[str, Any]:
    """Return all attributes of an object by name, including slots.

    Cached properties are left out, because they follow from other attributes.
    """
    kept = getattr(value, "__dict__", {}).items()
    own = type(value)
    found = {n: v for n, v in kept if not isinstance(getattr(own, n, None), cached_property)}
    for cls in type(value).__mro__:
        slots = getattr(cls, "__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                found[name] = getattr(value, name)
    return found


class Fingerprint:
    """Makes fingerprints at the moment `now`; pods' times are relative to those of `queue`."""

    def __init__(self, queue: SchedulingQueue, now: float) -> None:
        self.now = now
        stamps = sorted({queued.timestamp for queued in queue})
        self._ranks = {stamp: rank for rank, stamp in enumerate(stamps)}
        self._first_event = _first_event(queue)
        self._walked = set[int]()
        self._rules: dict[type, Callable[[Any], object]] = {
            Pod: self._pod,
            PodSpec: lambda spec: sorted(spec.demand.resources.items()),
            Node: lambda node: (node.name, node.unschedulable, sorted(node.allocatable.items())),
            Pipeline: lambda pipeline: pipeline.generation,
            QueuedPod: self._queued,
            PodHeap: self._heap,
            EventLog: lambda log: [
                self.of(event) for n, event in enumerate(log, log.start) if n >= self._first_event
            ],
            InFlight: self._in_flight,
            PodGroup: lambda group: (str(group.key), group.uid, group.minimum),
            PodGroupState: lambda group: str(group.key),
            np.ndarray: lambda array: array.tobytes(),
            float: self._time,
            GeneratorType: self.frames,
            Work: self._work,
        }
        self._kinds: tuple[tuple[Any, Callable[[Any], object]], ...] = (
            (tuple | list | deque, lambda values: tuple([self.of(each) for each in values])),
            (Counter, lambda counts: self._sorted((k, n) for k, n in counts.items() if n)),
            (Mapping, self._mapping),
            (set | frozenset, self._sorted),
        )

    def digest(self, *values: object) -> bytes:
        """Return a digest of the values; equal digests mean equal values."""
        told: Any = tuple(self.of(value) for value in values)
        return blake2b(marshal.dumps(told, 2), digest_size=16).digest()

    def of(self, value: object) -> object:
        """Return the relevant content of the value, as plain values."""
        if value is None or isinstance(value, bool | int | str | bytes):
            return value.value if isinstance(value, Enum) else value
        rule = self._rules.get(type(value))
        if rule is not None:
            return rule(value)
        for kind, told in self._kinds:
            if isinstance(value, kind):
                return told(value)
        return self._object(value)

    def _mapping(self, value: Mapping[Any, Any]) -> object:
        """Return the items of a mapping in order, because the program often takes the first one."""
        return tuple([(self.of(key), self.of(each)) for key, each in value.items()])

    def frames(self, coroutine: Any) -> object:
        """Return the position of a coroutine or generator, and its variables."""
        found = list[object]()
        while (frame := _frame_of(coroutine)) is not None:
            found.append(self._frame(frame))
            coroutine = getattr(coroutine, "cr_await", getattr(coroutine, "gi_yieldfrom", None))
        return tuple(found)

    def _frame(self, frame: FrameType) -> object:
        names = sorted(name for name in frame.f_locals if name != "self")
        variables = [(name, self.of(frame.f_locals[name])) for name in names]
        return frame.f_code.co_name, frame.f_lasti, tuple(variables)

    def _work(self, work: Work[Any]) -> object:
        """Return the position of a call that pauses, and its variables."""
        held, found = attributes(work), list[object]()
        frame = None if held["_has_ended"] else getattr(held["_worker"], "gr_frame", None)
        while frame is not None:
            if frame.f_globals["__name__"] != Work.__module__:
                found.append(self._frame(frame))
            frame = frame.f_back
        return tuple(found)

    def _time(self, time: float) -> float:
        """Return the milliseconds from now, rounded up; 0 for the past, -1 for the long past."""
        if not math.isfinite(time) or time <= self.now:
            return -1 if time <= self.now - UNSCHEDULABLE_TIMEOUT else 0
        return math.ceil(round(1000 * (time - self.now), 6))

    def _sorted(self, values: Iterable[object]) -> tuple[object, ...]:
        return tuple(sorted((self.of(value) for value in values), key=repr))

    def _object(self, value: object) -> object:
        """Return the content of an object; only its type's name if it was visited before."""
        cls = type(value)
        if id(value) in self._walked or not cls.__module__.startswith(_WALKED):
            return cls.__name__
        self._walked.add(id(value))
        left_out = _LEFT_OUT.get(cls, frozenset())
        return (
            cls.__name__,
            *[
                (name, self._attribute(cls, name, each))
                for name, each in attributes(value).items()
                if name not in left_out
            ],
        )

    def _attribute(self, cls: type, name: str, value: object) -> object:
        is_number = isinstance(value, int) and name in _EVENT_NUMBERS
        if is_number and cls.__module__.startswith("mooring.scheduling.queue"):
            return self._event(value)
        return self.of(value)

    def _event(self, number: Any) -> int:
        """Return the number of an event among the kept events; -1 for older events."""
        return int(max(number - self._first_event, -1))

    @staticmethod
    def _pod(pod: Pod) -> object:
        labels = sorted(pod.labels.items())
        demand = sorted(pod.spec.demand.resources.items())
        return pod.uid, pod.key, labels, demand, pod.node_name, pod.terminating

    def _queued(self, queued: QueuedPod) -> object:
        """Return the content of a queued pod, or only its uid if it was visited before."""
        if id(queued) in self._walked:
            return queued.pod.uid
        self._walked.add(id(queued))
        left_out = _LEFT_OUT[QueuedPod]
        waits = self.now - queued.timestamp >= UNSCHEDULABLE_TIMEOUT
        told = [self.of(v) for name, v in attributes(queued).items() if name not in left_out]
        backoff = max(self._time(queued.backoff_expiration), 0)
        told += [self._ranks.get(queued.timestamp, -1), waits, backoff]
        told.append(self._time(queued.initial_attempt_timestamp))
        told.append(queued.moved_at and self._event(queued.moved_at))
        return tuple(told)

    @staticmethod
    def _heap(heap: PodHeap[Any]) -> object:
        held = attributes(heap)
        entries = sorted([*held["_entries"], *held["_searched"]], key=lambda e: e[:2])
        return tuple([queued.pod.uid for e in entries if (queued := e.queued()) is not None])

    def _in_flight(self, in_flight: InFlight) -> object:
        entries = attributes(in_flight)["_pods"].items()
        return tuple([(uid, self.of(q), self._event(since)) for uid, (q, since) in entries])
