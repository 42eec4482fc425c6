"""The cpu and memory that nodes offer and use, as float64, for the scores of every profile.

For every pod, these scores divide amounts of all nodes. Division of float64 is several times as
fast as of int64, and exact while amounts are not too large. Converting the columns for each pod
would cost as much as the division, so float64 copies are kept. They follow the table's change log:
between two decisions one or two nodes change, and Python's numbers are then faster than arrays.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.model.resources import CPU, MEMORY
from mooring.state.columns import ChangeLog, Column, IntArray, ResourceColumns, read_only

FloatArray = npt.NDArray[np.float64]

MOST_EXACT: Final = 2**53 // 200
"""The sum of two amounts up to this number, times 100, is exact in float64; nodes with larger
amounts are in `Usage.inexact`."""
_FEW_ROWS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """Cpu (index 0) and memory (index 1) of some nodes; float64[2, nodes] unless noted."""

    offered: FloatArray
    """The allocatable millicores and bytes of the nodes, at least 1, so that divisions work."""
    requested: FloatArray
    left_scored: FloatArray
    """`offered` minus `NodeView.requested_scored`, in millicores and bytes; may be negative."""
    evenness: IntArray
    """int64[nodes], 50 to 100: `evenness_of_two` of the used shares, rounded down."""
    inexact: IntArray
    """The positions (int64) of nodes for which the other arrays must not be used.

    Such a node lacks cpu or memory, or has an amount below 0 or above MOST_EXACT.
    """
    scratch: FloatArray
    """float64[2, nodes] for intermediate results; the next computation overwrites it."""

    def take(self, positions: IntArray) -> "Usage":
        """Return the usage of the nodes at these positions."""
        inexact = self.inexact
        if len(inexact):
            inexact = np.flatnonzero(np.isin(positions, inexact))
        return Usage(
            self.offered.take(positions, 1),
            self.requested.take(positions, 1),
            self.left_scored.take(positions, 1),
            self.evenness.take(positions),
            inexact,
            np.empty((2, len(positions))),
        )


def evenness_of_two(shares: FloatArray) -> FloatArray:
    """Return (1 - standard deviation) * 100 of the two shares of each node, not rounded.

    `shares` is float64[2, nodes] and is overwritten.
    """
    # The standard deviation of two numbers is half their distance, so the result is (2 - distance)
    # * 50. This is exact: halving and doubling do not round.
    found: FloatArray = shares[0]
    found -= shares[1]
    np.abs(found, out=found)
    np.subtract(2.0, found, out=found)
    found *= 50.0
    return found


class UsageColumns:
    """The usage of all rows of the node table; a row without a node offers 1 of each resource."""

    def __init__(
        self,
        present: Column,
        allocatable: ResourceColumns,
        requested: ResourceColumns,
        scored: tuple[Column, Column],
        changes: ChangeLog,
    ) -> None:
        """Follow these columns of the node table; `scored` has the columns `requested_scored_*`."""
        self._present = present
        self._allocatable = allocatable
        self._requests = requested
        self._resources = tuple(zip((CPU, MEMORY), scored, strict=True))
        self._changes = changes
        self._position = -1
        self._inexact = set[int]()
        self._renewed = False
        """Whether `_inexact` may have changed since `of_rows` was called last."""
        self._resize(0)

    @property
    def bytes(self) -> int:
        """The memory of the float64 copies, in bytes."""
        return sum(array.nbytes for array in (*self._arrays, self._scratch))

    def of_rows(self, rows: int) -> Usage:
        """Return the usage of all `rows` rows of the table."""
        if rows != len(self._evenness):
            self._resize(rows)
        if self._position != self._changes.position:
            self._follow()
        return self._whole

    def _resize(self, rows: int) -> None:
        self._offered, self._requested, self._left_scored, self._scratch = np.zeros((4, 2, rows))
        self._evenness: IntArray = np.zeros(rows, np.int64)
        self._arrays = (self._offered, self._requested, self._left_scored, self._evenness)
        self._inexact.clear()
        self._whole = self._seen()
        self._position = -1

    def _seen(self) -> Usage:
        inexact = np.array(sorted(self._inexact), np.int64)
        offered, requested, left_scored, evenness = map(read_only, self._arrays)
        return Usage(offered, requested, left_scored, evenness, inexact, self._scratch)

    def _follow(self) -> None:
        rows, known = len(self._evenness), self._position >= 0
        changed = self._changes.since(self._position) if known else None
        if changed is not None:
            changed = changed[changed < rows]  # others are of nodes that came and went
        if changed is None or len(changed) > rows:
            self._put_many(np.arange(rows))
        elif len(changed) > _FEW_ROWS:
            self._put_many(changed)
        else:
            for row in changed.tolist():
                self._put(row)
        if self._renewed:
            self._whole, self._renewed = self._seen(), False
        self._position = self._changes.position

    def _put(self, row: int) -> None:
        # `_put_many` must compute the same for many rows.
        present, exact = self._present.data.item(row), True
        shares: list[float] = []
        for index, (name, scored) in enumerate(self._resources):
            offered = self._allocatable.at(name, row) if present else 1
            requested, more = self._requests.at(name, row), scored.data.item(row)
            if min(requested, more) < 0 or not 0 < offered <= MOST_EXACT >= max(requested, more):
                exact, offered, requested, more = False, 1, 0, 0
            self._offered[index, row] = offered
            self._requested[index, row] = requested
            self._left_scored[index, row] = offered - more
            shares.append(min(requested / offered, 1.0))
        self._evenness[row] = int((2.0 - abs(shares[0] - shares[1])) * 50.0)
        if (row in self._inexact) != (present and not exact):
            self._inexact ^= {row}
            self._renewed = True

    def _put_many(self, rows: IntArray) -> None:
        present = self._present.data[rows]
        exact = np.ones(len(rows), np.bool_)
        for index, (name, scored) in enumerate(self._resources):
            offered = np.where(present, self._allocatable.of_rows(name, rows), 1)
            requested, more = self._requests.of_rows(name, rows), scored.data[rows]
            usable = (offered > 0) & (offered <= MOST_EXACT)
            for amounts in (requested, more):
                usable &= (amounts >= 0) & (amounts <= MOST_EXACT)
            self._offered[index, rows] = np.where(usable, offered, 1)
            self._requested[index, rows] = np.where(usable, requested, 0)
            self._left_scored[index, rows] = np.where(usable, offered - more, 1)
            exact &= usable
        shares = np.minimum(self._requested[:, rows] / self._offered[:, rows], 1.0)
        self._evenness[rows] = evenness_of_two(shares)
        self._inexact.difference_update(rows.tolist())
        self._inexact.update(rows[present & ~exact].tolist())
        self._renewed = True
