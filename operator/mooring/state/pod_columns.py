"""Placed and nominated pods as columns, in which preemption searches for victims.

Each placed pod has a slot: its node's row, priority, start time and requests, and whether it is
being evicted. A nominated pod has a slot, too, because other pods must leave room for it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.model.pod import Pod, Uid
from mooring.state.columns import Columns, IntArray, Interned, ResourceColumns, read_only
from mooring.state.pods import NO_QUEUE, PlacedPod, PodTable

_NOWHERE = -1
_NO_GROUP = -1
_NOT_STARTED = np.inf


class PodColumns:
    """Columns with a value for each placed or nominated pod; a slot is a pod's index in them.

    Only ClusterState writes. A free slot has -1 in `rows`. Requests are int64 in the units of the
    node table. `started` is float64 seconds since the epoch; infinity if the pod has not started.
    """

    def __init__(self, placed: PodTable) -> None:
        columns = self._columns = Columns()
        self._rows = columns.add(np.int64, _NOWHERE)
        self._priority = columns.add(np.int64)
        self._started = columns.add(np.float64)
        self._arrivals = columns.add(np.int64)
        self._nominated = columns.add(np.bool_)
        self._evicting = columns.add(np.bool_)
        self._terminating = columns.add(np.bool_)
        self._keeps_out_below = columns.add(np.int64)
        self._backfill_until = columns.add(np.float64)
        self._groups = columns.add(np.int64, _NO_GROUP)
        self._queues = columns.add(np.int64, NO_QUEUE)
        self._namespaces: Interned[str] = Interned(columns, "")
        self._requests = ResourceColumns(columns)
        self._pods: list[Pod | None] = []
        self._placed = placed
        self._nominees: dict[Uid, int] = {}
        """The slots of nominated pods, by uid."""
        self._free: list[int] = []

    @property
    def bytes(self) -> int:
        """The memory of all columns, in bytes."""
        return self._columns.bytes

    @property
    def pods(self) -> Sequence[Pod | None]:
        """The pod of each slot, None for free slots; read-only."""
        return self._pods

    def slot(self, uid: Uid, *, nominated: bool) -> int | None:
        """Return the slot of the placed or nominated pod of this uid; None if it has none."""
        if nominated:
            return self._nominees.get(uid)
        placed = self._placed.get(uid)
        return placed.slot if placed is not None else None

    def slots_of(self, pods: Iterable[Pod]) -> IntArray:
        """Return the pods' slots (int64) without duplicates; omit pods that are on no node."""
        get = self._placed.by_uid.get  # there may be 2,000 pods in each of 256 searches
        found = [placed.slot for pod in pods if (placed := get(pod.uid)) is not None]
        return np.array([*dict.fromkeys(found)], np.int64)

    @property
    def rows(self) -> IntArray:
        """The node row of each slot, -1 for free slots."""
        return read_only(self._rows.data[: len(self._pods)])

    @property
    def priority(self) -> IntArray:
        """The priority of each slot's pod, as int64[slots]."""
        return read_only(self._priority.data[: len(self._pods)])

    def has_below(self, priority: int) -> bool:
        """Return whether any pod, placed or nominated, has a priority lower than `priority`."""
        return bool(((self.priority < priority) & (self.rows >= 0)).any())

    @property
    def started(self) -> npt.NDArray[np.float64]:
        """The time when each slot's pod started, in seconds since the epoch."""
        return read_only(self._started.data[: len(self._pods)])

    def by_importance(self, slots: IntArray, *keys: npt.NDArray[Any]) -> IntArray:
        """Return the indices (int64) that sort `slots` by `keys`, then by importance of the pods.

        `keys[0]` is compared first. The most important pod comes first: it has the highest
        priority, then the earliest start, then the earliest arrival.
        """
        arrived, started = self._arrivals.data[slots], self._started.data[slots]
        priority = self._priority.data[slots]
        order: IntArray = np.lexsort((arrived, started, -priority, *keys[::-1]))
        return order

    def by_arrival(self, slots: IntArray, *keys: npt.NDArray[Any]) -> IntArray:
        """Return the indices (int64) that sort `slots` by `keys`, then by arrival of the pods."""
        # Slots do not show the arrival: a pod that a trial removed comes back in another slot.
        order: IntArray = np.lexsort((self._arrivals.data[slots], *keys[::-1]))
        return order

    @property
    def nominated(self) -> npt.NDArray[np.bool_]:
        """True for slots of nominated pods."""
        return read_only(self._nominated.data[: len(self._pods)])

    @property
    def evicting(self) -> npt.NDArray[np.bool_]:
        """True for slots of pods that this scheduler is evicting."""
        return read_only(self._evicting.data[: len(self._pods)])

    @property
    def leaving(self) -> npt.NDArray[np.bool_]:
        """True for slots of pods that are terminating, or that this scheduler is evicting."""
        found: npt.NDArray[np.bool_] = self._terminating.data[: len(self._pods)] | self.evicting
        return found

    @property
    def groups(self) -> IntArray:
        """The number of each slot's pod group; -1 if the pod has no group or is terminating."""
        return read_only(self._groups.data[: len(self._pods)])

    def in_groups(self, numbers: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return bool[slots]: True for pods whose group has one of these numbers."""
        return np.isin(self.groups, np.fromiter(numbers, np.int64))

    @property
    def queues(self) -> IntArray:
        """The number of the Queue of each slot's pod; NO_QUEUE for pods without a Queue."""
        return read_only(self._queues.data[: len(self._pods)])

    def queue_of(self, pod: Pod) -> int:
        """Return the number of the Queue in which the placed pod is counted, or NO_QUEUE."""
        placed = self._placed.get(pod.uid)
        return placed.queue if placed is not None else NO_QUEUE

    def requeue(self, slot: int, queue: int) -> None:
        """Set the number of the Queue of the slot's pod."""
        self._queues.data[slot] = queue

    def in_namespaces(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Return bool[slots]: True for pods in one of these namespaces."""
        codes = [code for name in names if (code := self._namespaces.code_of(name)) is not None]
        return np.isin(self._namespaces.codes.data[: len(self._pods)], codes)

    def nominated_demand(
        self,
        resources: Iterable[str],
        priority: int,
        other_than: Uid,
        rows: int,
        ends: float = np.inf,
    ) -> tuple[IntArray, dict[str, IntArray]]:
        """Return the number of pods nominated to each row, and their requests by resource.

        Only pods for which the pod `other_than` must leave room are counted. That pod has this
        `priority`, and ends at `ends` (seconds since the epoch).
        """
        chosen = self.nominated & (self.rows >= 0)
        chosen &= self._keeps_out_below.data[: len(self._pods)] > priority
        chosen &= self._backfill_until.data[: len(self._pods)] < ends
        own = self.slot(other_than, nominated=True)
        if own is not None:
            chosen[own] = False
        slots = np.flatnonzero(chosen)
        at = self.rows[slots]
        sums = {name: np.zeros(rows, np.int64) for name in resources}
        for name, total in sums.items():
            np.add.at(total, at, self.requests(name)[slots])
        return np.bincount(at, minlength=rows), sums

    @property
    def resources(self) -> Iterator[str]:
        """The resources that at least one pod requests."""
        return iter(self._requests)

    def requests(self, resource: str) -> IntArray:
        """Return int64[slots]: the request of each slot's pod for a resource, 0 without one."""
        requests = self._requests.amounts(resource, len(self._pods))
        return np.zeros(len(self._pods), np.int64) if requests is None else requests

    def place(
        self,
        placed: PlacedPod,
        *,
        arrival: int,
        evicting: bool,
        group: int | None = None,
    ) -> None:
        """Add the placed pod in a free slot; a pod that arrives later gets a larger `arrival`.

        `group` is the number of the pod's group; None without one.
        """
        slot = placed.slot = self._put(placed.pod, placed.row)
        self._arrivals.data[slot] = arrival
        self._evicting.data[slot] = evicting
        self._groups.data[slot] = _NO_GROUP if group is None else group
        self._queues.data[slot] = placed.queue

    def displace(self, placed: PlacedPod) -> int:
        """Free the placed pod's slot; return the `arrival` that was given to `place`."""
        arrival = int(self._arrivals.data[placed.slot])
        self._drop(placed.slot, placed.pod)
        return arrival

    def nominate(
        self,
        pod: Pod,
        row: int,
        keeps_out_below: int,
        backfill_until: float,
        queue: int = NO_QUEUE,
    ) -> None:
        """Add the nominated pod in a free slot; it must not be nominated already.

        A pod that is both placed and nominated has two slots. For `keeps_out_below` and
        `backfill_until` see Nominee.
        """
        slot = self._nominees[pod.uid] = self._put(pod, row)
        self._nominated.data[slot] = True
        self._keeps_out_below.data[slot] = keeps_out_below
        self._backfill_until.data[slot] = backfill_until
        self._queues.data[slot] = queue

    def withdraw(self, pod: Pod) -> None:
        """Free the slot of the nominated pod."""
        slot = self._nominees.pop(pod.uid)
        self._nominated.data[slot] = False
        self._drop(slot, pod)

    def _put(self, pod: Pod, row: int) -> int:
        slot = self._free.pop() if self._free else len(self._pods)
        if slot == len(self._pods):
            self._pods.append(None)
            self._columns.reserve(slot + 1)
        self._pods[slot] = pod
        self._rows.data[slot] = row
        self._priority.data[slot] = pod.spec.priority
        self._started.data[slot] = _NOT_STARTED if pod.started is None else pod.started
        self._terminating.data[slot] = pod.terminating
        self._namespaces.put(slot, pod.namespace)
        for resource, amount in pod.spec.demand.resources.items():
            self._requests.put(resource, slot, amount)
        return slot

    def _drop(self, slot: int, pod: Pod) -> None:
        self._pods[slot] = None
        self._rows.data[slot] = _NOWHERE
        self._arrivals.data[slot] = 0
        self._evicting.data[slot] = False
        self._terminating.data[slot] = False
        self._groups.data[slot] = _NO_GROUP
        self._queues.data[slot] = NO_QUEUE
        self._namespaces.put(slot, "")
        for resource in pod.spec.demand.resources:
            self._requests.put(resource, slot, 0)
        self._free.append(slot)

    def move(self, placed: PlacedPod) -> None:
        """Store the row of the pod's new node."""
        self._rows.data[placed.slot] = placed.row

    def renew(self, placed: PlacedPod, group: int | None = None) -> None:
        """Replace the placed pod by a newer version with equal namespace, priority and requests."""
        slot, pod = placed.slot, placed.pod
        self._pods[slot] = pod
        self._started.data[slot] = _NOT_STARTED if pod.started is None else pod.started
        self._terminating.data[slot] = pod.terminating
        self._groups.data[slot] = _NO_GROUP if group is None else group

    def mark_evicting(self, pod: Pod, *, evicting: bool) -> None:
        """Set whether the placed pod is being evicted; do nothing if it is on no node."""
        placed = self._placed.get(pod.uid)
        if placed is not None:
            self._evicting.data[placed.slot] = evicting
