"""Words of messages for people."""

__all__ = ["plural"]


def plural(count: int, word: str) -> str:
    """Return the count and the word, which gets an s unless it is one: `1 pod`, `2,000 pods`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
