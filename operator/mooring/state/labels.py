"""Topology domains of nodes: by the value of a label, or one per node."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.state.columns import Column, Columns, IntArray

__all__ = ["ABSENT", "EACH_NODE", "Domains", "LabelColumn", "LabelColumns"]

ABSENT: Final = -1
"""The code of a node that does not carry the label."""

EACH_NODE: Final = ""
"""Stands for a label key: every node is a domain of its own."""


class Domains:
    """Groups of rows: `codes` (int64 per row) index `values`, or are ABSENT.

    `key` is the node label whose values they are, or EACH_NODE.
    """

    __slots__ = ("codes", "key", "values")

    def __init__(self, key: str, codes: Column, values: list[str]) -> None:
        self.key = key
        self.codes = codes
        self.values = values


class LabelColumn(Domains):
    """The values of one label over all rows; a code is reused once no node has its value."""

    __slots__ = ("_free", "_holders", "held", "index")

    def __init__(self, key: str, codes: Column) -> None:
        super().__init__(key, codes, [])
        self.index: dict[str, int] = {}
        self.held = 0
        """How many nodes carry the label."""
        self._holders: IntArray = np.zeros(8, np.int64)
        self._free: list[int] = []

    @property
    def inhabited(self) -> npt.NDArray[np.bool_]:
        """True at codes that a node has; one item longer than `values`, whose last is False."""
        return self._holders[: len(self.values) + 1] > 0

    def put(self, row: int, labels: Mapping[str, str]) -> None:
        """Sets the row's code to that of its label value, or ABSENT."""
        before, value = int(self.codes.data[row]), labels.get(self.key)
        if value == (None if before == ABSENT else self.values[before]):
            return
        if before != ABSENT:
            self._leave(before)
        self.codes.data[row] = ABSENT if value is None else self._enter(value)

    def _enter(self, value: str) -> int:
        code = self.index.get(value)
        if code is None:
            code = self.index[value] = self._new_code()
            self.values[code] = value
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

    def _new_code(self) -> int:
        if self._free:
            return self._free.pop()
        self.values.append("")
        if len(self.values) == len(self._holders):
            self._holders = np.concatenate((self._holders, np.zeros_like(self._holders)))
        return len(self.values) - 1


class LabelColumns:
    """The label columns of a node table."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._by_key: dict[str, LabelColumn] = {}

    def column(self, key: str, rows: Iterable[tuple[int, Mapping[str, str]]]) -> LabelColumn:
        """The column of a key; `rows` (row, labels) fills it on the first call."""
        column = self._by_key.get(key)
        if column is None:
            column = LabelColumn(key, self._columns.add(np.int64, ABSENT))
            self._by_key[key] = column
            for row, labels in rows:
                column.put(row, labels)
        return column

    def put(self, row: int, labels: Mapping[str, str]) -> None:
        """Updates all columns with the row's labels."""
        for column in self._by_key.values():
            column.put(row, labels)
