"""Shows the pending pods in the view Queue: counts, groups, lists and the last hour.

All pods are read in slices into columns, which all users share for some seconds.
"""

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from mooring.model.pod import Pod, is_of_workload, workload_of
from mooring.pausing import pause
from mooring.process.time_slices import REST, TimeSlices
from mooring.runtime.queued_pod import PodState
from mooring.scheduling.pod_report import pending_cause
from mooring.scheduling.scheduler_state import SchedulerState
from mooring.state.columns import IntArray
from mooring.state.view import BoolArray

STATES: Final = tuple(
    state.value
    for state in (
        PodState.ACTIVE,
        PodState.BACKOFF,
        PodState.UNSCHEDULABLE,
        PodState.GATED,
        PodState.IN_FLIGHT,
        PodState.PERMIT,
        PodState.BINDING,
        PodState.NO_PROFILE,
    )
)
"""The states of pending pods; the first four are the queues of scheduler_pending_pods."""

_KEPT_SECONDS: Final = 2.0
_MOST_GROUPS: Final = 200
_SAMPLE_SECONDS: Final = 10.0
_SAMPLES: Final = 360
"""The number of samples that are kept: one hour of samples, taken every `_SAMPLE_SECONDS`."""
_MOST_OF_WORKLOAD: Final = 500
_MOST_OF_CAUSE: Final = 256
_MOST_OF_OWNER: Final = 253


@dataclass(slots=True)
class _Codes:
    """Gives each different value a number, from 0 on."""

    values: dict[Any, int] = field(default_factory=dict)

    def of(self, value: Any) -> int:
        return self.values.setdefault(value, len(self.values))


