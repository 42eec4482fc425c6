"""Growing and partly random pauses between tries, so that an overloaded server can recover."""

from random import Random


class Backoff:
    """Pauses that double from `first` to `longest` seconds, each cut at random by up to half."""

    def __init__(self, random: Random, *, first: float = 0.8, longest: float = 30.0) -> None:
        self._random = random
        self._first = first
        self._longest = longest
        self._next = first

    def pause(self) -> float:
        """Return the seconds to wait before the next try; the next pause is twice as long."""
        pause = self._next
        self._next = min(self._longest, 2 * self._next)
        return pause * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Make the next pause short again, because a try has succeeded."""
        self._next = self._first
