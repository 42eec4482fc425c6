"""Finds the best volumes, or capacities for new volumes, by size and node affinity."""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

import numpy as np

from mooring.model.selectors import NodeSelector
from mooring.state.columns import IntArray
from mooring.state.nodes import NodeTable
from mooring.volumes.state.node_affinities import NO_AFFINITY, NodeAffinities

NO_POSITION: Final = 2**62
"""Stands for the position of an item if no item fits; it is larger than all positions."""

_MANY: Final = 64

_Item = TypeVar("_Item")


class BestFitIndex(Generic[_Item]):
    """Items sorted by size and name; finds the smallest suitable items for each node.

    Items with equal `traits` are all suitable or all unsuitable; they differ only in size, node
    affinity and name. A position in `items` is valid until an item is added or removed.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.items: list[_Item] = []
        self._keys: list[tuple[int, str]] = []
        """The size and the name of each item; sizes may exceed int64."""
        self._numbers: list[tuple[int, int, int]] = []
        """For each item: the ids of its node affinity and traits, and its amount."""
        self._affinities = NodeAffinities(nodes)
        self._traits: dict[Hashable, int] = {}
        self._columns: IntArray | None = None
        """int64[3, items]: the items' affinities, traits and amounts; None if outdated."""
        self._changes = 0
        """The number of items added or removed since `_columns` was last read."""

    def __len__(self) -> int:
        return len(self.items)

    @property
    def amounts(self) -> IntArray:
        """The amount of each item (int64), by position."""
        amounts: IntArray = self._read_columns()[2]
        return amounts

    def add(
        self,
        size: int,
        name: str,
        affinity: NodeSelector | None,
        traits: Hashable,
        item: _Item,
        amount: int,
    ) -> None:
        """Add an item with a new name; it suits only nodes that match `affinity` (None: all nodes).

        `amount` is the item's value in `amounts`. For `traits` see the class.
        """
        at = bisect_left(self._keys, (size, name))
        numbers = (
            self._affinities.number(affinity),
            self._traits.setdefault(traits, len(self._traits)),
            amount,
        )
        self._keys.insert(at, (size, name))
        self._numbers.insert(at, numbers)
        self.items.insert(at, item)
        columns = self._columns_to_update()
        if columns is not None:
            columns = np.insert(columns, at, numbers, axis=1)
        self._columns = columns

    def remove(self, size: int, name: str) -> None:
        """Remove the item of this size and name; ValueError if it does not exist."""
        at = self._keys.index((size, name), bisect_left(self._keys, (size, name)))
        del self._keys[at], self._numbers[at], self.items[at]
        columns = self._columns_to_update()
        self._columns = None if columns is None else np.delete(columns, at, axis=1)
        if max(len(self._affinities), len(self._traits)) > 2 * len(self.items) + _MANY:
            self._renumber()

    def at_least(self, size: int) -> int:
        """Return the position of the first item that is at least this large; else `len(self)`."""
        return bisect_left(self._keys, (size, ""))

    def largest_of_traits(self) -> IntArray:
        """Return, for each id of traits (int64), the largest item's position or NO_POSITION."""
        traits = self._read_columns()[1]
        largest = np.full(len(self._traits), NO_POSITION)
        largest[traits] = np.arange(len(traits))
        return largest

    def suitable(
        self, positions: IntArray, largest: IntArray, suits: Callable[[_Item], bool]
    ) -> IntArray:
        """Return the `positions` of items that `suits` accepts.

        For all items with equal traits, `suits` is called once, with the largest item. `largest`
        has the positions of these items (see `largest_of_traits`).
        """
        found = [at != NO_POSITION and suits(self.items[at]) for at in largest.tolist()]
        if all(found):
            return positions
        traits = self._read_columns()[1]
        chosen: IntArray = positions[np.array(found, np.bool_)[traits[positions]]]
        return chosen

    def smallest_on(self, positions: IntArray, rows: IntArray, count: int) -> Iterator[IntArray]:
        """Yield arrays (int64[rows]) of positions; NO_POSITION means none.

        All arrays together contain, for each row, the `count` smallest of `positions` whose items
        match the row's node. They may contain further positions.
        """
        affinities = self._read_columns()[0]
        columns = [column[rows] for column in self._affinities.by_row()]
        for left in range(count, 0, -1):
            if not len(positions):
                return
            smallest = self._smallest_of_each(positions)
            for column in columns:
                yield smallest[column]
            if left > 1:
                positions = positions[smallest[affinities[positions]] != positions]

    def _smallest_of_each(self, positions: IntArray) -> IntArray:
        """Return int64[affinities + 1]: for each affinity, the smallest of the positions."""
        affinities, number = self._read_columns()[0], len(self._affinities)
        # The positions are ascending. The last element is for NO_AFFINITY (-1).
        smallest = np.full(number + 1, NO_POSITION)
        for first in (positions[: 2 * number + _MANY], positions):
            # Of several positions with one affinity the one written last stays.
            smallest[affinities[first][::-1]] = first[::-1]
            if len(first) == len(positions) or NO_POSITION not in smallest[:-1]:
                break
        return smallest

    def largest_on(self, rows: IntArray) -> IntArray:
        """Return int64[rows]: the position of the largest item that the node matches; else -1."""
        affinities = self._read_columns()[0]
        largest = np.full(len(self._affinities) + 1, -1)
        # Of several positions with one affinity the one written last stays.
        largest[affinities] = np.arange(len(affinities))
        found = np.full(len(rows), -1)
        for column in self._affinities.by_row():
            np.maximum(found, largest[column[rows]], out=found)
        return found

    def rows_with(self, rows: IntArray) -> IntArray:
        """Return int64[items]: how many of the nodes match each item's node affinity."""
        numbers = np.zeros(len(self._affinities), np.int64)
        for column in self._affinities.by_row():
            here = column[rows]
            numbers += np.bincount(here[here != NO_AFFINITY], minlength=len(numbers))
        found: IntArray = numbers[self._read_columns()[0]]
        return found

    def _columns_to_update(self) -> IntArray | None:
        self._changes += 1
        # After many changes it is cheaper to build the columns again.
        return self._columns if self._changes <= _MANY else None

    def _read_columns(self) -> IntArray:
        if self._columns is None:
            numbers = [*zip(*self._numbers, strict=True)] or [()] * 3
            self._columns = np.array(numbers, np.int64)
        self._changes = 0
        return self._columns

    def _renumber(self) -> None:
        affinities, self._affinities = self._affinities, NodeAffinities(self._nodes)
        traits, self._traits = [*self._traits], {}
        self._numbers = [
            (
                self._affinities.number(affinities.affinities[affinity]),
                self._traits.setdefault(traits[trait], len(self._traits)),
                amount,
            )
            for affinity, trait, amount in self._numbers
        ]
        self._columns = None
