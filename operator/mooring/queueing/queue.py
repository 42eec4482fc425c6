"""Pods that wait for a node.

    add --> active --pop--> in flight --done--> (bound or gone)
      |       ^  ^              |
      |       |  |              +--failed--> backoff (errors) --time--> active
      |       |  |              |
      |       |  |              +--rejected--> unschedulable
      |       |  +------------- backoff (woken) <--cured while backing off--+
      |       +-------------------------------------cured, or 5 minutes-----+
      +--> gated --gates gone--> active

A rejected pod comes back only for a change that may cure its rejection. Backoff lasts one second
after the first rejection and doubles to ten; a pod woken while it runs may be popped early when
nothing else is active, one that failed with an error may not (SchedulerPopFromBackoffQ,
backend/queue).

A pod woken by a cure tries for all that are like it: when it is rejected again, so would they be;
when its attempt ends otherwise, or never comes, the next of them is woken.

Every pod known here is in exactly one place. Times are seconds on the caller's monotonic clock.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import count
from typing import Final

from mooring.framework.queued_pod import QueuedPod, SubQueue
from mooring.model.events import ClusterEvent
from mooring.model.pod import Pod
from mooring.queueing.active import ActivePods, Order
from mooring.queueing.in_flight import InFlight
from mooring.queueing.unschedulable import UnschedulablePods
from mooring.queueing.unschedulable_counts import UnschedulableCounts

__all__ = ["SchedulingQueue"]

UNSCHEDULABLE_TIMEOUT: Final = 300.0


class SchedulingQueue:
    """All waiting pods by key.

    `order` orders the active part. `signature` is equal for pods whose rejections the same
    changes cure; `queueing_hint` says whether a change may cure a pod's rejection.
    """

    def __init__(
        self,
        order: Callable[[QueuedPod], Order],
        signature: Callable[[QueuedPod], Hashable],
        queueing_hint: Callable[[QueuedPod, ClusterEvent], bool],
        *,
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
    ) -> None:
        self._cures = queueing_hint
        self._initial_backoff = initial_backoff
        self._max_backoff = max_backoff
        self._pods: dict[str, QueuedPod] = {}
        self._in_flight: InFlight[QueuedPod] = InFlight()
        self._active = ActivePods(order)
        self._woken: list[tuple[float, int, QueuedPod]] = []
        self._failed: list[tuple[float, int, QueuedPod]] = []
        self._rejected: UnschedulablePods[QueuedPod] = UnschedulablePods(signature)
        self._tickets = count(1)
        self._counts = dict.fromkeys(SubQueue, 0)
        self._unschedulable_counts = UnschedulableCounts()

    def get(self, key: str) -> QueuedPod | None:
        """The pod of this namespace/name, waiting or in flight."""
        return self._pods.get(key) or self._in_flight.get(key)

    def nominate(self, key: str, node: str | None) -> None:
        """Room is being made for the pod on the node, or nowhere any more."""
        queued = self.get(key)
        if queued is None:
            return
        if queued.part is SubQueue.UNSCHEDULABLE:
            self._rejected.remove(key)
        queued.nominated = node
        if queued.part is SubQueue.UNSCHEDULABLE:
            self._rejected.add(queued)

    def waiting(self) -> Iterable[QueuedPod]:
        """All pods that are not in flight, in no particular order."""
        return self._pods.values()

    def counts(self) -> dict[str, int]:
        """How many pods each part holds, by its name."""
        return {part.value: number for part, number in self._counts.items()}

    def unschedulable_counts(self) -> Mapping[tuple[str, str], int]:
        """Unschedulable pods by (plugin, profile); rejected by two plugins, a pod counts twice."""
        return self._unschedulable_counts.read()

    def add(self, pod: Pod, now: float, *, gated: bool = False) -> None:
        """The pod waits here from now on, or its newer version replaces the one that did.

        A rejected pod whose spec or labels changed may try again.
        """
        queued = self.get(pod.key)
        if queued is not None and queued.pod.uid != pod.uid:
            self.remove(pod.key, now)
            queued = None
        if queued is None:
            queued = self._pods[pod.key] = QueuedPod(pod, first_seen=now, since=now)
            self._move(queued, SubQueue.GATED if gated else SubQueue.ACTIVE)
            return
        changed = queued.pod.shape is not pod.shape or queued.pod.labels != pod.labels
        queued.pod = pod
        if queued.part is None:
            queued.outdated |= changed
        elif gated:
            self._move(queued, SubQueue.GATED)
        elif queued.part is SubQueue.GATED:
            queued.first_seen = now if queued.attempts == 0 else queued.first_seen
            self._retry(queued, now)
        elif changed and queued.part is not SubQueue.BACKOFF:
            self._retry(queued, now)
        if changed or gated:
            self._pass_on(queued, now)

    def remove(self, key: str, now: float) -> QueuedPod | None:
        """The pod waits here no more; an attempt in flight will find that out when it ends."""
        queued = self._pods.pop(key, None)
        if queued is not None:
            self._leave(queued)
        else:
            queued = self._in_flight.get(key)
            if queued is None:
                return None
            self._in_flight.leave(key)
        self._pass_on(queued, now)
        return queued

    def pop(self, now: float) -> QueuedPod | None:
        """The next pod to try, in flight from now on; None if there is none."""
        self._flush(self._woken, now)
        self._flush(self._failed, now)
        queued = self._active.pop() or self._first(self._woken)
        if queued is None:
            return None
        del self._pods[queued.pod.key]
        self._leave(queued)
        self._in_flight.enter(queued.pod.key, queued)
        queued.attempts += 1
        queued.outdated = False
        return queued

    def rejected(self, queued: QueuedPod, plugins: frozenset[str], now: float) -> None:
        """An attempt found no place; a change that may cure it brings the pod back."""
        if self._in_flight.get(queued.pod.key) is not queued:
            return
        missed = self._in_flight.leave(queued.pod.key)
        queued.unschedulable_count, queued.error_count = queued.unschedulable_count + 1, 0
        queued.unschedulable_plugins = plugins
        queued.tries_for = None
        self._back_off(queued, queued.unschedulable_count, now)
        self._pods[queued.pod.key] = queued
        outdated = queued.outdated or missed is None
        if outdated or any(self._cures(queued, event) for event in missed or ()):
            self._retry(queued, now)
        else:
            self._move(queued, SubQueue.UNSCHEDULABLE)

    def failed(self, queued: QueuedPod, now: float) -> None:
        """An attempt ended in an error; the pod comes back after its backoff."""
        if self._in_flight.get(queued.pod.key) is not queued:
            return
        self._in_flight.leave(queued.pod.key)
        queued.error_count += 1
        self._back_off(queued, queued.error_count, now)
        self._pods[queued.pod.key] = queued
        self._move(queued, SubQueue.BACKOFF)
        heapq.heappush(self._failed, (queued.not_before, queued.ticket, queued))
        self._pass_on(queued, now)

    def placed(self, queued: QueuedPod, now: float) -> None:
        """A pod in flight has found a place, so the next one like it may find one too."""
        self._pass_on(queued, now)

    def done(self, queued: QueuedPod, now: float) -> None:
        """The attempt needs the queue no more: the pod is bound, or has gone."""
        if self._in_flight.get(queued.pod.key) is queued:
            self.remove(queued.pod.key, now)

    def changed(self, events: Iterable[ClusterEvent], now: float) -> bool:
        """The cluster changed; True if that lets some pod try again.

        One pod of each signature is asked and tried for all of them, so hopeless pods cost one test
        however many there are.
        """
        events = tuple(events)
        self._in_flight.changed(events)
        woken = False
        for event in events:
            for queued, for_all in self._rejected.pods_to_move(event, self._cures):
                if for_all:
                    self._wake(queued, now)
                else:
                    self._retry(queued, now)
                woken = True
        return woken

    def policy_changed(self, now: float, namespace: str | None = None) -> None:
        """Every rejected pod, or every one of a namespace, may try again, in a new order."""
        self._active.sort_anew()
        for queued in (*self._pods.values(), *self._in_flight):
            if namespace is not None and queued.pod.namespace != namespace:
                continue
            if queued.part is None:
                queued.outdated = True
            elif queued.part is SubQueue.UNSCHEDULABLE:
                self._retry(queued, now)

    def retry(self, key: str, now: float) -> None:
        """A rejected pod may try again, because what it waited for will not come."""
        queued = self._pods.get(key)
        if queued is not None and queued.part is SubQueue.UNSCHEDULABLE:
            self._wake(queued, now)

    def flush_unschedulable(self, now: float) -> bool:
        """Pods that have been unschedulable for five minutes try again whatever happened."""
        late = [
            queued
            for queued in self._pods.values()
            if queued.part is SubQueue.UNSCHEDULABLE and now - queued.since >= UNSCHEDULABLE_TIMEOUT
        ]
        for queued in late:
            self._wake(queued, now)
        return bool(late)

    def next_due(self) -> float | None:
        """When the next backoff after an error ends, or sooner; None if none runs."""
        return self._failed[0][0] if self._failed else None

    def _pass_on(self, queued: QueuedPod, now: float) -> None:
        """Whoever tried for others does so no more; the next of them does."""
        signature, queued.tries_for = queued.tries_for, None
        following = self._rejected.first_of(signature) if signature is not None else None
        if following is not None:
            self._wake(following, now)

    def _wake(self, queued: QueuedPod, now: float) -> None:
        """The pod tries again, for itself and for all that were rejected like it."""
        queued.tries_for = self._rejected.signature_of(queued.pod.key)
        self._retry(queued, now)

    def _back_off(self, queued: QueuedPod, times: int, now: float) -> None:
        queued.since = now
        doubled = self._initial_backoff * 2.0 ** min(times - 1, 32)
        queued.not_before = now + min(doubled, self._max_backoff)

    def _retry(self, queued: QueuedPod, now: float) -> None:
        if queued.not_before > now:
            self._move(queued, SubQueue.BACKOFF)
            heapq.heappush(self._woken, (queued.not_before, queued.ticket, queued))
        else:
            self._move(queued, SubQueue.ACTIVE)

    def _flush(self, heap: list[tuple[float, int, QueuedPod]], now: float) -> None:
        """Those whose backoff has ended are active."""
        while heap and heap[0][0] <= now:
            _, ticket, queued = heapq.heappop(heap)
            if queued.ticket == ticket:
                self._move(queued, SubQueue.ACTIVE)

    @staticmethod
    def _first(heap: list[tuple[float, int, QueuedPod]]) -> QueuedPod | None:
        """The first valid entry, taken off; entries with an older ticket are void."""
        while heap:
            _, ticket, queued = heapq.heappop(heap)
            if queued.ticket == ticket:
                return queued
        return None

    def _move(self, queued: QueuedPod, part: SubQueue) -> None:
        self._leave(queued)
        queued.part = part
        self._counts[part] += 1
        if part is SubQueue.ACTIVE:
            self._active.add(queued)
        elif part is SubQueue.UNSCHEDULABLE:
            self._rejected.add(queued)
            self._unschedulable_counts.add(queued)

    def _leave(self, queued: QueuedPod) -> None:
        if queued.part is not None:
            self._counts[queued.part] -= 1
        if queued.part is SubQueue.UNSCHEDULABLE:
            self._rejected.remove(queued.pod.key)
            self._unschedulable_counts.remove(queued)
        queued.part = None
        queued.ticket = next(self._tickets)
