"""Formats numbers and lists for messages."""

from collections.abc import Collection
from itertools import islice


def plural(count: int, word: str) -> str:
    """Return the count and the word, with an s unless the count is 1: `1 pod`, `2,000 pods`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def listed(names: Collection[str], most: int) -> str:
    """Return the first `most` names, and the number of all others: `a, b, c and 4 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(islice(names, most)) + more
