"""Growing numpy columns and the log of rows that changed."""

from collections.abc import Hashable, Iterator
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["ChangeLog", "Column", "Columns", "IntArray", "Interned", "ResourceColumns", "read_only"]

IntArray = npt.NDArray[np.int64]

_FIRST_CAPACITY: Final = 64
_Value = TypeVar("_Value", bound=Hashable)


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view of the same data that raises an error on writes."""
    view = array.view()
    view.flags.writeable = False
    return view


class Column:
    """One contiguous 1-D array that can grow; unused rows have the value `fill`."""

    __slots__ = ("data", "fill")

    def __init__(self, dtype: npt.DTypeLike, fill: int, capacity: int) -> None:
        self.fill = fill
        self.data: npt.NDArray[Any] = np.full(capacity, fill, dtype)

    def grow(self, capacity: int) -> None:
        """Makes space for `capacity` rows; existing rows keep their values."""
        grown = np.full(capacity, self.fill, self.data.dtype)
        grown[: len(self.data)] = self.data
        self.data = grown


class Columns:
    """Columns of one table: all have the same capacity and grow together."""

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self._columns: list[Column] = []

    def add(self, dtype: npt.DTypeLike, fill: int = 0) -> Column:
        """A further column, filled with `fill`."""
        column = Column(dtype, fill, self.capacity)
        self._columns.append(column)
        return column

    def reserve(self, rows: int) -> None:
        """Makes space for at least `rows` rows in every column."""
        if rows <= self.capacity:
            return
        while self.capacity < rows:
            self.capacity *= 2
        for column in self._columns:
            column.grow(self.capacity)


class ResourceColumns:
    """One int64 column per resource name, made when the resource is first seen."""

    __slots__ = ("_by_name", "_columns")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._by_name: dict[str, Column] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def column(self, resource: str) -> Column:
        """The column of a resource, all zero if it is new."""
        column = self._by_name.get(resource)
        if column is None:
            column = self._by_name[resource] = self._columns.add(np.int64)
        return column

    def known(self, resource: str) -> Column | None:
        """The column of a resource, or None where no object ever named it."""
        return self._by_name.get(resource)


class Interned(Generic[_Value]):
    """A column of which many rows hold the same few values: `codes` (int32) index `values`."""

    __slots__ = ("_index", "codes", "values")

    def __init__(self, columns: Columns, first: _Value) -> None:
        """`first` is the value of new rows; its code is 0."""
        self.codes = columns.add(np.int32)
        self.values: list[_Value] = [first]
        self._index: dict[_Value, int] = {first: 0}

    def put(self, row: int, value: _Value) -> None:
        """The row holds the value."""
        code = self._index.get(value)
        if code is None:
            code = self._index[value] = len(self.values)
            self.values.append(value)
        self.codes.data[row] = code


class ChangeLog:
    """Which rows changed, in order; readers keep a position and read what came after it."""

    __slots__ = ("_length", "_rows", "_start")

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
        """The row changed."""
        if self._length == len(self._rows):
            self._rows[: self._KEEP] = self._rows[-self._KEEP :]
            self._start += self._length - self._KEEP
            self._length = self._KEEP
        self._rows[self._length] = row
        self._length += 1

    def since(self, position: int) -> IntArray | None:
        """The rows that changed since `position`; None if the log does not reach back that far.

        A row that changed twice is listed twice. A view, only to be read, and only until the next
        change.
        """
        if position < self._start:
            return None
        return self._rows[position - self._start : self._length]
