"""Pods that are placed on a node: assumed, or confirmed by the watch.

    Initial --assume--> Assumed --confirm (the watch shows it bound)--> Added --delete--> Deleted
       |                   |                                              ^
       |                   +--forget, or expire without confirmation      |
       +---------------------- confirm (another scheduler bound it) ------+

A pod is identified by its uid and is on one node. A new pod may have the name of an older
pod whose end the watch has not shown yet.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from mooring.gpu_cards.model.cards import Assignment, CardFormat
from mooring.model.names import Names
from mooring.model.pod import Pod, Uid
from mooring.state.topology.equivalent_pods import EquivalentPods

NO_QUEUE: Final = -1
"""The value of `queue` for a pod that is in no Queue."""


@dataclass(slots=True)
class Assumption:
    """The state of an assumed pod until the watch confirms it.

    Attributes:
        deadline: When the assumption expires after a successful binding, in seconds on the caller's
            monotonic clock; None while the pod is being bound.
        announced: Whether the pod's ADD event has been delivered.
        was_nominated: Whether the pod was nominated to this node when it was assumed.
    """

    deadline: float | None = None
    announced: bool = False
    was_nominated: bool = False


@dataclass(slots=True, eq=False)
class PlacedPod:
    """A pod on the node of `row`; `assumption` is None once the watch has shown the pod bound.

    Every pod on a node has a PlacedPod, so every field costs memory. `equivalent` and `slot` (the
    pod's slot in PodColumns) are set only while the pod is counted on its node.
    """

    pod: Pod
    row: int
    assumption: Assumption | None = None
    cards: tuple[CardFormat, Assignment] | None = None
    """The GPU cards assigned to the pod, and the format of the assignment; None without cards."""
    queue: int = NO_QUEUE
    """The number of the Queue in which the pod is counted."""
    equivalent: EquivalentPods = field(init=False, repr=False)
    slot: int = field(init=False, repr=False)
    index: int = field(init=False, repr=False)
    """The position of the pod in PodTable's list of the row's pods."""

    @property
    def assumed(self) -> bool:
        """Whether the pod is assumed: the watch has not shown yet that it is bound."""
        return self.assumption is not None

    @property
    def announced(self) -> bool:
        """Whether the pod's ADD event has been delivered."""
        return self.assumption is None or self.assumption.announced

    @property
    def deadline(self) -> float | None:
        """The time when the assumption expires, see Assumption; None if it does not expire."""
        return self.assumption.deadline if self.assumption is not None else None


class PodTable:
    """All placed pods, by uid and by row.

    Two pods may have the same namespace/name: a deleted pod whose end the watch has not shown yet,
    and a newer one.
    """

    def __init__(self) -> None:
        self._by_uid: dict[Uid, PlacedPod] = {}
        self.by_uid: Mapping[Uid, PlacedPod] = MappingProxyType(self._by_uid)
        self._by_row: dict[int, list[PlacedPod]] = {}
        self._names = Names()
        self.assumed: dict[Uid, PlacedPod] = {}
        """The pods that wait for confirmation, by uid."""

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[PlacedPod]:
        return iter(self._by_uid.values())

    def get(self, uid: Uid) -> PlacedPod | None:
        """Return the placed pod of this uid; None if it is on no node."""
        return self._by_uid.get(uid)

    def assumption(self, uid: Uid) -> Assumption | None:
        """Return the assumption of the pod of this uid; None if it is not assumed."""
        placed = self.assumed.get(uid)
        return placed.assumption if placed is not None else None

    def named(self, key: str) -> PlacedPod | None:
        """Return the newest placed pod of this namespace/name, or None; for messages only."""
        found = [self._by_uid[uid] for uid in reversed(self._names.of(key))]
        return max(found, key=lambda placed: placed.pod.created, default=None)

    def on(self, row: int) -> Sequence[PlacedPod]:
        """Return the pods on the node of this row, in no order; valid until the table changes."""
        return self._by_row.get(row, ())

    def put(self, placed: PlacedPod) -> None:
        """Add the pod; raise ValueError if a pod of its uid is placed already."""
        uid = placed.pod.uid
        if uid in self._by_uid:
            raise ValueError(f"{placed.pod.key} is placed already")
        self._by_uid[uid] = placed
        self._enter_row(placed, placed.row)
        self._names.add(placed.pod.key, uid)
        if placed.assumed:
            self.assumed[uid] = placed

    def move(self, placed: PlacedPod, row: int) -> None:
        """Put a pod of this table on the node of another row."""
        self._leave_row(placed)
        self._enter_row(placed, row)

    def pop(self, uid: Uid) -> PlacedPod | None:
        """Remove the pod and return it; None if there was none."""
        placed = self._by_uid.pop(uid, None)
        self.assumed.pop(uid, None)
        if placed is not None:
            self._names.remove(placed.pod.key, uid)
            self._leave_row(placed)
        return placed

    def _enter_row(self, placed: PlacedPod, row: int) -> None:
        on_row = self._by_row.setdefault(row, [])
        placed.row, placed.index = row, len(on_row)
        on_row.append(placed)

    def _leave_row(self, placed: PlacedPod) -> None:
        on_row = self._by_row[placed.row]
        last = on_row.pop()
        if last is not placed:
            on_row[placed.index] = last
            last.index = placed.index
        if not on_row:
            del self._by_row[placed.row]
