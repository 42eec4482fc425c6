"""A table of counts by node row that needs little memory if only one row has a count.

With plain dicts, each pod of a StatefulSet and each claim would need 230 bytes for one item.
"""

from collections.abc import Iterable

_NOWHERE = -1


class RowCounts:
    """A count for each row of the node table, for example of pods; rows with 0 are left out."""

    __slots__ = ("_number", "_row", "_rows")

    def __init__(self) -> None:
        self._row, self._number = _NOWHERE, 0
        """The only row and its count, until there is a second row."""
        self._rows: dict[int, int] | None = None
        """The counts by row; None until there is a second row."""

    def __len__(self) -> int:
        return len(self._rows) if self._rows is not None else int(self._number > 0)

    def items(self) -> Iterable[tuple[int, int]]:
        """Yield pairs of row and count; the result is valid until the next change."""
        if self._rows is not None:
            return self._rows.items()
        return ((self._row, self._number),) if self._number else ()

    def extend(self, rows: list[int], numbers: list[int]) -> None:
        """Append all rows to `rows` and their counts to `numbers`; faster than `items`."""
        if self._rows is not None:
            rows += self._rows
            numbers += self._rows.values()
        elif self._number:
            rows.append(self._row)
            numbers.append(self._number)

    def add(self, row: int) -> None:
        """Add one to the row's count."""
        if self._rows is not None:
            self._rows[row] = self._rows.get(row, 0) + 1
        elif row == self._row or not self._number:
            self._row = row
            self._number += 1
        else:
            self._rows = {self._row: self._number, row: 1}

    def remove(self, row: int) -> None:
        """Subtract one from the row's count, which must be at least one."""
        if self._rows is None:
            self._number -= 1
            return
        self._rows[row] -= 1
        if not self._rows[row]:
            del self._rows[row]
        if not self._rows:
            self._rows, self._number = None, 0
