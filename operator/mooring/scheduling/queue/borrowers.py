"""The active queue in a cluster with Queues: pods of Queues that have borrowed quota come last.

Among the Queues that have borrowed, the one with the smallest share comes first, as in Kueue's fair
sharing. Within a Queue the usual order holds. All other pods are in one heap, whatever their Queue
is.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from mooring.model.pod import Pod
from mooring.pausing import pause
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.queue.active import ActivePods

Shares = tuple[float, ...]
"""The shares of a Queue and its ancestors; the share next to the root comes first."""


class Borrowing(Protocol):
    """Tells which Queues have borrowed, and their shares."""

    @property
    def decreases(self) -> int:
        """A number that changes when a Queue may have a smaller share."""

    def borrower_of(self, pod: Pod) -> str:
        """Return the pod's Queue if this Queue or one of its ancestors has borrowed; else ""."""

    def shares(self, name: str) -> Shares:
        """Return the shares of the Queue and its ancestors; () if none of them has borrowed."""


class ActivePodsWithBorrowers:
    """Pods to be scheduled; `borrowing` returns what the Queues have borrowed now."""

    def __init__(self, borrowing: Callable[[], Borrowing]) -> None:
        self._borrowing = borrowing
        self._within = ActivePods()
        self._of_borrowers: dict[str, ActivePods] = {}
        self._order: list[tuple[Shares, str]] = []
        """A heap of the Queues that have borrowed and have pods; its shares may be outdated."""
        self._decreases = 0

    def rest(self, namespace: str, until: float) -> None:
        """Let the namespace rest: pods of other namespaces with equal priority come first."""
        for pods in (self._within, *self._of_borrowers.values()):
            pods.rest(namespace, until)

    def add(self, queued: QueuedPod) -> None:
        """Add the pod; it comes last if its Queue or an ancestor of the Queue has borrowed."""
        borrowing = self._borrowing()
        name = borrowing.borrower_of(queued.pod)
        if not name:
            self._within.add(queued)
            return
        pods = self._of_borrowers.get(name)
        if pods is None:
            pods = self._of_borrowers[name] = ActivePods()
            heappush(self._order, (borrowing.shares(name), name))
        pods.add(queued)

    def pop(self, now: float) -> QueuedPod | None:
        """Remove and return the first pod; None if there is none."""
        borrowing = self._borrowing()
        if self._of_borrowers and borrowing.decreases != self._decreases:
            self._decreases = borrowing.decreases
            self._order_anew(borrowing, now)
        while (found := self._within.pop(now)) is not None:
            if not borrowing.borrower_of(found.pod):
                return found
            self.add(found)  # its Queue has borrowed since it was added
            pause()
        return self._pop_of_borrower(borrowing, now)

    def _order_anew(self, borrowing: Borrowing, now: float) -> None:
        """Sort the Queues by share; move the pods of Queues that borrow no more to `_within`."""
        self._order = [(borrowing.shares(name), name) for name in self._of_borrowers]
        heapify(self._order)
        while self._order and not self._order[0][0]:
            _, name = heappop(self._order)
            pods = self._of_borrowers.pop(name)
            while (queued := pods.pop(now)) is not None:
                self._within.add(queued)
                pause()

    def _pop_of_borrower(self, borrowing: Borrowing, now: float) -> QueuedPod | None:
        """Remove and return the first pod of the Queue with the smallest share.

        The heap is sorted by earlier shares, and shares only grow until a Queue uses less. So the
        first Queue with an unchanged share has the smallest share.
        """
        while self._order:
            before, name = self._order[0]
            shares = borrowing.shares(name)
            if shares != before:
                heapreplace(self._order, (shares, name))
                continue
            found = self._of_borrowers[name].pop(now)
            if found is not None:
                return found
            heappop(self._order)
            del self._of_borrowers[name]
        return None
