"""The results of an evaluation for many nodes: the nodes that fit, or their scores."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mooring.framework.scores import MAX_SCORE
from mooring.state.columns import IntArray, read_only
from mooring.state.view import BoolArray

_MOST_RANKS: Final = 256
"""The most distinct values for which `proportions` is computed per value and not per node."""
_MOST_TABLES: Final = 8


@dataclass(frozen=True, eq=False)
class Results:
    """The value of an expression for each node, and the number of its error (0: no error).

    `texts[i - 1]` is the text of error number i. Nobody may write to the arrays, because other
    evaluations may share them.
    """

    values: npt.NDArray[Any]
    errors: npt.NDArray[np.int16]
    texts: tuple[str, ...]
    is_kept: bool = False
    """Whether a cache keeps this object. If so, it has the results for all nodes."""

    def take(self, rows: IntArray) -> "Results":
        """Return the results of the nodes at these rows."""
        return Results(self.values[rows], self.errors[rows], self.texts)

    @cached_property
    def fits(self) -> BoolArray:
        """bool[nodes]: True where the expression is true and has no error."""
        values: BoolArray = self.values
        return read_only(values & (self.errors == 0)) if self.texts else values

    @cached_property
    def scores(self) -> IntArray:
        """int64[nodes]: the values, truncated and limited to 0-100; 0 for an error."""
        scores: IntArray = np.minimum(np.maximum(self.values, 0), MAX_SCORE).astype(np.int64)
        return read_only(scores * (self.errors == 0) if self.texts else scores)

    def proportions(self, *, reverse: bool) -> IntArray:
        """Return int64[nodes]: 100 * value / highest value, truncated; 0 for an error.

        With `reverse`, the result is subtracted from 100. A negative value counts as 0.
        """
        numbers, fine = np.maximum(self.values, 0), self.errors == 0
        scores = _in_proportion(numbers * fine if self.texts else numbers)
        if reverse:
            scores = MAX_SCORE - scores
        return scores * fine if self.texts else scores

    @cached_property
    def ranks(self) -> "Ranks | None":
        """The ranks of the values; None if more than 256 values are distinct."""
        numbers, ranks = np.unique(np.maximum(self.values, 0), return_inverse=True)
        if len(numbers) > _MOST_RANKS:
            return None
        return Ranks(np.where(self.errors == 0, ranks + 1, 0), numbers)


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The values of many nodes, as ranks among the few distinct values.

    `ranks` (int64[nodes]) is 0 for an error, 1 for the lowest of `numbers`, 2 for the next one.
    """

    ranks: IntArray
    numbers: npt.NDArray[Any]
    _tables: dict[tuple[int, bool], IntArray] = field(default_factory=dict)

    def proportions(self, rows: IntArray | None, *, reverse: bool) -> IntArray:
        """Return `Results.proportions` for these rows (int64; None: all rows)."""
        ranks = self.ranks if rows is None else self.ranks[rows]
        highest = int(ranks.max(initial=0))
        table = self._tables.get((highest, reverse))
        if table is None:
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            scores = _in_proportion(self.numbers[:highest])
            table = np.append(0, MAX_SCORE - scores if reverse else scores)
            self._tables[highest, reverse] = table
        found: IntArray = table[ranks]
        return found


def _in_proportion(amounts: npt.NDArray[Any]) -> IntArray:
    highest = amounts.max(initial=0)
    if highest == 0:
        return np.zeros(len(amounts), np.int64)
    if amounts.dtype == np.int64 and highest < 2**56:
        return np.asarray(amounts * MAX_SCORE // highest, np.int64)
    return np.asarray(amounts / highest * MAX_SCORE).astype(np.int64)
