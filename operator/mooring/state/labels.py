"""Topology domains of nodes: one per value of a label, or one per node.

A pod may name any label key. Keys that no node has take no memory per node, because they share one
array in which every row is ABSENT.
"""

from collections import Counter
from collections.abc import Iterable, KeysView, Mapping
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from mooring.model.indexes import add_count
from mooring.model.selectors import parse_int64
from mooring.state.columns import Column, Columns, IntArray

ABSENT: Final = -1
"""The code of a node that does not carry the label."""

EACH_NODE: Final = ""
"""Stands for a label key with which every node is a topology domain of its own."""


class Domains:
    """The topology domains by the node label `key`; a row's domain is `values[codes[row]]`."""

    __slots__ = ("codes", "key", "values")

    def __init__(self, key: str, codes: Column, values: list[str]) -> None:
        self.key = key
        self.codes = codes
        self.values = values


class LabelColumn(Domains):
    """The values of one label for all rows of the node table; codes of unused values are reused.

    The columns of labels that no node has share one array of codes.
    """

    __slots__ = (
        "__weakref__",
        "_absent",
        "_columns",
        "_free",
        "_holders",
        "_numbers",
        "held",
        "index",
    )

    def __init__(self, key: str, columns: Columns, absent: Column) -> None:
        """Begin with no row; `absent` is a read-only column in which every row is ABSENT."""
        super().__init__(key, absent, [])
        self._columns = columns
        self._absent = absent
        self.index: dict[str, int] = {}
        self.held = 0
        """The number of nodes that have the label."""
        self._holders: IntArray = np.zeros(8, np.int64)
        self._free: list[int] = []
        self._numbers: tuple[IntArray, IntArray] | None = None

    @property
    def inhabited(self) -> npt.NDArray[np.bool_]:
        """Return bool[len(values) + 1]: True if a node has the value; the last item is False."""
        return self._holders[: len(self.values) + 1] > 0

    @property
    def numbers(self) -> tuple[IntArray, IntArray]:
        """Two int64 arrays: the codes of the values that are integers, and these integers."""
        if self._numbers is None:
            known = [
                (code, number)
                for value, code in self.index.items()
                if (number := parse_int64(value)) is not None
            ]
            codes, numbers = zip(*known, strict=True) if known else ((), ())
            self._numbers = np.array(codes, np.int64), np.array(numbers, np.int64)
        return self._numbers

    def put(self, row: int, labels: Mapping[str, str]) -> None:
        """Set the row's code to the code of its label value, or to ABSENT."""
        before, value = int(self.codes.data[row]), labels.get(self.key)
        if value == (None if before == ABSENT else self.values[before]):
            return
        if not self.held:
            self.codes = self._columns.add(np.int64, ABSENT)
        self.codes.data[row] = ABSENT if value is None else self._enter(value)
        if before != ABSENT:
            self._leave(before)
        if not self.held:
            self._columns.remove(self.codes)
            self.codes = self._absent

    def _enter(self, value: str) -> int:
        code = self.index.get(value)
        if code is None:
            code = self.index[value] = self._new_code()
            self.values[code] = value
            self._numbers = None
        self._holders[code] += 1
        self.held += 1
        return code

    def _leave(self, code: int) -> None:
        self._holders[code] -= 1
        self.held -= 1
        if not self._holders[code]:
            del self.index[self.values[code]]
            self.values[code] = ""
            self._free.append(code)
            self._numbers = None

    def _new_code(self) -> int:
        if self._free:
            return self._free.pop()
        self.values.append("")
        if len(self.values) == len(self._holders):
            self._holders = np.concatenate((self._holders, np.zeros_like(self._holders)))
        return len(self.values) - 1


class LabelColumns:
    """The label columns of a node table.

    A column is made when its key is first read, and freed when no node has the key any more. If a
    count still uses the freed column, the column is filled when a node gets the key again.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._absent = columns.add(np.int64, ABSENT)
        self._carriers: Counter[str] = Counter()
        self._by_key: dict[str, LabelColumn] = {}
        self._unheld: WeakValueDictionary[str, LabelColumn] = WeakValueDictionary()

    def __len__(self) -> int:
        """Return the number of columns that have a separate array."""
        return len(self._by_key)

    @property
    def keys(self) -> KeysView[str]:
        """The label keys that at least one row has."""
        return self._carriers.keys()

    def column(self, key: str, rows: Iterable[tuple[int, Mapping[str, str]]]) -> LabelColumn:
        """Return the column of a label key; make it if there is none.

        `rows` yields each row with its labels; it is read only for a new column.
        """
        column = self._by_key.get(key) or self._unheld.get(key)
        if column is None:
            column = LabelColumn(key, self._columns, self._absent)
            if key in self._carriers:
                for row, labels in rows:
                    column.put(row, labels)
            self._keep(column)
        return column

    def put(self, row: int, before: Mapping[str, str], labels: Mapping[str, str]) -> None:
        """Update all columns with the row's labels; `before` are its former labels."""
        for key in before.keys() - labels.keys():
            add_count(self._carriers, key, -1)
        self._carriers.update(labels.keys() - before.keys())
        for key in before.keys() | labels.keys():
            column = self._by_key.get(key) or self._unheld.get(key)
            if column is not None:
                column.put(row, labels)
                self._keep(column)

    def _keep(self, column: LabelColumn) -> None:
        if column.held:
            self._by_key[column.key] = column
            self._unheld.pop(column.key, None)
        else:
            self._by_key.pop(column.key, None)
            self._unheld[column.key] = column
