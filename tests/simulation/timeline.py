"""The time of the world, and the planned calls."""

import heapq
from collections.abc import Callable
from itertools import count
from math import inf


class Timeline:
    """The time of the world in seconds, and the calls planned for later times.

    Calls with equal times keep the order in which they were planned.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def at(self, time: float, call: Callable[[], object]) -> None:
        """Plan a call; a time in the past means now, after calls that are already due."""
        heapq.heappush(self._planned, (max(time, self.now), next(self._numbers), call))

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Plan a call `seconds` from now."""
        self.at(self.now + seconds, call)

    def next_due(self) -> float:
        """Return the time of the next call; infinity if none is planned."""
        return self._planned[0][0] if self._planned else inf

    def run_due(self) -> bool:
        """Make the next call if it is due; return whether it was due."""
        if not self._planned or self._planned[0][0] > self.now:
            return False
        heapq.heappop(self._planned)[2]()
        return True
