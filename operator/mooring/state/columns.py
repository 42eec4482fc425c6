"""Growing numpy columns and the log of rows that changed."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from mooring.model.quantity import INT64_MAX

IntArray = npt.NDArray[np.int64]

_FIRST_CAPACITY: Final = 64
_GROWTH: Final = 4
"""A full column grows by 1/4 of its size, so that adding a row copies about four values."""
_EXACT: Final = 2**53
_max: Final = np.maximum.reduce
_Value = TypeVar("_Value", bound=Hashable)


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view of the same data that raises an error on writes."""
    view = array.view()
    view.flags.writeable = False
    return view


def as_exact_floats(
    columns: Sequence[IntArray], factor: int, *amounts: int
) -> list[npt.NDArray[np.float64]] | None:
    """Return the columns as float64, or None if the caller's results may be inexact.

    The caller multiplies sums of these columns and `amounts` by `factor`.
    """
    # No number may be negative or larger than this.
    most = _EXACT // (2 * factor)
    if max(amounts, default=0) > most or min(amounts, default=0) < 0:
        return None
    for column in columns:
        # As unsigned numbers the negative ones are the largest, so one comparison finds both.
        if len(column) and int(_max(column.view(np.uint64))) > most:
            return None
    return [column.astype(np.float64) for column in columns]


class Column:
    """One contiguous 1-D array that can grow; unused rows have the value `fill`."""

    __slots__ = ("_first", "data", "fill")

    def __init__(self, dtype: npt.DTypeLike, fill: int, capacity: int) -> None:
        self.fill = fill
        self.data: npt.NDArray[Any] = np.full(capacity, fill, dtype)
        self._first: npt.NDArray[Any] = self.data[:0]

    def first(self, rows: int) -> npt.NDArray[Any]:
        """Return a read-only view of the values of the first `rows` rows."""
        if len(self._first) != rows:
            self._first = read_only(self.data[:rows])
        return self._first

    def grow(self, capacity: int) -> None:
        """Make space for `capacity` rows in all; existing rows keep their values."""
        grown = np.full(capacity, self.fill, self.data.dtype)
        grown[: len(self.data)] = self.data
        self.data = grown
        self._first = grown[:0]


