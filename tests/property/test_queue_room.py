"""Pods wait for room that comes and goes: none sleeps that fits, none is tried in vain."""

from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mooring.model.events import Action, ClusterEvent, Kind
from mooring.model.pod import Pod, parse_pod
from mooring.runtime.queued_pod import QueuedPod, SubQueue
from mooring.scheduling.queue.queue import SchedulingQueue
from mooring.testing import builders
from mooring.testing.fakes import pipeline

NODES: Final = ("n1", "n2")
CPUS: Final = 3
PIPELINE: Final = pipeline()


def cpus_of(pod: Pod) -> int:
    return pod.spec.demand.resources["cpu"] // 1000


class RoomHints:
    """A pod that has gone helps those that its node has room for now."""

    def __init__(self) -> None:
        self.free = dict.fromkeys(NODES, CPUS)

    def signature(self, queued: QueuedPod) -> object:
        return queued.pod.spec, queued.unschedulable_plugins

    def nominated_node(self, _queued: QueuedPod) -> str | None:
        return None

    def needs_no_hint(self, _queued: QueuedPod) -> bool:
        return False

    def is_admitted(self, queued: QueuedPod) -> bool | None:
        """Filters rejected the pods of two CPUs; other pods were rejected for all nodes at once."""
        cpus = cpus_of(queued.pod)
        return None if cpus == 2 else any(cpus <= free for free in self.free.values())

    def is_worth_requeuing(self, queued: QueuedPod, event: ClusterEvent, **_: bool) -> bool:
        gone = event.before
        return isinstance(gone, Pod) and cpus_of(queued.pod) <= self.free[gone.node_name or ""]


class RoomMachine(RuleBasedStateMachine):
    """Pods of one to three CPUs come and go, of which several have the same requests."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.uids = 0
        self.hints = RoomHints()
        self.queue = SchedulingQueue(self.hints)
        self.there: list[Pod] = []
        self.flying: list[tuple[QueuedPod, str | None]] = []
        """Pods in flight, with the node on which each is assumed; None if it was rejected."""

    def make_pod(self, cpus: int, node: str | None = None) -> Pod:
        self.uids += 1
        return parse_pod(builders.pod(f"p{self.uids}", cpu=str(cpus), node=node))

    def fitting(self, pod: Pod) -> str | None:
        return next((n for n in NODES if cpus_of(pod) <= self.hints.free[n]), None)

    def frees(self, pod: Pod, node: str) -> None:
        self.hints.free[node] += cpus_of(pod)
        gone = self.make_pod(cpus_of(pod), node)
        self.queue.move_on_events([ClusterEvent(Kind.POD, Action.DELETE, gone, None)], self.now)

    @rule(cpus=st.integers(1, CPUS))
    def a_pod_comes(self, cpus: int) -> None:
        self.queue.add(self.make_pod(cpus), PIPELINE, self.now)

    @rule(node=st.sampled_from(NODES), cpus=st.integers(1, CPUS))
    def another_scheduler_takes_room(self, node: str, cpus: int) -> None:
        if cpus <= self.hints.free[node]:
            self.hints.free[node] -= cpus
            self.there.append(self.make_pod(cpus, node))
            added = ClusterEvent(Kind.POD, Action.ADD, None, self.there[-1])
            self.queue.move_on_events([added], self.now)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def a_pod_ends(self, data: st.DataObject) -> None:
        pod = self.there.pop(data.draw(st.integers(0, len(self.there) - 1)))
        self.frees(pod, pod.node_name or "")

    @precondition(lambda self: len(self.there) > 1)
    @rule(data=st.data())
    def room_is_taken_and_comes_elsewhere(self, data: st.DataObject) -> None:
        """Take the room before a pod that was moved for it is tried, which is rare otherwise."""
        pod = self.there[data.draw(st.integers(0, len(self.there) - 1))]
        self.there.remove(pod)
        node = pod.node_name or ""
        self.frees(pod, node)
        self.some_hints_run(4)
        self.another_scheduler_takes_room(node, self.hints.free[node])
        self.there.insert(0, self.there.pop())
        self.a_pod_ends(data)

    @initialize()
    def the_nodes_are_full_and_pods_wait(self) -> None:
        for node in NODES:
            self.another_scheduler_takes_room(node, CPUS)
        for cpus in (CPUS, 1):
            self.a_pod_comes(cpus)
            self.the_first_is_tried()
        while self.flying:
            self.ends(*self.flying.pop(), fails=False)

    @rule(number=st.integers(1, 4))
    def some_hints_run(self, number: int) -> None:
        for _ in range(number):
            self.queue.run_hints(self.now)

    @rule()
    def the_first_is_tried(self) -> None:
        """Begin an attempt: a pod that only a hint has moved fits where it has said so."""
        queued = self.queue.pop(self.now)
        if queued is None:
            return
        node = self.fitting(queued.pod)
        assert node is not None or queued.moved_at is None
        if node is not None:
            self.hints.free[node] -= cpus_of(queued.pod)
            self.queue.assumed(queued, self.now)
        self.flying.append((queued, node))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), fails=st.booleans())
    def an_attempt_ends(self, data: st.DataObject, *, fails: bool) -> None:
        index = data.draw(st.integers(0, len(self.flying) - 1))
        self.ends(*self.flying.pop(index), fails=fails)

    def ends(self, queued: QueuedPod, node: str | None, *, fails: bool) -> None:
        if node is None:
            self.queue.add_unschedulable(queued, frozenset({"Fit"}), self.now)
        elif fails:
            self.frees(queued.pod, node)
            self.queue.add_after_error(queued, self.now)
        else:
            self.there.append(self.make_pod(cpus_of(queued.pod), node))
            self.queue.done(queued, self.now)

    @rule(seconds=st.sampled_from((0.25, 1.0, 60.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: any(q.queue is not None for q in self.queue))
    @rule(data=st.data())
    def a_waiting_pod_is_deleted(self, data: st.DataObject) -> None:
        waiting = sorted(q.pod.uid for q in self.queue if q.queue is not None)
        self.queue.remove(data.draw(st.sampled_from(waiting)), self.now)

    @rule()
    def all_comes_to_rest(self) -> None:
        """Check that no pod sleeps then that a node has room for."""
        while self.flying or self.queue.run_hints(self.now) or self.queue.has_next:
            self.the_first_is_tried()
            while self.flying:
                self.ends(*self.flying.pop(), fails=False)
            self.now += 1.0
        assert all(queued.queue is SubQueue.UNSCHEDULABLE for queued in self.queue)
        assert [q.pod.key for q in self.queue if self.fitting(q.pod) is not None] == []

    def teardown(self) -> None:
        """Check it at the end of every history."""
        self.all_comes_to_rest()


TestRoom = RoomMachine.TestCase
TestRoom.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
