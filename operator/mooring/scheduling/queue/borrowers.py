"""The active queue in a cluster with Queues: pods of Queues that have borrowed quota come last.

A Queue is a borrower if it or an ancestor has borrowed quota. Among borrowers, the Queue with the
smallest share comes first, as in Kueue's fair sharing.
"""

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace

from mooring.pausing import pause
from mooring.quota.state.queues import Queues
from mooring.runtime.queued_pod import QueuedPod
from mooring.scheduling.queue.active import ActivePods

Shares = tuple[float, ...]
"""The shares of a Queue and its ancestors; the share next to the root comes first."""
_First = tuple[Shares, str, str]
"""The shares of a Queue and its ancestors, the Queue's name, and its parent's name."""


class ActivePodsWithBorrowers:
    """Pods to be scheduled; `queues` returns the Queues of the cluster."""

    def __init__(self, queues: Callable[[], Queues]) -> None:
        self._queues = queues
        self._within = ActivePods()
        self._of_borrowers: dict[str, ActivePods] = {}
        self._siblings: dict[str, list[tuple[Shares, str]]] = {}
        """Maps a parent Queue to a heap of its child Queues that have borrowed and have pods,
        sorted by their own shares."""
        self._first: dict[str, _First] = {}
        """Maps a parent Queue to the first Queue of its heap in `_siblings`; the shares may be
        outdated."""
        self._order: list[_First] = []
        """A heap of the values of `_first`; entries that are no longer in `_first` are void."""
        self._decreases = 0

    def rest(self, namespace: str, until: float) -> None:
        """Let pods of other namespaces with equal priority come first until the time `until`."""
        for pods in (self._within, *self._of_borrowers.values()):
            pods.rest(namespace, until)

    def add(self, queued: QueuedPod) -> None:
        """Add the pod to its Queue's pods if the Queue is a borrower, else to all other pods."""
        queues = self._queues()
        name = queues.borrower_of(queued.pod)
        if not name:
            self._within.add(queued)
            return
        pods = self._of_borrowers.get(name)
        if pods is None:
            pods = self._of_borrowers[name] = ActivePods()
            self._add_borrower(name, queues)
        pods.add(queued)

    def _add_borrower(self, name: str, queues: Queues) -> None:
        shares, parent = queues.shares(name), queues.parent_of(name)
        siblings = self._siblings.setdefault(parent, [])
        heappush(siblings, (shares[-1:], name))
        if siblings[0][1] == name:
            first = self._first[parent] = (shares, name, parent)
            heappush(self._order, first)

    def pop(self, now: float) -> QueuedPod | None:
        """Remove and return the first pod; None if there is none."""
        queues = self._queues()
        if self._of_borrowers and queues.decreases != self._decreases:
            self._decreases = queues.decreases
            self._order_anew(queues, now)
        while (found := self._within.pop(now)) is not None:
            if not queues.borrower_of(found.pod):
                return found
            self.add(found)  # its Queue has borrowed since it was added
            pause()
        return self._pop_of_borrower(queues, now)

    def _order_anew(self, queues: Queues, now: float) -> None:
        self._siblings, self._first, self._order = {}, {}, []
        for name in tuple(self._of_borrowers):
            if queues.shares(name):
                self._add_borrower(name, queues)
                continue
            pods = self._of_borrowers.pop(name)
            while (queued := pods.pop(now)) is not None:
                self._within.add(queued)
                pause()

    def _pop_of_borrower(self, queues: Queues, now: float) -> QueuedPod | None:
        """Remove and return the first pod of the borrowing Queue with the smallest share."""
        # The heaps have earlier shares, and shares only grow until a Queue uses less. So the first
        # Queue whose shares are unchanged has the smallest share.
        while self._order:
            before = self._order[0]
            _, name, parent = before
            if self._first.get(parent) is not before:
                heappop(self._order)
            elif (first := self._first_of(parent, queues)) != before:
                self._first[parent] = first
                heapreplace(self._order, first)
            elif (found := self._of_borrowers[name].pop(now)) is not None:
                return found
            else:
                self._remove_first(parent, queues)
        return None

    def _first_of(self, parent: str, queues: Queues) -> _First:
        siblings = self._siblings[parent]
        while (shares := queues.shares(siblings[0][1]))[-1:] != siblings[0][0]:
            heapreplace(siblings, (shares[-1:], siblings[0][1]))
        return shares, siblings[0][1], parent

    def _remove_first(self, parent: str, queues: Queues) -> None:
        siblings = self._siblings[parent]
        # The first child Queue has no more pods.
        del self._of_borrowers[heappop(siblings)[1]]
        heappop(self._order)
        del self._first[parent]
        if siblings:
            first = self._first[parent] = self._first_of(parent, queues)
            heappush(self._order, first)
        else:
            del self._siblings[parent]
