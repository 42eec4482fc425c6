"""Reads the parts of a pod with pauses, because a pod of a megabyte has many thousands of parts."""

from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

from mooring.pausing import pause

_Item = TypeVar("_Item")

ITEMS_PER_STEP: Final = 500
"""The number of a pod's parts between two pauses: working on them takes 1 to 3 ms."""


def collected(items: Iterable[_Item]) -> tuple[_Item, ...]:
    """Return all items; pause after each ITEMS_PER_STEP, because producing an item takes work."""
    left, found = iter(items), list[_Item]()
    while some := tuple(islice(left, ITEMS_PER_STEP)):
        if len(some) < ITEMS_PER_STEP:
            return (*found, *some) if found else some
        found += some
        pause()
    return tuple(found)
