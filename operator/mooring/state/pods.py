"""Pods that are placed on a node, assumed or confirmed.

    Initial --assume--> Assumed --confirm (the watch shows it bound)--> Added --delete--> Deleted
       |                   |                                              ^
       |                   +--forget, or expire without confirmation      |
       +---------------------- confirm (another scheduler bound it) ------+

A pod (uid) is on one node, and a namespace/name belongs to one pod at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mooring.model.devices import Assignment, CardFormat
from mooring.model.pod import Pod
from mooring.state.topology.equivalent_pods import EquivalentPods

__all__ = ["PodState", "PodTable"]


@dataclass(slots=True)
class PodState:
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


class PodTable:
    """All placed pods, by key and by row."""

    def __init__(self) -> None:
        self._by_key: dict[str, PodState] = {}
        self._by_row: dict[int, dict[str, PodState]] = {}
        self.assumed: dict[str, PodState] = {}
        """The pods that wait for confirmation, by key."""

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[PodState]:
        return iter(self._by_key.values())

    def get(self, key: str) -> PodState | None:
        """The placed pod of this namespace/name."""
        return self._by_key.get(key)

    def on(self, row: int) -> dict[str, PodState]:
        """The pods of a row by key; not to be changed by the caller."""
        return self._by_row.get(row, {})

    def put(self, placed: PodState) -> None:
        """Adds the pod; no other may have its key."""
        key = placed.pod.key
        if key in self._by_key:
            raise ValueError(f"{key} is placed already")
        self._by_key[key] = placed
        self._by_row.setdefault(placed.row, {})[key] = placed
        if placed.assumed:
            self.assumed[key] = placed

    def pop(self, key: str) -> PodState | None:
        """Removes the pod and returns it, if there was one."""
        placed = self._by_key.pop(key, None)
        self.assumed.pop(key, None)
        if placed is not None:
            on_row = self._by_row[placed.row]
            del on_row[key]
            if not on_row:
                del self._by_row[placed.row]
        return placed
