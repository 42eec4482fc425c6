"""Reads the parts of a pod in steps; other tasks may run between the steps."""

from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

from mooring.pausing import pause

_Item = TypeVar("_Item")

ITEMS_PER_STEP: Final = 500
"""The number of a pod's parts that are processed in one step, which takes 1 to 3 ms."""


def collected(items: Iterable[_Item]) -> tuple[_Item, ...]:
    """Return all items; other tasks may run after each ITEMS_PER_STEP items."""
    left, found = iter(items), list[_Item]()
    while some := tuple(islice(left, ITEMS_PER_STEP)):
        if len(some) < ITEMS_PER_STEP:
            return (*found, *some) if found else some
        found += some
        pause()
    return tuple(found)
