"""Keeps the results of node-only plugins for all nodes as columns, which follow changes of nodes.

Specs with an equal key share a column, as long as one of them is kept: many specs differ in
requests alone, and have the same tolerations, node selector or images (`filter_key`, `score_key`).
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mooring.framework.pipeline import Pipeline
from mooring.framework.plugin import Normalize
from mooring.framework.scores import normalize_score
from mooring.model.pod import Pod
from mooring.state.columns import ChangeLog, IntArray
from mooring.state.view import NodeView

__all__ = ["Column", "Columns"]

_BYTES_PER_COLUMN: Final = 2 * 1024
"""What a column takes beside its array and its key."""
_NOTHING: Final = np.zeros(0, np.bool_)

_Key = tuple[Pipeline, str, str, Hashable]
_Run = Callable[[Pod, NodeView], npt.NDArray[Any]]


class Column:
    """One plugin's results for all specs with the same key: `values` (bool or int64[rows])."""

    __slots__ = (
        "_as_of",
        "_changes",
        "_copies",
        "_highest",
        "_normalized",
        "_other_bytes",
        "_owner",
        "_position",
        "key",
        "users",
        "values",
    )

    def __init__(
        self, key: _Key, changes: ChangeLog, owner: "Columns", other_bytes: int, *, copies: bool
    ) -> None:
        self.key = key
        self.users = 0
        """The results of how many specs use it."""
        self.values: npt.NDArray[Any] = _NOTHING
        self._highest: int | None = None
        self._normalized: IntArray | None = None
        self._changes = changes
        self._copies = copies
        """Whether the plugin may return a column of the node table, which changes."""
        self._position = -1
        self._as_of: Hashable = None
        self._owner = owner
        self._other_bytes = other_bytes

    @property
    def bytes(self) -> int:
        """About how much memory the column and its key take."""
        normalized = self._normalized.nbytes if self._normalized is not None else 0
        return self._other_bytes + self.values.nbytes + normalized

    @property
    def highest(self) -> int:
        """The highest value."""
        if self._highest is None:
            self._highest = int(self.values.max(initial=0))
        return self._highest

    def normalized(self, how: Normalize) -> IntArray:
        """Return the raw scores as 0-100 for decisions in which the highest one is feasible.

        `how` is that of the plugin.
        """
        normalized = self._normalized
        if normalized is None:
            normalized = self._normalized = normalize_score(self.values, how)
            self._count(normalized.nbytes)
        return normalized

    def refresh(self, pod: Pod, nodes: NodeView, as_of: Hashable, run: _Run) -> None:
        """Bring the values up to date with the node table; `pod` is one that has this key.

        `run` runs the plugin: on all nodes if `as_of` is another one than the last time, else on
        those that changed.
        """
        position = self._changes.position
        is_whole = self._as_of == as_of and len(self.values) == len(nodes)
        if is_whole and self._position == position:
            return
        rows = self._changes.since(self._position) if is_whole else None
        if rows is None or 2 * len(rows) > len(nodes):
            self._count(-self.values.nbytes)
            self.values = _NOTHING  # so that the plugin's arrays take its place
            values = run(pod, nodes)
            self.values = values.copy() if self._copies else values
            self._count(self.values.nbytes)
        else:
            self.values[rows] = run(pod, nodes.take(rows))
        if self._normalized is not None:
            self._count(-self._normalized.nbytes)
        self._normalized = self._highest = None
        # Only now: after an exception of the plugin, the same rows are looked at again.
        self._position, self._as_of = position, as_of

    def _count(self, more: int) -> None:
        if self.users:  # else it is dropped, and a decision still reads it
            self._owner.bytes += more


class Columns:
    """The columns of all specs."""

    def __init__(self) -> None:
        self._columns: dict[_Key, Column] = {}
        self.bytes = 0
        """About how much memory the columns and their keys take."""

    def take(self, key: _Key, changes: ChangeLog, key_bytes: int, *, copies: bool = True) -> Column:
        """Return the column with this key, which follows this log, for one more user."""
        column = self._columns.get(key)
        if column is None:
            other_bytes = _BYTES_PER_COLUMN + key_bytes
            column = self._columns[key] = Column(key, changes, self, other_bytes, copies=copies)
            self.bytes += column.bytes
        column.users += 1
        return column

    def release(self, column: Column) -> None:
        """Drop the column if this was its last user."""
        column.users -= 1
        if not column.users:
            del self._columns[column.key]
            self.bytes -= column.bytes
