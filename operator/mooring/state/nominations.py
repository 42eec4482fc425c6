"""Pods nominated to a node, on which other pods leave room for them (queue/nominator.go)."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from mooring.groups.model.pod_group import Reservation
from mooring.model.indexes import add_count, drop_item
from mooring.model.pod import Pod, Uid
from mooring.pausing import pause
from mooring.state.pod_columns import PodColumns
from mooring.state.pods import NO_QUEUE

LOWEST_PRIORITY: Final = -(2**31)


class Nominee(NamedTuple):
    """A nominated pod, and the row of the node to which it is nominated.

    Attributes:
        reservation: The reservation of nodes for the pod. Without a reservation, pods of equal
            priority must leave room for the pod, too.
        moved: Whether the pod replaces a pod that rebalancing has evicted.
        evicted: The highest priority of the pod's victims. Pods that replace the victims must leave
            room for `pod`.
    """

    pod: Pod
    row: int
    reservation: Reservation | None = None
    moved: bool = False
    evicted: int = LOWEST_PRIORITY

    @property
    def has_preempted(self) -> bool:
        """Whether the pod may have evicted other pods, perhaps through another replica."""
        return self.reservation is None and not self.moved

    @property
    def keeps_out_below(self) -> int:
        """Pods of a lower priority than this must leave room for the nominated pod."""
        reserved = self.reservation
        return reserved.priority if reserved is not None else self.priority + 1

    @property
    def priority(self) -> int:
        """The pod's own priority or the highest priority of its victims, whichever is higher."""
        return max(self.pod.spec.priority, self.evicted)

    @property
    def backfill_until(self) -> float:
        """Pods that end by this time (epoch seconds) need not leave room; see Reservation."""
        return self.reservation.backfill_until if self.reservation is not None else -math.inf

    def keeps_out(self, priority: int, ends: float) -> bool:
        """Return whether a pod of this priority that ends at `ends` must leave room for `pod`."""
        return priority < self.keeps_out_below and self.backfill_until < ends


class Nominations:
    """The nominated pods by uid and by row; only ClusterState changes this object.

    Every nominated pod is in `columns`, too. `queue_of` returns the number of a pod's Queue, and
    `demand_of` the amounts that pods use of their quota, by resource.
    """

    def __init__(
        self,
        columns: PodColumns,
        queue_of: Callable[[Pod], int],
        demand_of: Callable[[Collection[Pod]], Mapping[str, int]],
    ) -> None:
        self._columns = columns
        self._queue_of = queue_of
        self._demand_of = demand_of
        self._queued: dict[tuple[int, int], Counter[str]] = {}
        self._by_uid: dict[Uid, Nominee] = {}
        self._by_row: dict[int, dict[Uid, Pod]] = {}

    def __iter__(self) -> Iterator[Nominee]:
        return iter(tuple(self._by_uid.values()))

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: Uid) -> Nominee | None:
        """Return the Nominee with this uid; None if no pod of this uid is nominated."""
        return self._by_uid.get(uid)

    def rows(self) -> list[int]:
        """Return the rows with at least one nominated pod."""
        return list(self._by_row)

    def on(self, row: int) -> tuple[Pod, ...]:
        """Return the pods nominated to the node of this row."""
        return tuple(self._by_row.get(row, {}).values())

    def below(self, row: int | None, priority: int) -> list[Pod]:
        """Return the pods of lower priority nominated to this row; [] if `row` is None."""
        here = self.on(row) if row is not None else ()
        return [pod for pod in here if self._by_uid[pod.uid].priority < priority]

    def at(
        self, row: int, priority: int, other_than: Uid | None, ends: float = math.inf
    ) -> list[Pod]:
        """Return the pods nominated to this row for which another pod must leave room.

        The other pod has the uid `other_than` and this `priority`, and will have ended at `ends`
        (seconds since the epoch).
        """
        return [
            pod
            for pod in self.on(row)
            if pod.uid != other_than and self._by_uid[pod.uid].keeps_out(priority, ends)
        ]

    def reservation_at(self, row: int, pod: Pod, ends: float = math.inf) -> Reservation | None:
        """Return a reservation on this row for which `pod` must leave room; None without one.

        `pod` will have ended at `ends`, in seconds since the epoch.
        """
        kept = (self._by_uid[other.uid] for other in self.at(row, pod.spec.priority, pod.uid, ends))
        return next((each.reservation for each in kept if each.reservation is not None), None)

    @property
    def reserved(self) -> list[Nominee]:
        """The nominated pods that have a reservation."""
        return [each for each in self._by_uid.values() if each.reservation is not None]

    @property
    def queued(self) -> Mapping[tuple[int, int], Mapping[str, int]]:
        """The quota that nominated pods use: by Queue number and priority, and by resource.

        Pods for which nodes are reserved use no quota.
        """
        return self._queued

    def queue_of(self, uid: Uid) -> int:
        """Return the number of the Queue in which the nominated pod is counted, or NO_QUEUE."""
        slot = self._columns.slot(uid, nominated=True)
        return int(self._columns.queues[slot]) if slot is not None else NO_QUEUE

    def put(
        self,
        pod: Pod,
        row: int,
        reservation: Reservation | None = None,
        evicted: int = LOWEST_PRIORITY,
    ) -> None:
        """Nominate the pod to this row and no other; see Nominee for the other arguments."""
        self.put_back(Nominee(pod, row, reservation, evicted=evicted))

    def put_back(self, nominee: Nominee) -> None:
        """Add this nomination; it replaces the pod's present nomination, if there is one."""
        pod = nominee.pod
        self.drop(pod.uid)
        self._by_uid[pod.uid] = nominee
        self._by_row.setdefault(nominee.row, {})[pod.uid] = pod
        below, until = nominee.keeps_out_below, nominee.backfill_until
        number = self._queue_number(nominee)
        self._columns.nominate(pod, nominee.row, below, until, number)
        self._count(pod, number, 1)

    def requeue(self) -> None:
        """Count each nominated pod in its Queue anew, because Queues have changed.

        Other tasks may run after each pod, but must not change nominations.
        """
        for uid, nominee in self._by_uid.items():
            if (slot := self._columns.slot(uid, nominated=True)) is not None:
                self._count(nominee.pod, self.queue_of(uid), -1)
                number = self._queue_number(nominee)
                self._columns.requeue(slot, number)
                self._count(nominee.pod, number, 1)
            pause()

    def _count(self, pod: Pod, number: int, sign: int) -> None:
        """Add the pod's quota, times `sign`, to what nominated pods use of the Queue `number`."""
        if number == NO_QUEUE:
            return
        key = number, pod.spec.priority
        counts = self._queued.setdefault(key, Counter())
        for resource, amount in self._demand_of((pod,)).items():
            add_count(counts, resource, sign * amount)
        if not counts:
            del self._queued[key]

    def _queue_number(self, nominee: Nominee) -> int:
        return NO_QUEUE if nominee.reservation is not None else self._queue_of(nominee.pod)

    def drop(self, uid: Uid) -> Nominee | None:
        """Remove the nomination of the pod of this uid and return it; None if there is none."""
        nominee = self._by_uid.pop(uid, None)
        if nominee is None:
            return None
        drop_item(self._by_row, nominee.row, uid)
        self._count(nominee.pod, self.queue_of(uid), -1)
        self._columns.withdraw(nominee.pod)
        return nominee
