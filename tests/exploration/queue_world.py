"""The queue in a small world: each attempt begins and ends when the explorer says.

The queue, its hints, the pod enqueuer, the state and the decisions are the program's own. The loop
is not here: an attempt takes long, so that everything may happen in the middle of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from exploration.explorer import Action, Broken
from exploration.fingerprint import Fingerprint, attributes
from exploration.small_cluster import REGISTRY, SmallCluster, Stored, StoredNode
from mooring.engine.assumed import AssumedPod, assume_reserve_and_permit
from mooring.engine.build import Options, build_scheduler_state
from mooring.engine.cycle import decide
from mooring.engine.outcome import FitError, ScheduleResult
from mooring.engine.result_cache import ResultCache
from mooring.framework.queued_pod import QueuedPod, SubQueue
from mooring.model.pod import Uid
from mooring.queueing.queue import UNSCHEDULABLE_TIMEOUT
from mooring.state.cluster import ClusterState
from mooring.testing.fakes import FakeApi
from scheduler_states import silent_pod_enqueuer

__all__ = ["QueueWorld"]

_ONE_BACKOFF: Final = Options(initial_backoff=1.0, max_backoff=1.0, most_per_attempt=None)
"""Each backoff takes as long, so that how often a pod was tried makes no different states."""


@dataclass(eq=False)
class _Attempt:
    """An attempt that has decided: the pod is `assumed`, or these plugins `rejected` it."""

    queued: QueuedPod
    rejected: frozenset[str]
    assumed: AssumedPod | None = None
    bound: bool = False
    """Whether the server has bound it, and the answer is on its way."""


class QueueWorld(SmallCluster):
    """Pods a and b are equal and wait from the beginning; c, which is larger, may come later.

    n0 has so many CPUs (`cpu`), and n1, which takes two pods, may come later. `pods` and `nodes`
    say how many there may be, and `events` how many of them have an event.
    """

    def __init__(self, pods: int = 3, nodes: int = 2, events: int = 1, *, cpu: int = 1) -> None:
        waiting = [Stored(name, 0, 1) for name in "ab"[:pods]]
        super().__init__(waiting, [StoredNode("n0", cpu)], events)
        self.largest = 2
        self.befallen = {"c"} if pods < 3 else set()
        self.befallen |= {"n1"} if nodes < 2 else set()
        self.now = 1000.0
        self.attempts: dict[int, _Attempt] = {}
        self._number = 0
        state = ClusterState()
        self.scheduler = build_scheduler_state(state, FakeApi(), REGISTRY, options=_ONE_BACKOFF)
        self.put_profile()
        self.enqueuer = silent_pod_enqueuer(self.scheduler, lambda: self.now)
        state.on_events(self.enqueuer.on_events)
        self._cache = ResultCache(state.nodes)
        self.flushed = False
        for node in tuple(self.nodes.values()):
            self.put_node(node)
        for each in waiting:
            self.create(each)

    def tell_pending(self, what: str, tell: Callable[[], object]) -> None:  # noqa: ARG002 - at once
        """Have kopf tell at once."""
        tell()

    tell_assigned = tell_pending

    def close(self) -> None:
        """Do nothing: nothing runs."""

    # What may happen

    def actions(self) -> list[Action]:
        """Return all that may happen now."""
        queue = self.scheduler.queue
        found = [*self._ends(), *self.events_that_may_come()]
        counts = queue.counts()
        if counts[SubQueue.ACTIVE] or counts[SubQueue.BACKOFF]:
            found.append(Action("the next attempt begins", "attempt_begins", own=True))
        if self.has_hints:
            found.append(Action("a hint runs", "hint_runs", own=True))
        if self._backoffs():
            found.append(Action("a backoff ends", "backoff_ends", own=True))
        if counts[SubQueue.UNSCHEDULABLE] and not self.flushed:
            found.append(Action("five minutes pass", "five_minutes_pass"))
        return found

    def _ends(self) -> list[Action]:
        found = list[Action]()
        for number, attempt in self.attempts.items():
            uid = attempt.queued.pod.uid
            about = f"the attempt about {uid}"
            if attempt.assumed is None:
                words = f"{about} ends: it is unschedulable"
                found.append(Action(words, "rejected", (number,), own=True))
            elif attempt.bound:
                found.append(Action(f"{about} ends: it is bound", "answered", (number,), own=True))
            elif self._is_bindable(uid):
                found.append(Action(f"{uid} is bound", "server_binds", (number,), own=True))
            else:
                words = f"{about} ends: the Binding is refused"
                found.append(Action(words, "refused", (number,), own=True))
            if self.events and not attempt.bound:
                found.append(Action(f"{about} ends in an error", "fails", (number,)))
        return found

    def _is_bindable(self, uid: Uid) -> bool:
        return any(each.uid == uid and each.node is None for each in self.pods.values())

    def _is_over(self, queued: QueuedPod) -> bool:
        return queued.queue is SubQueue.BACKOFF and queued.backoff_expiration <= self.now

    def _backoffs(self) -> list[float]:
        waiting = (q for q in self.scheduler.queue if q.queue is SubQueue.BACKOFF)
        return [q.backoff_expiration for q in waiting if q.backoff_expiration > self.now]

    @property
    def has_hints(self) -> bool:
        """Whether hints are to be run."""
        waiting: bool = attributes(self.scheduler.queue)["_unschedulable"].has_hints_to_run()
        return waiting

    # What happens

    def take(self, action: Action) -> None:
        """Have it happen; the loop asks for hints in each turn, and drops old events then."""
        getattr(self, action.method)(*action.args)
        if not self.has_hints:
            self.scheduler.queue.run_hints(self.now)

    def attempt_begins(self) -> None:
        """Pop a pod and decide about it; it is assumed if some node takes it."""
        scheduler = self.scheduler
        due = [q for q in scheduler.queue if q.queue is SubQueue.ACTIVE or self._is_over(q)]
        queued = scheduler.queue.pop(self.now)
        if queued is None:
            if due:
                raise Broken(f"pod {due[0].pod.uid} may be tried, and none is popped")
            return
        if scheduler.cluster.is_placed(queued.pod):
            scheduler.queue.done(queued, self.now)
            return
        outcome = decide(queued.pod, queued.pipeline, scheduler.cluster, self._cache, seed=0)
        self._number += 1
        if isinstance(outcome, FitError):
            self.attempts[self._number] = _Attempt(queued, outcome.diagnosis.plugins)
            return
        if not isinstance(outcome, ScheduleResult):
            raise TypeError(outcome)
        assumed = assume_reserve_and_permit(
            queued, outcome.row, queued.pipeline, scheduler, now=self.now
        )
        self.attempts[self._number] = _Attempt(queued, frozenset(), assumed)
        scheduler.queue.assumed(queued, self.now)

    def rejected(self, number: int) -> None:
        """End the attempt about a pod that fits nowhere."""
        attempt = self.attempts.pop(number)
        self.scheduler.queue.add_unschedulable(attempt.queued, attempt.rejected, self.now)

    def fails(self, number: int) -> None:
        """End the attempt in an error, as a plugin or the API server may have it."""
        self.events -= 1
        attempt = self.attempts.pop(number)
        if attempt.assumed is not None:
            attempt.assumed.undo.close()
        self.scheduler.queue.add_after_error(attempt.queued, self.now)

    def server_binds(self, number: int) -> None:
        """Have the server bind the pod, of which the watches tell before the answer comes."""
        attempt = self.attempts[number]
        assert attempt.assumed is not None
        attempt.bound = True
        self.bind(attempt.queued.pod.name, attempt.assumed.node)

    def answered(self, number: int) -> None:
        """End the attempt about a pod that is bound."""
        attempt = self.attempts.pop(number)
        assert attempt.assumed is not None
        attempt.assumed.undo.pop_all()
        self.scheduler.state.expect_confirmation(attempt.assumed.pod, self.now + 60)
        self.scheduler.queue.done(attempt.queued, self.now)

    def refused(self, number: int) -> None:
        """End the attempt about a pod that is gone, or bound by another scheduler."""
        attempt = self.attempts.pop(number)
        assert attempt.assumed is not None
        attempt.assumed.undo.close()
        if any(each.uid == attempt.queued.pod.uid for each in self.pods.values()):
            self.scheduler.queue.add_after_error(attempt.queued, self.now)
        else:
            self.scheduler.queue.done(attempt.queued, self.now)

    def hint_runs(self) -> None:
        """Run the hints of one pod for one event."""
        self.scheduler.queue.run_hints(self.now)

    def backoff_ends(self) -> None:
        """Have time pass until the next backoff ends."""
        self.now = min(self._backoffs())

    def five_minutes_pass(self) -> None:
        """Have time pass, and flush the queue, as housekeeping does."""
        self.flushed = True
        self.now += UNSCHEDULABLE_TIMEOUT
        self.enqueuer.flush()

    # What is true

    @property
    def at_rest(self) -> bool:
        """Whether no pod is tried and none will be until something happens."""
        counts = self.scheduler.queue.counts()
        busy = counts[SubQueue.ACTIVE] or counts[SubQueue.BACKOFF]
        return not (busy or self.attempts or self.has_hints)

    def fingerprint(self) -> bytes:
        """Return what is equal for states from which the same can follow.

        The state of the cluster follows from the pods that are on nodes and from the nodes, in the
        order of their rows, as tests/property shows. A result in a cache is what would be computed.
        """
        seen, state = Fingerprint(self.scheduler.queue, self.now), self.scheduler.state
        placed = [(p.pod.uid, p.row, p.assumed, p.announced) for p in state.pods]
        attempts = [
            (a.queued, a.rejected, a.bound, a.assumed and a.assumed.node)
            for a in self.attempts.values()
        ]
        stored = [(s.uid, s.node, s.label) for s in self.pods.values()]
        nodes = [(n.name, n.cpu, n.cordoned) for n in self.nodes.values()]
        rows = sorted(state.nodes.row_of.items())
        rest = self.events, self.flushed, self.others_bind, sorted(self.befallen)
        return seen.digest(self.scheduler.queue, placed, attempts, stored, nodes, rows, rest)

    def check(self) -> None:
        """Check all rules."""
        trying = {attempt.queued.pod.uid for attempt in self.attempts.values()}
        self.check_places(trying)
        self.check_books()
        bound = {a.queued.pod.uid for a in self.attempts.values() if a.assumed is not None}
        self.check_gone(bound)
        state = self.scheduler.state
        for placed in state.pods:
            if placed.assumed and placed.pod.uid not in bound:
                raise Broken(f"pod {placed.pod.uid} is assumed, and nobody binds it")
        if self.at_rest:
            self.check_nobody_sleeps()
