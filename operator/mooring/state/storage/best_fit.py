"""Things that have a size and can be had on some nodes: free volumes, or room for new ones."""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

import numpy as np

from mooring.model.selectors import NodeSelector
from mooring.state.columns import IntArray
from mooring.state.nodes import NodeTable
from mooring.state.storage.node_affinities import NodeAffinities

__all__ = ["BEYOND", "BestFitIndex"]

BEYOND: Final = 2**62
"""In place of a position, where there is none: larger than every other."""

_MANY: Final = 64

_Item = TypeVar("_Item")


class BestFitIndex(Generic[_Item]):
    """Items by size, and by name where they are equal; finds the smallest that do, on many nodes.

    Items with equal `traits` are alike in everything but size, place and name, so what they are
    good for is asked once. Positions in `items` are valid until the stock changes.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.items: list[_Item] = []
        self._keys: list[tuple[int, str]] = []
        self._kinds: list[tuple[int, int]] = []
        """The numbers of each item's place and traits."""
        self._places = NodeAffinities(nodes)
        self._traits: dict[Hashable, int] = {}
        self._columns: IntArray | None = None
        """Size, place and traits of each item, int64[3, items]; None if to be made anew."""
        self._unread = 0
        """Changes since the columns were read."""

    def __len__(self) -> int:
        return len(self.items)

    def add(
        self, size: int, name: str, affinity: NodeSelector | None, traits: Hashable, item: _Item
    ) -> None:
        """There is an item; its name is no other's."""
        at = bisect_left(self._keys, (size, name))
        kind = self._places.number(affinity), self._traits.setdefault(traits, len(self._traits))
        self._keys.insert(at, (size, name))
        self._kinds.insert(at, kind)
        self.items.insert(at, item)
        columns = self._kept_columns()
        if columns is not None:
            columns = np.insert(columns, at, (size, *kind), axis=1)
        self._columns = columns

    def remove(self, size: int, name: str) -> None:
        """The item of this size and name is there no more."""
        at = self._keys.index((size, name), bisect_left(self._keys, (size, name)))
        del self._keys[at], self._kinds[at], self.items[at]
        columns = self._kept_columns()
        self._columns = None if columns is None else np.delete(columns, at, axis=1)
        if len(self._places) > 2 * len(self.items) + _MANY:
            self._renumber_places()

    def large_enough(self, size: int, good: Callable[[_Item], bool]) -> IntArray:
        """Positions, ascending, of the items of this size or more that are good.

        `good` is asked about one item with each of the traits.
        """
        sizes, _, traits = self._read_columns()
        positions = np.arange(np.searchsorted(sizes, size), len(sizes))
        kinds, first = np.unique(traits[positions], return_index=True)
        bad = [
            kind
            for kind, at in zip(kinds, positions[first], strict=True)
            if not good(self.items[at])
        ]
        return positions[~np.isin(traits[positions], bad)] if bad else positions

    def by_row(self, positions: IntArray, rows: IntArray, depth: int) -> Iterator[IntArray]:
        """Positions per row (int64[rows]) or BEYOND; among them are the row's `depth` smallest."""
        places = self._read_columns()[1]
        columns = [column[rows] for column in self._places.by_row()]
        for _ in range(depth):
            # The last item is for NOWHERE, -1. Of several positions at a place the last one written
            # stays, which is the smallest.
            smallest = np.full(len(self._places) + 1, BEYOND)
            smallest[places[positions][::-1]] = positions[::-1]
            for column in columns:
                yield smallest[column]
            positions = positions[smallest[places[positions]] != positions]

    def _kept_columns(self) -> IntArray | None:
        """The columns, if keeping them up to date is less work than making them anew."""
        self._unread += 1
        return self._columns if self._unread <= _MANY else None

    def _read_columns(self) -> IntArray:
        if self._columns is None:
            sizes = [size for size, _ in self._keys]
            places, traits = zip(*self._kinds, strict=True) if self._kinds else ((), ())
            self._columns = np.array([sizes, places, traits], np.int64)
        self._unread = 0
        return self._columns

    def _renumber_places(self) -> None:
        """Forget the places where there is nothing any more."""
        before, self._places = self._places, NodeAffinities(self._nodes)
        self._kinds = [
            (self._places.number(before.affinities[place]), traits) for place, traits in self._kinds
        ]
        self._columns = None
