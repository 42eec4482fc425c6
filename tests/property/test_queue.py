"""Whatever happens in whatever order, the queue neither loses a pod nor tries one for nothing."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod, Uid, parse_pod
from mooring.runtime.pipeline import Pipeline
from mooring.runtime.queued_pod import QueuedPod, SubQueue
from mooring.scheduling.queue.queue import SchedulingQueue
from mooring.testing import builders
from mooring.testing.fakes import pipeline

NAMES = ("a", "b", "c", "d")
SHAPES: tuple[dict[str, Any], ...] = ({"cpu": 1}, {"cpu": 1, "priority": 5})
PIPELINES = (pipeline(), pipeline())
PLUGINS = ("Fit", "Taints")
NODE_ADDED = ClusterEvent(Kind.NODE, Action.ADD, None, None)
TAINT_REMOVED = ClusterEvent(Kind.NODE, Action.UPDATE, None, None)
HELPS = {NODE_ADDED: frozenset(PLUGINS), TAINT_REMOVED: frozenset({"Taints"})}
TIMEOUT = 300.0

Sort = tuple[int, float]
Signature = tuple[Any, Pipeline, frozenset[str]]


class FakeHints:
    """Groups pods by spec, pipeline and plugins; `HELPS` says after which events they may pass."""

    def signature(self, queued: QueuedPod) -> Signature:
        return queued.pod.spec, queued.pipeline, queued.unschedulable_plugins

    def nominated_node(self, _queued: QueuedPod) -> str | None:
        return None

    def needs_no_hint(self, _queued: QueuedPod) -> bool:
        return False

    def is_admitted(self, _queued: QueuedPod) -> None:
        return None

    def is_worth_requeuing(self, queued: QueuedPod, event: ClusterEvent, **_: bool) -> bool:
        return bool(queued.unschedulable_plugins & HELPS[event])


@dataclass(eq=False)
class Known:
    """What the test knows of a pod, by the rules and not from the queue.

    `state` is free (to be tried at any time), gated, rejected, failed or flying (in flight); a
    rejected pod may be tried again if it is `moved`. `tries_for` are the pods that follow it.
    `missed` are the events during its attempt, `waiting` those since it was rejected; hints may
    have to run for them.
    """

    pod: Pod
    pipeline: Pipeline
    timestamp: float
    state: str = "free"
    moved: bool = False
    tries_for: Signature | None = None
    unschedulable_plugins: frozenset[str] = frozenset()
    unschedulable_count: int = 0
    consecutive_errors_count: int = 0
    backoff_expiration: float = 0.0
    attempt: QueuedPod | None = None
    outdated: bool = False
    gated: bool = False
    missed: list[ClusterEvent] = field(default_factory=list)
    waiting: list[ClusterEvent] = field(default_factory=list)

    @property
    def signature(self) -> Signature:
        return self.pod.spec, self.pipeline, self.unschedulable_plugins

    @property
    def sort(self) -> Sort:
        return -self.pod.spec.priority, self.timestamp

    def may_be_helped_by(self, events: Iterable[ClusterEvent]) -> bool:
        return any(self.unschedulable_plugins & HELPS[event] for event in events)

    def back_off(self, times: int, now: float) -> None:
        self.timestamp = now
        self.backoff_expiration = now + min(2.0 ** (times - 1), 10.0)

    def is_active(self, now: float) -> bool:
        waits = self.state == "failed" or (self.state == "rejected" and self.moved)
        return self.state == "free" or (waits and self.backoff_expiration <= now)


class QueueMachine(RuleBasedStateMachine):
    """Pods come, change, are tried and go, while the cluster changes and time passes."""

    namespaces: ClassVar[dict[str, str]] = dict.fromkeys(NAMES, "default")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.uids = 0
        self.known: dict[Uid, Known] = {}
        self.latest: dict[str, Uid] = {}
        """The pod that came last of each name."""
        self.queue = SchedulingQueue(FakeHints())

    def make_pod(self, name: str, spec: int, uid: str | None = None) -> Pod:
        self.uids += 1
        raw = builders.pod(name, namespace=self.namespaces[name], **SHAPES[spec])
        raw["metadata"]["uid"] = uid or str(self.uids)
        return parse_pod(raw)

    def queue_of(self, known: Known) -> SubQueue | None:
        queued = self.queue.get(known.pod.uid)
        assert queued is not None
        return queued.queue

    def sleeping(self) -> list[Known]:
        """Return unschedulable pods that nothing has moved."""
        return [k for k in self.known.values() if k.state == "rejected" and not k.moved]

    def one_is_moved(self, among: list[Known], signature: Signature) -> None:
        """Check that the queue has moved exactly one of these, which is tried for its group."""
        moving = [known for known in among if self.queue_of(known) is not SubQueue.UNSCHEDULABLE]
        assert len(moving) == 1
        moved = moving[0]
        moved.moved, moved.tries_for = True, signature

    def the_next_follows(self, known: Known) -> None:
        """Try the pod for its group no more; if a pod of the group is left, try that one."""
        signature, known.tries_for = known.tries_for, None
        left = [
            other
            for other in self.sleeping()
            if other is not known and other.signature == signature
        ]
        if left and signature is not None:
            self.one_is_moved(left, signature)

    @rule(
        name=st.sampled_from(NAMES),
        spec=st.integers(0, 1),
        profile=st.sampled_from((0, 0, 0, 1)),
        gated=st.booleans(),
    )
    def a_pod_appears_or_changes(
        self, name: str, spec: int, profile: int = 0, *, gated: bool
    ) -> None:
        latest, plugins = self.latest.get(name), PIPELINES[profile]
        known = self.known.get(latest) if latest is not None else None
        pod = self.make_pod(name, spec, known.pod.uid if known else None)
        self.queue.add(pod, plugins, self.now, gated=gated)
        if known is None:
            self.known[pod.uid] = Known(pod, plugins, self.now, "gated" if gated else "free")
            self.latest[name] = pod.uid
            return
        changed = pod.spec is not known.pod.spec or plugins is not known.pipeline
        known.gated = gated
        if known.state == "flying":
            known.outdated |= changed
        elif gated:
            known.state = "gated"
        elif known.state == "gated":
            known.state = "rejected" if known.backoff_expiration > self.now else "free"
            known.moved = True
        elif changed:
            known.moved = True
        if changed or gated:
            self.the_next_follows(known)
        known.pod, known.pipeline = pod, plugins

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def the_group_of_a_pod_changes(self, data: st.DataObject) -> None:
        """Change the group of a pod, which is as if the pod itself had changed."""
        known = self.known[data.draw(st.sampled_from(sorted(self.known)))]
        self.queue.try_again(known.pod.uid, self.now)
        if known.state == "flying":
            known.outdated = True
        elif known.state == "rejected":
            known.moved = True
        self.the_next_follows(known)

    @initialize(spec=st.integers(0, 1), data=st.data())
    def equal_pods_are_rejected(self, spec: int, data: st.DataObject) -> None:
        for name in NAMES:
            self.a_pod_appears_or_changes(name, spec, gated=False)
            self.the_first_is_tried()
            self.an_attempt_is_rejected(data, {PLUGINS[0]})

    @precondition(lambda self: self.known)
    @rule(data=st.data(), spec=st.integers(0, 1))
    def a_pod_comes_before_the_end_of_another_of_its_name(
        self, data: st.DataObject, spec: int
    ) -> None:
        name = self.known[data.draw(st.sampled_from(sorted(self.known)))].pod.name
        pod = self.make_pod(name, spec)
        self.queue.add(pod, PIPELINES[0], self.now)
        self.known[pod.uid] = Known(pod, PIPELINES[0], self.now)
        self.latest[name] = pod.uid

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def a_pod_is_deleted(self, data: st.DataObject) -> None:
        old = self.known.pop(data.draw(st.sampled_from(sorted(self.known))))
        self.queue.remove(old.pod.uid, self.now)
        self.the_next_follows(old)

    @rule()
    def the_first_is_tried(self) -> None:
        active = [known for known in self.known.values() if known.is_active(self.now)]
        moved = [
            known for known in self.known.values() if known.state == "rejected" and known.moved
        ]
        queued = self.queue.pop(self.now)
        if queued is None:
            assert not active
            assert not moved
            return
        known = self.known[queued.pod.uid]
        assert known in (active or moved)
        if active:
            self.is_first(known, active)
        known.state, known.attempt = "flying", queued
        known.moved, known.outdated, known.missed = False, False, []

    def is_first(self, known: Known, active: list[Known]) -> None:
        """Check that the pod is popped in the right order."""
        assert known.sort == min(other.sort for other in active)

    def landed(self, data: st.DataObject) -> tuple[Known, QueuedPod]:
        """Return some pod in flight, whose attempt ends now."""
        flying = sorted(uid for uid, known in self.known.items() if known.state == "flying")
        known = self.known[data.draw(st.sampled_from(flying))]
        assert known.attempt is not None
        return known, known.attempt

    def some_fly(self) -> bool:
        return any(known.state == "flying" for known in self.known.values())

    @precondition(some_fly)
    @rule(data=st.data(), plugins=st.sets(st.sampled_from(PLUGINS), min_size=1))
    def an_attempt_is_rejected(self, data: st.DataObject, plugins: set[str]) -> None:
        """Reject by the plugins of last time or by others; only the latter lets others try."""
        known, attempt = self.landed(data)
        self.queue.add_unschedulable(attempt, frozenset(plugins), self.now)
        known.state, known.unschedulable_plugins = "rejected", frozenset(plugins)
        known.unschedulable_count, known.consecutive_errors_count = known.unschedulable_count + 1, 0
        known.back_off(known.unschedulable_count, self.now)
        known.moved, known.waiting = known.outdated, []
        known.state = "gated" if known.gated else "rejected"
        if known.tries_for == known.signature:
            known.tries_for = None
        self.the_next_follows(known)

    @rule(data=st.data(), plugins=st.sets(st.sampled_from(PLUGINS), min_size=1))
    def an_event_has_a_pod_tried_for_others(self, data: st.DataObject, plugins: set[str]) -> None:
        """Try and reject a pod as soon as an event moves it, which is rare in a random order."""
        self.the_cluster_changes(NODE_ADDED)
        self.all_hints_run()
        self.the_first_is_tried()
        if self.some_fly():
            self.an_attempt_is_rejected(data, plugins)

    @precondition(some_fly)
    @rule(data=st.data())
    def an_attempt_fails(self, data: st.DataObject) -> None:
        known, attempt = self.landed(data)
        self.queue.add_after_error(attempt, self.now)
        known.state, known.consecutive_errors_count = "failed", known.consecutive_errors_count + 1
        known.back_off(known.consecutive_errors_count, self.now)
        known.state = "gated" if known.gated else "failed"
        self.the_next_follows(known)

    @precondition(some_fly)
    @rule(data=st.data())
    def a_pod_is_assumed(self, data: st.DataObject) -> None:
        known, attempt = self.landed(data)
        self.queue.assumed(attempt, self.now)
        self.the_next_follows(known)

    @precondition(some_fly)
    @rule(data=st.data())
    def a_pod_is_bound(self, data: st.DataObject) -> None:
        known, attempt = self.landed(data)
        self.queue.done(attempt, self.now)
        del self.known[known.pod.uid]
        self.the_next_follows(known)

    @rule(event=st.sampled_from(tuple(HELPS)))
    def the_cluster_changes(self, event: ClusterEvent) -> None:
        sleeping = self.sleeping()
        assert self.queue.move_on_events([event], self.now) == bool(sleeping)
        for known in sleeping:
            known.waiting.append(event)
        for known in self.known.values():
            if known.state == "flying":
                known.missed.append(event)

    @rule(number=st.integers(1, 5))
    def some_hints_run(self, number: int) -> None:
        """Run some hints; what they move had an event that helps, and stands for its group."""
        for _ in range(number):
            sleeping = self.sleeping()
            more = self.queue.run_hints(self.now)
            moved = [k for k in sleeping if self.queue_of(k) is not SubQueue.UNSCHEDULABLE]
            assert len(moved) <= 1
            for known in moved:
                self.is_moved_with_reason(known)
            if not more:
                assert not any(k.may_be_helped_by(k.missed + k.waiting) for k in sleeping)
                for known in sleeping:
                    known.missed, known.waiting = [], []

    def is_moved_with_reason(self, known: Known) -> None:
        known.moved = True
        if known.may_be_helped_by(known.missed):
            return
        assert known.may_be_helped_by(known.waiting)
        known.tries_for = known.signature
        for other in self.sleeping():
            if other.signature == known.signature:
                other.waiting = []

    @rule()
    def all_hints_run(self) -> None:
        """Run all hints: no pod sleeps although an event helps it, and none runs in vain."""
        waiting = sum(len(known.missed + known.waiting) for known in self.sleeping())
        self.some_hints_run(waiting + len(self.known) + 1)
        assert not self.queue.run_hints(self.now)

    @rule(seconds=st.sampled_from((0.25, 1.0, 4.0, 60.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(seconds=st.sampled_from((0.0, TIMEOUT)))
    def the_unschedulable_are_looked_through(self, seconds: float) -> None:
        self.now += seconds
        late = [known for known in self.sleeping() if self.now - known.timestamp >= TIMEOUT]
        assert self.queue.flush_unschedulable(self.now) == len(late)
        for known in late:
            known.moved, known.tries_for = True, known.signature

    @invariant()
    def every_pod_is_in_one_place(self) -> None:
        waiting = {q.pod.uid: q for q in self.queue if q.queue is not None}
        flying = {uid for uid, known in self.known.items() if known.state == "flying"}
        assert waiting.keys() | flying == self.known.keys()
        assert not waiting.keys() & flying
        counted = Counter(queued.queue for queued in waiting.values())
        assert self.queue.counts() == {part.value: counted[part] for part in SubQueue}

    @invariant()
    def the_times_of_a_pod_know_its_queue_and_miss_no_time(self) -> None:
        for queued in self.queue:
            state = queued.queue.value if queued.queue is not None else "in flight"
            assert queued.times.state == state
            times = queued.times
            assert sum(times.seconds(self.now).values()) == pytest.approx(self.now - times.began)

    @invariant()
    def unschedulable_pods_are_counted_as_a_recount_would(self) -> None:
        recount = Counter(
            (plugin, queued.pipeline.profile)
            for queued in self.queue
            if queued.queue is SubQueue.UNSCHEDULABLE
            for plugin in queued.unschedulable_plugins
        )
        assert self.queue.unschedulable_counts() == recount

    @invariant()
    def a_pod_sleeps_unless_there_is_a_reason_to_try_it(self) -> None:
        for known in self.known.values():
            asleep = known.state == "rejected" and not known.moved
            assert (self.queue_of(known) is SubQueue.UNSCHEDULABLE) == asleep
            assert (self.queue_of(known) is SubQueue.GATED) == (known.state == "gated")

    @invariant()
    def an_error_is_due_no_later_than_its_backoff_ends(self) -> None:
        due = self.queue.next_due()
        failed = [
            known.backoff_expiration for known in self.known.values() if known.state == "failed"
        ]
        backing_off = [time for time in failed if time > self.now]
        assert not backing_off or (due is not None and due <= min(backing_off))

    def teardown(self) -> None:
        """Check that all pods are soon bound when an event helps every pod.

        Some fail or are deleted on the way.
        """
        for known in self.known.values():
            if known.state == "flying" and known.attempt is not None:
                self.queue.add_unschedulable(known.attempt, frozenset(PLUGINS), self.now)
        self.queue.move_on_events([NODE_ADDED], self.now)
        while self.queue.run_hints(self.now):
            pass
        misfortunes = ["fails", "", "is deleted", "fails"]
        seconds = 0
        while any(queued.queue is not SubQueue.GATED for queued in self.queue):
            self.now, seconds = self.now + 1.0, seconds + 1
            assert seconds < 60, "some pod is lost"
            while (queued := self.queue.pop(self.now)) is not None:
                match misfortunes.pop() if misfortunes else "":
                    case "fails":
                        self.queue.add_after_error(queued, self.now)
                    case "is deleted":
                        self.queue.remove(queued.pod.uid, self.now)
                    case _:
                        self.queue.assumed(queued, self.now)
                        self.queue.done(queued, self.now)


class TurnsMachine(QueueMachine):
    """The same where namespaces take turns."""

    namespaces: ClassVar[dict[str, str]] = {"a": "x", "b": "x", "c": "x", "d": "y"}

    def __init__(self) -> None:
        super().__init__()
        self.queue = SchedulingQueue(FakeHints(), namespaces_take_turns=True)
        self.passed_over: Counter[str] = Counter()

    def is_first(self, known: Known, active: list[Known]) -> None:
        """Check that the pod is the first of its namespace and priority.

        No other namespace is passed over twice.
        """
        priority = max(other.pod.spec.priority for other in active)
        equals = [other for other in active if other.pod.spec.priority == priority]
        own = [other for other in equals if other.pod.namespace == known.pod.namespace]
        assert known.sort == min(other.sort for other in own)
        waiting = {f"{other.pod.namespace} {priority}" for other in equals if other not in own}
        self.passed_over = Counter({key: self.passed_over[key] + 1 for key in waiting})
        assert not self.passed_over or max(self.passed_over.values()) == 1


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
TestTurns = TurnsMachine.TestCase
TestTurns.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
