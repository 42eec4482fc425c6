"""Whatever happens in whatever order, the queue neither forgets a pod nor tries one for nothing."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mooring.framework.queued_pod import QueuedPod, SubQueue
from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod, parse_pod
from mooring.queueing.active import Order
from mooring.queueing.queue import SchedulingQueue
from mooring.testing import builders

NAMES = ("a", "b", "c", "d")
SHAPES: tuple[dict[str, Any], ...] = ({"cpu": 1}, {"cpu": 1, "priority": 5})
PLUGINS = ("Fit", "Taints")
NODE_ADDED = ClusterEvent(Kind.NODE, Action.ADD, None, None)
TAINT_REMOVED = ClusterEvent(Kind.NODE, Action.UPDATE, None, None)
CURED_BY = {NODE_ADDED: frozenset(PLUGINS), TAINT_REMOVED: frozenset({"Taints"})}
TIMEOUT = 300.0

Sort = tuple[int, float]
Kin = tuple[Any, frozenset[str]]


def order(queued: QueuedPod) -> Order:
    return Order("", (-queued.pod.shape.priority, queued.since))


def signature(queued: QueuedPod) -> Kin:
    return queued.pod.shape, queued.unschedulable_plugins


def queueing_hint(queued: QueuedPod, event: ClusterEvent) -> bool:
    return bool(queued.unschedulable_plugins & CURED_BY[event])


@dataclass(eq=False)
class Known:
    """What the test knows of a pod, by the rules and not from the queue.

    `state` is free (to be tried at any time), gated, rejected, failed or flying (in flight); a
    rejected pod may be tried again if it is `woken`. `tries_for` are the pods that follow it.
    """

    pod: Pod
    since: float
    state: str = "free"
    woken: bool = False
    tries_for: Kin | None = None
    unschedulable_plugins: frozenset[str] = frozenset()
    unschedulable_count: int = 0
    error_count: int = 0
    not_before: float = 0.0
    attempt: QueuedPod | None = None
    outdated: bool = False
    missed: list[ClusterEvent] = field(default_factory=list)

    @property
    def kin(self) -> Kin:
        return self.pod.shape, self.unschedulable_plugins

    @property
    def sort(self) -> Sort:
        return -self.pod.shape.priority, self.since

    def may_be_cured_by(self, events: Iterable[ClusterEvent]) -> bool:
        return any(self.unschedulable_plugins & CURED_BY[event] for event in events)

    def back_off(self, times: int, now: float) -> None:
        self.since = now
        self.not_before = now + min(2.0 ** (times - 1), 10.0)

    def is_active(self, now: float) -> bool:
        waits = self.state == "failed" or (self.state == "rejected" and self.woken)
        return self.state == "free" or (waits and self.not_before <= now)


class QueueMachine(RuleBasedStateMachine):
    """Pods come, change, are tried and go, while the cluster changes and time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.uids = 0
        self.known: dict[str, Known] = {}
        self.queue = SchedulingQueue(order, signature, queueing_hint)

    def make_pod(self, name: str, shape: int, uid: str | None = None) -> Pod:
        self.uids += 1
        raw = builders.pod(name, **SHAPES[shape])
        raw["metadata"]["uid"] = uid or str(self.uids)
        return parse_pod(raw)

    def part(self, known: Known) -> SubQueue | None:
        queued = self.queue.get(known.pod.key)
        assert queued is not None
        return queued.part

    def sleeping(self) -> list[Known]:
        """Refused pods that nothing has woken."""
        return [k for k in self.known.values() if k.state == "rejected" and not k.woken]

    def one_wakes(self, among: list[Known], kin: Kin) -> None:
        """Exactly one of these has been woken by the queue, and now tries for its kin."""
        [woken] = [known for known in among if self.part(known) is not SubQueue.UNSCHEDULABLE]
        woken.woken, woken.tries_for = True, kin

    def the_next_follows(self, known: Known) -> None:
        """The pod tries for its kin no more; if one of them is left, that one does."""
        kin, known.tries_for = known.tries_for, None
        left = [other for other in self.sleeping() if other is not known and other.kin == kin]
        if left and kin is not None:
            self.one_wakes(left, kin)

    @rule(name=st.sampled_from(NAMES), shape=st.integers(0, 1), gated=st.booleans())
    def a_pod_appears_or_changes(self, name: str, shape: int, *, gated: bool) -> None:
        known = self.known.get(f"default/{name}")
        pod = self.make_pod(name, shape, known.pod.uid if known else None)
        self.queue.add(pod, self.now, gated=gated)
        if known is None:
            self.known[pod.key] = Known(pod, self.now, "gated" if gated else "free")
            return
        changed = pod.shape is not known.pod.shape
        if known.state == "flying":
            known.outdated |= changed
        elif gated:
            known.state = "gated"
        elif known.state == "gated":
            known.state = "rejected" if known.not_before > self.now else "free"
            known.woken = True
        elif changed:
            known.woken = True
        if changed or gated:
            self.the_next_follows(known)
        known.pod = pod

    @initialize(shape=st.integers(0, 1), data=st.data())
    def equal_pods_are_refused(self, shape: int, data: st.DataObject) -> None:
        for name in NAMES:
            self.a_pod_appears_or_changes(name, shape, gated=False)
            self.the_first_is_tried()
            self.an_attempt_is_refused(data, PLUGINS[0])

    @precondition(lambda self: self.known)
    @rule(data=st.data(), shape=st.integers(0, 1))
    def a_pod_is_replaced_by_another_of_its_name(self, data: st.DataObject, shape: int) -> None:
        old = self.known.pop(data.draw(st.sampled_from(sorted(self.known))))
        pod = self.make_pod(old.pod.name, shape)
        self.queue.add(pod, self.now)
        self.the_next_follows(old)
        self.known[pod.key] = Known(pod, self.now)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def a_pod_is_deleted(self, data: st.DataObject) -> None:
        old = self.known.pop(data.draw(st.sampled_from(sorted(self.known))))
        self.queue.remove(old.pod.key, self.now)
        self.the_next_follows(old)

    @rule()
    def the_first_is_tried(self) -> None:
        active = [known for known in self.known.values() if known.is_active(self.now)]
        woken = [
            known for known in self.known.values() if known.state == "rejected" and known.woken
        ]
        queued = self.queue.pop(self.now)
        if queued is None:
            assert not active
            assert not woken
            return
        known = self.known[queued.pod.key]
        assert known in (active or woken)
        assert not active or known.sort == min(other.sort for other in active)
        known.state, known.attempt = "flying", queued
        known.woken, known.outdated, known.missed = False, False, []

    def landed(self, data: st.DataObject) -> tuple[Known, QueuedPod]:
        """Some pod in flight, whose attempt ends now."""
        flying = sorted(key for key, known in self.known.items() if known.state == "flying")
        known = self.known[data.draw(st.sampled_from(flying))]
        assert known.attempt is not None
        return known, known.attempt

    def some_fly(self) -> bool:
        return any(known.state == "flying" for known in self.known.values())

    @precondition(some_fly)
    @rule(data=st.data(), plugin=st.sampled_from(PLUGINS))
    def an_attempt_is_refused(self, data: st.DataObject, plugin: str) -> None:
        known, attempt = self.landed(data)
        self.queue.rejected(attempt, frozenset((plugin,)), self.now)
        known.state, known.unschedulable_plugins, known.tries_for = (
            "rejected",
            frozenset((plugin,)),
            None,
        )
        known.unschedulable_count, known.error_count = known.unschedulable_count + 1, 0
        known.back_off(known.unschedulable_count, self.now)
        known.woken = known.outdated or known.may_be_cured_by(known.missed)

    @precondition(some_fly)
    @rule(data=st.data())
    def an_attempt_fails(self, data: st.DataObject) -> None:
        known, attempt = self.landed(data)
        self.queue.failed(attempt, self.now)
        known.state, known.error_count = "failed", known.error_count + 1
        known.back_off(known.error_count, self.now)
        self.the_next_follows(known)

    @precondition(some_fly)
    @rule(data=st.data())
    def a_place_is_found(self, data: st.DataObject) -> None:
        known, attempt = self.landed(data)
        self.queue.placed(attempt, self.now)
        self.the_next_follows(known)

    @precondition(some_fly)
    @rule(data=st.data())
    def a_pod_is_bound(self, data: st.DataObject) -> None:
        known, attempt = self.landed(data)
        self.queue.done(attempt, self.now)
        del self.known[known.pod.key]
        self.the_next_follows(known)

    @rule(event=st.sampled_from(tuple(CURED_BY)))
    def the_cluster_changes(self, event: ClusterEvent) -> None:
        sleeping = [known for known in self.sleeping() if known.may_be_cured_by([event])]
        assert self.queue.changed([event], self.now) == bool(sleeping)
        for kin in {known.kin for known in sleeping}:
            self.one_wakes([known for known in sleeping if known.kin == kin], kin)
        for known in self.known.values():
            known.missed.append(event)

    @rule()
    def the_policy_changes(self) -> None:
        self.queue.policy_changed(self.now)
        for known in self.known.values():
            known.woken, known.outdated = True, True

    @rule(seconds=st.sampled_from((0.25, 1.0, 4.0, 60.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(seconds=st.sampled_from((0.0, TIMEOUT)))
    def the_unschedulable_are_looked_through(self, seconds: float) -> None:
        self.now += seconds
        late = [known for known in self.sleeping() if self.now - known.since >= TIMEOUT]
        assert self.queue.flush_unschedulable(self.now) == bool(late)
        for known in late:
            known.woken, known.tries_for = True, known.kin

    @invariant()
    def every_pod_is_in_one_place(self) -> None:
        waiting = {queued.pod.key: queued for queued in self.queue.waiting()}
        flying = {key for key, known in self.known.items() if known.state == "flying"}
        assert waiting.keys() | flying == self.known.keys()
        assert not waiting.keys() & flying
        counted = Counter(queued.part for queued in waiting.values())
        assert self.queue.counts() == {part.value: counted[part] for part in SubQueue}

    @invariant()
    def unschedulable_pods_are_counted_as_a_recount_would(self) -> None:
        recount = Counter(
            (plugin, queued.profile)
            for queued in self.queue.waiting()
            if queued.part is SubQueue.UNSCHEDULABLE
            for plugin in queued.unschedulable_plugins
        )
        assert self.queue.unschedulable_counts() == recount

    @invariant()
    def a_pod_sleeps_unless_there_is_a_reason_to_try_it(self) -> None:
        for known in self.known.values():
            asleep = known.state == "rejected" and not known.woken
            assert (self.part(known) is SubQueue.UNSCHEDULABLE) == asleep
            assert (self.part(known) is SubQueue.GATED) == (known.state == "gated")

    @invariant()
    def an_error_is_due_no_later_than_its_backoff_ends(self) -> None:
        due = self.queue.next_due()
        failed = [known.not_before for known in self.known.values() if known.state == "failed"]
        backing_off = [time for time in failed if time > self.now]
        assert not backing_off or (due is not None and due <= min(backing_off))

    def teardown(self) -> None:
        """All that is wrong is cured: every pod is soon bound, though some fail or are deleted."""
        for known in self.known.values():
            if known.state == "flying" and known.attempt is not None:
                self.queue.rejected(known.attempt, frozenset(PLUGINS), self.now)
        self.queue.changed([NODE_ADDED], self.now)
        misfortunes = ["fails", "", "is deleted", "fails"]
        seconds = 0
        while any(queued.part is not SubQueue.GATED for queued in self.queue.waiting()):
            self.now, seconds = self.now + 1.0, seconds + 1
            assert seconds < 60, "some pod is forgotten"
            while (queued := self.queue.pop(self.now)) is not None:
                match misfortunes.pop() if misfortunes else "":
                    case "fails":
                        self.queue.failed(queued, self.now)
                    case "is deleted":
                        self.queue.remove(queued.pod.key, self.now)
                    case _:
                        self.queue.placed(queued, self.now)
                        self.queue.done(queued, self.now)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=250, stateful_step_count=50, deadline=None)