@dataclass(frozen=True, slots=True)
class Selected:
    """Selects pending pods by their fields; an empty field selects all pods.

    `search` is a part of the pod's name.
    """

    state: str = ""
    cause: str = ""
    namespace: str = ""
    owner: str = ""
    search: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class PendingPods:
    """The pending pods at one moment; arrays have one item per pod, in the order of `keys`.

    - `taken` is this moment by the monotonic clock.
    - `since` has the seconds for which the pods have been pending.
    - `states` has indices into `STATES`.
    - `causes`, `namespaces` and `owners` have indices into `cause_values`, `namespace_values` and
      `owner_values`.

    An owner is (namespace, kind, name) of the pod's group, or else of its workload (a Deployment,
    not its ReplicaSet), or else of the pod.
    """

    taken: float
    keys: Sequence[str]
    states: IntArray
    causes: IntArray
    namespaces: IntArray
    owners: IntArray
    priorities: IntArray
    attempts: IntArray
    since: IntArray
    cause_values: Sequence[str]
    namespace_values: Sequence[str]
    owner_values: Sequence[tuple[str, str, str]]

    def largest_namespaces(self) -> list[str]:
        """Return the namespaces, beginning with the namespace that has the most pods."""
        counts = np.bincount(self.namespaces, minlength=len(self.namespace_values))
        return [self.namespace_values[code] for code in np.argsort(-counts, kind="stable")]

    def groups(self, visible: frozenset[str], namespace: str = "") -> dict[str, Any]:
        """Return the numbers of pods by state, by cause, and by owner in a visible namespace.

        `namespace` restricts the pods; "" means all namespaces.
        """
        if namespace:
            return self._within(namespace).groups(visible)
        seen = self._visible(visible)
        # A plugin's text may name pods, so a cause is named only if a visible pod has it.
        named = np.isin(self.causes, self.causes[seen])
        return {
            "total": len(self.keys),
            "states": dict(
                zip(STATES, np.bincount(self.states, minlength=8).tolist(), strict=True)
            ),
            "causes": [
                {"cause": self.cause_values[code], **group}
                for code, group in self._groups(self.causes, named)
            ],
            "otherCauses": int((~named).sum()),
            "owners": [
                dict(zip(("namespace", "kind", "name"), self.owner_values[code], strict=True))
                | group
                for code, group in self._groups(self.owners, seen)
            ],
            "otherPods": int((~seen).sum()),
        }

    def page(
        self, selected: Selected, visible: frozenset[str], offset: int, limit: int
    ) -> dict[str, Any]:
        """Return `limit` selected visible pods from `offset` on, the longest pending pods first."""
        mask = self._visible(visible)
        owner = tuple(selected.owner.split("/", 2))
        for codes, values, wanted in (
            (self.states, STATES, selected.state),
            (self.causes, self.cause_values, selected.cause),
            (self.namespaces, self.namespace_values, selected.namespace),
            (self.owners, self.owner_values, owner if selected.owner else ""),
        ):
            if wanted:
                mask = mask & (codes == (values.index(wanted) if wanted in values else -1))
        at = np.flatnonzero(mask)
        if selected.search:
            at = np.array([i for i in at.tolist() if selected.search in self.keys[i]], np.int64)
        at = at[np.argsort(-self.since[at], kind="stable")]
        return {
            "total": len(at),
            "offset": offset,
            "pods": [
                {
                    "pod": self.keys[i],
                    "state": STATES[self.states[i]],
                    "cause": self.cause_values[self.causes[i]],
                    "priority": int(self.priorities[i]),
                    "attempts": int(self.attempts[i]),
                    "pendingSeconds": int(self.since[i]),
                }
                for i in at[offset : offset + limit].tolist()
            ],
        }

    def _within(self, namespace: str) -> "PendingPods":
        known = namespace in self.namespace_values
        code = self.namespace_values.index(namespace) if known else -1
        at = np.flatnonzero(self.namespaces == code)
        columns = ("states", "causes", "namespaces", "owners", "priorities", "attempts", "since")
        return replace(
            self,
            keys=[self.keys[i] for i in at.tolist()],
            **{name: getattr(self, name)[at] for name in columns},
        )

    def _visible(self, visible: frozenset[str]) -> BoolArray:
        of_namespace = np.array([name in visible for name in self.namespace_values], np.bool_)
        seen: BoolArray = of_namespace[self.namespaces]
        return seen

    def _groups(self, codes: IntArray, members: BoolArray) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the 200 most frequent of `codes`, each with a summary of its pods."""
        if not members.any():
            return
        codes, states, since = codes[members], self.states[members], self.since[members]
        number = int(codes.max()) + 1
        by_state = np.bincount(codes * len(STATES) + states, minlength=number * len(STATES))
        by_state = by_state.reshape(number, len(STATES))
        oldest = np.zeros(number, np.int64)
        np.maximum.at(oldest, codes, since)
        pods = by_state.sum(axis=1)
        for code in np.argsort(-pods, kind="stable")[:_MOST_GROUPS].tolist():
            if pods[code]:
                counts = zip(STATES, by_state[code].tolist(), strict=True)
                yield (
                    code,
                    {
                        "pods": int(pods[code]),
                        "states": {name: count for name, count in counts if count},
                        "oldestSeconds": int(oldest[code]),
                    },
                )


class _PendingPod(NamedTuple):
    """A pod that has been pending for `seconds`; `owner` is its kind and name."""

    pod: Pod
    state: str
    cause: str
    attempts: int
    seconds: int
    owner: tuple[str, str]

    def row(self) -> dict[str, Any]:
        return {
            "pod": self.pod.key,
            "state": self.state,
            "cause": self.cause,
            "attempts": self.attempts,
            "pendingSeconds": self.seconds,
        }


@dataclass(slots=True)
class _Rows:
    """The columns of the pending pods, while they are filled."""

    keys: list[str] = field(default_factory=list)
    numbers: "array[int]" = field(default_factory=lambda: array("q"))
    causes: _Codes = field(default_factory=_Codes)
    namespaces: _Codes = field(default_factory=_Codes)
    owners: _Codes = field(default_factory=_Codes)

    def add(self, pending: "_PendingPod") -> None:
        pod = pending.pod
        kind, name = (part[:_MOST_OF_OWNER] for part in pending.owner)  # of any length
        self.keys.append(pod.key)
        self.numbers.extend(
            (
                STATES.index(pending.state),
                self.causes.of(pending.cause),
                self.namespaces.of(pod.namespace),
                self.owners.of((pod.namespace, kind, name)),
                pod.spec.priority,
                pending.attempts,
                pending.seconds,
            )
        )

    def pending_pods(self, taken: float) -> PendingPods:
        columns = np.array(self.numbers, np.int64).reshape(-1, 7)
        return PendingPods(
            taken=taken,
            keys=self.keys,
            states=columns[:, 0],
            causes=columns[:, 1],
            namespaces=columns[:, 2],
            owners=columns[:, 3],
            priorities=columns[:, 4],
            attempts=columns[:, 5],
            since=columns[:, 6],
            cause_values=list(self.causes.values),
            namespace_values=list(self.namespaces.values),
            owner_values=list(self.owners.values),
        )


@dataclass(eq=False, repr=False)
class Queue:
    """Reads the scheduling queue.

    `bound` returns the number of pods bound so far. `clock` is monotonic, `now` is the time since
    the epoch, both in seconds.
    """

    scheduler: SchedulerState
    bound: Callable[[], int]
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._pending: PendingPods | None = None
        self._reading = asyncio.Lock()
        self._samples: deque[tuple[int, ...]] = deque(maxlen=_SAMPLES)

    def counts(self) -> dict[str, int]:
        """Return the number of pods in each queue, at Permit, and without a profile."""
        scheduler = self.scheduler
        return {
            **scheduler.queue.counts(),
            PodState.PERMIT.value: len(scheduler.waiting),
            PodState.NO_PROFILE.value: len(scheduler.without_profile),
        }

    async def pending(self) -> PendingPods:
        """Return the pending pods; the result may be two seconds old."""
        async with self._reading:
            known = self._pending
            if known is None or self.clock() - known.taken >= _KEPT_SECONDS:
                known = self._pending = await self._read()
            return known

    async def _read(self) -> PendingPods:
        # A pod that is bound meanwhile may be included.
        rows = _Rows()

        def steps() -> None:
            for pending in self._pending_pods():
                rows.add(pending)

        await TimeSlices(rest=REST, clock=self.clock).run(steps)
        return rows.pending_pods(self.clock())

    async def workload(self, namespace: str, kind: str, name: str) -> dict[str, Any]:
        """Return up to 500 pending pods of a workload, the longest pending first, and two numbers.

        `placed` is the number of its pods with a node, `total` the number of its pending pods.
        """
        found, placed = list[_PendingPod](), 0

        def is_meant(pod: Pod) -> bool:
            return pod.namespace == namespace and is_of_workload(pod, kind, name)

        def steps() -> None:
            nonlocal placed
            for one in tuple(self.scheduler.state.pods):
                pause()
                placed += one.pod.node_name is not None and is_meant(one.pod)
            found.extend(self._pending_pods(is_meant))

        await TimeSlices(rest=REST, clock=self.clock).run(steps)
        found.sort(key=lambda pending: -pending.seconds)
        pods = [pending.row() for pending in found[:_MOST_OF_WORKLOAD]]
        return {"placed": placed, "total": len(found), "pods": pods}

    def _pending_pods(
        self, is_meant: Callable[[Pod], bool] = lambda _: True
    ) -> "Iterator[_PendingPod]":
        scheduler, now, wall = self.scheduler, self.clock(), self.now()
        for queued in scheduler.queue:
            pause()
            pod, state = queued.pod, queued.times.state
            if state in STATES and is_meant(pod):  # else it may be bound or gone meanwhile
                seconds = int(max(now - queued.times.began, 0))
                cause = pending_cause(scheduler, pod)[:_MOST_OF_CAUSE]
                yield _PendingPod(pod, state, cause, queued.attempts, seconds, self._owner(pod))
        for pod in tuple(scheduler.without_profile.values()):
            pause()
            if is_meant(pod):
                seconds = int(max(wall - pod.created, 0)) if pod.created else 0
                cause = pending_cause(scheduler, pod)[:_MOST_OF_CAUSE]
                yield _PendingPod(pod, PodState.NO_PROFILE, cause, 0, seconds, self._owner(pod))

    def _owner(self, pod: Pod) -> tuple[str, str]:
        group = self.scheduler.cluster.pod_groups.of(pod)
        return ("PodGroup", group.key.name) if group is not None else workload_of(pod)

    async def sample_for_ever(self) -> None:
        """Record the counts every ten seconds; drop counts that are older than an hour."""
        while True:
            self.sample()
            await asyncio.sleep(_SAMPLE_SECONDS)

    def sample(self) -> None:
        """Record the time, the number of pods bound so far, and the current counts."""
        self._samples.append((int(self.now()), self.bound(), *self.counts().values()))

    def trend(self) -> Mapping[str, list[int]]:
        """Return the counts of the last hour by name; `time` is in seconds since the epoch.

        `bound` is the number of pods bound from the start of the process to that time.
        """
        names = ("time", "bound", *self.counts())
        columns = zip(*self._samples, strict=True) if self._samples else ((),) * len(names)
        return {name: list(column) for name, column in zip(names, columns, strict=True)}
