"""Whatever happens to pods, the record of decisions has it in order, and in bounded memory."""

import gc
import tracemalloc
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deciding import keep
from mooring.framework.decision import Decision, PodRef, Rejection
from mooring.model.pod import Uid
from mooring.observe.documents import plain
from mooring.observe.records import DecisionLog, RecordedStep
from mooring.runtime.queued_pod import PodState, StateTimes

PODS = ("a/1", "a/2", "b/1")
NODES = ("n1", "n2")
CAUSES = ("Insufficient cpu", "tainted")
QUEUES = (PodState.ACTIVE, PodState.BACKOFF, PodState.UNSCHEDULABLE, PodState.IN_FLIGHT)
FIRST: Final = 4
MOST: Final = 32


@dataclass
class Known:
    """What has happened to a pod, all of it: steps with what belongs to them, and their times."""

    uid: Uid
    times: StateTimes
    steps: list[tuple[str, tuple[Any, ...], list[float]]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    ended: bool = False
    admission: tuple[str, ...] = ()
    decisions: list[str] = field(default_factory=list)

    def happens(self, now: float, step: str, *details: Any) -> None:
        if self.steps and self.steps[-1][:2] == (step, details):
            self.steps[-1][2].append(now)
        else:
            self.steps.append((step, details, [now]))

    @property
    def kept(self) -> list[tuple[str, tuple[Any, ...], list[float]]]:
        over = max(len(self.steps) - MOST, 0)
        return self.steps[:FIRST] + self.steps[FIRST + over :]


class Record(RuleBasedStateMachine):
    """Tells the record of random histories, and keeps them whole beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.log = DecisionLog(clock=lambda: self.now, wall=lambda: self.now)
        self.known: dict[str, Known] = {}
        self.predecessors: list[Uid] = []
        self.uids = 0

    @initialize()
    def begins(self) -> None:
        for pod in PODS:
            self.another_pod_of_its_name_is_seen(pod)

    def _in_its_state(self, known: Known) -> None:
        """Count the time since the last step for the pod's present state."""
        state = known.times.state
        if state not in (PodState.BOUND, PodState.GONE):
            known.seconds[state] += self.now - known.times.since

    @rule(seconds=st.sampled_from((0.25, 1.0, 300.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(pod=st.sampled_from(PODS))
    def seen(self, pod: str) -> None:
        known = self.known[pod]
        assert self.log.seen(pod, known.uid, self.now) is known.times
        if known.ended:
            known.ended, known.admission = False, ()
            known.happens(self.now, "seen")

    @rule(pod=st.sampled_from(PODS))
    def another_pod_of_its_name_is_seen(self, pod: str) -> None:
        """Show a pod, perhaps before the end of the one before is told."""
        before = self.known.get(pod)
        if before is not None and not before.ended:
            self.predecessors.append(before.uid)
        self.uids += 1
        uid = Uid(f"uid-{self.uids}")
        times = self.log.seen(pod, uid, self.now)
        assert times is not None
        self.known[pod] = Known(uid, times)
        self.known[pod].happens(self.now, "seen")

    @precondition(lambda self: self.predecessors)
    @rule(bound=st.booleans())
    def the_end_of_a_predecessor_is_told(self, *, bound: bool) -> None:
        uid = self.predecessors.pop()
        if bound:
            self.log.bound(uid, "n1", self.now)
        else:
            self.log.gone(uid, self.now)

    @rule(pod=st.sampled_from(PODS), gate=st.sampled_from((None, "Gates", "Gang")))
    def admitted(self, pod: str, gate: str | None) -> None:
        known = self.known[pod]
        self.log.admitted(known.uid, gate, self.now)
        admission = ("queued",) if gate is None else ("gated", gate)
        if not known.ended and admission != known.admission:
            known.admission = admission
            known.happens(self.now, *admission)

    @rule(pod=st.sampled_from(PODS), state=st.sampled_from(QUEUES))
    def moves(self, pod: str, state: PodState) -> None:
        known = self.known[pod]
        if not known.ended:
            self._in_its_state(known)
            known.times.enter(state, self.now)

    @rule(pod=st.sampled_from(PODS), cause=st.sampled_from(CAUSES), nominated=st.booleans())
    def is_unschedulable(self, pod: str, cause: str, *, nominated: bool) -> None:
        known, message = self.known[pod], f"0/2 nodes: {cause} at {self.now}"
        decision = Decision(
            PodRef.of_key(pod),
            "mooring",
            None,
            "n1" if nominated else None,
            (PodRef.of_key("b/victim"),) if nominated else (),
            None,
            {"n1": Rejection("Fit", (cause,), resolvable=True)},
            message,
        )
        keep(self.log, known.uid, decision, self.now, cause=cause)
        if not known.ended:
            known.happens(self.now, "unschedulable", cause)
            known.decisions.append(message)
            if nominated:
                known.happens(self.now, "nominated", "n1", "b/victim")

    @rule(pod=st.sampled_from(PODS), node=st.sampled_from(NODES))
    def is_assumed(self, pod: str, node: str) -> None:
        known = self.known[pod]
        decision = Decision(PodRef.of_key(pod), "mooring", node, None, (), None, {}, None)
        keep(self.log, known.uid, decision, self.now)
        if not known.ended:
            known.happens(self.now, "assumed", node)

    @rule(pod=st.sampled_from(PODS), number=st.integers(0, 3))
    def fails(self, pod: str, number: int) -> None:
        self.log.note(self.known[pod].uid, RecordedStep.ERROR, self.now, cause=f"error {number}")
        if not self.known[pod].ended:
            self.known[pod].happens(self.now, "error", f"error {number}")

    @rule(pod=st.sampled_from(PODS), node=st.sampled_from(NODES))
    def is_bound(self, pod: str, node: str) -> None:
        known = self.known[pod]
        if not known.ended:
            self._in_its_state(known)
            self.log.bound(known.uid, node, self.now)
            known.happens(self.now, "bound", node)
            known.ended = True

    @rule(pod=st.sampled_from(PODS))
    def goes(self, pod: str) -> None:
        known = self.known[pod]
        if not known.ended:
            self._in_its_state(known)
            known.happens(self.now, "gone")
        self.log.gone(known.uid, self.now)
        known.ended = True

    @invariant()
    def nothing_is_kept_of_pods_that_have_ended_and_have_successors(self) -> None:
        assert len(self.log) == len(self.known) + len(self.predecessors)

    @invariant()
    def every_path_is_complete_and_in_order(self) -> None:
        for pod, known in self.known.items():
            path = plain(self.log.path(pod))
            assert path is not None
            assert [_shown(step) for step in path["steps"]] == [
                (name, details, _wall(times[0]), _wall(times[-1]), len(times))
                for name, details, times in known.kept
            ]
            assert path["leftOut"] == len(known.steps) - len(known.kept)
            seconds = dict(known.seconds)
            if not known.ended:
                state = known.times.state
                seconds[state] = seconds.get(state, 0.0) + self.now - known.times.since
            assert path["seconds"] == {state: took for state, took in seconds.items() if took}

    @invariant()
    def the_last_decision_of_each_pod_is_kept(self) -> None:
        for pod, known in self.known.items():
            messages = [kept.message for kept in self.log.of(pod) if kept.message]
            assert messages[:1] in ([], known.decisions[-1:])


def _shown(step: dict[str, Any]) -> tuple[str, tuple[Any, ...], str, str, int]:
    names = ("plugins", "cause", "node", "victims")
    found = (step[name] for name in names if name in step)
    details = [item for value in found for item in (value if isinstance(value, list) else [value])]
    return step["step"], tuple(details), step["time"], step["until"], step["count"]


@cache
def _wall(seconds: float) -> str:
    log = DecisionLog(clock=lambda: 0.0, wall=lambda: 0.0)
    log.seen("a/b", Uid("u"), seconds)
    path = plain(log.path("a/b"))
    assert path is not None
    time: str = path["steps"][0]["time"]
    return time


TestRecord = Record.TestCase
TestRecord.settings = settings(max_examples=60, stateful_step_count=50)


def _memory_in_use() -> int:
    """Return the bytes that are in use, without what Python keeps to use again.

    It keeps some hundred KiB of freed tuples, floats and dicts, depending on the tests that ran
    before; only a full collection gives them back.
    """
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize(
    ("decisions", "steps", "name"), [(1, 1, 1), (1, 6, 60), (100_000, 6, 1), (7, 2, 250)]
)
def test_python_uses_no_more_memory_than_the_limit(
    decisions: int, steps: int, name: int, *, bound: bool
) -> None:
    """`decisions` is the number of different ones, `name` the length of the pods' names."""
    limit, pods = 2**19, 600
    tracemalloc.start()
    try:
        log = DecisionLog(limit=limit)
        before = _memory_in_use()
        for n in range(pods):
            pod = f"a/{n:0{name}}"
            uid = Uid(f"{n:036}")
            log.seen(pod, uid, float(n))
            for step in range(steps):
                message = f"decision {(n * steps + step) % decisions} {'x' * 300}"
                rejections = {f"n{step}": Rejection("Fit", ("full",), resolvable=True)}
                decision = Decision(
                    PodRef.of_key(pod), "p", None, None, (), None, rejections, message
                )
                keep(log, uid, decision, float(n), cause=f"cause {step}")
            if bound:
                log.bound(uid, f"n{n % 50}", float(n))
        used = _memory_in_use() - before
    finally:
        tracemalloc.stop()
    assert log.bytes <= limit
    assert used <= limit
    assert 50 < len(log) < pods
