"""The scheduling queue (backend/queue/scheduling_queue.go).

    add --> active --pop--> in flight --done--> (bound or deleted)
      |       ^  ^              |
      |       |  |              +--add_after_error--> backoff --time--> active
      |       |  |              |
      |       |  |              +--add_unschedulable--> unschedulable
      |       |  |                                            |
      |       |  +-- backoff <--event during its backoff------+
      |       +--event later, or time (retry_at, 5 minutes)---+
      +--> gated --no gate left--> active

A pod's backoff is one second after its first unschedulable attempt. Each further attempt doubles
it, up to ten seconds. If no pod is active, pods in backoff may be popped early, except after an
error or a failed preemption (SchedulerPopFromBackoffQ).

Plugins without a filter, for example those for quota, reject a pod for all nodes at once. If only
such plugins rejected a pod, it stays unschedulable during its backoff. The backoff ends when the
plugins would admit the pod after an event.

To retry a pod means to move it to the active queue, or to backoff if its backoff has not ended. A
pod that a PreEnqueue plugin rejects becomes gated instead.

The same events may help all unschedulable pods with equal signatures. So an event moves only one of
these pods, which represents the others, and the pods that are nominated to the event's node. If the
representative is rejected with an equal signature, the others stay unschedulable. Otherwise the
next of them is moved, and represents the rest.

Other pods may take the free resources before a moved pod is popped. So its queueing hints run again
before its attempt, for that event and all later events. If all hints return SKIP, the pod usually
returns to the unschedulable pods (`_may_fit`).

`move_on_events` only keeps events. The scheduling loop runs the hints later, a few at a time.

A pod is in exactly one queue or in flight. Times are seconds on the caller's monotonic clock.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING, Final

from mooring.model.events import Action, ClusterEvent, Kind, event_label
from mooring.model.names import Names
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.quota.state.queues import Queues
from mooring.runtime.queued_pod import PodState, QueuedPod, StateTimes, SubQueue
from mooring.scheduling.queue.active import ActivePods, ActivePodsByNamespace
from mooring.scheduling.queue.borrowers import ActivePodsWithBorrowers
from mooring.scheduling.queue.heap import PodHeap
from mooring.scheduling.queue.in_flight import InFlight
from mooring.scheduling.queue.kept_events import EventLog
from mooring.scheduling.queue.unschedulable import Hints, UnschedulablePods

if TYPE_CHECKING:
    from mooring.runtime.pipeline import Pipeline


UNSCHEDULABLE_TIMEOUT: Final = 300.0
_MOST_FLUSHED: Final = 10_000
_MOST_ENDED: Final = 500
"""The most pods that one `pop` moves out of backoff, which takes some milliseconds."""
_ASKED_AGAIN: Final = 64
"""The most events for which hints run before an attempt; after more, the pod is tried anyway."""
_BRIEF_SECONDS: Final = 0.05
"""The longest attempt, in seconds, after which other namespaces need not come first."""
_STATES: Final = {queue: PodState(queue.value) for queue in SubQueue}

# What moves pods, as kube-scheduler's metrics name it (framework/events.go).
_ADDED: Final = event_label(Kind.UNSCHEDULED_POD, Action.ADD)
_UPDATED: Final = event_label(Kind.UNSCHEDULED_POD, Action.UPDATE)
_ATTEMPT_FAILED: Final = "ScheduleAttemptFailure"
_BACKOFF_COMPLETE: Final = "BackoffComplete"
_POPPED_EARLY: Final = "PopFromBackoffQ"
_ACTIVATED: Final = "ForceActivate"
_TIMED_OUT: Final = "UnschedulableTimeout"
_POPPED: Final = "PodPopped"


class SchedulingQueue:
    """All pods that have a profile but no node, by uid; backoffs are in seconds.

    `queues` returns the Queues of the cluster. Pods of Queues that have borrowed come last, except
    if namespaces take turns.
    """

    def __init__(
        self,
        hints: Hints,
        *,
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        namespaces_take_turns: bool = False,
        queues: Callable[[], Queues] | None = None,
    ) -> None:
        self._hints = hints
        self._initial_backoff = initial_backoff
        self._max_backoff = max_backoff
        self._pods: dict[Uid, QueuedPod] = {}
        self._names = Names()
        self._events = EventLog()
        self._in_flight = InFlight()
        self._active: ActivePodsByNamespace | ActivePodsWithBorrowers | ActivePods
        if namespaces_take_turns:
            self._active = ActivePodsByNamespace()
        else:
            self._active = ActivePodsWithBorrowers(queues) if queues else ActivePods()
        self._backoff = PodHeap[float]()
        self._error_backoff = PodHeap[float]()
        self._unschedulable = UnschedulablePods(self._events, hints)
        self._tickets = count(1)
        self._counts = dict.fromkeys(SubQueue, 0)
        self._incoming = Counter[tuple[str, str]]()

    def __iter__(self) -> Iterator[QueuedPod]:
        """Iterate over all pods, including pods in flight, in no particular order."""
        return iter((*self._pods.values(), *self._in_flight))

    def uids(self) -> tuple[Uid, ...]:
        """Return the uids of all pods, including pods in flight."""
        return (*self._pods, *(queued.pod.uid for queued in self._in_flight))

    @property
    def in_flight(self) -> Iterable[QueuedPod]:
        """The pods from `pop` until their attempts and bindings end."""
        return tuple(self._in_flight)

    def get(self, uid: Uid) -> QueuedPod | None:
        """Return the pod with this uid, in a queue or in flight; None if it is unknown."""
        return self._pods.get(uid) or self._in_flight.get(uid)

    def named(self, key: str) -> QueuedPod | None:
        """Return the newest pod with this namespace/name, queued or in flight, or None."""
        uid = self._names.latest(key)
        return self.get(uid) if uid is not None else None

    def counts(self) -> dict[str, int]:
        """Return the number of pods in each queue, by the queue's name."""
        return {queue.value: number for queue, number in self._counts.items()}

    @property
    def has_active(self) -> bool:
        """Whether a pod is active; pods in backoff do not count."""
        return bool(self._counts[SubQueue.ACTIVE])

    @property
    def has_next(self) -> bool:
        """Whether a pod is active or in backoff."""
        waits = self._counts[SubQueue.ACTIVE] or self._counts[SubQueue.BACKOFF]
        return bool(waits) or self._backoff.first() is not None

    def incoming(self) -> Mapping[tuple[str, str], int]:
        """Return how many pods were added to each queue, by (queue, event), for the metrics.

        Gated pods count as unschedulable, as in kube-scheduler.
        """
        return dict(self._incoming)

    def in_flight_events(self) -> Mapping[str, int]:
        """Return the number of pods in flight and of kept events, by the metric's label."""
        events = Counter(event.label for event in self._events)
        return {**events, _POPPED: len(self._in_flight)}

    def unschedulable_counts(self) -> Mapping[tuple[str, str], int]:
        """Return the number of unschedulable pods by (rejecting plugin, profile)."""
        return self._unschedulable.counts()

    def add(
        self,
        pod: Pod,
        pipeline: "Pipeline",
        now: float,
        *,
        gated: bool = False,
        times: StateTimes | None = None,
    ) -> None:
        """Add the pod, or replace the older version of the pod and its pipeline.

        The pod is retried if its change may make it schedulable. `times` has the times of a pod
        that was known before it entered this queue; None for a new pod.
        """
        queued = self.get(pod.uid)
        if queued is None:
            times = times or StateTimes(now)
            queued = QueuedPod(pod, pipeline, now, now, gated=gated, times=times)
            self._pods[pod.uid] = queued
            self._names.add(pod.key, pod.uid)
            self._retry(queued, now, _ADDED)
            return
        is_another = queued.pipeline is not pipeline or _is_another(queued.pod, pod)
        changed = is_another or _is_relabelled(queued.pod, pod)
        annotated, was_gated = queued.pod.annotations != pod.annotations, queued.gated
        queued.pod, queued.pipeline, queued.gated = pod, pipeline, gated
        if queued.queue is None:
            if changed or gated != was_gated:
                queued.outdated = True
        elif gated or queued.queue is SubQueue.GATED:
            if queued.attempts == 0:
                queued.initial_attempt_timestamp = now
            self._retry(queued, now, _UPDATED)
        # Labels, owner and annotations matter only if plugins that rejected the pod may read them.
        elif queued.queue is not SubQueue.BACKOFF and (
            is_another
            or (changed and not self._has_its_signature(queued))
            or (annotated and self._has_another_signature(queued))
        ):
            self._retry(queued, now, _UPDATED)
        if changed or gated:
            self._try_next(queued, now)

    def _has_its_signature(self, queued: QueuedPod) -> bool:
        if queued.queue is not SubQueue.UNSCHEDULABLE or queued.decided_by_specs:
            return False
        return not self._has_another_signature(queued)

    def _has_another_signature(self, queued: QueuedPod) -> bool:
        if queued.queue is not SubQueue.UNSCHEDULABLE:
            return False
        return self._unschedulable.signature_of(queued.pod.uid) != self._hints.signature(queued)

    def try_again(self, uid: Uid, now: float) -> None:
        """Retry an unschedulable pod because its pod group changed.

        If the pod is in flight, it is retried after its attempt.
        """
        queued = self.get(uid)
        if queued is None:
            return
        if queued.queue is None:
            queued.outdated = True
        elif queued.queue is SubQueue.UNSCHEDULABLE:
            self._retry(queued, now, _UPDATED)
        self._try_next(queued, now)

    def try_after(self, uid: Uid, event: ClusterEvent, now: float) -> None:
        """Retry an unschedulable pod if its plugins say that the event may help it.

        The event is about an object that only this pod uses.
        """
        queued = self._pods.get(uid)
        if queued is None or queued.queue is not SubQueue.UNSCHEDULABLE:
            return
        if self._hints.is_worth_requeuing(queued, event, during_attempt=False):
            self._retry(queued, now, event.label)

    def nominated(self, uid: Uid) -> None:
        """Read an unschedulable pod's nomination anew; events of that node then retry the pod."""
        queued = self._pods.get(uid)
        if queued is not None and queued.queue is SubQueue.UNSCHEDULABLE:
            self._unschedulable.nominated(queued)

    def remove(self, uid: Uid, now: float) -> QueuedPod | None:
        """Remove the pod and return it; return None if it is unknown.

        If the pod is in flight, the end of its attempt will be ignored.
        """
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._leave(queued)
        else:
            queued = self._in_flight.get(uid)
            if queued is None:
                return None
            self._in_flight.leave(uid)
        self._names.remove(queued.pod.key, uid)
        self._try_next(queued, now)
        return queued

    def pop(self, now: float) -> QueuedPod | None:
        """Put the next pod to schedule in flight, and return it; None if there is none."""
        if not self.has_next:
            return None
        self._flush_backoff(self._backoff, now)
        self._flush_backoff(self._error_backoff, now)
        while (queued := self._first(now)) is not None:
            if self._may_fit(queued, queued.moved_at):
                del self._pods[queued.pod.uid]
                self._leave(queued)
                self._enter(queued, now)
                break
            # Hints say that no event helps the pod any more.
            self._move(queued, SubQueue.UNSCHEDULABLE, now, queued.moved_by)
            self._rejected(queued, now)
            pause()
        return queued

    def _first(self, now: float) -> QueuedPod | None:
        queued = self._active.pop(now)
        if queued is None and (queued := self._backoff.pop()) is not None:
            self._incoming[SubQueue.ACTIVE.value, _POPPED_EARLY] += 1
        return queued

    def attempted(self, namespace: str, seconds: float, now: float) -> None:
        """Let other namespaces come first for the next `seconds`.

        An attempt about pods of `namespace` has taken `seconds`. A brief attempt has no effect.
        """
        # While others wait, no namespace can use more than half of the time.
        if seconds > _BRIEF_SECONDS:
            self._active.rest(namespace, now + seconds)

    def pop_specific(self, uid: Uid, now: float) -> QueuedPod | None:
        """Put this pod in flight and return it (PopSpecificPod); None if gated or not queued."""
        queued = self._pods.get(uid)
        if queued is None or queued.queue is SubQueue.GATED:
            return None
        del self._pods[uid]
        self._leave(queued)
        self._enter(queued, now)
        return queued

    def postpone(self, queued: QueuedPod, until: float, now: float) -> None:
        """End an attempt before its decision, and do not count it; retry the pod at `until`."""
        if self._in_flight.get(queued.pod.uid) is queued:
            self._in_flight.leave(queued.pod.uid)
            queued.attempts -= 1
            queued.backoff_expiration = until
            self._pods[queued.pod.uid] = queued
            self._move_to_error_backoff(queued, now, _ATTEMPT_FAILED)

    def add_unschedulable(
        self, queued: QueuedPod, plugins: frozenset[str], now: float, retry_at: float = inf
    ) -> None:
        """End the attempt of a pod that these plugins rejected (AddUnschedulablePodIfNotPresent).

        The pod is retried at `retry_at`, or earlier if an event may help it.
        """
        if self._in_flight.get(queued.pod.uid) is not queued:
            return
        since = self._in_flight.leave(queued.pod.uid)
        queued.unschedulable_count += 1
        queued.consecutive_errors_count = 0
        queued.unschedulable_plugins = plugins
        queued.flushed, queued.retry_at = False, retry_at
        self._back_off(queued, queued.unschedulable_count, now)
        self._pods[queued.pod.uid] = queued
        if queued.gated or queued.outdated:
            self._retry(queued, now, _ATTEMPT_FAILED)
        else:
            self._move(queued, SubQueue.UNSCHEDULABLE, now, _ATTEMPT_FAILED, since)
        self._rejected(queued, now)

    def add_after_error(self, queued: QueuedPod, now: float) -> None:
        """End the attempt of a pod because of an error; try the pod again after its backoff."""
        if self._in_flight.get(queued.pod.uid) is not queued:
            return
        self._in_flight.leave(queued.pod.uid)
        queued.consecutive_errors_count += 1
        self._back_off(queued, queued.consecutive_errors_count, now)
        self._pods[queued.pod.uid] = queued
        self._move_to_error_backoff(queued, now, _ATTEMPT_FAILED)
        self._try_next(queued, now)

    def put_back(self, queued: QueuedPod, now: float) -> None:
        """End a pod's attempt without a result; retry the pod after others of its priority."""
        # They need not wait for a pod or a group that changes all the time.
        if self._in_flight.get(queued.pod.uid) is not queued:
            return
        self._in_flight.leave(queued.pod.uid)
        queued.timestamp = now
        self._pods[queued.pod.uid] = queued
        self._retry(queued, now, _ATTEMPT_FAILED)

    def assumed(self, queued: QueuedPod, now: float) -> None:
        """Retry the next of the pods that `queued` represented, if there is one."""
        self._try_next(queued, now)

    def done(self, queued: QueuedPod, now: float) -> None:
        """Forget a pod in flight because it is bound or deleted."""
        if self._in_flight.get(queued.pod.uid) is queued:
            self.remove(queued.pod.uid, now)

    def move_on_events(self, events: Iterable[ClusterEvent], now: float) -> bool:
        """Keep the events for `run_hints`, and retry pods that lost their nominations.

        Returns whether a pod is retried or hints have to run.
        """
        events = tuple(events)
        if not self._in_flight and not self._unschedulable and not self.has_next:
            return False
        self._events.extend(events)
        moved = False
        for event in events:  # as kube-scheduler does in framework/preemption/executor.go
            queued = self._unschedulable.update_nominations(event)
            if queued is not None:
                self._retry(queued, now, event.label)
                moved = True
        return moved or self._unschedulable.has_hints_to_run()

    def run_hints(self, now: float) -> bool:
        """Make one step of running hints; retry pods that an event may help.

        Returns False if there was nothing to do (MoveAllToActiveOrBackoffQueue).
        """
        if not self._unschedulable.has_hints_to_run():
            self._drop_events()
            return False
        for queued, for_group in self._unschedulable.run_hints():
            if queued.backoff_expiration > now:
                admitted = self._hints.is_admitted(queued)
                if admitted is False:
                    self._try_after_backoff(queued, for_group=for_group)
                    continue
                if admitted:
                    queued.backoff_expiration = now
            if for_group:
                self._try_for_group(queued, now, queued.moved_by, queued.moved_at)
            else:
                self._retry(queued, now, queued.moved_by)
        return True

    def retry(self, uid: Uid, now: float) -> None:
        """Retry the pod after its backoff, because its preemption has failed."""
        # Without the backoff, an eviction that always fails would be tried without a pause.
        queued = self._pods.get(uid)
        if queued is None or queued.queue not in (SubQueue.UNSCHEDULABLE, SubQueue.BACKOFF):
            return
        if queued.queue is SubQueue.UNSCHEDULABLE:
            self._try_for_group(queued, now, _ACTIVATED)
        if queued.queue is SubQueue.BACKOFF:
            self._move_to_error_backoff(queued, now, _ACTIVATED)

    def flush_unschedulable(self, now: float) -> int:
        """Retry pods that are unschedulable for five minutes or past `retry_at`; return how many.

        One call retries at most 10,000 pods, the longest waiting first.
        """
        tried = set[Hashable]()

        def is_late(queued: QueuedPod) -> bool:
            waits = queued.queue is SubQueue.UNSCHEDULABLE
            return waits and now >= min(queued.timestamp + UNSCHEDULABLE_TIMEOUT, queued.retry_at)

        moved = 0
        for queued in tuple(islice(filter(is_late, self._pods.values()), _MOST_FLUSHED)):
            pause()
            if is_late(queued):  # it may have been moved, or have gone, meanwhile
                queued.flushed = now - queued.timestamp >= UNSCHEDULABLE_TIMEOUT
                signature = self._unschedulable.signature_of(queued.pod.uid)
                if queued.flushed or signature not in tried:  # else another represents it
                    self._try_for_group(queued, now, _TIMED_OUT)
                    moved += 1
                tried.add(signature)
        return moved

    def next_due(self) -> float | None:
        """Return when the next backoff after an error or a failed preemption ends, or None."""
        first = self._error_backoff.first()
        return first[0] if first is not None else None

    def _enter(self, queued: QueuedPod, now: float) -> None:
        self._in_flight.enter(queued, self._events.end)
        queued.times.enter(PodState.IN_FLIGHT, now)
        queued.attempts += 1
        queued.outdated = queued.decided_by_specs = False

    def _drop_events(self) -> None:
        oldest = self._in_flight.oldest()
        end = self._events.end if oldest is None else oldest
        if self._in_flight or self.has_next:
            end = min(end, self._events.end - _ASKED_AGAIN)
        self._events.drop_before(end)

    def _may_fit(self, queued: QueuedPod, since: int | None) -> bool:
        """Return whether event number `since` or a later event may help the pod."""
        hints, events = self._hints, self._events
        if since is None or since < events.start or events.end - since > _ASKED_AGAIN:
            return True
        if hints.nominated_node(queued) is not None:
            return True
        later = (events[number] for number in range(since, events.end))
        helps = partial(hints.is_worth_requeuing, queued, during_attempt=False)
        return any(map(helps, later)) or hints.needs_no_hint(queued)

    def _try_after_backoff(self, queued: QueuedPod, *, for_group: bool) -> None:
        if for_group:
            queued.tries_for = self._unschedulable.signature_of(queued.pod.uid)
        if queued.backoff_ticket != queued.ticket:  # else it is in the heap already
            queued.backoff_ticket = queued.ticket
            self._backoff.push(queued.backoff_expiration, queued)

    def _try_for_group(
        self, queued: QueuedPod, now: float, event: str, moved_at: int | None = None
    ) -> None:
        """Retry an unschedulable pod on behalf of all pods with its signature."""
        queued.tries_for = self._unschedulable.signature_of(queued.pod.uid)
        queued.moved_by = event
        self._retry(queued, now, event)
        # A nominated pod is always tried, because it may lose its nomination.
        if self._hints.nominated_node(queued) is None:
            queued.moved_at = moved_at

    def _rejected(self, queued: QueuedPod, now: float) -> None:
        if queued.tries_for == self._hints.signature(queued):
            # Its rejection is the answer for all pods with this signature.
            queued.tries_for = None
        self._try_next(queued, now)

    def _try_next(self, queued: QueuedPod, now: float) -> None:
        signature, queued.tries_for = queued.tries_for, None
        following = self._unschedulable.first_of(signature) if signature is not None else None
        if following is not None and self._may_fit(following, queued.moved_at):
            following.flushed = queued.flushed
            self._try_for_group(following, now, queued.moved_by, queued.moved_at)
        queued.moved_at = None

    def _back_off(self, queued: QueuedPod, times: int, now: float) -> None:
        queued.timestamp = now
        doubled = self._initial_backoff * 2.0 ** min(times - 1, 32)
        queued.backoff_expiration = now + min(doubled, self._max_backoff)

    def _retry(self, queued: QueuedPod, now: float, event: str) -> None:
        queued.moved_at = None
        if queued.gated:
            self._move(queued, SubQueue.GATED, now, event)
        elif queued.backoff_expiration > now:
            self._move(queued, SubQueue.BACKOFF, now, event)
            self._backoff.push(queued.backoff_expiration, queued)
        else:
            self._move(queued, SubQueue.ACTIVE, now, event)

    def _move_to_error_backoff(self, queued: QueuedPod, now: float, event: str) -> None:
        queued.moved_at = None
        if queued.gated:
            self._move(queued, SubQueue.GATED, now, event)
            return
        self._move(queued, SubQueue.BACKOFF, now, event)
        # This backoff never ends early.
        self._error_backoff.push(queued.backoff_expiration, queued)

    def _flush_backoff(self, heap: PodHeap[float], now: float) -> None:
        for _ in range(_MOST_ENDED):
            first = heap.first()
            if first is None or first[0] > now:
                return
            self._move(first[1], SubQueue.ACTIVE, now, _BACKOFF_COMPLETE)

    def _move(
        self,
        queued: QueuedPod,
        queue: SubQueue,
        now: float,
        event: str,
        since: int | None = None,
    ) -> None:
        if queued.queue is not queue:
            counted = SubQueue.UNSCHEDULABLE if queue is SubQueue.GATED else queue
            self._incoming[counted.value, event] += 1
        self._leave(queued)
        queued.queue = queue
        queued.times.enter(_STATES[queue], now)
        self._counts[queue] += 1
        if queue is SubQueue.ACTIVE:  # the caller adds a pod in backoff to its heap
            self._active.add(queued)
        elif queue is SubQueue.UNSCHEDULABLE:
            self._unschedulable.add(queued, since)

    def _leave(self, queued: QueuedPod) -> None:
        if queued.queue is not None:
            self._counts[queued.queue] -= 1
        if queued.queue is SubQueue.UNSCHEDULABLE:
            self._unschedulable.remove(queued.pod.uid)
        queued.queue = None
        queued.ticket = next(self._tickets)


def _is_another(before: Pod, pod: Pod) -> bool:
    return (
        before.spec is not pod.spec
        or before.longest_run != pod.longest_run
        or before.claim_names != pod.claim_names
    )


def _is_relabelled(before: Pod, pod: Pod) -> bool:
    return before.labels != pod.labels or before.owner != pod.owner