class Columns:
    """The columns of one table; all have the same capacity and grow together."""

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self._columns: list[Column] = []

    def add(self, dtype: npt.DTypeLike, fill: int = 0) -> Column:
        """Add a column of this dtype, filled with `fill`, and return it."""
        column = Column(dtype, fill, self.capacity)
        self._columns.append(column)
        return column

    def remove(self, column: Column) -> None:
        """Remove a column of this table, to free its memory."""
        self._columns.remove(column)

    @property
    def bytes(self) -> int:
        """The memory of all columns, in bytes."""
        return sum(column.data.nbytes for column in self._columns)

    def reserve(self, rows: int) -> None:
        """Make space for at least `rows` rows in every column."""
        if rows <= self.capacity:
            return
        while self.capacity < rows:
            # Doubling would leave half of the columns of 150,000 pods unused.
            self.capacity += max(self.capacity // _GROWTH, _FIRST_CAPACITY)
        for column in self._columns:
            column.grow(self.capacity)


class Sums:
    """Adds and subtracts amounts exactly; shows each sum as at most int64 (SaturatingAdd)."""

    __slots__ = ("_beyond",)

    def __init__(self) -> None:
        self._beyond: dict[tuple[str, int], int] = {}
        """Maps a resource and a row to the exact sum, for sums that exceed int64."""

    def added(self, resource: str, row: int, shown: int, amount: int) -> int:
        """Return the sum to show after `amount` is added; `shown` was shown before."""
        total = (self._beyond.pop((resource, row), shown) if self._beyond else shown) + amount
        if total <= INT64_MAX:
            return total
        self._beyond[resource, row] = total
        return INT64_MAX

    def wrapped(self, resource: str, rows: IntArray, shown: IntArray) -> IntArray:
        """Return the exact sum of each row modulo 2**64; `shown` has the sums limited to int64."""
        # If amounts are subtracted from such a sum, a difference that fits into int64 is exact.
        if not self._beyond:
            return shown
        exact = (
            self._beyond.get((resource, row), total)
            for row, total in zip(rows.tolist(), shown.tolist(), strict=True)
        )
        return np.array([(total + 2**63) % 2**64 - 2**63 for total in exact], np.int64)


class ResourceColumns:
    """The amounts of each resource by row; a resource that no row has takes no memory.

    A pod may name any resource. Therefore the amounts of a resource are in a dict until many rows
    have the resource; then they move to an int64 column.
    """

    __slots__ = ("_columns", "_dense", "_sparse", "_sums")

    _DENSE_FROM: Final = 64
    """A resource gets a column when more than 1/64 of the rows have the resource."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._sparse: dict[str, dict[int, int]] = {}
        self._dense: dict[str, tuple[Column, int]] = {}
        """Maps a resource to its column and to the number of rows that have the resource."""
        self._sums = Sums()

    def __iter__(self) -> Iterator[str]:
        return iter((*self._dense, *self._sparse))

    def at(self, resource: str, row: int) -> int:
        """Return the row's amount of the resource, 0 if it has none."""
        dense = self._dense.get(resource)
        if dense is not None:
            return int(dense[0].data.item(row))
        sparse = self._sparse.get(resource)
        return sparse.get(row, 0) if sparse is not None else 0

    def put(self, resource: str, row: int, amount: int) -> None:
        """Set the row's amount of the resource; 0 removes it."""
        dense = self._dense.get(resource)
        if dense is None:
            self._put_sparse(resource, row, amount)
            return
        column, rows = dense
        had = bool(column.data.item(row))
        column.data[row] = amount
        if had == bool(amount):
            return
        rows += 1 if amount else -1
        self._dense[resource] = (column, rows)
        if 2 * self._DENSE_FROM * rows < self._columns.capacity:
            self._columns.remove(column)
            del self._dense[resource]
            if rows:
                at = np.flatnonzero(column.data)
                self._sparse[resource] = dict(
                    zip(at.tolist(), column.data[at].tolist(), strict=True)
                )

    def add(self, resource: str, row: int, amount: int) -> None:
        """Add `amount`, which may be negative, to the row's amount; it stays within int64."""
        self.put(resource, row, self._sums.added(resource, row, self.at(resource, row), amount))

    def amounts(self, resource: str, rows: int) -> IntArray | None:
        """Return int64[rows], read-only: the amounts of the first rows; None if all are 0."""
        dense = self._dense.get(resource)
        if dense is not None:
            return dense[0].first(rows)
        sparse = self._sparse.get(resource)
        if sparse is None:
            return None
        return read_only(_spread(sparse, rows))

    def of_rows(self, resource: str, rows: IntArray) -> IntArray:
        """Return int64[len(rows)]: the amount of each of these rows; a copy."""
        dense = self._dense.get(resource)
        if dense is not None:
            found: IntArray = dense[0].data[rows]
            return found
        sparse = self._sparse.get(resource)
        if sparse is None:
            return np.zeros(len(rows), np.int64)
        if len(rows) <= len(sparse):
            return np.array([sparse.get(row, 0) for row in rows.tolist()], np.int64)
        of_row: IntArray = _spread(sparse, self._columns.capacity)[rows]
        return of_row

    def wrapped(self, resource: str, rows: IntArray) -> IntArray:
        """Return `of_rows` with exact sums modulo 2**64 (see `Sums.wrapped`)."""
        return self._sums.wrapped(resource, rows, self.of_rows(resource, rows))

    def _put_sparse(self, resource: str, row: int, amount: int) -> None:
        sparse = self._sparse.get(resource)
        if not amount:
            if sparse is not None:
                sparse.pop(row, None)
                if not sparse:
                    del self._sparse[resource]
            return
        if sparse is None:
            sparse = self._sparse[resource] = {}
        sparse[row] = amount
        if self._DENSE_FROM * len(sparse) > self._columns.capacity:
            del self._sparse[resource]
            column = self._columns.add(np.int64)
            column.data[list(sparse)] = list(sparse.values())
            self._dense[resource] = (column, len(sparse))


def _spread(sparse: Mapping[int, int], rows: int) -> IntArray:
    amounts = np.zeros(rows, np.int64)
    amounts[list(sparse)] = list(sparse.values())
    return amounts


class Interned(Generic[_Value]):
    """A column with few distinct values in many rows: `values[codes[row]]` is the row's value.

    `codes` is int32. A code that no row has any more is given to a later value. Until then,
    `values[code]` is `first`.
    """

    __slots__ = ("_free", "_holders", "_index", "codes", "values")

    def __init__(self, columns: Columns, first: _Value) -> None:
        """Add the column of codes; every row begins with the value `first`, whose code is 0."""
        self.codes = columns.add(np.int32)
        self.values: list[_Value] = [first]
        self._index: dict[_Value, int] = {first: 0}
        self._holders = [0]
        self._free: list[int] = []

    def code_of(self, value: _Value) -> int | None:
        """Return the code of the value; None if no row has the value."""
        return self._index.get(value)

    def put(self, row: int, value: _Value) -> None:
        """Set the row's value; the code of a value that no row has any more is freed."""
        before = self.codes.data.item(row)
        code = self._index.get(value)
        if code is None:
            code = self._new_code()
            self._index[value] = code
            self.values[code] = value
        if code == before:
            return
        self.codes.data[row] = code
        self._holders[code] += 1
        self._leave(before)

    def _new_code(self) -> int:
        if self._free:
            return self._free.pop()
        self.values.append(self.values[0])
        self._holders.append(0)
        return len(self.values) - 1

    def _leave(self, code: int) -> None:
        if not code:
            return  # rows hold the first value without having been put
        self._holders[code] -= 1
        if not self._holders[code]:
            del self._index[self.values[code]]
            self.values[code] = self.values[0]
            self._free.append(code)


class ChangeLog:
    """A log of changed rows; each reader keeps its position and reads the changes after it."""

    _KEEP: Final = 16_384

    def __init__(self) -> None:
        self._rows: IntArray = np.zeros(2 * self._KEEP, np.int64)
        self._length = 0
        self._start = 0

    @property
    def position(self) -> int:
        """The number of changes logged so far."""
        return self._start + self._length

    def mark(self, row: int) -> None:
        """Append the row to the log, because its values have changed."""
        if self._length == len(self._rows):
            self._rows[: self._KEEP] = self._rows[-self._KEEP :]
            self._start += self._length - self._KEEP
            self._length = self._KEEP
        self._rows[self._length] = row
        self._length += 1

    def since(self, position: int) -> IntArray | None:
        """Return the rows that changed after `position`; None if the log has lost some of them.

        A row may be listed twice or no longer exist. The result is a read-only view, valid until
        the next change.
        """
        if position < self._start:
            return None
        return self._rows[position - self._start : self._length]
