"""Pods that are placed on a node, assumed or confirmed.

    Initial --assume--> Assumed --confirm (the watch shows it bound)--> Added --delete--> Deleted
       |                   |                                              ^
       |                   +--forget, or expire without confirmation      |
       +---------------------- confirm (another scheduler bound it) ------+

A pod, which its uid identifies, is on one node. Its name may return before the watch has shown its
end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mooring.model.devices import Assignment, CardFormat
from mooring.model.names import Names
from mooring.model.pod import Pod, Uid
from mooring.state.topology.equivalent_pods import EquivalentPods

__all__ = ["PlacedPod", "PodTable"]


@dataclass(slots=True)
class PlacedPod:
    """A pod on a row, `assumed` until the watch confirms.

    `deadline` is when an assumption whose binding went through expires, in seconds on the caller's
    monotonic clock; None while it is being bound. `equivalent` is set while the pod is counted.
    `announced` is False while an assumed pod's ADD event is yet to come; `was_nominated` says that
    it was nominated to the row when it was assumed.
    """

    pod: Pod
    row: int
    assumed: bool
    deadline: float | None = None
    announced: bool = True
    was_nominated: bool = False
    cards: tuple[CardFormat, Assignment] | None = None
    """The GPU cards chosen for the pod, and the format they were chosen by; None without any."""
    equivalent: EquivalentPods = field(init=False, repr=False, compare=False)
    arrival: int | None = field(default=None, init=False, repr=False, compare=False)
    """Pods that came later have larger numbers; it stays while a trial removes the pod."""


class PodTable:
    """All placed pods, by uid and by row.

    A namespace/name may have more than one of them: a pod whose deletion the watch has not shown
    yet, and the one that was made anew under its name.
    """

    def __init__(self) -> None:
        self._by_uid: dict[Uid, PlacedPod] = {}
        self._by_row: dict[int, dict[Uid, PlacedPod]] = {}
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

    def named(self, key: str) -> PlacedPod | None:
        """Return the placed pod of this namespace/name, for people who ask by it.

        If there are several, it is the one that was created last.
        """
        found = [self._by_uid[uid] for uid in reversed(self._names.of(key))]
        return max(found, key=lambda placed: placed.pod.created, default=None)

    def on(self, row: int) -> dict[Uid, PlacedPod]:
        """Return the pods of a row by uid; not to be changed by the caller."""
        return self._by_row.get(row, {})

    def put(self, placed: PlacedPod) -> None:
        """Add the pod.

        Raises:
            ValueError: if it is placed already.
        """
        uid = placed.pod.uid
        if uid in self._by_uid:
            raise ValueError(f"{placed.pod.key} is placed already")
        self._by_uid[uid] = placed
        self._by_row.setdefault(placed.row, {})[uid] = placed
        self._names.add(placed.pod.key, uid)
        if placed.assumed:
            self.assumed[uid] = placed

    def move(self, placed: PlacedPod, row: int) -> None:
        """Put the pod, which is here, on another row."""
        self._leave_row(placed)
        placed.row = row
        self._by_row.setdefault(row, {})[placed.pod.uid] = placed

    def pop(self, uid: Uid) -> PlacedPod | None:
        """Remove the pod and return it, if there was one."""
        placed = self._by_uid.pop(uid, None)
        self.assumed.pop(uid, None)
        if placed is not None:
            self._names.remove(placed.pod.key, uid)
            self._leave_row(placed)
        return placed

    def _leave_row(self, placed: PlacedPod) -> None:
        on_row = self._by_row[placed.row]
        del on_row[placed.pod.uid]
        if not on_row:
            del self._by_row[placed.row]
