"""Counts and sets by key; empty ones are removed, because new keys appear for months."""

from collections.abc import Hashable, MutableMapping
from typing import Any, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


def add_count(counts: MutableMapping[_Key, int], key: _Key, amount: int) -> None:
    """Add the amount, which may be negative, to the key's count; remove a count of 0."""
    if total := counts.get(key, 0) + amount:
        counts[key] = total
    else:
        counts.pop(key, None)


def drop_item(items_of: MutableMapping[_Key, Any], key: _Key, item: Hashable) -> None:
    """Remove the item from the key's set or dict, if it is there; remove a key without items."""
    items = items_of.get(key)
    if items is None:
        return
    if isinstance(items, set):
        items.discard(item)
    else:
        items.pop(item, None)
    if not items:
        del items_of[key]
