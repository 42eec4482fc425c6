"""The world's time, and what is to happen at which time."""

import heapq
from collections.abc import Callable
from itertools import count
from math import inf


class Timeline:
    """The time of the world in seconds, and the calls that are due at later times.

    Equal times keep the order in which the calls were planned.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def at(self, time: float, call: Callable[[], object]) -> None:
        """Plan a call; what is due already happens now, in its turn."""
        heapq.heappush(self._planned, (max(time, self.now), next(self._numbers), call))

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Plan a call in so many seconds."""
        self.at(self.now + seconds, call)

    def next_due(self) -> float:
        """Return when the next call is due; infinity if nothing is planned."""
        return self._planned[0][0] if self._planned else inf

    def run_due(self) -> bool:
        """Make the next call if it is due; return whether it was."""
        if not self._planned or self._planned[0][0] > self.now:
            return False
        heapq.heappop(self._planned)[2]()
        return True
