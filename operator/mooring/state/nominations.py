"""Pods for which room is being made on a node, by node row (backend/queue/nominator.go)."""

from collections.abc import Iterator
from typing import NamedTuple

from mooring.model.pod import Pod
from mooring.state.pod_columns import PodColumns

__all__ = ["Nominations", "Nominee"]


class Nominee(NamedTuple):
    """A pod and the row it is nominated to."""

    pod: Pod
    row: int


class Nominations:
    """Every nominated pod has one row; its demand counts in the pod columns as nominated."""

    def __init__(self, columns: PodColumns) -> None:
        self._columns = columns
        self._by_key: dict[str, Nominee] = {}
        self._by_row: dict[int, dict[str, Pod]] = {}

    def __iter__(self) -> Iterator[Nominee]:
        return iter(tuple(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: str) -> Nominee | None:
        """Where the pod of this namespace/name is nominated to."""
        return self._by_key.get(key)

    def rows(self) -> list[int]:
        """The rows that have nominated pods."""
        return list(self._by_row)

    def on(self, row: int) -> tuple[Pod, ...]:
        """The pods nominated to the row."""
        return tuple(self._by_row.get(row, {}).values())

    def below(self, row: int | None, priority: int) -> list[Pod]:
        """The row's nominated pods of lower priority; none where there is no such row."""
        here = self.on(row) if row is not None else ()
        return [pod for pod in here if pod.shape.priority < priority]

    def at(self, row: int, least_priority: int, other_than: str) -> list[Pod]:
        """The row's nominated pods of at least this priority, without the one of that key."""
        return [
            pod
            for pod in self.on(row)
            if pod.shape.priority >= least_priority and pod.key != other_than
        ]

    def put(self, pod: Pod, row: int) -> None:
        """The pod is nominated to the row, and to no other."""
        self.drop(pod.key)
        self._by_key[pod.key] = Nominee(pod, row)
        self._by_row.setdefault(row, {})[pod.key] = pod
        self._columns.put(pod, row, nominated=True)

    def drop(self, key: str) -> Nominee | None:
        """The pod is nominated nowhere; returns where it was."""
        nominee = self._by_key.pop(key, None)
        if nominee is None:
            return None
        on_row = self._by_row[nominee.row]
        del on_row[key]
        if not on_row:
            del self._by_row[nominee.row]
        self._columns.drop(nominee.pod, nominated=True)
        return nominee
