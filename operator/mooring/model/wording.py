"""Words of messages for people."""

from collections.abc import Collection
from itertools import islice


def plural(count: int, word: str) -> str:
    """Return the count and the word, which gets an s unless it is one: `1 pod`, `2,000 pods`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def listed(names: Collection[str], most: int) -> str:
    """Return the first names, and how many others there are: `a, b, c and 4 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(islice(names, most)) + more
